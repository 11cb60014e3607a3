"""Small facts about tensors that the recorder and its helpers share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from attnscope.sandbox.tensors import is_tensor


class Ref(int):
    """Stands in a frozen argument list where a tensor stood: its serial number."""

    __slots__ = ()


def facts_of(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]:
    """Shape, stride, dtype, device; of a class that refuses to tell its shape, those of no tensor."""
    try:
        return tensor.shape, strides_of(tensor), tensor.dtype, tensor.device
    except Exception:
        return (), (), torch.float32, torch.device("cpu")


def strides_of(tensor: Tensor) -> tuple[int, ...]:
    """The strides in elements; none for layouts that have none."""
    try:
        return tensor.stride()
    except RuntimeError:
        return ()


def to_numpy(tensor: Tensor) -> Any:
    """The values at this moment, as a numpy array of its own (float32 for half types); None without any."""
    try:
        value = tensor.detach()
        if value.is_meta or value.layout is not torch.strided:
            return None
        if value.is_quantized:
            value = value.dequantize()
        if value.dtype in (torch.bfloat16, torch.float16):
            value = value.float()
        return value.resolve_conj().resolve_neg().cpu().numpy().copy()
    except (RuntimeError, TypeError):  # inside `vmap` and its like there are no values to be had
        return None


def refs_in(frozen: Sequence[Any]) -> Iterator[int]:
    """The serial numbers in a frozen argument list, in order, nested ones too."""
    for value in frozen:
        if type(value) is Ref:
            yield int(value)
        elif isinstance(value, tuple):
            yield from refs_in(value)


def tensors_in(values: Sequence[Any]) -> Iterator[Tensor]:
    """The tensors in an argument list, in order, nested ones too."""
    for value in values:
        if is_tensor(value):
            yield value
        elif issubclass(type(value), tuple | list):
            yield from tensors_in(value)
