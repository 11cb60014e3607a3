"""AS128: a name is used that does not exist there.

A variable or a module was never defined or imported, is defined only on another path, or belongs to another
function; or an import names what a package does not have.

It is bad because the line runs only on the path that reaches it.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            scale = x.size(-1) ** -0.5
            return x * scal

Cure: use the name that exists, or define it before.

    - return x * scal
    + return x * scale
"""

from __future__ import annotations

import re

from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import is_before, nearness
from attnscope.crashes.values import UNKNOWN, is_module, read
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS128"
_NAME = re.compile(r"(?:name|variable) '([^']+)'")
_KNOWN = {
    "math": "import math",
    "torch": "import torch",
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
    "np": "import numpy as np",
    "rearrange": "from einops import rearrange",
    "Optional": "from typing import Optional",
}


def diagnose(scene: Scene) -> Diagnostic | None:
    if issubclass(type(scene.error), ImportError):
        return scene.finding(
            CODE, scene.words or "an import failed", label="imported here",
            help="install the package, or mend the name that is imported",
        )  # fmt: skip
    if not issubclass(type(scene.error), NameError):
        return None
    found = _NAME.search(scene.words)
    if found is None:
        return None
    name = found[1]
    labels: list[Label] = []
    reader = scene.reader
    places = reader.defs.get(name, []) if reader is not None else []
    places = [pair for pair in places if scene.shot is None or pair[0] is not scene.shot.statement]
    if places and scene.node is not None:
        place = places[0][0]
        if is_before(place, scene.node):
            text = "is set here, on a path that was not taken"
            cure = f"set `{name}` on every path before it is read"
        else:
            text = "is set here, after it is read"
            cure = f"set `{name}` before it is read"
        return scene.finding(
            CODE, f"`{name}` has no value yet", label="read here",
            labels=[scene.label(place, f"`{name}` {text}")], help=cure,
        )  # fmt: skip
    known: list[str] = []
    if reader is not None:
        known = [*reader.body.locals, *reader.shot.frame.f_globals]
    own = _attribute(scene, name)
    usable = [one for one in known if nearness(one, name) >= 0.7 and one != name and not one.startswith("__")]
    near = sorted(usable, key=lambda one: -nearness(one, name))
    init = next((one for one in scene.settings if one.name == name), None)
    cure = f"define or import `{name}` first"
    if name in _KNOWN:
        cure = f"add `{_KNOWN[name]}` at the top of the file"
    elif own or init is not None:
        cure = f"read `self.{name}`"
        if init is not None:
            labels.append(scene.label(init.target, f"`self.{name}` is set here"))
    elif near:
        cure = f"use `{near[0]}`"
        if reader is not None and near[0] in reader.defs:
            labels.append(scene.label(reader.defs[near[0]][0][0], f"`{near[0]}` is set here"))
    else:
        kept = [one for one in scene.settings if nearness(one.name, name) >= 0.65]
        if kept:
            cure = f"read `self.{kept[0].name}`, or define `{name}` first"
            labels.append(scene.label(kept[0].target, f"`self.{kept[0].name}` is set here"))
    for store in scene.unread_names()[:3]:
        labels.append(scene.label(store, f"`{store.id}` is set here and never read"))
        if not near and nearness(store.id, name) >= 0.5:
            cure = f"use `{store.id}`, or name it `{name}` where it is set"
    return scene.finding(CODE, f"there is no name `{name}` here", label="read here", labels=labels, help=cure)


def _attribute(scene: Scene, name: str) -> bool:
    return is_module(scene.owner) and read(scene.owner, name) is not UNKNOWN
