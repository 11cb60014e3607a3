"""From a traceback to the user's own frames: which code, which expression, which locals."""

from __future__ import annotations

import ast
import os
import site
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from attnscope.schema import Span
from attnscope.source import SourceFile, node_at, parse, span_of

_OWN = str(Path(__file__).resolve().parent.parent) + os.sep
_LIBRARY = tuple(
    str(Path(path)) + os.sep for key in ("stdlib", "platstdlib") if (path := sysconfig.get_paths().get(key))
)
COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<lambda>")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def _packages() -> tuple[str, ...]:
    paths = [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(str(Path(path)) + os.sep for path in paths)


_PACKAGES = _packages()


def _torch_folder() -> str:
    import torch

    return str(Path(torch.__file__).parent) + os.sep


@dataclass(frozen=True, eq=False)
class Shot:
    """One frame of the traceback and the instruction that it had reached."""

    frame: FrameType
    lasti: int

    @property
    def file(self) -> str:
        return self.frame.f_code.co_filename

    @cached_property
    def span(self) -> Span:
        return span_of(self.frame.f_code, self.lasti)

    @cached_property
    def source(self) -> SourceFile | None:
        return parse(self.file)

    @cached_property
    def node(self) -> ast.AST | None:
        """The expression that raised; where its exact position is unknown, the line's statement."""
        found = node_at(self.frame.f_code, self.lasti)
        if found is not None:
            return found[1]
        if self.source is None:
            return None
        line = self.span.line
        inside = [
            node
            for node in ast.walk(self.source.tree)
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
        ]
        return inside[-1] if inside else None

    @cached_property
    def statement(self) -> ast.stmt | None:
        if self.source is None or self.node is None:
            return None
        if isinstance(self.node, ast.stmt):
            return self.node
        for parent in self.source.ancestors(self.node):
            if isinstance(parent, ast.stmt):
                return parent
        return None

    @cached_property
    def function(self) -> Function | None:
        if self.source is None or self.node is None:
            return None
        if isinstance(self.node, Function):
            return self.node
        return self.source.function_of(self.node)

    @cached_property
    def klass(self) -> ast.ClassDef | None:
        if self.source is None or self.node is None:
            return None
        for parent in self.source.ancestors(self.node):
            if isinstance(parent, ast.ClassDef):
                return parent
        return None

    @cached_property
    def locals(self) -> dict[str, Any]:
        return dict(self.frame.f_locals)


def chain(traceback: TracebackType | None) -> Iterator[Shot]:
    """Every frame, outermost first."""
    seen = 0
    while traceback is not None and seen < 5000:
        yield Shot(traceback.tb_frame, traceback.tb_lasti)
        traceback = traceback.tb_next
        seen += 1


def is_the_users(error: BaseException) -> bool:
    """Whether it came out of the user's own code: an override of `modules`, a property, a metaclass."""
    return any(not is_foreign(shot.file) for shot in chain(error.__traceback__))


def is_foreign(filename: str) -> bool:
    """Whether a file belongs to attnscope, to PyTorch, to Python itself or to no file at all."""
    if filename.startswith("<") and parse(filename) is None:
        return True
    if filename.startswith((_OWN, _torch_folder())):
        return True
    return filename.startswith(_LIBRARY) and not filename.startswith(_PACKAGES)


def user_shots(error: BaseException, home: str | None = None) -> tuple[Shot, ...]:
    """The frames of the user's own code, outermost first.

    Installed packages count only where nothing else is there, or where the target itself (`home`, its
    file) is in one of them.
    """
    shots = [shot for shot in chain(error.__traceback__) if not is_foreign(shot.file)]
    near = [
        shot
        for shot in shots
        if not shot.file.startswith(_PACKAGES)
        or (home is not None and os.path.dirname(shot.file) == os.path.dirname(home))
    ]
    return tuple(near or shots)
