"""Memory that a constructor asks for: how much is too much, and what is left to chance is marked.

What is never set gets small numbers that a seed decides.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

_FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand)
_UNSET = -1.2345678e-30


class TooLargeError(Exception):
    """A constructor asks for more numbers than one that nobody gave sizes may."""


class MarkedMemory(TorchFunctionMode):
    """Marks the memory that `torch.empty` leaves to chance, so that what is never set can be told.

    Where CUDA is missing, a constructor's `.cuda()` and `device="cuda"` stay on the CPU. A constructor that
    asks for more than `limit` numbers is stopped by a `TooLargeError` before it gets them.
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.asked = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if not torch.cuda.is_available():
            if func is torch.Tensor.cuda:
                return args[0]
            if "cuda" in str(kwargs.get("device", "")):
                kwargs["device"] = "cpu"
            if func is torch.Tensor.to and len(args) > 1 and "cuda" in str(args[1]):
                args = (args[0], "cpu", *args[2:])
        if self.limit is not None and func in _FACTORIES:
            self.asked += _asked(args, kwargs)
            if self.asked > self.limit:
                raise TooLargeError(f"more than {self.limit} numbers")
        made = func(*args, **kwargs)
        if func in (torch.empty, torch.empty_like, torch.Tensor.new_empty) and made.is_floating_point():
            made.detach().fill_(_UNSET)
        return made


def _asked(args: Any, kwargs: Any) -> int:
    """How many numbers a factory makes."""
    size = kwargs.get("size", args[0] if args else ())
    sizes = size if isinstance(size, (tuple, list)) else args
    return math.prod(n for n in sizes if type(n) is int)


def fill_unset(module: nn.Module, seed: int) -> None:
    """What the constructor leaves unset gets small normal numbers in place of chance."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in [*module.parameters(), *module.buffers()]:
        if is_lazy(tensor):
            continue
        if tensor.is_floating_point() and tensor.numel() and tensor.device.type == "cpu":
            mark = torch.tensor(_UNSET, dtype=tensor.dtype)
            if bool(tensor.flatten()[0] == mark) and bool((tensor == mark).all()):
                with torch.no_grad():
                    tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)
