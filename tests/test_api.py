"""The functions for Python: what they return, what they raise, and that they leave no trace."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnscope
from attnscope.api import Keep, trace_layer
from attnscope.errors import UsageError
from attnscope.inputs import load_weights, read_embeddings
from attnscope.layers.options import resolve
from attnscope.layers.stack import build_model
from attnscope.text import encode


class Attention(nn.Module):
    """Two heads in a style of its own: fused projection, `split`, `view`, a buffer for the mask."""

    mask: Tensor

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.register_buffer("mask", torch.ones(16, 16, dtype=torch.bool).tril())

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(C, dim=2))
        scores = q @ k.transpose(-2, -1) / (C // self.heads) ** 0.5
        weights = scores.masked_fill(~self.mask[:T, :T], float("-inf")).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(B, T, C)


class Head(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, width, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weights = (self.q(x) @ self.k(x).transpose(-2, -1)).softmax(-1)
        return weights @ self.v(x)


class Side(nn.Module):
    """Single heads side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head(4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([head(x) for head in self.heads], dim=-1)


class Chain(nn.Module):
    """The same heads behind one another: layers, not heads of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Head(8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def seeded(module: type[nn.Module]) -> nn.Module:
    torch.manual_seed(5)
    return module().eval()


# --- trace -------------------------------------------------------------------------------------------------


def test_a_trace_has_steps_attention_and_output() -> None:
    module, x = seeded(Attention), torch.randn(2, 5, 8)
    result = attnscope.trace(module, x, values=True)
    assert [step.op for step in result.steps][:2] == ["linear", "split"]
    assert result.output is not None and result.output.values is not None
    np.testing.assert_array_equal(result.output.values, module(x).detach().numpy())
    assert result.output.info.shape == (2, 5, 8)
    assert result.output.info.axes == ("B", "T", "C")
    (found,) = result.attention
    assert found.weights is not None and found.mask is not None
    q, k, _ = (part.view(2, 5, 2, 4).transpose(1, 2) for part in module.qkv(x).split(8, dim=2))  # type: ignore[operator]
    expected = q @ k.mT / 2
    expected = expected.masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), float("-inf")).softmax(-1)
    np.testing.assert_allclose(found.weights, expected.detach().numpy(), atol=1e-6)
    np.testing.assert_array_equal(found.mask, np.tri(5, dtype=bool)[None])
    assert result.model.target == "Attention"
    assert result.model.parameters == 8 * 24 + 24


def test_keyword_arguments_reach_the_module() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor, *, factor: float) -> Tensor:
            return x * factor

    result = attnscope.trace(Twice(), torch.ones(1, 2, 3), factor=4.0, values=True)
    assert result.output is not None and (result.output.values == 4).all()  # type: ignore[union-attr]


def test_without_attention_none_is_looked_for() -> None:
    result = attnscope.trace(seeded(Attention), torch.randn(1, 3, 8), attention=False)
    assert result.attention == ()
    assert len(result.steps) > 10
    assert result.output is not None and result.output.values is None


def test_the_module_is_left_as_it_was() -> None:
    module = seeded(Attention).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    attnscope.trace(module, torch.zeros(1, 4, 8))
    assert module.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not module._forward_hooks and not module._forward_pre_hooks


def test_an_exception_of_the_module_passes_with_the_trace() -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.transpose(1, 2)
            return y.view(-1)

    with pytest.raises(RuntimeError, match="view size is not compatible") as caught:
        attnscope.trace(Wrong(), torch.randn(1, 3, 4))
    partial = caught.value.attnscope_trace  # type: ignore[attr-defined]
    assert [step.op for step in partial.steps] == ["transpose", "view"]
    assert partial.steps[1].error is not None
    assert partial.output is None
    line = Wrong.forward.__code__.co_firstlineno + 2
    assert caught.value.__notes__ == [f"attnscope: raised by step 1, `view` at {__file__}:{line}"]


def test_an_exception_before_any_step_says_so() -> None:
    class Empty(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("nothing here")

    with pytest.raises(KeyError) as caught:
        attnscope.trace(Empty(), torch.randn(1, 3, 4))
    assert caught.value.__notes__ == ["attnscope: raised before the first tensor step"]


def test_heads_side_by_side_are_heads_of_one_attention() -> None:
    module: Any = seeded(Side)
    x = torch.randn(2, 5, 8)
    (found,) = attnscope.trace(module, x).attention
    assert (found.module, found.heads, found.shape) == ("heads", 3, (2, 3, 5, 5))
    assert found.weights is not None
    for number, head in enumerate(module.heads):
        expected = (head.q(x) @ head.k(x).mT).softmax(-1).detach().numpy()
        np.testing.assert_allclose(found.weights[:, number], expected, atol=1e-6)


def test_layers_behind_one_another_stay_layers() -> None:
    found = attnscope.trace(seeded(Chain), torch.randn(2, 5, 8)).attention
    assert [one.module for one in found] == ["layers.0", "layers.1", "layers.2"]
    assert {one.heads for one in found} == {1}


# --- how they show themselves -------------------------------------------------------------------------------


def test_a_mask_prints_as_its_grid() -> None:
    mask = attnscope.mask("causal", 3)
    assert str(mask) == repr(mask)
    text = str(mask)
    assert text.startswith("mask  causal, 3 queries")
    assert "torch.ones(3, 3, dtype=torch.bool).tril()" in text
    assert "\x1b" not in text


def test_a_trace_prints_all_of_it() -> None:
    text = str(attnscope.trace(seeded(Attention), torch.randn(1, 3, 8)))
    for part in ("Attention", "shapes", "mask", "weights", "head 1"):
        assert part in text
    assert "\x1b" not in text


def test_a_notebook_gets_html() -> None:
    html = attnscope.mask("causal", 3)._repr_html_()
    assert html.startswith("<pre") and html.endswith("</pre>")


def test_mask_refuses_what_does_not_fit() -> None:
    with pytest.raises(UsageError, match="did you mean causal"):
        attnscope.mask("casual", 3)


# --- built-in layers ----------------------------------------------------------------------------------------


def test_a_built_in_layer_runs_on_tokens() -> None:
    tokens = encode("one step")
    result = trace_layer(resolve("multihead"), tokens=tokens)
    assert result.tokens == tokens
    assert result.model.layer == "multihead"
    assert result.output is not None and result.output.info.axes == ("B", "T", "C")
    again = trace_layer(resolve("multihead"), tokens=tokens)
    assert again.output is not None
    np.testing.assert_array_equal(result.output.values, again.output.values)


def test_dropout_of_a_training_run_is_seeded_and_leaves_the_random_state() -> None:
    options = resolve("multihead", dropout=0.5)
    x = torch.randn(1, 6, 16)
    state = torch.get_rng_state()
    one, two, off = (trace_layer(options, embeddings=x, train=train).output for train in (True, True, False))
    assert torch.equal(torch.get_rng_state(), state)
    assert one is not None and two is not None and off is not None
    np.testing.assert_array_equal(one.values, two.values)
    assert not np.array_equal(one.values, off.values)  # type: ignore[arg-type]


def test_weights_of_a_file_take_the_place_of_random_ones(tmp_path: Path) -> None:
    other = build_model("multihead", seed=7)
    torch.save(other.state_dict(), tmp_path / "weights.pt")
    x = torch.randn(1, 6, 16)
    result = trace_layer(resolve("multihead"), embeddings=x, state_dict=tmp_path / "weights.pt")
    assert result.output is not None
    np.testing.assert_array_equal(result.output.values, other(x).detach().numpy())
    assert "weights.pt" in result.model.weights


@pytest.mark.parametrize("layer", ["causal", "stacked", "multihead", "nanogpt"])
def test_weights_load_without_a_mask_and_with_that_of_another_context(layer: str, tmp_path: Path) -> None:
    """A mask is no weight: who saved the projections saved them all."""
    other = build_model(layer, context_length=6, seed=7)
    state = other.state_dict()
    masks = [name for name, _ in other.named_buffers()]
    torch.save({n: v for n, v in state.items() if n not in masks}, tmp_path / "bare.pt")
    torch.save(state, tmp_path / "short.pt")
    torch.save({n.removesuffix("mask") + "bias" if n in masks and layer == "nanogpt" else n: v
                for n, v in state.items()}, tmp_path / "named.pt")  # fmt: skip
    for name in ("bare", "short", "named"):
        module = build_model(layer, context_length=32, seed=1)
        load_weights(module, tmp_path / f"{name}.pt")
        for key, value in module.state_dict().items():
            same = build_model(layer, context_length=32).state_dict() if key in masks else state
            assert torch.equal(value, same[key])


def test_long_weights_are_pooled_as_they_come() -> None:
    x = torch.randn(1, 40, 16)
    options = resolve("multihead", seed=3)
    (whole,) = trace_layer(options, embeddings=x).attention
    (pooled,) = trace_layer(options, embeddings=x, keep=Keep(cells=10, top=2)).attention
    assert pooled.weights is None and pooled.pooled is not None and whole.weights is not None
    assert pooled.pooled.factor == (4, 4)
    expected = whole.weights.reshape(1, 2, 10, 4, 10, 4).sum(-1).mean(-2)
    np.testing.assert_allclose(pooled.pooled.weights, expected, atol=1e-6)
    np.testing.assert_array_equal(pooled.pooled.top_keys[..., 0], whole.weights.argmax(-1))


# --- files --------------------------------------------------------------------------------------------------


def test_embeddings_of_every_kind_of_file(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float64).reshape(3, 2)
    np.save(tmp_path / "x.npy", values)
    torch.save(torch.from_numpy(values), tmp_path / "x.pt")
    (tmp_path / "x.json").write_text(json.dumps(values.tolist()))
    for name in ("x.npy", "x.pt", "x.json"):
        read = read_embeddings(tmp_path / name)
        assert read.shape == (1, 3, 2) and read.dtype == torch.float32
        np.testing.assert_array_equal(read[0].numpy(), values)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.npy", np.zeros(3), r"shape \[3\]"),
        ("x.npy", np.zeros((1, 2, 3, 4)), r"shape \[1, 2, 3, 4\]"),
        ("x.npy", np.zeros((0, 3)), r"shape \[0, 3\]"),
        ("x.npy", np.array([[1.0, np.nan]]), r"nan at \[0, 1\]"),
        ("x.npy", np.array([[1.0], [np.inf]]), r"inf at \[1, 0\]"),
        ("x.npy", np.zeros((2, 2), dtype=complex), "complex128"),
        ("x.npy", np.zeros((2, 2), dtype=bool), "bool"),
        ("x.npy", np.array([["a"]]), "does not hold a plain array"),
        ("x.npy", b"not an array", "does not hold a plain array"),
        ("x.json", b"[[1, 2], [3]]", "does not hold a plain array"),
        ("x.json", b"[[1, NaN]]", "nan at"),
        ("x.pt", b"", "does not hold a plain array"),
        ("x.csv", b"1,2", "of no known kind"),
        ("x.npy", None, "there is no file"),
    ],
)
def test_embeddings_that_do_not_fit(tmp_path: Path, name: str, content: Any, message: str) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    with pytest.raises(UsageError, match=message) as caught:
        read_embeddings(path)
    assert "\n" not in str(caught.value)


def test_embeddings_of_the_other_byte_order_are_the_same_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=">f4").reshape(2, 3))
    assert read_embeddings(tmp_path / "x.npy").tolist() == [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]


@pytest.mark.parametrize("suffix", [".npy", ".pt", ".json"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"x{suffix}")
    with pytest.raises(UsageError, match="is a pipe or a device"):
        read_embeddings(tmp_path / f"x{suffix}")
    with pytest.raises(UsageError, match="is a pipe or a device"):
        load_weights(build_model("causal"), tmp_path / f"x{suffix}")


def test_a_refused_pickle_says_nothing_beside_the_error(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "x.pt").write_bytes(pickle.dumps({"a": Path("x")}, protocol=4))
    with pytest.raises(UsageError):
        load_weights(build_model("causal"), tmp_path / "x.pt")
    assert not recwarn.list


def test_a_file_of_code_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    torch.save(Evil(), tmp_path / "x.pt")
    for read in (
        lambda: read_embeddings(tmp_path / "x.pt"),
        lambda: load_weights(build_model("causal"), tmp_path / "x.pt"),
    ):
        with pytest.raises(UsageError):
            read()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"W_query.weight": torch.zeros(8, 16)}, "Missing key"),
        ({}, "holds no state dict"),
        (torch.zeros(3), "holds no state dict"),
        (b"rubbish", "cannot be read as weights"),
        (None, "there is no file"),
    ],
)
def test_weights_that_do_not_fit(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "w.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(UsageError, match=message) as caught:
        load_weights(build_model("causal"), path)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_that_wraps_its_state_dict_loads(tmp_path: Path) -> None:
    source, target = build_model("causal", seed=1), build_model("causal", seed=2)
    torch.save({"model": source.state_dict()}, tmp_path / "ckpt.pt")
    load_weights(target, tmp_path / "ckpt.pt")
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), target.parameters(), strict=True))
