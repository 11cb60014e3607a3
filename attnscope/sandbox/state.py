"""What belongs to the whole process and comes back after a run: random numbers, modes, where prints go."""

from __future__ import annotations

import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TextIO

import torch

from attnscope.sandbox import depth


@contextmanager
def random_state() -> Iterator[None]:
    """Every generator that belongs to the process (torch, CUDA, numpy, Python) is afterwards as it was."""
    torch_state = torch.get_rng_state()
    cuda: Any = torch.cuda
    on_cuda = list(cuda.get_rng_state_all()) if cuda.is_initialized() else None
    numpy: Any = sys.modules.get("numpy.random")  # not imported: nothing was drawn from it
    numpy_state = numpy.get_state() if numpy is not None else None
    python_state = random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        if on_cuda is not None:
            cuda.set_rng_state_all(on_cuda)
        if numpy_state is not None:
            numpy.set_state(numpy_state)
        random.setstate(python_state)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers drawn inside come from `seed`; afterwards the generators are as they were."""
    with random_state():
        seed_torch(seed)
        random.seed(seed)
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed)
        yield


def seed_torch(number: int) -> None:
    """Seed torch's generators. `torch.manual_seed` does so too, and takes a second to load the compiler."""
    torch.default_generator.manual_seed(number)
    cuda: Any = torch.cuda
    if cuda.is_initialized():
        cuda.manual_seed_all(number)


@contextmanager
def global_state() -> Iterator[None]:
    """Random numbers, grad mode, default dtype, determinism and the depth of the stack come back."""
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    with random_state(), depth.kept():
        try:
            yield
        finally:
            torch.set_grad_enabled(grad)
            if torch.get_default_dtype() is not dtype:
                torch.set_default_dtype(dtype)
            if torch.are_deterministic_algorithms_enabled() != deterministic:
                torch.use_deterministic_algorithms(deterministic)


class _Prints:
    """Standard output stands in for standard error while any thread is inside; the last one out undoes it.

    `contextlib.redirect_stdout` puts back what it found: of two threads that overlap, one finds the other's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: Any = None

    @contextmanager
    def aside(self, to: TextIO | None = None) -> Iterator[None]:
        """What the user's code prints goes `to` (standard error); the first one in decides."""
        with self._lock:
            if not self._inside:
                self._before = sys.stdout
                sys.stdout = sys.stderr if to is None else to
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    sys.stdout, self._before = self._before, None


prints_aside = _Prints().aside


@contextmanager
def quiet(environment: Callable[[], Any] = nullcontext) -> Iterator[None]:
    """The user's prints go to standard error, warnings nowhere; deprecated in-place writes stay possible."""
    with warnings.catch_warnings(), prints_aside(), environment():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def written_out() -> Iterator[None]:
    """PyTorch's own layers do what their Python says, as in training and when they are recorded: their fused
    path passes over what a subclass changed."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
