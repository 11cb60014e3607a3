"""`--map A.name=B.name`: parameters moved as the user says, whole, transposed or in slices."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import Tensor

from attnscope.equivalence.parameters import Table
from attnscope.errors import UsageError
from attnscope.loader.expressions import nearest, printable

_SIDE = re.compile(r"([^\[\]=]+?)((?:\.T|\[[^\[\]]*\])*)")
_STEP = re.compile(r"\.T|\[([^\[\]]*)\]")
_HINT = "write A.NAME=B.NAME, with slices as in A.qkv.weight[0:16], or .T"


def mapped(text: str, a: Table, b: Table) -> tuple[Tensor, Tensor]:
    """The addresses of one `--map`: those in A, and those in B that they fill, of one shape.

    Raises UsageError for names that are not there, slices that are none, and shapes that differ.
    """
    left, equals, right = text.partition("=")
    if not equals or not left.strip() or not right.strip():
        raise UsageError(f"--map `{printable(text)}` is no pair", _HINT)
    source, target = _addresses(left.strip(), "A", a), _addresses(right.strip(), "B", b)
    if source.shape != target.shape:
        raise UsageError(
            f"--map `{printable(text)}`: {list(source.shape)} does not fit {list(target.shape)}",
            "take a slice as in [0:16], or .T",
        )
    return source, target


def _addresses(text: str, side: str, table: Table) -> Tensor:
    match = _SIDE.fullmatch(text)
    if match is None:
        raise UsageError(f"--map: `{printable(text)}` cannot be read", _HINT)
    name, steps = match[1].strip(), match[2]
    if name not in table.names and name.startswith(f"{side}."):
        name = name[2:]
    if name not in table.names:
        raise UsageError(f"--map: {side} has no parameter `{printable(name)}`", nearest(name, table.names))
    flat = table[name].flat
    for step in _STEP.finditer(steps):
        flat = flat.T if step[0] == ".T" and flat.dim() == 2 else _sliced(flat, step[1], text)
    return flat


def _sliced(flat: Tensor, inside: str | None, text: str) -> Tensor:
    if inside is None:
        raise UsageError(f"--map: `{printable(text)}` is no matrix, it has no .T")
    index: list[slice | int] = []
    for piece in inside.split(","):
        numbers = piece.strip().split(":")
        try:
            values: Sequence[int | None] = [int(n) if n.strip() else None for n in numbers]
            index.append(slice(*values) if len(values) > 1 else int(numbers[0]))
        except (ValueError, TypeError):
            raise UsageError(
                f"--map: `[{printable(inside)}]` is no slice", "as in [0:16] or [:, 0:16]"
            ) from None
    try:
        return flat[tuple(index)]
    except (IndexError, ValueError) as error:
        raise UsageError(f"--map: `{printable(text)}`: {printable(error)}") from None
