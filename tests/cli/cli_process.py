"""Running the command line in a process of its own, where streams, locales and signals matter."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any


def process(
    *args: str | bytes, stdin: bytes | int | None = subprocess.DEVNULL, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """The same in a process of its own, its streams as bytes. `stdin` may be bytes."""
    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LANG", "LC_ALL", "LC_CTYPE", "PYTHONIOENCODING")
    }
    given: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    return subprocess.run(
        [sys.executable, "-m", "attnscope", *args],
        capture_output=True,
        env={**clean, **environment},
        check=False,
        **given,
    )
