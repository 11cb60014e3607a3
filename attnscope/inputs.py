"""Files that take the place of something built in: embeddings for a text, weights for random ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.errors import UsageError
from attnscope.loader.expressions import check_file, load_tensors, read_file
from attnscope.text import visible

EMBEDDING_SUFFIXES = (".npy", ".pt", ".pth", ".json")


def read_embeddings(path: str | os.PathLike[str], option: str = "--input") -> Tensor:
    """The embeddings [B, T, C] in a `.npy`, `.pt` or `.json` file; [T, C] becomes a batch of one.

    Whole numbers and float64 become float32, the dtype of the layers; half types stay. Nothing in the file is
    run. Raises UsageError for a file that is missing, too large, of another kind or shape, or not finite.
    """
    target = Path(path)
    shown = visible(str(target))
    if target.suffix.lower() not in EMBEDDING_SUFFIXES:
        raise UsageError(f"{option} {shown} is of no known kind", "a .npy, .pt or .json file would work")
    value = read_file(target, option)
    if not isinstance(value, Tensor):
        raise UsageError(
            f"{option} {shown} holds {type(value).__name__}, not one array",
            "save one tensor [T, C] or [B, T, C]",
        )
    if value.layout is not torch.strided or value.is_complex() or value.dtype is torch.bool:
        raise UsageError(f"{option} {shown} holds {_kind(value)}", "numbers [T, C] or [B, T, C] would work")
    if value.ndim not in (2, 3) or 0 in value.shape:
        shape = list(value.shape)
        raise UsageError(f"{option} {shown} has the shape {shape}", "[T, C] or [B, T, C] would work")
    value = value.detach()
    if value.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        value = value.to(torch.float32)
    finite = torch.isfinite(value)
    if not bool(finite.all()):
        place = (~finite).nonzero()[0].tolist()
        bad = float(value[tuple(place)])
        raise UsageError(f"{option} {shown} holds {bad:g} at {place}", "only finite numbers would work")
    return value.unsqueeze(0) if value.ndim == 2 else value


def load_weights(module: nn.Module, path: str | os.PathLike[str], option: str = "--state-dict") -> None:
    """Load a state dict into `module`. Only tensors are read from the file, nothing in it is run.

    A state dict may lie under the key `model` or `state_dict`, as training scripts save it. Raises UsageError
    for a file that is missing, no state dict, or one whose names or shapes do not fit.
    """
    target = Path(path)
    shown = visible(str(target))
    check_file(target, option)
    value = _read_weights(target, shown, option)
    for key in ("model", "state_dict"):
        if isinstance(value, dict) and isinstance(value.get(key), dict):
            value = value[key]
    if not isinstance(value, dict) or not value or not all(isinstance(v, Tensor) for v in value.values()):
        raise UsageError(f"{option} {shown} holds no state dict", "save module.state_dict() with torch.save")
    try:
        module.load_state_dict(_with_own_masks(module, value))
    except RuntimeError as error:
        raise UsageError(f"{option} {shown} does not fit: {_reason(error)}", _expected(module)) from None


def _with_own_masks(module: nn.Module, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights with the layer's own masks where theirs are missing or made for another context.

    A causal mask is no weight: who saved the projections alone, or with a shorter context, saved them all.
    """
    fitted = dict(given)
    for name, mask in module.named_buffers():
        theirs = given.get(name)
        if theirs is None or theirs.shape != mask.shape:
            fitted[name] = mask
            other = f"{name.removesuffix('mask')}bias"  # the name that nanoGPT gives to its mask
            if theirs is None and other in given and given[other].ndim == mask.ndim == 4:
                del fitted[other]
    return fitted


def _read_weights(target: Path, shown: str, option: str) -> Any:
    try:
        return load_tensors(target)
    except Exception as error:  # unpickling a stranger's file may raise anything
        reason = visible(str(error).strip().partition("\n")[0] or type(error).__name__)[:100]
        raise UsageError(
            f"{option} {shown} cannot be read as weights ({reason})",
            "save module.state_dict() with torch.save",
        ) from None


def _kind(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.") if value.layout is torch.strided else "a sparse array"


def _reason(error: RuntimeError) -> str:
    """The first complaint of `load_state_dict`, which lists all of them on lines of their own."""
    lines = [line.strip() for line in str(error).splitlines()[1:] if line.strip()]
    first = lines[0] if lines else str(error).partition("\n")[0]
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return visible(first.rstrip("."))[:240] + more


def _expected(module: nn.Module) -> str:
    names = [f"{name} {list(value.shape)}" for name, value in module.state_dict().items()]
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"this layer has {shown}"
