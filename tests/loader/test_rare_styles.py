"""Ways of writing a module that are rare and right: lazy layers, handed-on arguments, endless loops."""

from __future__ import annotations

import io
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from attnscope.errors import UsageError
from attnscope.loader import Built, CallInputs, construct, load_target, make_inputs, probe
from attnscope.sandbox import limits

HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n"


def built_from(folder: Path, source: str, name: str, *args: str) -> Built:
    file = folder / "mine.py"
    file.write_text(HEAD + source)
    return construct(load_target(f"{file}:{name}", console_err=io.StringIO()), args)


def ran(built: Built) -> CallInputs:
    assert built.error is None and built.module is not None
    call = make_inputs(built)
    assert call.error is None
    return call


LAZY = """
class Pooled(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.LazyLinear(3 * hidden)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
"""


def test_lazy_layers_take_their_sizes_from_the_call_and_their_weights_from_the_seed(tmp_path: Path) -> None:
    weights = []
    for _ in range(2):
        built = built_from(tmp_path, LAZY, "Pooled")
        assert ran(built).causal is True
        module: Any = built.module
        assert module.training
        weights.append(module.qkv.weight.detach().clone())
    assert weights[0].shape == (72, 24) and torch.equal(*weights)


HANDED_ON = """
class Any(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Linear(dim, dim)

    def forward(self, x, context=None, mask=None):
        h = self.w(x)
        return torch.softmax(h @ (h if context is None else context).mT, -1) @ h


class Alone(Any):
    def forward(self, *args, context=None, **kwargs):
        assert context is None
        return super().forward(*args, **kwargs)


class Free(nn.Module):
    def forward(self, *inputs, scale=1.0):
        return inputs[0] * scale
"""


@pytest.mark.parametrize("name", ["Alone", "Free"])
def test_starred_arguments_are_those_of_the_base_or_one_tensor(tmp_path: Path, name: str) -> None:
    assert ran(built_from(tmp_path, HANDED_ON, name)).guesses == "x=[B 2, T 7, C 24]"


NORM_FIRST = """
class Residual(nn.Module):
    def __init__(self, d_model, n_head):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, n_head)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x):
        h = self.norm(x)
        return x + self.attn(h, h, h, need_weights=False)[0]
"""


def test_tokens_first_is_seen_through_a_norm(tmp_path: Path) -> None:
    assert ran(built_from(tmp_path, NORM_FIRST, "Residual")).guesses == "x=[T 7, B 2, C 24]"


SCRIPT = """
n_embd = 40
n_head = 5


class Head(nn.Module):
    def __init__(self, head_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size)

    def forward(self, x):
        k = self.key(x)
        return torch.softmax(k @ k.mT, -1) @ k


class Several(nn.Module):
    def __init__(self, num_heads, head_size):
        super().__init__()
        self.heads = nn.ModuleList(Head(head_size) for _ in range(num_heads))
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        return self.proj(torch.cat([h(x) for h in self.heads], -1))
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [("Head", "head_size=8 (constructor)"), ("Several", "num_heads=5 head_size=8 (constructor)")],
)
def test_sizes_that_a_script_sets_bind_those_that_are_guessed(tmp_path: Path, name: str, says: str) -> None:
    built = built_from(tmp_path, SCRIPT, name)
    assert (built.guesses, ran(built).guesses) == (says, "x=[B 2, T 7, C 40]")


FLAGS = """
class Either(nn.Module):
    def __init__(self, dim, self_attention=False, cross_attention=False):
        super().__init__()
        self.self_attention, self.cross_attention = self_attention, cross_attention
        assert self.self_attention ^ self.cross_attention
        self.w = nn.Linear(dim, dim)

    def forward(self, x):
        return self.w(x)
"""


def test_a_flag_that_an_assertion_asks_for_is_turned_and_said(tmp_path: Path) -> None:
    assert built_from(tmp_path, FLAGS, "Either").guesses == "dim=24 self_attention=True (constructor)"
    given = built_from(tmp_path, FLAGS, "Either", "self_attention=False", "cross_attention=True")
    assert given.error is None and given.guesses == "dim=24 (constructor)"


SPLIT_WITHIN = """
class Across(nn.Module):
    def __init__(self, embedding_dim, num_heads, shrink=1):
        super().__init__()
        self.inner, self.heads = embedding_dim // shrink, num_heads
        self.wq = nn.Linear(embedding_dim, self.inner)

    def split(self, x):
        b, n, c = x.shape
        return x.reshape(b, n, self.heads, c // self.heads).transpose(1, 2)

    def forward(self, q, k, v):
        q = self.split(self.wq(q))
        _, _, _, width = q.shape
        return torch.softmax(q @ q.mT / width**0.5, -1) @ q
"""


def test_a_name_that_is_given_anew_tells_nothing_of_the_argument(tmp_path: Path) -> None:
    built = built_from(tmp_path, SPLIT_WITHIN, "Across")
    assert built.guesses == "embedding_dim=24 num_heads=3 (constructor)"
    assert ran(built).guesses == "q=[B 2, T 7, C 24], k=q, v=q"


ENDLESS = """
class Loops(nn.Module):
    def forward(self, x):
        while True:
            try:
                x = x + 1
            except Exception:
                pass


class Stuck(nn.Module):
    def __init__(self, dim):
        super().__init__()
        while True:
            pass

    def forward(self, x):
        return x
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
def test_what_never_ends_is_stopped_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from attnscope.loader import arguments

    monkeypatch.setattr(probe, "_SECONDS", 0.3)
    monkeypatch.setattr(arguments, "_SECONDS", 0.3)
    with pytest.raises(UsageError) as stopped:
        make_inputs(built_from(tmp_path, ENDLESS, "Loops"))
    assert stopped.value.message == "`forward` of `Loops` was stopped: it did not end within 0.3 s"
    with pytest.raises(UsageError) as stuck:
        built_from(tmp_path, ENDLESS, "Stuck")
    assert stuck.value.message == "constructing `Stuck` was stopped: it did not end within 0.3 s"
    with pytest.raises(UsageError, match="constructing `Stuck` was stopped"):
        built_from(tmp_path, ENDLESS.replace("(self, dim)", "(self, dim=8)"), "Stuck")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
def test_a_timer_that_was_there_goes_on_and_an_exception_that_is_caught_comes_again() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, 60.0)
    try:
        caught = 0
        with pytest.raises(limits.TookTooLongError), limits.limited(0.05):
            while True:
                try:
                    time.sleep(3)
                except BaseException:
                    caught += 1
                    if caught == 2:
                        raise
        assert 50.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60.0
        signal.raise_signal(signal.SIGALRM)
        assert heard == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


PLACES = """
class Adds(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Linear(dim, dim)

    def forward(self, queries, keys, query_pe, key_pe):
        return torch.softmax(self.w(queries + query_pe) @ (keys + key_pe).mT, -1) @ keys


class Batchless(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.w, self.heads = nn.Linear(dim, 3 * dim), heads

    def forward(self, x, mask):
        seq_len, batch, _ = x.shape
        assert mask.shape == (seq_len, seq_len, 1)
        q, k, v = self.w(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        scores = torch.einsum("ibhd,jbhd->ijbh", q, k)
        weights = scores.masked_fill(mask[..., None] == 0, -1e9).softmax(1)
        return torch.einsum("ijbh,jbhd->ibhd", weights, v).flatten(2)


class Wrong(nn.Module):
    def forward(self, x, mask=None):
        return x * mask["rows"] if mask is not None else F.softmax(x @ x.mT, -1) @ x


class Latent(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.down = nn.Linear(config.hidden_size, config.kv_lora_rank)
        self.up = nn.Linear(config.kv_lora_rank, config.hidden_size)
        self.groups = config.num_attention_heads // config.num_key_value_heads

    def forward(self, x):
        return self.up(self.down(x)) * self.groups
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Adds", "queries=[B 2, T 7, C 24], keys=queries, query_pe=queries, key_pe=queries"),
        ("Batchless", "x=[T 7, B 2, C 24], mask: [T, T, 1] bool, True = may attend"),
        ("Wrong", "x=[B 2, T 7, C 24]"),
    ],
)
def test_places_and_masks_of_rare_shapes(tmp_path: Path, name: str, says: str) -> None:
    assert ran(built_from(tmp_path, PLACES, name)).guesses == says


def test_latent_keys_have_all_the_heads(tmp_path: Path) -> None:
    built = built_from(tmp_path, PLACES, "Latent")
    module: Any = built.module
    assert built.error is None and module.groups == 1


def test_a_class_whose_decorator_is_not_installed_is_the_class(tmp_path: Path) -> None:
    source = (
        "from not_installed_hub import kernel\n\n\n"
        '@kernel("Named")\nclass Named(nn.Module):\n    def forward(self, x):\n        return x\n'
    )
    assert ran(built_from(tmp_path, source, "Named")).guesses == "x=[B 2, T 7, C 24]"
