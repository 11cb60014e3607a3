"""A source file as a module of its own name: inspected by its file, as a user's is."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

_numbers = itertools.count()


def load(path: Path, name: str) -> ModuleType:
    """Imports a file under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def written(text: str, folder: Path) -> Path:
    """A new file in `folder` with this source."""
    path = folder / f"module_{next(_numbers)}.py"
    path.write_text(text, encoding="utf-8")
    return path


def load_text(text: str, folder: Path) -> ModuleType:
    """A source text as a module of a new file in `folder`."""
    path = written(text, folder)
    return load(path, path.stem)
