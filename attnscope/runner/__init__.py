"""Running a script unchanged while its modules are watched, and explaining what crashes in them.

`program.py` is the script as Python itself would run it; `calls.py` puts a recorder around each outermost
call of a module; `memory.py` keeps what the last of them showed; `explain.py` turns an exception into a
report; `console.py` says it. Nothing here imports torch before the script does: what a script sets before
its own import (numbers of threads, devices) must have its effect.
"""
