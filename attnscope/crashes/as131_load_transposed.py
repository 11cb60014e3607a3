"""AS131: the weights in a state dict are transposed.

GPT-2's published checkpoints keep the weights of their `Conv1D` layers as [in, out]; `nn.Linear` keeps
[out, in]. Every such weight has to be transposed when it is loaded.

It is bad because square weights load without a word and are wrong.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)
            weights = {"qkv.weight": torch.zeros(16, 48), "qkv.bias": torch.zeros(48)}
            self.load_state_dict(weights)

        def forward(self, x):
            return self.qkv(x)

Cure: `state["qkv.weight"] = state["qkv.weight"].t()` for each of them, the square ones too.

    - self.load_state_dict(weights)
    + self.load_state_dict({name: w.t() for name, w in weights.items()})
"""

from __future__ import annotations

from attnscope.crashes.loading import loading, places, several
from attnscope.crashes.scene import Scene, sizes
from attnscope.diagnostic import Diagnostic

CODE = "AS131"


def diagnose(scene: Scene) -> Diagnostic | None:
    found = loading(scene)
    if found is None or not found.sized:
        return None
    turned = [
        name
        for name in found.sized
        if found.given[name] == found.have[name][::-1] and len(found.have[name]) == 2
    ]
    if not turned:
        return None
    square = [
        name
        for name, shape in found.given.items()
        if len(shape) == 2
        and shape[0] == shape[1]
        and found.have.get(name) == shape
        and name.endswith("weight")
    ]
    name = turned[0]
    notes = [
        f"`{one}`: {sizes(found.given[one])} in the state dict, {sizes(found.have[one])} in the module"
        for one in turned[:4]
    ]
    cure = f"transpose {several(turned)} before `load_state_dict`: `.t()`"
    if square:
        cure += (
            f"; {several(square)} {'is' if len(square) == 1 else 'are'} "
            f"square, and most likely transposed as well"
        )
    return scene.finding(
        CODE,
        f"`{name}` is {sizes(found.given[name])} in the state dict "
        f"and {sizes(found.have[name])} in the module: transposed",
        label="loaded here" if scene.shot is not None else "",
        labels=places(scene, found, tuple(turned), "`{name}` belongs to this layer"),
        notes=notes,
        help=cure,
    )
