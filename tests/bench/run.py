"""What tracing costs, as ratios: `python tests/bench/run.py [--rounds N]`.

Every ratio compares attnscope with the same work done without it, on the same machine, in turn: run time as
the best of many rounds, start-up as the median, memory as the peak of a process of its own. There are no
thresholds here; the numbers that are aimed at stand beside those that were measured.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
LIBRARIES = "import typer, rich, numpy\n"
ENCODING = "import tiktoken\nfrom attnscope.text import get_encoding\nencoding = get_encoding('gpt2')\n"
SENTENCE = "Your journey starts with one step"
FORWARD = f"""
import torch
from attnscope.layers.stack import Embeddings, build_model
ids = encoding.encode({SENTENCE!r})
model = build_model("multihead", d_model=16, num_heads=2)
with torch.no_grad():
    model(Embeddings(encoding.n_vocab, 16, 1024, 123)(torch.tensor([ids])))
"""


def model_and_input(width: int, length: int) -> tuple[Any, Any]:
    """Twelve eager layers of twelve heads in a residual stack, and an input [1, length, width]."""
    import torch

    from attnscope.layers.stack import build_model

    torch.manual_seed(0)
    model = build_model("nanogpt", d_model=width, num_heads=12, depth=12, context_length=1024)
    return model, torch.randn(1, length, width)


# --- run time -------------------------------------------------------------------------------------------


def overhead(width: int, length: int, rounds: int, inner: int) -> float:
    """The time of a trace of shapes and source lines over that of the plain forward."""
    import torch

    import attnscope

    model, x = model_and_input(width, length)

    def plain() -> None:
        model(x)

    def traced() -> None:
        attnscope.trace(model, x, attention=False)

    with torch.no_grad():
        return ratio_of_times(plain, traced, rounds, inner)


def ratio_of_times(plain: Callable[[], None], other: Callable[[], None], rounds: int, inner: int) -> float:
    plain()
    other()
    pairs = [(timed(plain, inner), timed(other, inner)) for _ in range(rounds)]
    return min(second for _, second in pairs) / min(first for first, _ in pairs)


def timed(function: Callable[[], None], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        function()
    return time.perf_counter() - start


# --- memory ---------------------------------------------------------------------------------------------


def child(what: str) -> None:
    """Run one of the forwards that memory is measured of, and print the peak of this process in kB."""
    import torch

    import attnscope
    from attnscope import api, attention, parallel, pooling, steps  # noqa: F401

    kind, length = what.split(":")
    model, x = model_and_input(768, int(length))
    before = peak()
    with torch.no_grad():
        if kind == "plain":
            model(x)
        elif kind == "shapes":
            _ = attnscope.trace(model, x, attention=False).steps
        else:
            keep = api.Keep(cells=128)
            recording = api._record(model, (x,), {}, keep)
            result = api._trace(recording, api._module_info(model), keep)
            assert len(result.attention) == 12 and result.steps
    print(before, peak())


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory(kind: str, length: int) -> float:
    """The peak of a process that traces over that of one that runs the plain forward."""

    def measured(what: str) -> int:
        command = [sys.executable, __file__, "--child", f"{what}:{length}"]
        output = subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout
        return int(output.split()[1])

    return measured(kind) / measured("plain")


# --- start-up -------------------------------------------------------------------------------------------


def startup(command: list[str], baseline: str, rounds: int) -> tuple[float, float]:
    """Seconds that a command takes, and the ratio to an interpreter that runs `baseline`."""
    ours = [sys.executable, "-m", "attnscope", *command]
    bare = [sys.executable, "-c", baseline]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for number, words in enumerate((bare, ours)):
            start = time.perf_counter()
            subprocess.run(words, env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
            times[number].append(time.perf_counter() - start)
    base, own = (statistics.median(some) for some in times)
    return own, own / base


# --- the table ------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    rounds = options.rounds

    import torch

    torch.set_num_threads(int(ENVIRONMENT["OMP_NUM_THREADS"]))
    print(f"{'what':<62}  {'ratio':>6}  aim")
    show("shapes of 12 layers, 12 heads, C 768, T 256 / plain forward", overhead(768, 256, rounds, 1), 1.05)
    show("the same, tiny: C 48, T 16", overhead(48, 16, 3 * rounds, 5), 3.0)
    show("peak memory of a shape trace at T 256 / plain", memory("shapes", 256), 1.05)
    show("peak memory with all heads shown at T 1024 / plain", memory("heads", 1024), 1.25)
    for command in (["--help"], ["layers"], ["mask", "--len", "8"]):
        seconds, ratio = startup(command, LIBRARIES, rounds)
        show(f"attnscope {' '.join(command)} ({seconds:.2f} s) / typer, rich, numpy", ratio, 1.5)
    seconds, ratio = startup(["tokens", SENTENCE], LIBRARIES + ENCODING, rounds)
    show(f"attnscope tokens ({seconds:.2f} s) / the same and the encoding", ratio, 1.2)
    seconds, ratio = startup(["trace", SENTENCE], LIBRARIES + ENCODING + FORWARD, rounds)
    show(f"attnscope trace ({seconds:.2f} s) / the same, torch and the forward", ratio, 1.2)


def show(what: str, ratio: float, aim: float) -> None:
    print(f"{what:<62}  {ratio:>6.2f}  {aim:.2f}", flush=True)


if __name__ == "__main__":
    main()
