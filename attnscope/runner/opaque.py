"""Modules and functions whose inside must run without a mode: compiled, scripted, fused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn, overrides
from torch.overrides import TorchFunctionMode

# Untyped functions of PyTorch's.
_stack_of_modes: Any = overrides._get_current_function_mode_stack
_pop_mode: Any = overrides._pop_mode
_push_mode: Any = overrides._push_mode

PLAIN, COMPILED, SCRIPTED, FUSED = "", "compiled", "scripted", "fused"

KINDS: dict[type, str] = {}
_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


def kind_of(module: nn.Module) -> str:
    """What stands in the way of watching a module's inside, if anything."""
    cls = type(module)
    kind = KINDS.get(cls)
    if kind is None:
        if cls.__name__ == "OptimizedModule":  # its own file takes a second to import
            kind = COMPILED
        elif isinstance(module, torch.jit.ScriptModule):
            kind = SCRIPTED
        else:
            kind = FUSED if isinstance(module, _FUSED) else PLAIN
        KINDS[cls] = kind
    return kind


def is_fused(module: nn.Module) -> bool:
    """Whether PyTorch may take its fused inference path; a mode turns it off, and the last bits differ."""
    if module.training:
        return False
    return not torch.is_grad_enabled() or not any(p.requires_grad for p in module.parameters())


@contextmanager
def without(recorder: TorchFunctionMode) -> Iterator[None]:
    """Take one mode off the stack for a while; the others stay in their order."""
    stack: list[Any] = _stack_of_modes()
    if not any(mode is recorder for mode in stack):  # already off: a handler is running
        yield
        return
    above: list[Any] = []
    while (mode := _pop_mode()) is not recorder:
        above.append(mode)
    for mode in reversed(above):
        _push_mode(mode)
    try:
        yield
    finally:
        back: list[Any] = []
        for _ in above:
            back.append(_pop_mode())
        _push_mode(recorder)
        for mode in reversed(back):
            _push_mode(mode)
