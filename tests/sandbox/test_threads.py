"""Two runs at once, in two threads, leave the process as it was."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnscope.recorder.record import record
from attnscope.sandbox import depth
from attnscope.sandbox.state import prints_aside


class Waits(nn.Linear):
    """Tells that it runs, and goes on when it is told to."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.runs, self.go = threading.Event(), threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        self.runs.set()
        self.go.wait(10)
        return super().forward(x)


def overlapping(outer: Callable[[Callable[[], None]], None]) -> None:
    """`outer` begins in this thread after another has begun, and ends after it."""
    first_in, first_may_end, second_in = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        def wait() -> None:
            first_in.set()
            first_may_end.wait(10)

        outer(wait)

    thread = threading.Thread(target=first)
    thread.start()
    assert first_in.wait(10)

    def end_first() -> None:
        second_in.set()
        first_may_end.set()
        thread.join(10)

    outer(end_first)
    assert second_in.is_set() and not thread.is_alive()


def test_two_traces_leave_calls_and_depth_of_the_stack() -> None:
    was, limit = nn.Module._call_impl, sys.getrecursionlimit()
    module, x = Waits(), torch.ones(2, 4)
    kept = []
    thread = threading.Thread(target=lambda: kept.append(record(module, (x,))))
    thread.start()
    assert module.runs.wait(10)

    class LetsGo(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            module.go.set()
            thread.join(10)  # the other run ends inside this one
            return super().forward(x)

    kept.append(record(LetsGo(4, 4), (x,)))
    assert nn.Module._call_impl is was
    assert sys.getrecursionlimit() == limit
    assert [[event.op.name for event in one.events] for one in kept] == [["linear"], ["linear"]]
    assert [len(one.calls) for one in kept] == [1, 1]


def test_prints_of_two_runs_come_back() -> None:
    out = sys.stdout

    def run(inside: Callable[[], None]) -> None:
        with prints_aside():
            assert sys.stdout is sys.stderr
            inside()

    overlapping(run)
    assert sys.stdout is out


def test_the_last_one_out_puts_the_limit_back() -> None:
    limit = sys.getrecursionlimit()

    def run(inside: Callable[[], None]) -> None:
        with depth.kept():
            depth.deeper(1.5)
            inside()
            depth.shallower()

    overlapping(run)
    assert sys.getrecursionlimit() == limit


def test_what_the_code_inside_sets_as_limit_does_not_last() -> None:
    limit = sys.getrecursionlimit()
    with depth.kept():
        sys.setrecursionlimit(limit + 7)
    assert sys.getrecursionlimit() == limit
