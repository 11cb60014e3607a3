"""A script run by Python and by `attnscope run`: the two must not differ in what the script does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


class Runner:
    """Runs scripts in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        unset = ("FORCE_COLOR", "COLUMNS", "PYTHONWARNINGS")
        known = {key: value for key, value in os.environ.items() if key not in unset}
        self._environ = {**known, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def plain(self, *args: str, stdin: str = "") -> Ran:
        return self._run([sys.executable, *args], stdin)

    def scoped(self, *args: str, stdin: str = "") -> Ran:
        return self._run([sys.executable, "-m", "attnscope", "run", *args], stdin)

    def _run(self, command: list[str], stdin: str) -> Ran:
        done = subprocess.run(
            command,
            input=stdin.encode(),
            capture_output=True,
            cwd=self.folder,
            env=self._environ,
            timeout=300,
            check=False,
        )
        decode: Callable[[bytes], str] = lambda data: data.decode("utf-8", "backslashreplace")  # noqa: E731
        return Ran(done.returncode, decode(done.stdout), decode(done.stderr))
