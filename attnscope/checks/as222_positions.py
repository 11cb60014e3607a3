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
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from attnscope.checks.lab import Lab
from attnscope.checks.leaks import leak_of
from attnscope.checks.places import num
from attnscope.diagnostic import Diagnostic, Tried

CODE = "AS222"
_ANGLES = re.compile(
    r"(^|[._])(cos|sin|freqs?|rope|rotary|inv_freq|freqs_cis)($|[._])|cos_|sin_|_cos|_sin|rotary|rope", re.I
)


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    steps = position_steps(lab)
    if not steps or lab.main is None or lab.base.output is None or lab.length < 4:
        return
    if any(name in lab.subject.guessed and _ANGLES.search(name) for name in lab.exact.arguments):
        return
    if lab.influence is None or (lab.causal and leak_of(lab).kind not in ("none", "open")):
        return
    moved = _swapped(lab)
    if moved is None:
        return
    held = moved > lab.nothing * 100
    yield Tried("positions", f"two tokens exchanged: the last output moves by {num(moved)}", held)
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
        ("the first two tokens were exchanged, and the last output is the same to the last bit that counts",),
        "move heads before tokens, [B, H, T, D], before q and k are rotated"
        if turned is None
        else "rotate q and k both, by the same angles",
        (("exchanged", "change of the last output"), ("tokens 0 and 1", num(moved))),
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
    angles: set[int] = set()
    for serial, leaf in lab.recording.leaves.items():
        kind, name = lab.recording.owned.get(leaf, ("", ""))
        if kind and _ANGLES.search(name):
            angles.add(serial)
    for name, serial in lab.recording.arguments:
        if _ANGLES.search(name) and name not in lab.together:
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
                event.op.name.rstrip("_") in ("mul", "matmul", "einsum")
                and any(ref in angles and ref not in fed for ref in refs)
                and any(out in inputs for out in event.outputs)
            ):
                found.append(index)
            fed.update(event.outputs)
        elif event.op.name.rstrip("_") in ("cos", "sin", "polar") or any(ref in angles for ref in refs):
            angles.update(event.outputs)
    return found


def _swapped(lab: Lab) -> float | None:
    """How much the last output moves when the first two tokens are exchanged."""
    base = lab.base.output
    token = lab.input_axes[1]
    assert base is not None
    axis = lab.output_axes(base)[1]
    if axis is None or token is None:
        return None
    order = torch.arange(lab.length)
    order[0], order[1] = 1, 0
    values = {name: lab.exact.arguments[name].index_select(token, order) for name in lab.together}
    outcome = lab.run(values)
    if outcome.output is None or outcome.output.shape != base.shape:
        return None
    return float(lab.difference(outcome.output, (axis,))[-1])
