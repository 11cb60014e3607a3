"""What `attnscope run` costs, as ratios: `python tests/bench/script.py [--rounds N]`.

Steps of a training loop, plain and watched in turn within one process and one thread; medians of the ratios
of processor time, which a busy machine disturbs least. Memory is the growth of the peak over a thousand steps
of a tiny model. No thresholds; the aims stand beside the numbers.
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Attention as nanoGPT's readers write it: one projection, views, a mask, a softmax."""

    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(context, context)))

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        scores = scores.masked_fill(self.mask[:t, :t] == 0, float("-inf"))  # type: ignore[index]
        y = F.softmax(scores, dim=-1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, context)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Model(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(65, width)
        self.blocks = nn.ModuleList(Block(width, heads, context) for _ in range(layers))
        self.head = nn.Linear(width, 65)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def training(layers: int, width: int, heads: int, length: int, batch: int) -> Callable[[], Any]:
    """One step of a training loop."""
    torch.manual_seed(0)
    model = Model(layers, width, heads, length)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(65, (batch, length + 1))

    def step() -> None:
        loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


@contextmanager
def watched() -> Iterator[None]:
    """What `run` does while a script runs."""
    from attnscope.runner.calls import install, uninstall
    from attnscope.runner.program import Program
    from attnscope.runner.scripts import ScriptWatcher
    from attnscope.runner.session import Session

    watcher = ScriptWatcher(Session(Program("bench")))
    install(watcher)
    try:
        yield
    finally:
        uninstall(watcher)


def timed(step: Callable[[], Any], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        step()
    return time.process_time() - start


def ratio(step: Callable[[], Any], rounds: int, times: int) -> tuple[float, float]:
    """(median of the ratios of neighbours, ratio of the fastest rounds)."""
    timed(step, times)
    plain, other = [], []
    for _ in range(rounds):
        plain.append(timed(step, times))
        with watched():
            other.append(timed(step, times))
    return (
        statistics.median(b / a for a, b in zip(plain, other, strict=True)),
        min(other) / min(plain),
    )


def growth(steps: int) -> float:
    """MiB that the peak grows from step 100 to the last one."""
    step = training(1, 16, 2, 8, 1)
    with watched():
        timed(step, 100)
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        timed(step, steps)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    for batch in (1, 4):
        median, fastest = ratio(training(4, 256, 4, 128, batch), rounds, 1)
        print(f"4 layers, C 256, T 128, B {batch}: {median:.3f} x, fastest {fastest:.3f} x (aim: 1.05)")
    median, fastest = ratio(training(1, 16, 2, 8, 1), rounds, 20)
    print(f"1 layer, C 16, T 8: {median:.3f} x, fastest {fastest:.3f} x")
    print(f"growth over 1,000 steps of the tiny model: {growth(1000):.1f} MiB (aim: 0)")


if __name__ == "__main__":
    main()
