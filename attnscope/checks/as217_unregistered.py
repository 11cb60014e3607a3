"""AS217: layers or weights that were never registered.

`nn.Module` finds its parts where they are attributes of their own, or in `nn.ModuleList`, `nn.ModuleDict` and
`nn.ParameterList`. It does not look into Python lists and dicts, and a plain tensor is no parameter.

It is bad because what is not registered is in neither `parameters()` nor `state_dict()`: never trained, never
saved, never moved to the GPU.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = [nn.Linear(16, 24) for _ in range(2)]

        def forward(self, x):
            parts = [head(x).chunk(3, -1) for head in self.heads]
            return torch.cat([F.scaled_dot_product_attention(*p, is_causal=True) for p in parts], -1)

Cure: `nn.ModuleList([...])` for layers, `nn.Parameter(...)` or `nn.ParameterList` for tensors.

    - self.heads = [nn.Linear(16, 24) for _ in range(2)]
    + self.heads = nn.ModuleList([nn.Linear(16, 24) for _ in range(2)])
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from attnscope.checks.hidden import Hidden, hidden
from attnscope.checks.lab import Lab
from attnscope.checks.places import counted, declared
from attnscope.checks.subject import parts
from attnscope.diagnostic import Diagnostic, Tried

CODE = "AS217"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    found = hidden(lab.subject.module)
    number = sum(1 for _ in lab.subject.module.parameters())
    yield Tried("registered", f"{counted(number, 'parameter')}; {len(found)} held elsewhere", not found)
    groups: dict[tuple[int, str], list[Hidden]] = {}
    for one in found:
        groups.setdefault((id(one.owner), one.name), []).append(one)
    for group in groups.values():
        yield _finding(lab, group)


def _finding(lab: Lab, group: list[Hidden]) -> Diagnostic:
    first = group[0]
    name = f"{first.path}.{first.name}" if first.path else first.name
    modules = [one.value for one in group if isinstance(one.value, nn.Module)]
    ran = _ran(lab, first.name, bool(modules))
    trained = any(p.requires_grad for m in modules for p in m.parameters()) or not modules
    if modules:
        kind = type(modules[0]).__name__
        lost = sum(p.numel() for m in modules for p in m.parameters())
        message = (
            f"{counted(len(modules), 'layer')} in `{name}` are not registered"
            if len(modules) > 1
            else f"a layer in `{name}` is not registered"
        )
        label = f"a {first.kind} of {len(modules)} `{kind}`"
        cure = "nn.ModuleDict" if first.kind == "dict" else "nn.ModuleList"
        help_ = f"wrap it: `{cure}(…)`"
    else:
        lost = sum(one.value.numel() for one in group)
        message = f"`{name}` wants gradients and is no parameter"
        label = f"a {'tensor' if first.kind == 'Tensor' else first.kind} that no optimizer sees"
        help_ = (
            "make it an `nn.Parameter`"
            if first.kind in ("Tensor", "Parameter")
            else "wrap it: `nn.ParameterList(…)`"
        )
    return Diagnostic(
        CODE,
        "error" if ran and trained else "note",
        message,
        declared(first.owner, first.name),
        label,
        (),
        (f"its {lost} numbers are in neither parameters() nor state_dict()",),
        help_,
        (
            ("", "numbers"),
            ("parameters()", str(sum(p.numel() for p in lab.subject.module.parameters()))),
            ("not among them", str(lost)),
        ),
    )


def _ran(lab: Lab, name: str, modules: bool) -> bool:
    """Whether what is hidden took part in the recorded run."""
    if lab.recording.error is not None:
        return False
    root = lab.recording.root
    held = [one for one in hidden(root) if one.name == name]
    if not modules:
        leaves = set(lab.recording.leaves.values())
        return any(id(one.value) in leaves for one in held)
    called = {id(module) for module, *_ in lab.recording.calls}
    leaves = set(lab.recording.leaves.values())
    for one in held:
        if not isinstance(one.value, nn.Module):
            continue
        if any(id(inner) in called for _, inner in parts(one.value)):
            return True
        if any(id(p) in leaves for p in one.value.parameters()):
            return True
    return False
