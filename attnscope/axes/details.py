"""The words for one step: its arguments explained, with the names of the axes that it moved.

`C 16 → H 2 × D 8`, `T ↔ H`, `3C → C, C, C`, `[… T D] @ [… D S] → [… T S]`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnscope.axes.dims import Dim, Dims, Space, join_singles, regroup
from attnscope.axes.rules import permutation
from attnscope.axes.state import Axes
from attnscope.ops.catalog import plain
from attnscope.recorder.record import Event
from attnscope.recorder.tensors import Ref, refs_in

_LONGEST = 44


class Words:
    """Explains the events of one recording; ask after all axes have been named."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes

    def explain(self, index: int, event: Event) -> str:
        """The detail of one step; empty where the operation's name says it all."""
        rule = _RULES.get(event.op.name) or _RULES.get(plain(event.op.name)) or _default
        try:
            text = rule(self, index, event)
        except (IndexError, ValueError, TypeError, KeyError, StopIteration):
            text = ""
        layer = self.layer(event)
        return f"{layer}: {text}" if layer and text else layer or text

    def layer(self, event: Event) -> str:
        """The name of the layer that was called, for steps that PyTorch's own layers take."""
        if event.direct or event.call < 0:
            return ""
        names = []
        call = event.call
        while call >= 0:
            module, parent, *_ = self.axes.recording.calls[call]
            if not is_library(module):
                break
            names.append(call)
            call = parent
        if not names:
            return ""
        inner = self.axes.recording.path_of(names[0])
        outer = self.axes.recording.path_of(call) if call >= 0 else ""
        return inner[len(outer) + 1 :] if outer and inner.startswith(outer + ".") else inner

    def inputs(self, index: int, event: Event) -> list[Dims]:
        """The dimensions of each input as this step reads them."""
        refs = [*refs_in(event.args), *refs_in(tuple(event.kwargs.values()))]
        return [self.axes.seen_as.get((index, ref), self.axes.dims(ref)) for ref in refs]

    def output(self, event: Event, which: int = 0) -> Dims:
        return self.axes.of[event.outputs[which]]

    def said(self, event: Event, place: int, keyword: str = "") -> str:
        """The source text of an argument of the call (not counting the tensor that a method is called on)."""
        found = self.axes.place(event)
        if found is None:
            return ""
        node = found[1]
        if isinstance(node, ast.Compare | ast.BinOp):
            right = node.comparators[0] if isinstance(node, ast.Compare) else node.right
            return short(right)
        if not isinstance(node, ast.Call):
            return ""
        named = {item.arg: item.value for item in node.keywords if item.arg}
        if keyword in named:
            return short(named[keyword])
        args = list(node.args)
        if any(isinstance(arg, ast.Starred) for arg in args):
            return ""
        return short(args[place]) if place < len(args) else ""


def is_library(module: Any) -> bool:
    """Whether a module's class is PyTorch's own, so that its steps are shown at the line that called it."""
    return type(module).__module__.split(".", 1)[0] == "torch"


def short(node: ast.AST) -> str:
    """An expression's text, cut to what fits a row."""
    text = ast.unparse(node)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def axis(dim: Dim) -> str:
    """`T 6`, or the bare size where nothing decided a name."""
    label = dim.label
    return f"{label} {dim.size}" if label is not None else str(dim.size)


def bare(dim: Dim) -> str:
    """`T`, or the bare size."""
    return dim.label or str(dim.size)


def _times(dims: Sequence[Dim]) -> str:
    return " × ".join(axis(dim) for dim in dims)


def _matrix(dims: Dims) -> str:
    tail = " ".join(bare(dim) for dim in dims[-2:])
    return f"[… {tail}]" if len(dims) > 2 else f"[{tail}]"


def _reshape(space: Space, before: Dims, after: Dims) -> str:
    groups = regroup([d.size for d in before], [d.size for d in after])
    if groups is None:
        return f"{_times(before)} → {_times(after)}"
    groups = join_singles(space, groups, before, after)
    parts: list[str] = []
    for left, right in groups:
        old, new = [before[i] for i in left], [after[j] for j in right]
        if not old:
            parts.append("a new axis of 1")
        elif not new:
            parts.append(f"{axis(old[0])} dropped")
        elif len(old) > 1 or len(new) > 1:
            known = space.product(old) is not None
            real_old = old if known else [d for d in old if d.size != 1] or old
            cut = any(d.root().mixed for d in new) and not any(d.root().mixed for d in old)
            parts.append(f"{_times(real_old)} → {_times(new)}{' (re-cut across axes)' if cut else ''}")
        elif old[0].label != new[0].label and old[0].known:
            parts.append(f"{axis(old[0])} → {axis(new[0])}")
    return ", ".join(dict.fromkeys(parts)) or "the same shape"


def _view(words: Words, index: int, event: Event) -> str:
    if not event.outputs:  # it raised: what was asked for
        asked = [a for a in event.args[1:] if not isinstance(a, Ref)]
        return f"[{', '.join(map(axis, words.inputs(index, event)[0]))}] → {_plain_sizes(asked)}"
    return _reshape(words.axes.space, words.inputs(index, event)[0], words.output(event))


def _plain_sizes(asked: Sequence[Any]) -> str:
    flat = asked[0] if len(asked) == 1 and isinstance(asked[0], tuple) else asked
    return f"[{', '.join(number(size) for size in flat)}]"


def _transpose(words: Words, index: int, event: Event) -> str:
    before, after = words.inputs(index, event)[0], words.output(event)
    moved = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a is not b]
    if event.op.name in ("T", "t", "mT") and len(before) >= 2:
        moved = [len(before) - 2, len(before) - 1]
    if len(moved) != 2:
        return ""
    one, two = (before[i] for i in moved)
    if one.known and two.known:
        return f"{bare(one)} ↔ {bare(two)}"
    return f"axis {moved[0]} ({axis(one)}) ↔ axis {moved[1]} ({axis(two)})"


def _permute(words: Words, index: int, event: Event) -> str:
    before, after = words.inputs(index, event)[0], words.output(event)
    if all(dim.known for dim in before):
        return f"{' '.join(map(bare, before))} → {' '.join(map(bare, after))}"
    order = " ".join(str(place) for place in permutation(event, len(before)))
    return f"[{' '.join(map(bare, before))}] → [{' '.join(map(bare, after))}], order {order}"


def _split(words: Words, index: int, event: Event) -> str:
    before = words.inputs(index, event)[0]
    after = [words.output(event, i) for i in range(len(event.outputs))]
    if event.op.name == "unbind":
        gone = next(
            (d for i, d in enumerate(before) if i >= len(after[0]) or d is not after[0][i]), before[0]
        )
        return f"{axis(gone)} taken apart"
    for place, dim in enumerate(before):
        parts = [dims[place] for dims in after]
        if any(part is not dim for part in parts):
            return f"{axis(dim)} → {', '.join(axis(part) for part in parts)}"
    return "one part: the same"


def _matmul(words: Words, index: int, event: Event) -> str:
    left, right = words.inputs(index, event)[-2:]
    out = f" → {_matrix(words.output(event))}" if event.outputs else ""
    return f"{_matrix(left)} @ {_matrix(right)}{out}"


def _einsum(words: Words, index: int, event: Event) -> str:
    inputs = ", ".join(f"[{' '.join(map(bare, dims))}]" for dims in words.inputs(index, event))
    out = f" → [{' '.join(map(bare, words.output(event)))}]" if event.outputs else ""
    return f"{event.args[0]}  {inputs}{out}"


def _linear(words: Words, index: int, event: Event) -> str:
    before = words.inputs(index, event)[0][-1]
    weight = words.inputs(index, event)[1]
    after = words.output(event)[-1] if event.outputs else weight[0]
    return f"{axis(before)} → {axis(after)}"


def _embedding(words: Words, index: int, event: Event) -> str:
    first, second = words.inputs(index, event)[:2]  # torch.embedding(weight, ids) has them the other way
    ref = next(refs_in((*event.args, *event.kwargs.values())))
    table = first if "float" in str(words.axes.recording.made[ref][2]) else second
    out = words.output(event)[-1] if event.outputs else table[-1]
    return f"row of {table[0].size} → {axis(out)}"


def _getitem(words: Words, index: int, event: Event) -> str:
    place = words.axes.place(event)
    if place is None or not isinstance(place[1], ast.Subscript):
        return ""
    return f"[{short(place[1].slice).strip('()')}]"


def _setitem(words: Words, index: int, event: Event) -> str:
    value = event.args[2] if len(event.args) > 2 else None
    return f"{_getitem(words, index, event)} = {_value(words, index, event, value)}"


def _value(words: Words, index: int, event: Event, value: Any) -> str:
    if isinstance(value, Ref):
        dims = words.axes.seen_as.get((index, int(value)), words.axes.dims(value))
        return f"[{', '.join(axis(dim) for dim in dims)}]" if dims else "a number"
    return number(value)


def number(value: Any) -> str:
    """A scalar argument in few characters."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _fill(words: Words, index: int, event: Event) -> str:
    value = event.args[2] if len(event.args) > 2 else event.kwargs.get("value")
    said = words.said(event, 0, "mask") if "masked_fill(" not in words.said(event, 0, "mask") else ""
    library = words.axes.place(event)
    if (
        library is not None
        and isinstance(library[1], ast.Call)
        and isinstance(library[1].func, ast.Attribute)
    ):
        base = ast.unparse(library[1].func.value)
        said = words.said(event, 1 if base in ("torch", "F") else 0, "mask")
    shown = "a tensor's value" if isinstance(value, Ref) else number(value)
    return f"{shown} where {said}" if said else f"{shown} where the mask is True"


def _where(words: Words, index: int, event: Event) -> str:
    condition, one, other = words.said(event, 0), words.said(event, 1), words.said(event, 2)
    place = words.axes.place(event)
    if place is None or not isinstance(place[1], ast.Call) or not isinstance(place[1].func, ast.Attribute):
        return ""
    if ast.unparse(place[1].func.value) not in ("torch", "F"):  # x.where(condition, other)
        condition, one, other = words.said(event, 0), ast.unparse(place[1].func.value), words.said(event, 1)
    return f"{one} where {condition}, else {other}" if condition and other else ""


def _arithmetic(words: Words, index: int, event: Event) -> str:
    sign = _SIGNS[plain(event.op.name)]
    args = list(event.args)
    if len(args) < 2:
        return ""
    if isinstance(args[0], Ref) and isinstance(args[1], Ref):
        left, right = words.inputs(index, event)[:2]
        if [d.size for d in left] == [d.size for d in right]:
            return f"{sign} the same shape"
        small = right if len(right) <= len(left) else left
        return f"{sign} [{', '.join(axis(dim) for dim in small)}]" if small else f"{sign} a number"
    scalar = args[1] if isinstance(args[0], Ref) else args[0]
    # `3 - x` reaches the recorder with x first, `torch.pow(3, x)` as it is written.
    first = event.op.reflected or not isinstance(args[0], Ref)
    if first and sign not in ("+", "×"):
        return f"{number(scalar)} {sign} {words.said(event, 0 if event.op.reflected else 1) or '…'}"
    return f"{sign} {number(scalar)}"


_SIGNS = {"add": "+", "sub": "−", "mul": "×", "div": "÷", "pow": "^", "floor_divide": "//", "remainder": "%"}


def _compare(words: Words, index: int, event: Event) -> str:
    sign = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[event.op.name]
    other = event.args[1] if len(event.args) > 1 else None
    return f"{sign} {_value(words, index, event, other)}"


def _over(words: Words, index: int, event: Event) -> str:
    before = words.inputs(index, event)[0]
    over = event.kwargs.get("dim", event.args[1] if len(event.args) > 1 else None)
    if event.op.name == "softmax" and over is None:
        over = event.args[1] if len(event.args) > 1 else -1
    if over is None or isinstance(over, Ref):
        return "over everything"
    places = over if isinstance(over, tuple) else (over,)
    return "over " + ", ".join(axis(before[int(place)]) for place in places)


def _dropout(words: Words, index: int, event: Event) -> str:
    p = event.kwargs.get("p", event.args[1] if len(event.args) > 1 else 0.5)
    training = event.kwargs.get("training", event.args[2] if len(event.args) > 2 else True)
    return f"p {number(p)}" + ("" if training else ", off in eval")


def _contiguous(words: Words, index: int, event: Event) -> str:
    return "already so, nothing is copied" if event.memory == "view" else "copies into memory order"


def _cat(words: Words, index: int, event: Event) -> str:
    inputs, out = words.inputs(index, event), words.output(event)
    if event.op.name == "stack":
        return f"{len(inputs)} tensors → a new axis of {len(inputs)}"
    place = int(event.kwargs.get("dim", event.args[1] if len(event.args) > 1 else 0)) % len(out)
    return f"{', '.join(axis(dims[place]) for dims in inputs)} → {axis(out[place])}"


def _resize(words: Words, index: int, event: Event) -> str:
    before, after = words.inputs(index, event)[0], words.output(event)
    shift = len(after) - len(before)
    parts = []
    for place, dim in enumerate(after):
        old = before[place - shift] if place >= shift else None
        if old is None or old.size != dim.size:
            parts.append(f"{axis(old) if old is not None else 'new'} → {axis(dim)}")
    return ", ".join(parts) or "the same shape"


def _cast(words: Words, index: int, event: Event) -> str:
    made = words.axes.recording.made
    ref = next(iter(refs_in(event.args)))
    before, after = made[ref], made[event.outputs[0]]
    if before[2] != after[2]:
        return f"{_plain(before[2])} → {_plain(after[2])}"
    if before[3] != after[3]:
        return f"{before[3]} → {after[3]}"
    return f"already {_plain(after[2])}"


def _plain(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _sdpa(words: Words, index: int, event: Event) -> str:
    q, k, v = words.inputs(index, event)[:3]
    flags = []
    if event.kwargs.get("is_causal", event.args[5] if len(event.args) > 5 else False):
        flags.append("causal")
    mask = event.kwargs.get("attn_mask", event.args[3] if len(event.args) > 3 else None)
    if isinstance(mask, Ref):
        flags.append(f"mask [{', '.join(axis(dim) for dim in words.axes.dims(mask))}]")
    text = f"q {_matrix(q)} k {_matrix(k)} v {_matrix(v)}"
    return f"{text}, {', '.join(flags) if flags else 'no mask'}"


def _mha(words: Words, index: int, event: Event) -> str:
    query = words.inputs(index, event)[0]
    heads = event.kwargs.get("num_heads", event.args[4] if len(event.args) > 4 else "?")
    return f"{heads} heads over [{', '.join(axis(dim) for dim in query)}]"


def _factory(words: Words, index: int, event: Event) -> str:
    if event.op.name in ("full", "full_like"):
        value = event.kwargs.get("fill_value", event.args[1] if len(event.args) > 1 else None)
        return number(value)
    return ""


def _triangle(words: Words, index: int, event: Event) -> str:
    diagonal = event.kwargs.get("diagonal", event.args[1] if len(event.args) > 1 else 0)
    part = "upper" if event.op.name.startswith("triu") else "lower"
    return f"{part} triangle" + (f", diagonal {number(diagonal)}" if diagonal else "")


def _new_axis(words: Words, index: int, event: Event) -> str:
    place = event.kwargs.get("dim", event.args[1] if len(event.args) > 1 else None)
    if event.op.name.startswith("unsqueeze"):
        return f"a new axis of 1 at {place}"
    return f"axis {place} dropped" if isinstance(place, int) else "axes of 1 dropped"


def _default(words: Words, index: int, event: Event) -> str:
    """Scalar arguments as they are, for operations without words of their own."""
    plain = [number(a) for a in event.args if not isinstance(a, Ref | tuple | str) and a is not None]
    given = {name: value for name, value in event.kwargs.items() if name != "inplace"}
    named = [f"{name} {number(value)}" for name, value in given.items() if isinstance(value, int | float)]
    return ", ".join([*plain, *named])


_Rule = Callable[[Words, int, Event], str]
_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys("view reshape flatten unflatten view_as reshape_as ravel".split(), _view),
    **dict.fromkeys("transpose mT T t mH H adjoint".split(), _transpose),
    **dict.fromkeys("permute movedim".split(), _permute),
    **dict.fromkeys("split chunk unbind tensor_split split_with_sizes".split(), _split),
    **dict.fromkeys("matmul mm bmm baddbmm addmm".split(), _matmul),
    **dict.fromkeys("masked_fill".split(), _fill),
    **dict.fromkeys(_SIGNS, _arithmetic),
    **dict.fromkeys("eq ne lt le gt ge".split(), _compare),
    **dict.fromkeys(
        "softmax log_softmax sum mean amax amin max min var std logsumexp argmax argmin cumsum".split(), _over
    ),
    **dict.fromkeys("cat stack".split(), _cat),
    **dict.fromkeys("expand repeat repeat_interleave tile".split(), _resize),
    **dict.fromkeys("to float half double bfloat16 long int bool type type_as".split(), _cast),
    **dict.fromkeys("tril triu".split(), _triangle),
    **dict.fromkeys("squeeze unsqueeze".split(), _new_axis),
    **dict.fromkeys("ones zeros full full_like empty arange eye rand randn".split(), _factory),
    **dict.fromkeys("layer_norm rms_norm".split(), lambda words, index, event: ""),
    "where": _where,
    "einsum": _einsum,
    "linear": _linear,
    "embedding": _embedding,
    "getitem": _getitem,
    "setitem": _setitem,
    "dropout": _dropout,
    "contiguous": _contiguous,
    "scaled_dot_product_attention": _sdpa,
    "multi_head_attention_forward": _mha,
}
