"""AS220: a layer with weights is made in `forward`.

`nn.Linear(…)` inside `forward` draws new weights in each call. They are not among the module's parameters: no
optimizer sees them, no checkpoint keeps them.

It is bad because the output is random, in training and after it.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            out = nn.Linear(c, c, device=x.device, dtype=x.dtype)
            return out(y.transpose(1, 2).reshape(b, t, c))

Cure: make it once, in `__init__`, as an attribute of `self`.

      self.qkv = nn.Linear(16, 48)
    + self.out = nn.Linear(16, 16)

    - out = nn.Linear(c, c, device=x.device, dtype=x.dtype)
    - return out(y.transpose(1, 2).reshape(b, t, c))
    + return self.out(y.transpose(1, 2).reshape(b, t, c))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from attnscope.checks.hidden import hidden_modules
from attnscope.checks.lab import Lab
from attnscope.checks.places import num
from attnscope.diagnostic import Diagnostic, Tried
from attnscope.recorder.record import Recording

CODE = "AS220"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    found = made_in_forward(lab)
    if found is None:
        return
    module, index, recording = found
    event = recording.events[index] if index is not None else None
    span = None
    if event is not None and event.code is not None:
        from attnscope.source import span_of

        span = span_of(event.code, event.lasti)
    kind = type(module).__name__
    one, two = lab.run(seed=1), lab.run(seed=2)
    notes = []
    if one.output is not None and two.output is not None and one.output.shape == two.output.shape:
        gap = float((one.output - two.output).abs().max() / max(float(one.output.abs().max()), 1e-30))
        notes.append(f"two runs in eval() on the same input differ by {num(gap)} of the largest output")
    notes.append("its weights are in neither parameters() nor state_dict()")
    yield Diagnostic(
        CODE, "error", f"a `{kind}` is made anew in each forward", span,
        "new random weights in each call", (), tuple(notes),
        f"make the `{kind}` once in `__init__`, as an attribute of `self`",
    )  # fmt: skip


def made_in_forward(lab: Lab) -> tuple[nn.Module, int | None, Recording] | None:
    """The first layer with parameters that ran and that only this run made; the step that drew its
    weights."""
    return lab.once(_find)


def _find(lab: Lab) -> tuple[nn.Module, int | None, Recording] | None:
    for recording in (lab.recording, lab.own_recording):
        known = {id(m) for m in hidden_modules(recording.root, everything=True)}
        for call, (module, *_) in enumerate(recording.calls):
            if id(module) in recording.paths or id(module) in known or not _has_weights(module):
                continue
            if not _is_new(module, recording, lab):
                continue
            return module, _drawn(recording, call), recording
    return None


def _has_weights(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def _is_new(module: nn.Module, recording: Recording, lab: Lab) -> bool:
    """Whether a second run makes another one: a global or a closure's layer is the same object in each
    run."""
    again = lab.record(replace(lab.exact, module=recording.root), copy=False)
    return all(module is not other for other, *_ in again.calls)


def _drawn(recording: Recording, call: int) -> int | None:
    """The step of the user's line that made the weights: the last draw before the call."""
    names = ("uniform_", "normal_", "kaiming_uniform_", "xavier_uniform_", "empty", "trunc_normal_")
    first_of_call = next(
        (i for i, event in enumerate(recording.events) if event.call == call), len(recording.events)
    )
    found = None
    for index, event in enumerate(recording.events[:first_of_call]):
        if event.op.name in names and event.code is not None:
            found = index
    if found is None and first_of_call < len(recording.events):
        return first_of_call
    return found
