"""What the last forwards showed, without keeping anything of the script alive.

A recording names modules; here they are weak references, and an exception is known by its identity and
place alone: a caught out-of-memory error that were kept would keep its tensors.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from attnscope.recorder.recording import Recording

MOST_FORWARDS = 16
MOST_EVENTS = 40_000
MOST_FAULTS = 8

_LOCK = threading.Lock()


def _new_lock() -> None:
    """A process may be forked while another thread holds the lock."""
    global _LOCK
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


@dataclass(frozen=True, eq=False)
class Kept:
    """One recording at rest. `grad` says whether it could be followed by a backward."""

    recording: Recording
    modules: tuple[weakref.ref[nn.Module], ...]
    classes: tuple[type[nn.Module], ...]
    grad: bool
    opaque: frozenset[str]
    restarts: int

    @property
    def events(self) -> int:
        return len(self.recording.raw)

    @property
    def root(self) -> nn.Module | None:
        """The module that was called, if it still lives."""
        return self.modules[0]() if self.modules else None

    def restored(self) -> Recording:
        """The recording with its modules in place; for one that is gone stands an empty one of its class."""
        at_rest = self.recording
        modules = [
            _hollow(cls) if (module := reference()) is None else module  # an empty container is false
            for reference, cls in zip(self.modules, self.classes, strict=True)
        ]
        calls: list[Any] = [
            (module, *rest) for module, (_, *rest) in zip(modules, at_rest.calls, strict=True)
        ]
        recording = Recording(
            modules[0],
            raw=list(at_rest.raw),
            sizes=list(at_rest.sizes),
            made=list(at_rest.made),
            calls=calls,
            leaves=dict(at_rest.leaves),
            capture=at_rest.capture,
        )
        name_arguments(recording)
        return recording


def _hollow(cls: type[nn.Module]) -> nn.Module:
    try:
        module = cls.__new__(cls)
        nn.Module.__init__(module)
    except Exception:  # a class may refuse to be made without arguments
        return nn.Module()
    return module


def name_arguments(recording: Recording) -> None:
    """Say which tensors the outermost call was given, by the names of the parameters of its `forward`."""
    from attnscope.recorder.record import _argument_names

    if not recording.calls or recording.arguments:
        return
    module, _, inputs, named = recording.calls[0]
    names = _argument_names(module, inputs)
    given = [*zip(names, inputs, strict=False), *named.items()]
    recording.arguments += [(name, int(serial)) for name, serial in given if serial is not None]


@dataclass
class Memory:
    """A bounded ring of forwards, and which exceptions left which of them."""

    forwards: deque[Kept] = field(default_factory=deque)
    faults: deque[tuple[tuple[Any, ...], Kept]] = field(default_factory=lambda: deque(maxlen=MOST_FAULTS))

    def keep(self, kept: Kept, error: BaseException | None) -> None:
        """Remember a forward that is over, and what it raised."""
        with _LOCK:
            self.forwards.append(kept)
            events = sum(one.events for one in self.forwards)
            while len(self.forwards) > 1 and (events > MOST_EVENTS or len(self.forwards) > MOST_FORWARDS):
                events -= self.forwards.popleft().events
            if error is not None:
                self.faults.append((_key(error), kept))

    def fault(self, error: BaseException) -> Kept | None:
        """The forward that this exception left, if it is one of the last that failed."""
        key = _key(error)
        with _LOCK:
            return next((kept for known, kept in reversed(self.faults) if known == key), None)

    def before_backward(self) -> Kept | None:
        """The forward that a crash in backward belongs to: of the last ones the most telling.

        A loss is a module too: of the forwards with gradients the largest of the newest four is taken.
        """
        with _LOCK:
            recent = [kept for kept in self.forwards if kept.grad][-4:]
        return max(reversed(recent), key=lambda kept: kept.events, default=None)


def at_rest(recording: Recording, grad: bool, opaque: set[str], restarts: int) -> Kept:
    """Take the modules out of a recording that is over."""
    modules = tuple([weakref.ref(call[0]) for call in recording.calls])
    classes = tuple([type(call[0]) for call in recording.calls])
    recording.calls[:] = [(None, *call[1:]) for call in recording.calls]  # type: ignore[misc]
    recording.root = None  # type: ignore[assignment]
    return Kept(recording, modules, classes, grad, frozenset(opaque), restarts)


def _key(error: BaseException) -> tuple[Any, ...]:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    place = (id(traceback.tb_frame.f_code), traceback.tb_lasti) if traceback is not None else None
    return (id(error), type(error).__qualname__, place)
