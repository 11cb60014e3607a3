"""The zoos of all other tests can be imported here."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("checks", "crashes", "equivalence", "loader", "recorder"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / folder))
