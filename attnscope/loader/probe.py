"""Trying a call on a copy of the module: does it run, how far, is it causal, which axis is the batch."""

from __future__ import annotations

import linecache
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from attnscope.loader.importing import Environment, run_user_code
from attnscope.loader.stubs import missing_in
from attnscope.sandbox.copying import cloned, deep_copy
from attnscope.sandbox.limits import TookTooLongError, limited
from attnscope.sandbox.tensors import first_tensor

_SMALL = 400_000
_MOST_TRIES = 400
_FEW_TRIES = 60
_SECONDS = 15.0
_CARRIES = {"__getitem__", "to", "long", "int", "t", "transpose", "permute", "contiguous", "clone", "detach"}
_RESHAPED = {"view", "reshape", "flatten"}
_OWN = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)


class _Counter(TorchFunctionMode):
    """Counts calls of torch and notes what each watched tensor is first given to."""

    def __init__(self, watched: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.count = 0
        self.watched = {id(t): n for n, t in watched.items()}
        self.first: dict[str, tuple[str, int]] = {}
        self.maps: set[tuple[int, int]] = set()
        self.kept: list[Tensor] = []
        self.masked = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        watched = self.watched.get(id(args[0])) if args else None
        if watched is None:
            return self._call(func, args, kwargs)
        name = getattr(func, "__name__", "")
        width = _width(name, args) if len(args) > 1 else 0
        if width:
            self.first.setdefault(watched, (name, width))
        made = self._call(func, args, kwargs)
        carried = name in _CARRIES or (name in _RESHAPED and _keeps_width(args[0], made))
        if carried and isinstance(made, Tensor):
            self.kept.append(made)  # as long as it lives no other tensor gets its number
            self.watched.setdefault(id(made), watched)
        return made

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        try:
            made = func(*args, **(kwargs or {}))
        except BaseException:
            self.masked = any(_is_mask(value) for value in (*args, *(kwargs or {}).values()))
            raise
        size = _map_size(getattr(func, "__name__", ""), args)
        if size is not None:
            self.maps.add(size)
        return made


def _keeps_width(before: Tensor, after: Tensor) -> bool:
    """Axes were merged, none was added, and the last one stayed."""
    return after.dim() <= before.dim() and after.shape[-1:] == before.shape[-1:]


def _is_mask(value: Any) -> bool:
    """It says yes or no: two values in all, or infinite ones."""
    if not isinstance(value, Tensor) or value.dim() < 2 or value.numel() < 4 or value.device.type == "meta":
        return False
    with torch._C.DisableTorchFunction():
        infinite = value.is_floating_point() and bool(value.detach().isinf().any())
        return infinite or torch.unique(value.detach()).numel() == 2


def _map_size(name: str, args: Sequence[Any]) -> tuple[int, int] | None:
    """Rows and columns of the attention that a softmax or a fused attention is asked for."""
    if name not in ("softmax", "scaled_dot_product_attention") or not args:
        return None
    scores, keys = args[0], args[1] if len(args) > 1 else None
    if not isinstance(scores, Tensor) or scores.dim() < 2:
        return None
    if name == "softmax":
        return scores.shape[-2], scores.shape[-1]
    return (scores.shape[-2], keys.shape[-2]) if isinstance(keys, Tensor) and keys.dim() >= 2 else None


def _width(name: str, args: Sequence[Any]) -> int:
    """The last axis that a linear layer, norm, product or convolution wants of its first argument."""
    other = args[1]
    if name in ("linear", "conv1d", "conv2d") and isinstance(other, Tensor) and other.dim() >= 2:
        return other.shape[1]
    if name == "embedding" and isinstance(other, Tensor):
        return other.shape[0]
    if name in ("matmul", "__matmul__") and isinstance(other, nn.Parameter) and other.dim() == 2:
        return other.shape[0]
    if name in ("layer_norm", "rms_norm") and isinstance(other, (tuple, list)) and len(other) == 1:
        return int(other[0])
    if name == "multi_head_attention_forward" and len(args) > 3:
        return int(args[3])
    return 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One try. `output` is the first tensor that came back; `steps` how many calls of torch were made.

    `maps` are rows and columns of the attentions that ran; `masked` says that the operation which failed
    was given a mask.
    """

    output: Tensor | None
    error: BaseException | None
    steps: int
    first: Mapping[str, tuple[str, int]]
    maps: frozenset[tuple[int, int]] = frozenset()
    masked: bool = False

    @property
    def alone(self) -> bool:
        """Every attention had one token only: what is said of it is said of nothing."""
        return self.maps == {(1, 1)}

    @property
    def progress(self) -> tuple[int, int]:
        """How far a call that raised came: calls of torch, then the line of the outermost user frame."""
        return self.steps, user_lines(self.error)[0][1] if user_lines(self.error) else 0

    @property
    def ran(self) -> bool:
        return self.error is None

    @property
    def endless(self) -> bool:
        """It was stopped since it did not end."""
        return isinstance(self.error, TookTooLongError)


class Prober:
    """Tries calls on copies of a module, in evaluation mode, without gradients, random state kept."""

    def __init__(self, module: nn.Module, environment: Environment, thorough: bool = True) -> None:
        self.module = module
        self.environment = environment
        self.tries = 0
        small = sum(p.numel() for p in module.parameters() if not is_lazy(p)) <= _SMALL
        self.limit = _MOST_TRIES if small and thorough else _FEW_TRIES
        self._shared: nn.Module | None = None if small else self._copy()

    def _copy(self) -> nn.Module:
        try:
            made = deep_copy(self.module)
            made.eval()
        except KeyboardInterrupt:
            raise
        except BaseException:
            return self.module
        return made

    @property
    def exhausted(self) -> bool:
        return self.tries >= self.limit

    def run(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], named: Mapping[str, Any] | None = None
    ) -> Outcome:
        """Call a copy with copies of the tensors."""
        self.tries += 1
        module = self._shared if self._shared is not None else self._copy()
        memo: dict[int, Any] = {}
        args, kwargs = cloned(tuple(args), memo), cloned(dict(kwargs), memo)
        counter = _Counter({n: memo[id(v)] for n, v in (named or {}).items() if id(v) in memo})

        def call() -> Any:
            with torch.no_grad(), warnings.catch_warnings(), counter:
                warnings.simplefilter("ignore")
                return module(*args, **kwargs)

        try:
            with limited(_SECONDS):  # no verdict hangs on it: it ends what would never end
                result = run_user_code(self.environment, call)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            why = missing_in(error) or error
            maps = frozenset(counter.maps)
            return Outcome(None, why, counter.count, counter.first, maps, counter.masked)
        return Outcome(first_tensor(result), None, counter.count, counter.first, frozenset(counter.maps))


def user_frames(error: BaseException | None) -> list[tuple[FrameType, int, int]]:
    """The frames that an exception came through and that are neither ours nor PyTorch's, with line and
    instruction."""
    found = []
    tb = error.__traceback__ if error is not None else None
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith((_OWN, _TORCH)):
            found.append((tb.tb_frame, tb.tb_lineno, tb.tb_lasti))
        tb = tb.tb_next
    return found


def user_lines(error: BaseException | None) -> list[tuple[str, int, bool]]:
    """File, line and whether it is a method, of the user's frames that an exception came through."""
    return [
        (frame.f_code.co_filename, line, frame.f_code.co_varnames[:1] == ("self",))
        for frame, line, _ in user_frames(error)
    ]


def last_lines(error: BaseException | None) -> list[str]:
    """The source of the innermost line of the user's that raised; for a plain function, of its caller too."""
    lines = user_lines(error)
    shown = 1 if lines and lines[-1][2] else 2
    return [linecache.getline(file, line) for file, line, _ in lines[-shown:]]


def changed(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Where two outputs differ beyond rounding (NaN equals NaN); None where they do not compare."""
    if a is None or b is None or a.shape != b.shape:
        return None
    if not a.is_floating_point():
        return a != b
    x, y = a.detach().double(), b.detach().double()
    close = torch.isclose(
        x, y, rtol=1e-4 if a.dtype in (torch.float32, torch.float64) else 2e-2, atol=1e-6, equal_nan=True
    )
    return ~close


def time_axis(output: Tensor, length: int, preferred: int) -> int | None:
    """The axis of an output that holds the tokens."""
    if preferred < output.dim() and output.shape[preferred] == length:
        return preferred
    fits = [i for i in range(output.dim()) if output.shape[i] == length]
    return fits[0] if fits else None


def along(difference: Tensor, axis: int) -> list[bool]:
    """For each index of `axis`, whether anything there changed."""
    return [bool(difference.select(axis, i).any()) for i in range(difference.shape[axis])]


def disturb(value: Tensor, axis: int, index: int, vocab: int, seed: int = 5) -> Tensor:
    """`value` with other numbers (other ids) at one index of one axis."""
    new = value.clone()
    place = [slice(None)] * value.dim()
    place[axis] = slice(index, index + 1)
    part = new[tuple(place)]
    if value.is_floating_point():
        generator = torch.Generator().manual_seed(seed)
        new[tuple(place)] = torch.randn(part.shape, generator=generator).to(value.dtype) * 1.7
    else:
        new[tuple(place)] = (part + 1 + seed) % max(vocab, 2)
    return new


def finite_share(output: Tensor | None) -> float:
    """The share of finite numbers in an output."""
    if output is None or output.numel() == 0 or not output.is_floating_point():
        return 1.0
    share = float(output.detach().isfinite().double().mean())
    return share if math.isfinite(share) else 0.0
