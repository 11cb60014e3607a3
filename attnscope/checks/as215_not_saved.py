"""AS215: a tensor that is neither a parameter nor a buffer.

`self.mask = torch.…` makes a plain attribute. `module.to(device)` does not move it and `state_dict()`
does not keep it.

It is bad because the module fails on a GPU; or, where the tensor was drawn at random, because a model that is
loaded from its checkpoint computes something else than the one that was saved.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)
            self.start = torch.randn(16)

        def forward(self, x):
            b, t, c = x.shape
            x = x + self.start.to(x)
            q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(b, t, c)

Cure: `self.register_buffer("start", …)`, with `persistent=False` where it can be computed again;
`nn.Parameter` where it is to be trained.

    - self.start = torch.randn(16)
    + self.register_buffer("start", torch.randn(16))

    - x = x + self.start.to(x)
    + x = x + self.start
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from attnscope.checks.lab import Lab
from attnscope.checks.phases import move_is_explained, moved_error
from attnscope.checks.places import declared, num
from attnscope.checks.subject import parts
from attnscope.diagnostic import Diagnostic, Label, Severity, Tried
from attnscope.sandbox.copying import copied
from attnscope.sandbox.state import quiet, seeded

CODE = "AS215"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    plain = _plain_tensors(lab)
    kept = _loaded(lab)
    if kept is not None:
        moved, lost = kept
        yield Tried(
            "state_dict",
            f"a new module with the same state differs by {num(moved)}"
            if moved
            else "a new module with the same state gives the same",
            moved <= 1e-6,
        )
        if moved > 1e-6:
            yield from _lost(lab, lost, moved)
            return
    error = moved_error(lab)
    for owner, path, name, event in plain:
        if error is None or move_is_explained(lab):
            continue
        yield _finding(
            lab, owner, path, name, event, "error", f"`{name}` stays behind when the module is moved", ()
        )


def _plain_tensors(lab: Lab) -> list[tuple[nn.Module, str, str, int | None]]:
    """Plain tensor attributes that took part in the recorded run, and the first step that read each."""
    used = {leaf: serial for serial, leaf in lab.recording.leaves.items()}
    found = []
    for path, part in parts(lab.recording.root):
        for name, value in list(vars(part).items()):
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and id(value) in used:
                serial = used[id(value)]
                users = lab.lineage.users.get(serial, [])
                found.append((part, path, name, users[0] if users else None))
    return found


def _loaded(lab: Lab) -> tuple[float, list[tuple[nn.Module, str, str]]] | None:
    """How much a module that was built anew and given the same state dict differs, and what of it differs."""
    rebuild = lab.subject.rebuild
    base = lab.own.output
    if rebuild is None or base is None or lab.garbage or lab.spent:
        return None
    with quiet(lab.subject.environment), seeded(991):
        try:
            other = rebuild(991)
            original = copied(lab.subject.module)
            if original is None:
                return None
            other.load_state_dict(original.state_dict())
            other.to(dtype=lab.subject.dtype) if lab.subject.dtype is not None else other
        except KeyboardInterrupt:
            raise
        except BaseException:
            return None
    outcome = lab.subject.run(module=other, fresh=False)
    if outcome.output is None or outcome.output.shape != base.shape or outcome.output.dtype != base.dtype:
        return None
    again = lab.subject.run()
    if again.output is None or not torch.equal(again.output.nan_to_num(), base.nan_to_num()):
        return None
    top = max(float(base.nan_to_num().abs().max()), 1e-30)
    moved = float((outcome.output - base).nan_to_num().abs().max()) / top
    lost = []
    others = dict(parts(other))
    for path, part in parts(lab.subject.module):
        twin = others.get(path)
        if twin is None:
            continue
        tables = [
            ("", vars(part), vars(twin)),
            ("buffer", vars(part).get("_buffers") or {}, vars(twin).get("_buffers") or {}),
        ]
        for _, mine, theirs in tables:
            for name, value in mine.items():
                two = theirs.get(name)
                if (
                    isinstance(value, Tensor)
                    and isinstance(two, Tensor)
                    and not isinstance(value, nn.Parameter)
                ) and (value.shape != two.shape or not torch.equal(value, two)):
                    lost.append((part, path, name))
    return moved, lost


def _lost(lab: Lab, lost: list[tuple[nn.Module, str, str]], moved: float) -> Iterator[Diagnostic]:
    note = (
        f"a module built anew and given this one's state_dict differs by {num(moved)} of the largest output"
    )
    for owner, path, name in lost:
        yield _finding(
            lab,
            owner,
            path,
            name,
            None,
            "error",
            f"`{f'{path}.{name}' if path else name}` is not saved",
            (note,),
        )
        return


def _finding(
    lab: Lab,
    owner: nn.Module,
    path: str,
    name: str,
    event: int | None,
    severity: Severity,
    message: str,
    notes: tuple[str, ...],
) -> Diagnostic:  # fmt: skip
    original = dict(parts(lab.subject.module)).get(path, owner)
    span = declared(original, name)
    read = lab.span(event)
    labels = (Label(read, "read here"),) if read is not None and read != span else ()
    return Diagnostic(
        CODE, severity, message, span, "neither a parameter nor a saved buffer", labels, notes,
        f'register it: `self.register_buffer("{name}", …)`',
    )  # fmt: skip
