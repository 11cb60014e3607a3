"""AS132: tensors in a state dict have other sizes than in the module.

The checkpoint was made with another configuration: a longer context, another vocabulary, more heads.

It is bad because all the names agree.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(8, 8).tril())
            self.load_state_dict({"mask": torch.ones(16, 16).tril()})

        def forward(self, x):
            return x

Cure: make the module with the checkpoint's sizes; leave out masks (`persistent=False`), cut tables.

    - self.register_buffer("mask", torch.ones(8, 8).tril())
    + self.register_buffer("mask", torch.ones(16, 16).tril())
"""

from __future__ import annotations

from attnscope.crashes.loading import loading, places, several
from attnscope.crashes.scene import Scene, sizes
from attnscope.diagnostic import Diagnostic

CODE = "AS132"


def diagnose(scene: Scene) -> Diagnostic | None:
    found = loading(scene)
    if found is None or not found.sized:
        return None
    names = found.sized
    first = names[0]
    notes = [
        f"`{one}`: {sizes(found.given[one])} in the state dict, {sizes(found.have[one])} in the module"
        for one in names[:6]
    ]
    masks = [
        one
        for one in names
        if any(word in one.lower() for word in ("mask", "bias", "tri", "causal")) and _square(found.have[one])
    ]
    cure = f"make the module with the sizes of the checkpoint ({several(names)})"
    if masks and len(masks) == len(names):
        cure = (
            f"leave {several(masks)} out of the state dict (register it with `persistent=False`), "
            "or make the module with the checkpoint's context length"
        )
    return scene.finding(
        CODE,
        f"`{first}` is {sizes(found.given[first])} in the state "
        f"dict and {sizes(found.have[first])} in the module",
        label="loaded here" if scene.shot is not None else "",
        labels=places(scene, found, names, "`{name}` is made here"),
        notes=notes,
        help=cure,
    )


def _square(shape: tuple[int, ...]) -> bool:
    return len(shape) >= 2 and shape[-1] == shape[-2]
