"""Streams as a shell gives them: pipes, closed pipes, ASCII, invalid UTF-8, signals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_process import process

HOSTILE = [
    b"\x1b[31mred\x1b[0m \x1b]0;title\x07",
    b"[bold]x[/bold] [link=http://x]",
    b"a\xff\xfe\x80 b\xc3",
    b"\xed\xa0\x80\xed\xb3\xbf",  # UTF-8 of lone surrogates
    "\u202eright to left\u2066 \u200d".encode(),
    "👩‍👩‍👧 🇩🇪 e\u0301\u0301".encode(),
    b"<|endoftext|>",
    b"tab\tline\r\nend\n",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_by_argument_and_by_pipe(text: bytes) -> None:
    by_argument = process("tokens", b"--", text)
    by_pipe = process("tokens", "-", stdin=text)
    for result in (by_argument, by_pipe):
        assert (result.returncode, result.stderr) == (0, b"")
        assert b"\x1b" not in result.stdout and b"\x07" not in result.stdout
        result.stdout.decode("utf-8")
    assert by_argument.stdout == by_pipe.stdout


def test_a_hostile_text_is_traced() -> None:
    result = process("trace", b"\x1b[31m[b]\xff\xe2\x80\xae <|endoftext|>")
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"\x1b" not in result.stdout
    assert "\u202e" not in result.stdout.decode("utf-8")


NOISY = """
import os
import torch

os.write(1, b"at import\x1b[31m")

class Noisy(torch.nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.q = torch.nn.Linear(dim, dim)
        os.system("echo in the constructor")

    def forward(self, x):
        os.write(1, b"in forward")
        os.close(1)
        return self.q(x)
"""


@pytest.mark.parametrize("command", [("trace", "--module"), ("check",)])
def test_what_a_module_writes_below_python_stays_out_of_the_result(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    result = process(*command, f"{tmp_path}/noisy.py:Noisy", "--format", "json")
    assert json.loads(result.stdout)["command"] == command[0]
    for words in (b"at import", b"in the constructor", b"in forward"):
        assert words in result.stderr


TRAINED = """
from torch import nn

class Parent(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.child = nn.Identity()
        self.child.parent = self

    def forward(self, x):
        return self.q(x)


class Untrained(nn.Module):
    def train(self, mode=True):
        raise RuntimeError("no modes")

    def forward(self, x):
        return x


class Unlisted(nn.Module):
    def modules(self):
        raise RuntimeError("no list")

    def forward(self, x):
        return x
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [("Parent", "RecursionError"), ("Untrained", "RuntimeError"), ("Unlisted", "RuntimeError")],
)
def test_what_a_module_raises_outside_forward_is_a_finding(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "odd.py").write_text(TRAINED)
    result = process("trace", "--module", f"{tmp_path}/odd.py:{name}", "--format", "json")
    assert (result.returncode, result.stderr) == (1, b"")
    (finding,) = json.loads(result.stdout)["findings"]
    assert said in finding["message"]


def test_a_nul_and_a_long_text_by_pipe() -> None:
    result = process("tokens", "-", stdin=b"a\x00b" + b" word" * 20_000)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"\x00" not in result.stdout


@pytest.mark.parametrize(
    "environment",
    [
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=["LANG=C", "ascii", "latin-1"],
)
def test_streams_that_cannot_say_everything(environment: dict[str, str]) -> None:
    for args in (("tokens", b"caf\xc3\xa9 \xf0\x9f\x91\xa9 \xff"), ("mask", "--len", "40"), ("layers",)):
        result = process(*args, **environment)  # type: ignore[arg-type]
        assert (result.returncode, result.stderr) == (0, b"")
        assert result.stdout.isascii()


def test_an_error_on_an_ascii_stream() -> None:
    result = process("trace", "hi", "--layer", "é→".encode(), PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stdout) == (2, b"")
    assert result.stderr.isascii() and result.stderr.count(b"\n") == 1


def test_a_dumb_terminal_gets_no_escape() -> None:
    result = process("mask", "--len", "3", TERM="dumb", COLUMNS="60")
    assert b"\x1b" not in result.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes of a Unix")
def test_a_closed_pipe_is_quiet() -> None:
    ours = subprocess.Popen(
        [sys.executable, "-m", "attnscope", "layers"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert ours.stdout is not None and ours.stderr is not None
    ours.stdout.close()
    assert ours.wait(timeout=60) == 141
    assert ours.stderr.read() == b""
    ours.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "attnscope", "layers"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert result.returncode == 74
    assert result.stderr.startswith(b"attnscope layers: error: standard output cannot be written")
    assert result.stderr.count(b"\n") == 1


def test_an_interrupt_is_quiet() -> None:
    # The process interrupts itself once it is at work: a signal from outside might come before Python is up.
    code = """
import signal, sys, time
from attnscope import masks
from attnscope.cli.boundary import run
def build(*args, **options):
    signal.raise_signal(signal.SIGINT)
    time.sleep(60)  # a system may deliver it a moment later
masks.build = build
sys.exit(run(["mask", "--len", "3"]))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, b"", b"")


def test_a_closed_standard_input_is_told() -> None:
    command = "sys.executable, '-m', 'attnscope', 'tokens', '-'"
    code = f"import os, sys; os.close(0); os.execv(sys.executable, [{command}])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stdout) == (2, b"")
    assert b"standard input is closed" in result.stderr
