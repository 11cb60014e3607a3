"""AS226: a causal triangle lies over a second sequence.

Queries come from one sequence and keys from another one: a translation and its source, a text and an image.
Here query 0 sees key 0 alone, query 1 the first two, as if both counted the same tokens.

It is bad because the second sequence is there as a whole: most of it is hidden, above all from the first
queries.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.kv = nn.Linear(16, 16), nn.Linear(16, 32)

        def forward(self, x, memory):
            b, t, c = x.shape
            q = self.q(x).view(b, t, 2, 8).transpose(1, 2)
            k, v = (u.view(b, -1, 2, 8).transpose(1, 2) for u in self.kv(memory).chunk(2, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(b, t, c)

    x = torch.randn(2, 6, 16), torch.randn(2, 5, 16)

Cure: no causal mask here; of the second sequence only padding is masked.

    - y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    + y = F.scaled_dot_product_attention(q, k, v)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from attnscope.checks.attentions import owner_of
from attnscope.checks.evidence import mask_ancestors
from attnscope.checks.lab import Lab, probed
from attnscope.checks.leaks import SMALL, is_lower, mask_of, visible
from attnscope.checks.maps import Map
from attnscope.checks.places import counted, num
from attnscope.checks.roles import serial_of
from attnscope.checks.sequences import kinds, tokens_of
from attnscope.checks.subject import Kind
from attnscope.diagnostic import Diagnostic, Label, Tried

CODE = "AS226"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    names = _second(lab)
    base = lab.base.output
    if not names or base is None or lab.output_axes(base)[1] is None:
        return
    known = kinds(lab)
    cross = [one for one in lab.maps if known[one.number] == "cross" and one.applied is not None]
    moved = _moved(lab, names) if cross else None
    if moved is None:
        return
    hidden = moved <= lab.nothing
    hidden = hidden[:, ~hidden.all(axis=0)]  # padding moves nothing
    # Of an encoder's states each holds all of its tokens: whatever is seen of them moves with every one.
    triangle = is_lower(~hidden) or (not hidden.any() and _is_encoded(lab, known))
    one = next((one for one in cross if is_lower(visible(one) > SMALL)), None)
    held = not triangle or one is None
    seen = f"{int((~hidden).sum())} of {counted(hidden.size, 'pair')} connected"
    if not held and not hidden.any():
        seen = "all pairs connected, through the states of the first keys alone"
    yield Tried("second sequence", seen, held)
    if held or one is None or _is_handed(lab, one):
        return
    made, apply, _ = mask_of(one, lab)
    span = lab.span(apply if apply is not None else one.event)
    built = lab.span(made)
    apart = _handed_apart(lab, one)
    yield Diagnostic(
        CODE,
        "note" if apart else "error",
        f"a causal mask lies over `{names[0]}`: early queries see only its first tokens",
        span,
        "the triangle is applied here",
        (Label(built, "and is made here"),) if built is not None and built != span else (),
        (
            f"output token 0 does not move when token 1 of `{names[0]}` is changed"
            if hidden.any()
            else f"query 0 gives weight to key 0 alone, and query 1 to two of {hidden.shape[1]}",
        ),
        f"apply no causal mask to the keys of `{names[0]}`",
        _grid(moved, lab.nothing) if hidden.any() else (),
        module=lab.recording.path_of(owner_of(lab, one)),
    )


def _handed_apart(lab: Lab, one: Map) -> bool:
    """Whether keys and values are two arguments that nobody gave: whose tokens they are is a guess then."""
    part = lab.subject.part
    if (part is not None and part.path) or one.found.product is None or one.found.value_serial is None:
        return False
    keys, values = (tokens_of(lab, x) for x in (one.found.product.right, one.found.value_serial))
    return not keys & values and keys | values <= lab.subject.guessed


def _is_encoded(lab: Lab, known: dict[int, Kind]) -> bool:
    """Whether an attention that is no triangle joins the tokens of the second sequence before it is looked
    at."""
    return any(
        known[one.number] == "encoder" and one.applied is not None and not is_lower(visible(one) > SMALL)
        for one in lab.all_maps
    )


def _second(lab: Lab) -> list[str]:
    """The arguments that are a second sequence, all of one length."""
    crossing = kinds(lab)
    looked_at = {
        name
        for one in lab.maps
        if crossing[one.number] == "cross" and one.found.product is not None
        for name in tokens_of(lab, one.found.product.right)
    }
    found = []
    for name, axes in lab.exact.axes.items():
        second = ("S" in axes and "T" not in axes) or ("T" in axes and "S" not in axes and name in looked_at)
        tensor = isinstance(lab.exact.arguments.get(name), Tensor)
        if second and tensor and name not in lab.together and name != lab.main:
            found.append(name)
    lengths = {lab.exact.arguments[name].shape[_axis(lab, name)] for name in found}
    return found if len(lengths) == 1 and min(lengths) > 1 else []


def _axis(lab: Lab, name: str) -> int:
    axes = lab.exact.axes[name]
    return axes.index("S" if "S" in axes else "T")


def _moved(lab: Lab, names: list[str]) -> np.ndarray | None:
    """[T, P]: how much each output token moves when a token of the second sequence is changed."""
    base = lab.base.output
    assert base is not None
    columns = []
    axis = _axis(lab, names[0])
    for place in probed(lab.exact.arguments[names[0]].shape[axis]):
        values = {}
        for number, name in enumerate(names):
            old = lab.exact.arguments[name]
            values[name] = new = old.clone()
            index = [slice(None)] * old.dim()
            index[_axis(lab, name)] = place  # type: ignore[call-overload]
            new[tuple(index)] = lab.other(new[tuple(index)], old, 31 + number)
        output = lab.run(values).output
        if output is None or output.shape != base.shape:
            return None
        columns.append(lab.difference(output, (lab.output_axes(base)[1],)))
    return np.stack(columns, axis=-1)


def _is_handed(lab: Lab, one: Map) -> bool:
    """Whether the mask is an argument of the target: whoever calls it means it, or it was guessed. One that
    masks an attention over its own tokens, too, is for the keys of that."""
    mask = one.found.mask_serial
    if mask is None:
        return False
    sequences = {lab.main, *lab.together, *_second(lab)}
    handed = [name for name, serial in lab.recording.arguments if name not in sequences]
    handed = [name for name in handed if serial_of(lab, name) in lab.lineage.ancestors(mask)]
    known = kinds(lab)
    own: set[int] = set()
    for other in lab.all_maps:
        own |= mask_ancestors(other, lab) if known[other.number] == "self" else set()
    handed = [name for name in handed if serial_of(lab, name) not in own]
    part = lab.subject.part
    return any(part is None or not part.path or name in lab.subject.guessed for name in handed)


def _grid(moved: np.ndarray, nothing: float) -> tuple[tuple[str, ...], ...]:
    rows: list[tuple[str, ...]] = [("output \\ key", *(str(s) for s in range(min(moved.shape[1], 8))))]
    for t, row in enumerate(moved[:8, :8]):
        rows.append((str(t), *(num(x) if x > nothing else "0" for x in row)))
    return tuple(rows)
