"""The command line: parse, call, render, exit.

`app.py` has the table of commands, one file per command stands beside it, `boundary.py` is the one place
where an exception becomes a line on standard error and an exit code.
"""
