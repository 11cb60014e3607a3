"""What products and layers do to the names of axes: `[T D] @ [D S] → [T S]`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from attnscope.axes.dims import Dim, Dims
from attnscope.axes.state import Axes, argument, refs_of, shape_of
from attnscope.ops.einsum import DOTS, read, spread
from attnscope.recorder.record import Event
from attnscope.recorder.tensors import Ref
from attnscope.source import node_at


def matmul(axes: Axes, event: Event) -> Sequence[Dims]:
    left, right = refs_of(event)[:2]
    return [_project_or_multiply(axes, event, left, right)]


def baddbmm(axes: Axes, event: Event) -> Sequence[Dims]:
    base, left, right = refs_of(event)[:3]
    result = _project_or_multiply(axes, event, left, right)
    axes.broadcast([result, axes.dims(base)])
    return [result]


def _project_or_multiply(axes: Axes, event: Event, left: int, right: int) -> Dims:
    first, second = axes.dims(left), axes.dims(right)
    if right in axes.recording.leaves and len(second) == 2 and not second[-1].known:
        return (*first[:-1], projection(axes, event, first[-1], second[-1].size))
    return product(axes, first, second, left, right)


def linear(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = axes.dims(next(iter(refs_of(event))))
    return [(*dims[:-1], projection(axes, event, dims[-1], shape_of(axes, event)[-1]))]


def embedding(axes: Axes, event: Event) -> Sequence[Dims]:
    ids, table = refs_of(event)[:2]
    if "float" in str(axes.recording.made[ids][2]):  # torch.embedding(weight, ids) has them the other way
        ids, table = table, ids
    size = shape_of(axes, event)[-1]
    other = axes.space.find("C")
    channels = axes.space.named("C", size) if other is None or other.size == size else Dim(size)
    return [(*axes.dims(ids), channels)]


def sdpa(axes: Axes, event: Event) -> Sequence[Dims]:
    query, value = axes.dims(argument(event, 0, "query")), axes.dims(argument(event, 2, "value"))
    key_ref = argument(event, 1, "key")
    key = axes.dims(key_ref)
    if key[-2].label == "T":
        as_keys = axes.space.named("S", key[-2].size)
        axes.seen_as[(axes.index, int(key_ref))] = (*key[:-2], as_keys, key[-1])
        value_ref = int(argument(event, 2, "value"))
        axes.seen_as[(axes.index, value_ref)] = (*value[:-2], as_keys, value[-1])
    if query[-2].label == "T":
        axes.head_axis(query[-1])
        if not key[-1].known:
            key[-1].become(query[-1])
        axes.head_axis(value[-1])
    mask = argument(event, 3, "attn_mask")
    if isinstance(mask, Ref):
        keys = axes.space.named("S", key[-2].size)
        axes.broadcast([(*query[:-2], query[-2], keys), axes.dims(mask)])
    return [(*query[:-1], value[-1])]


def mha(axes: Axes, event: Event) -> Sequence[Dims]:
    query, key = axes.dims(event.args[0]), axes.dims(event.args[1])
    outputs = [query]
    if len(event.outputs) > 1:
        shape = shape_of(axes, event, 1)
        keys = axes.space.named("S", key[0].size)
        batch = [query[1]] if len(query) == 3 else []
        heads = [axes.space.named("H", shape[1])] if len(shape) == len(batch) + 3 else []
        outputs.append((*batch, *heads, query[0], keys))
    return outputs


def einsum(axes: Axes, event: Event) -> Sequence[Dims]:
    equation = read(event.args[0])
    if equation is None:
        raise ValueError("operands and axes by turns")
    known: dict[str, Dim] = {}
    rest: Dims = ()
    for letters, ref in zip(equation.inputs, refs_of(event), strict=True):
        dims = axes.dims(ref)
        named = list(zip(spread(letters, len(dims)), dims, strict=True))
        dots = tuple(dim for letter, dim in named if letter == DOTS)
        rest = axes.broadcast([rest, dots]) if rest and dots else rest or dots
        for letter, dim in named:
            other = dim if letter == DOTS else known.setdefault(letter, dim)
            if other is not dim:
                if not other.known and dim.known:
                    known[letter] = dim
                elif other.known and not dim.known and other.size == dim.size:
                    dim.become(other)
    result = [dim for x in equation.output for dim in (rest if x == DOTS else (known[x],))]
    tokens = [i for i, dim in enumerate(result) if dim.label == "T"]
    if len(tokens) == 2:
        result[tokens[1]] = axes.space.named("S", result[tokens[1]].size)
        for letter, dim in known.items():
            if letter not in equation.output:
                axes.head_axis(dim)
    return [tuple(result)]


def outer(axes: Axes, event: Event) -> Sequence[Dims]:
    left, right = refs_of(event)[:2]
    return [(*axes.dims(left), *axes.dims(right))]


def product(axes: Axes, left: Dims, right: Dims, left_ref: int | None, right_ref: int | None) -> Dims:
    """[… n k] @ [… k m] → [… n m]; where both n and m are tokens, m is keys."""
    if len(left) < 2 or len(right) < 2:
        raise ValueError("a product with a vector")
    inner, other = left[-1], right[-2]
    if not other.known and inner.known:
        other.become(inner)
    elif other.known and not inner.known:
        inner.become(other)
    rows, columns = left[-2], right[-1]
    if rows.label == "T" and columns.label == "T":
        columns = axes.space.named("S", columns.size)
        if right_ref is not None:
            axes.seen_as[(axes.index, right_ref)] = (*right[:-1], columns)
    if rows.label == "T" and columns.label == "S":
        axes.head_axis(inner)
        if not other.known:
            other.become(inner)
    if left[-1].label == "S" and right[-2].label == "T" and right_ref is not None:
        axes.seen_as[(axes.index, right_ref)] = (*right[:-2], left[-1], right[-1])
    if left[-1].label == "S" and rows.label == "T":
        axes.head_axis(columns)  # what the weights mix are values, whose channels are one head's
    batch = axes.broadcast([left[:-2], right[:-2]]) if len(left) > 2 or len(right) > 2 else ()
    return (*batch, rows, columns)


def projection(axes: Axes, event: Event, inside: Dim, size: int) -> Dim:
    """The output axis of a linear layer over the axis `inside`."""
    inside = inside.root()
    said, multiple = _declared(axes, event, size)
    if said is not None and (said.label != inside.label or said.size == inside.size):
        return said
    if multiple is None and size == inside.size:
        return inside
    if inside.times is not None and inside.times[1].size == size:
        return inside.times[1]
    count = multiple if multiple is not None else 3
    if inside.known and size == count * inside.size:
        return axes.space.multiple(count, inside)
    if multiple is not None and size % multiple == 0:
        return axes.space.multiple(multiple, Dim(size // multiple))
    channels = axes.space.find("C", size)
    return channels if channels is not None and not channels.root().mixed else Dim(size)


def _declared(axes: Axes, event: Event, size: int) -> tuple[Dim | None, int | None]:
    """What the constructor says of the called layer: `axes.key = nn.Linear(C, head_size)`.

    The dimension that the output width names, and k where it is k times something (`3 * d`).
    """
    place = node_at(event.code, event.lasti) if event.code is not None else None
    if place is None:
        return None, None
    file, node = place
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None, None
    around = next((p for p in file.ancestors(node) if isinstance(p, ast.ClassDef)), None)
    made = axes.scope.attributes(around).get(node.func.attr) if around is not None else None
    if not isinstance(made, ast.Call):
        return None, None
    named = {item.arg: item.value for item in made.keywords if item.arg}
    expr = named.get("out_features", made.args[1] if len(made.args) > 1 else None)
    if expr is None:
        return None, None
    letter = axes.scope.letter(file, expr)
    # Two widths both called C would be a confusion; the second one stays without a name.
    if letter == "C" and axes.space.find("C") not in (None, axes.space.find("C", size)):
        letter = None
    return axes.space.named(letter, size) if letter is not None else None, axes.scope.multiple(file, expr)
