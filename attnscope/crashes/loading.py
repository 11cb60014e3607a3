"""A state dict beside the module that it was given to: shared by the loading rules."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnscope.crashes.frames import chain
from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import settings
from attnscope.crashes.values import is_module, is_tensor, read
from attnscope.diagnostic import Label
from attnscope.source import class_of

PREFIXES = ("_orig_mod.", "module.", "model.", "_fsdp_wrapped_module.", "transformer.", "net.", "backbone.")
_SIZE = re.compile(
    r"size mismatch for ([\w.]+): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from checkpoint, "
    r"the shape in current model is torch\.Size\(\[([\d, ]*)\]\)"
)
_LIST = re.compile(r"(Missing|Unexpected) key\(s\) in state_dict: ((?:\"[^\"]+\"(?:, )?)+)")


@dataclass(frozen=True)
class Loading:
    """`have`: what the module holds, `given`: what the state dict holds, both name → shape.

    `sized`: names in both with other shapes; `missing`: only the module's; `unexpected`: only the dict's;
    `nested`: the key under which the whole state dict lies, if it does.
    """

    module: Any
    have: dict[str, tuple[int, ...]]
    given: dict[str, tuple[int, ...]]
    sized: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    nested: str = ""


def loading(scene: Scene) -> Loading | None:
    """The comparison, for an exception that came from `load_state_dict`; else None."""
    module, state = _parties(scene)
    words = scene.words
    with contextlib.suppress(Exception):
        words = " ".join(str(scene.error.args[0]).split()) if scene.error.args else words
    if "loading state_dict" not in words and scene.crash.phase != "load":
        return None
    have = held(module) if module is not None else {}
    given = {
        str(name): tuple(int(n) for n in value.shape)
        for name, value in (state.items() if isinstance(state, Mapping) else ())
        if is_tensor(value)
    }
    if have and not given and isinstance(state, Mapping):
        inner = [key for key, value in state.items() if isinstance(key, str) and _holds_tensors(value)]
        if inner:
            return Loading(module, have, {}, (), tuple(have), tuple(map(str, state)), inner[0])
    if not given or not have:
        sizes = _SIZE.findall(words)
        lists = {kind: re.findall(r"\"([^\"]+)\"", names) for kind, names in _LIST.findall(words)}
        for name, theirs, ours in sizes:
            given[name], have[name] = _shape(theirs), _shape(ours)
        return Loading(
            module, have, given, tuple(name for name, _, _ in sizes),
            tuple(lists.get("Missing", ())), tuple(lists.get("Unexpected", ())),
        )  # fmt: skip
    return Loading(
        module,
        have,
        given,
        tuple(name for name in have if name in given and given[name] != have[name]),
        tuple(name for name in have if name not in given),
        tuple(name for name in given if name not in have),
    )


def _holds_tensors(value: Any) -> bool:
    return issubclass(type(value), dict) and any(is_tensor(one) for one in list(dict.values(value))[:50])


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(",") if n.strip())


def _parties(scene: Scene) -> tuple[Any, Any]:
    module, state = scene.crash.module, scene.crash.state
    for shot in chain(scene.error.__traceback__):
        if shot.frame.f_code.co_name == "load_state_dict" and "state_dict" in shot.frame.f_locals:
            module = shot.frame.f_locals.get("self", module)
            state = state if state is not None else shot.frame.f_locals.get("state_dict")
    return module, state


def held(module: Any) -> dict[str, tuple[int, ...]]:
    """Name → shape of all parameters and of the buffers that are saved."""
    found: dict[str, tuple[int, ...]] = {}
    stack: list[tuple[str, Any]] = [("", module)]
    seen: set[int] = set()
    while stack:
        prefix, one = stack.pop(0)
        if not is_module(one) or id(one) in seen:
            continue
        seen.add(id(one))
        unsaved = read(one, "_non_persistent_buffers_set") or ()
        for table in ("_parameters", "_buffers"):
            for name, value in (read(one, table) or {}).items():
                if is_tensor(value) and not (table == "_buffers" and name in unsaved):
                    found[prefix + name] = tuple(int(n) for n in value.shape)
        stack += [(f"{prefix}{name}.", child) for name, child in (read(one, "_modules") or {}).items()]
    return found


def places(scene: Scene, found: Loading, names: tuple[str, ...], text: str) -> list[Label]:
    """Where the state dict was made, then where the module sets what the names are about."""
    labels: list[Label] = []
    call = scene.op.node if scene.op is not None else None
    if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Name):
        given = scene.env.definition(call.args[0].id)
        if given is not None:
            labels.append(scene.label(given[0], f"`{call.args[0].id}` is made here"))
    for name in names[:3]:
        label = _place(found.module, name.split("."), text.format(name=name))
        if label is not None:
            labels.append(label)
    return labels


def _place(module: Any, path: list[str], text: str) -> Label | None:
    current, best = module, None
    for part in path:
        if not is_module(current):
            break
        if type(current).__module__.startswith("torch."):
            break
        held = class_of(type(current))
        if held is not None:
            parsed, klass = held
            setting = next((one for one in settings(klass) if one.name == part), None)
            if setting is not None:
                best = Label(parsed.node_span(setting.target), text)
        current = (read(current, "_modules") or {}).get(part)
    return best


def several(names: tuple[str, ...] | list[str], limit: int = 3) -> str:
    """`` `a`, `b` and 4 more ``."""
    shown = ", ".join(f"`{name}`" for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")
