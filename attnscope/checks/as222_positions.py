"""AS222: positions are computed and have no effect.

Rotary angles follow an axis. If q and k are [B, T, H, D] when they are rotated "along axis -2", each head
gets an angle of its own and each token the same one.

It is bad because the model cannot tell the order of words: two past tokens can be exchanged and the last
output does not move.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def rotate(self, u):
            place = torch.arange(u.shape[-2], device=u.device)[:, None]
            angle = place * 100.0 ** (-torch.arange(4, device=u.device) / 4)
            a, b = u.chunk(2, -1)
            return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, 2, 8).unbind(2)
            q, k = self.rotate(q), self.rotate(k)
            q, k, v = (u.transpose(1, 2) for u in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(b, t, c)

Cure: bring q and k to [B, H, T, D] first, so that the angles run along the tokens.

    - q, k = self.rotate(q), self.rotate(k)
      q, k, v = (u.transpose(1, 2) for u in (q, k, v))
    + q, k = self.rotate(q), self.rotate(k)
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from attnscope.checks.lab import Lab
from attnscope.checks.leaks import SMALL, held, is_over_tokens, leak_of, visible
from attnscope.checks.places import num
from attnscope.checks.roles import is_table_of_angles
from attnscope.diagnostic import Diagnostic, Tried
from attnscope.ops.catalog import PRODUCTS, plain

CODE = "AS222"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    steps = position_steps(lab)
    if not steps or lab.main is None or lab.base.output is None or lab.length < 4:
        return
    if any(name in lab.subject.guessed for name, _ in _tables(lab)):
        return
    if lab.influence is None or (lab.causal and leak_of(lab).kind not in ("none", "open")):
        return
    pair = _pair(lab)
    moved = _swapped(lab, *pair) if pair is not None else None
    if pair is None or moved is None:
        return
    one, two, last = pair
    held = moved > lab.nothing * 100
    yield Tried("positions", f"two tokens exchanged: a later output moves by {num(moved)}", held)
    if held:
        return
    event = lab.recording.events[steps[0]]
    shape = ", ".join(str(n) for n in lab.lineage.shape(event.outputs[0]))
    letters = [dim.label for dim in lab.steps.axes.of.get(event.outputs[0], ())]
    if len(letters) == len(lab.lineage.shape(event.outputs[0])):
        shape = ", ".join(
            f"{a} {n}" if a else str(n)
            for a, n in zip(letters, lab.lineage.shape(event.outputs[0]), strict=True)
        )
    turned = _turned(lab, steps)
    yield Diagnostic(
        CODE,
        "error",
        "positions have no effect: the angles do not follow the tokens"
        if turned is None
        else f"positions have no effect: of queries and keys, only the {turned} are rotated",
        lab.span(steps[0]),
        f"angles meet [{shape}] here",
        (),
        (f"tokens {one} and {two} were exchanged, and output {last} does not move",),
        "move heads before tokens, [B, H, T, D], before q and k are rotated"
        if turned is None
        else "rotate q and k both, by the same angles",
        (("exchanged", f"change of output {last}"), (f"tokens {one} and {two}", num(moved))),
    )


def _turned(lab: Lab, steps: list[int]) -> str | None:
    """`queries` or `keys`, where angles meet the one and never the other."""
    outs = {out for index in steps for out in lab.lineage.events[index].outputs}
    sides: set[str] = set()
    for one in lab.maps:
        if one.found.product is not None:
            for serial, side in ((one.found.product.left, "queries"), (one.found.product.right, "keys")):
                if outs & lab.lineage.ancestors(serial):
                    sides.add(side)
    return next(iter(sides)) if len(sides) == 1 else None


def position_steps(lab: Lab) -> list[int]:
    """The steps at which something made of sines and cosines meets q or k on their way into a product."""
    lineage = lab.lineage
    angles = {serial for _, serial in _tables(lab)}
    for serial, leaf in lab.recording.leaves.items():
        if lab.recording.owned.get(leaf, ("", ""))[0] in ("buffer", "attribute") and is_table_of_angles(
            lineage.leaf_value(serial)
        ):
            angles.add(serial)
    inputs: set[int] = set()
    for one in lab.maps:
        if one.found.product is not None:
            inputs |= lineage.ancestors(one.found.product.left) | lineage.ancestors(one.found.product.right)
    main = {serial for name, serial in lab.recording.arguments if name in lab.together}
    found: list[int] = []
    fed: set[int] = set(main)
    for index, event in enumerate(lineage.events):
        refs = lineage.refs(event)
        if any(ref in fed for ref in refs):
            if (
                plain(event.op.name) in PRODUCTS | {"mul"}
                and any(ref in angles and ref not in fed for ref in refs)
                and any(out in inputs for out in event.outputs)
            ):
                found.append(index)
            fed.update(event.outputs)
        elif plain(event.op.name) in ("cos", "sin", "polar") or any(ref in angles for ref in refs):
            angles.update(event.outputs)
    return found


def _tables(lab: Lab) -> list[tuple[str, int]]:
    """Arguments that hold cosines and sines, by their numbers."""
    return [
        (name, serial)
        for name, serial in lab.recording.arguments
        if name not in lab.together and is_table_of_angles(held(lab, serial))
    ]


def _pair(lab: Lab) -> tuple[int, int, int] | None:
    """Two tokens, and a later one whose query gives weight to both in every attention; the latest such."""
    seen = [visible(one) > SMALL for one in lab.maps if is_over_tokens(one, lab)]
    for last in range(lab.length - 1, 1, -1):
        keys = [s for s in range(last) if all(edge[last, s] for edge in seen)]
        if len(keys) >= 2:
            return keys[0], keys[1], last
    return None


def _swapped(lab: Lab, one: int, two: int, last: int) -> float | None:
    """How much output `last` moves when tokens `one` and `two` are exchanged."""
    base = lab.base.output
    token = lab.input_axes[1]
    assert base is not None
    axis = lab.output_axes(base)[1]
    if axis is None or token is None:
        return None
    order = torch.arange(lab.length)
    order[one], order[two] = two, one
    values = {name: lab.exact.arguments[name].index_select(token, order) for name in lab.together}
    outcome = lab.run(values)
    if outcome.output is None or outcome.output.shape != base.shape:
        return None
    return float(lab.difference(outcome.output, (axis,))[last])
