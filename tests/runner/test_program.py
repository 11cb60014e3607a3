"""Scripts that need no torch: `__main__`, arguments, streams, exit codes and tracebacks are Python's own."""

from __future__ import annotations

import pytest

from attnscope.runner.program import split
from tests.runner.script_process import Runner

WITH_VALUE = frozenset({"--output", "-o"})

ENVIRONMENT = """
import __main__, atexit, inspect, pickle, sys, traceback, warnings
class Here:
    pass
print(sorted(globals()), __file__, sys.argv, sys.path[0], __name__, __spec__, __package__)
print(type(__loader__).__name__, __cached__, __annotations__, __builtins__)
print(__main__ is sys.modules["__main__"], type(pickle.loads(pickle.dumps(Here()))) is __main__.Here)
print(inspect.getsource(Here), Here.__module__)
print(sys.stdout.errors, sys.stderr.errors, sys.getrecursionlimit(), "torch" in sys.modules)
print("numpy" in sys.modules, sys.stdin.read())
atexit.register(print, "bye")
warnings.warn("here")
warnings.warn("above", stacklevel=2)
def generate():
    yield 1
    raise KeyError("x")
try:
    list(generate())
except KeyError:
    traceback.print_exc()
try:
    print("\\ud800")
except UnicodeEncodeError as error:
    print(error)
try:
    1 / 0
except ZeroDivisionError as error:
    raise RuntimeError("failed [bold]\\x1b[31m \\u202e") from error
"""

SCRIPTS = {
    "environment": ENVIRONMENT,
    "exit with text": 'import sys; print("out"); sys.exit("bad \\u2603 [red]")',
    "exit code": 'import atexit, sys; atexit.register(print, "bye"); sys.exit(3)',
    "exit without": "import sys; sys.exit()",
    "os._exit": 'import os; print("x", flush=True); os._exit(7)',
    "syntax error": "x = 1\ndef f(:\n    pass\n",
    "tab error": "if 1:\n\tx = 1\n        y = 2\n",
    "thread": (
        "import threading\ndef f():\n    print('late')\n    raise ValueError('in a thread')\n"
        "t = threading.Thread(target=f, name='worker'); t.start(); t.join(); print('done')"
    ),
    "hook": "import sys\nsys.excepthook = lambda *a: print(a[0], a[2].tb_lineno)\nraise ValueError(3)",
    "broken hook": "import sys\ndef hook(*a): raise KeyError(1)\nsys.excepthook = hook\nraise ValueError(3)",
    "hostile": "print('\\x1b]0;title\\x07 \\x00 [link=x] \\u202e')\nraise SystemError('\\x1b[2J')",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_does_what_it_does_alone(runner: Runner, name: str) -> None:
    runner.write("script.py", SCRIPTS[name])
    args = ("./script.py", "a", "--help", "--", "-m", "--nan")
    assert runner.scoped(*args, stdin="input") == runner.plain(*args, stdin="input")


def test_a_module_of_a_package(runner: Runner) -> None:
    runner.write("package/__init__.py", "print('package', __name__)")
    runner.write("package/other.py", "X = 3")
    runner.write(
        "package/sub.py",
        "from . import other\nimport sys\n"
        "print(__name__, __package__, __spec__.name, sys.argv, other.X, sys.path[0])\n1 / 0\n",
    )
    assert runner.scoped("-m", "package.sub", "-h") == runner.plain("-m", "package.sub", "-h")


def test_a_folder_with_a_main(runner: Runner) -> None:
    runner.write("app/__main__.py", "import sys, near\nprint(sys.argv, __name__, __package__, near.X)\n")
    runner.write("app/near.py", "X = 1")
    assert runner.scoped("app", "-x") == runner.plain("app", "-x")


def test_standard_input_as_script(runner: Runner) -> None:
    script = "import sys\nprint(sorted(globals()), __file__, sys.argv, repr(sys.path[0]))\n1 / 0\n"
    assert runner.scoped("-", "a", stdin=script) == runner.plain("-", "a", stdin=script)


def test_worker_processes_find_what_main_defines(runner: Runner) -> None:
    runner.write(
        "script.py",
        "import multiprocessing as mp\n"
        "class A:\n    def __init__(self, x): self.x = x\n"
        "def double(a): return A(a.x * 2)\n"
        "if __name__ == '__main__':\n"
        "    for way in ('fork', 'spawn'):\n"
        "        with mp.get_context(way).Pool(1) as pool:\n"
        "            print([a.x for a in pool.map(double, [A(1), A(2)])])\n",
    )
    ran = runner.scoped("script.py")
    assert ran == runner.plain("script.py")
    assert ran.out == "[2, 4]\n[2, 4]\n"


def test_an_interrupt_is_quiet(runner: Runner) -> None:
    runner.write("script.py", "print('begun')\nraise KeyboardInterrupt")
    ran = runner.scoped("script.py")
    assert (ran.code, ran.out, ran.err) == (130, "begun\n", "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nowhere.py",), "there is no script 'nowhere.py'; give the path of a Python file, or -m MODULE"),
        ((), "SCRIPT is missing; try attnscope run --help"),
        (("--quick", "nowhere.py"), "unknown option --quick; try attnscope run --help"),
        (
            ("-m", "no_such_module"),
            "No module named no_such_module; give a module that `python -m` could run",
        ),
    ],
)
def test_usage_errors_are_one_line(runner: Runner, args: tuple[str, ...], message: str) -> None:
    ran = runner.scoped(*args)
    assert (ran.code, ran.out, ran.err) == (2, "", f"attnscope run: error: {message}\n")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("a.py --nan", ([], ["a.py", "--nan"], False)),
        ("--nan a.py -m x", (["--nan"], ["a.py", "-m", "x"], False)),
        ("--output a.json b.py", (["--output", "a.json"], ["b.py"], False)),
        ("--output=a.json b.py", (["--output=a.json"], ["b.py"], False)),
        ("--nan -m pkg.mod --help", (["--nan"], ["pkg.mod", "--help"], True)),
        ("-mpkg.mod x", ([], ["pkg.mod", "x"], True)),
        ("-- -odd.py --", ([], ["-odd.py", "--"], False)),
        ("- x", ([], ["-", "x"], False)),
        ("--help", (["--help"], [], False)),
        ("-m", (["-m"], [], False)),
    ],
)
def test_the_script_ends_our_options(words: str, parts: tuple[list[str], list[str], bool]) -> None:
    assert split(words.split(), WITH_VALUE) == parts
