"""What drawing imports: a mask must be there at once."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from attnscope.render.show import emit, make_console, object_lines
from attnscope.masks import build
console, style = make_console()
emit(console, object_lines(style, build("causal", 8)))
heavy = {"torch", "typer", "rich.table", "rich.markdown", "rich.syntax", "rich.pretty", "rich.progress",
         "rich.traceback", "attnscope.render.weights", "attnscope.render.findings", "attnscope.render.shapes"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


def test_a_mask_imports_little() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "query 0" in done.stdout
    assert "\x1b" not in done.stdout
