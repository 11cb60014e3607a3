"""AS133: the names in a state dict are not the module's.

`torch.compile` puts `_orig_mod.` before every name, `DataParallel` puts `module.`; a layer was renamed; a
mask that is a saved buffer in the one is none in the other.

It is bad because `strict=False` would load nothing, and say nothing.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)
            weights = {"_orig_mod.qkv.weight": torch.zeros(48, 16), "_orig_mod.qkv.bias": torch.zeros(48)}
            self.load_state_dict(weights)

        def forward(self, x):
            return self.qkv(x)

Cure: rename the keys, `{k.removeprefix("_orig_mod."): v for k, v in state.items()}`.

    - self.load_state_dict(weights)
    + self.load_state_dict({name.removeprefix("_orig_mod."): w for name, w in weights.items()})
"""

from __future__ import annotations

from attnscope.crashes.loading import PREFIXES, Loading, loading, places, several
from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import nearness
from attnscope.diagnostic import Diagnostic

CODE = "AS133"


def diagnose(scene: Scene) -> Diagnostic | None:
    found = loading(scene)
    if found is None or not (found.missing or found.unexpected):
        return None
    notes = []
    if found.missing:
        notes.append(f"only in the module: {several(found.missing, 6)}")
    if found.unexpected:
        notes.append(f"only in the state dict: {several(found.unexpected, 6)}")
    message, cure = _said(found)
    return scene.finding(
        CODE,
        message,
        label="loaded here" if scene.shot is not None else "",
        labels=places(scene, found, found.missing, "`{name}` is not in the state dict"),
        notes=notes,
        help=cure,
    )


def _said(found: Loading) -> tuple[str, str]:
    if found.nested:
        return (
            f"the weights lie one level deeper, under the key `{found.nested}`",
            f'load what is there: `state["{found.nested}"]`',
        )
    for prefix in _prefixes(found):
        if _fits({name.removeprefix(prefix) for name in found.given}, found):
            return (
                f"the names in the state dict begin with `{prefix}`, the module's do not",
                f'take the prefix off: `{{k.removeprefix("{prefix}"): v for k, v in state.items()}}`',
            )
    for prefix in {name.split(".")[0] + "." for name in found.have if "." in name}:
        if _fits({prefix + name for name in found.given}, found):
            return (
                f"the module's names begin with `{prefix}`, those in the state dict do not",
                f'put the prefix before: `{{"{prefix}" + k: v for k, v in state.items()}}`',
            )
    pairs = renamed(found)
    if pairs:
        shown = ", ".join(f"`{old}` → `{new}`" for old, new in list(pairs.items())[:4])
        more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
        return (
            "layers have other names in the state dict than in the module",
            f"rename, by order and shape: {shown}{more}",
        )
    masks = [
        name
        for name in (*found.missing, *found.unexpected)
        if any(w in name.lower() for w in ("mask", "bias", "tri", "causal")) and _square(found, name)
    ]
    if found.missing and not found.unexpected:
        cure = f"add {several(found.missing)} to the state dict"
        if set(masks) >= set(found.missing):
            cure = (
                "register the mask with `persistent=False`: it is "
                "made anew and need not be loaded; or `strict=False`"
            )
        return f"the state dict lacks {several(found.missing)}", cure
    if found.unexpected and not found.missing:
        cure = f"take {several(found.unexpected)} out of the state dict, or give the module what they are for"
        return f"the state dict has {several(found.unexpected)}, which the module has not", cure
    return (
        f"the state dict lacks {several(found.missing)} and has {several(found.unexpected)} instead",
        "rename the keys of the state dict to the module's names",
    )


def _square(found: Loading, name: str) -> bool:
    """A mask is square; a layer's bias, which may bear the same name, is not."""
    shape = found.have.get(name) or found.given.get(name) or ()
    return len(shape) >= 2 and shape[-1] == shape[-2]


def _prefixes(found: Loading) -> list[str]:
    firsts = {name.split(".")[0] + "." for name in found.given if "." in name}
    return [*(p for p in PREFIXES if p in firsts), *sorted(firsts - set(PREFIXES))]


def _fits(names: set[str], found: Loading) -> bool:
    """Whether, so renamed, more names agree than before, and none of the module's weights is left out."""
    have = set(found.have)
    return len(names & have) > len(set(found.given) & have) and len(have - names) <= len(have) // 4


def renamed(found: Loading) -> dict[str, str]:
    """Old name → new, where shapes and order leave one reading; {} where they do not."""
    left, pairs = list(found.missing), {}
    for old in found.unexpected:
        shape = found.given.get(old)
        fitting = [
            new
            for new in left
            if found.have.get(new) == shape and new.rsplit(".", 1)[-1] == old.rsplit(".", 1)[-1]
        ]
        if not fitting:
            return {}
        best = max(fitting, key=lambda new: (nearness(_stem(old), _stem(new)) >= 0.65, -left.index(new)))
        pairs[old] = best
        left.remove(best)
    return pairs


def _stem(name: str) -> str:
    parts = name.split(".")
    return parts[-2] if len(parts) > 1 else parts[-1]
