"""The built-in layers: the book's numbers, nanoGPT's, PyTorch's own attention, and what must never change."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnscope.errors import UsageError
from attnscope.layers import LAYERS, find, load
from attnscope.layers.options import DEFAULTS, FLAGS, Options, resolve
from attnscope.layers.stack import Embeddings, Stack, build_model
from tests.book import INPUTS, OUTPUTS

NAMES = list(LAYERS)


class FusedAttention(nn.Module):
    """An independent rendering of nanoGPT's attention: its construction, its fused kernel, its `bias`."""

    def __init__(self, width: int, heads: int, block: int, bias: bool) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, width * 3, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)
        self.heads = heads
        self.register_buffer("bias", torch.tril(torch.ones(block, block))[None, None])

    def forward(self, x: Tensor) -> Tensor:
        parts = self.c_attn(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        return self.c_proj(y.permute(0, 2, 1, 3).flatten(2))


def projections(name: str, model: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [B, H, T, D], by the layer's own weights and by another way than its own `view`."""
    if name == "nanogpt":
        triple = model.c_attn(x).chunk(3, dim=-1)
    elif name == "stacked":
        roles = ("W_query", "W_key", "W_value")
        triple = tuple(torch.cat([getattr(head, role)(x) for head in model.heads], dim=-1) for role in roles)
    else:
        triple = (model.W_query(x), model.W_key(x), model.W_value(x))
    heads = 1 if name == "causal" else len(model.heads) if name == "stacked" else model.num_heads
    q, k, v = (torch.stack(part.chunk(heads, dim=-1), dim=1) for part in triple)
    return q, k, v


def weights_of(model: nn.Module, x: Tensor) -> list[Tensor]:
    """What the dropouts on the weights are given: every layer's weights, [B, (H,) T, T]."""
    seen: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _m, args, _out: seen.append(args[0]))
        for path, module in model.named_modules()
        if isinstance(module, nn.Dropout) and not path.endswith("resid_dropout")
    ]
    model(x)
    for hook in hooks:
        hook.remove()
    return seen


def inputs(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7), dtype=dtype)


# --- numbers


@pytest.mark.parametrize("name", ["causal", "stacked"])
def test_the_numbers_of_the_book(name: str) -> None:
    model = build_model(name, d_model=3, d_out=2, context_length=6, seed=123)
    out = model(torch.tensor(INPUTS)[None])[0]
    assert torch.allclose(out, torch.tensor(OUTPUTS[name]), rtol=0, atol=5.1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_of_manual_seed_right_before(name: str) -> None:
    options = resolve(name, qkv_bias=True, seed=5)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        plain = load(name)(**options.arguments())
    built = build_model(name, qkv_bias=True, seed=5)
    for key, value in plain.state_dict().items():
        assert torch.equal(value, built.state_dict()[key]), key


@pytest.mark.parametrize("bias", [False, True])
def test_nanogpt_equals_the_fused_class_of_the_same_seed(bias: bool) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        reference = FusedAttention(24, 3, 32, bias)
    x = inputs(2, 20, 24)
    model = build_model("nanogpt", d_model=24, num_heads=3, context_length=32, qkv_bias=bias, seed=11)
    assert (model(x) - reference(x)).abs().max() <= 2e-6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [1, 2, 6, 9])
def test_equals_the_attention_of_torch_on_its_own_q_k_v(name: str, length: int) -> None:
    model = build_model(name, d_model=12, num_heads=None if name == "causal" else 3, qkv_bias=True)
    x = inputs(2, length, 12)
    q, k, v = projections(name, model, x)
    context = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    project = {"nanogpt": "c_proj", "multihead": "out_proj"}.get(name)
    expected = model.get_submodule(project)(context) if project else context
    assert (model(x) - expected).abs().max() <= 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_exactly_nothing_on_the_future_and_sum_to_one(name: str) -> None:
    found = weights_of(build_model(name), inputs(2, 6, 16))
    assert len(found) == (2 if name == "stacked" else 1)
    for weights in found:
        future = torch.ones(6, 6, dtype=torch.bool).triu(1)
        assert (weights[..., future] == 0).all()
        assert (weights[..., ~future] > 0).all()
        assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("depth", [1, 3])
def test_a_later_token_never_changes_an_earlier_output(name: str, depth: int) -> None:
    model = build_model(name, depth=depth)
    x = inputs(1, 6, 16)
    before = model(x)
    for later in range(1, 6):
        other = x.clone()
        other[:, later:] = 1e4
        after = model(other)
        assert torch.equal(before[:, :later], after[:, :later])
        assert not torch.equal(before[:, later:], after[:, later:])


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_outputs_do_not_depend_on_the_context(name: str) -> None:
    x = inputs(1, 6, 16)
    assert torch.equal(
        build_model(name, context_length=6, depth=2)(x), build_model(name, context_length=64, depth=2)(x)
    )


@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-6), ("bfloat16", 3e-2), ("float16", 3e-3)])
@pytest.mark.parametrize("name", NAMES)
def test_a_dtype_casts_the_same_weights(name: str, dtype: str, bound: float) -> None:
    model = build_model(name, dtype=dtype)
    wanted = getattr(torch, dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {wanted}
    out = model(inputs(1, 6, 16).to(wanted))
    assert out.dtype == wanted
    assert (out.float() - build_model(name)(inputs(1, 6, 16))).abs().max() <= bound
    assert all((weights.triu(1) == 0).all() for weights in weights_of(model, inputs(1, 6, 16).to(wanted)))


# --- state dicts

SEPARATE: dict[str, tuple[int, ...]] = {
    "W_query.weight": (8, 16),
    "W_key.weight": (8, 16),
    "W_value.weight": (8, 16),
    "mask": (32, 32),
}
LAYOUTS: dict[str, dict[str, tuple[int, ...]]] = {
    "causal": SEPARATE,
    "stacked": {f"heads.{head}.{key}": shape for head in (0, 1) for key, shape in SEPARATE.items()},
    "multihead": {
        "W_query.weight": (16, 16),
        "W_key.weight": (16, 16),
        "W_value.weight": (16, 16),
        "out_proj.weight": (16, 16),
        "out_proj.bias": (16,),
        "mask": (32, 32),
    },
    "nanogpt": {"c_attn.weight": (48, 16), "c_proj.weight": (16, 16), "mask": (1, 1, 32, 32)},
}
BIASES = {
    "causal": ["W_query.bias", "W_key.bias", "W_value.bias"],
    "stacked": [f"heads.{h}.{w}.bias" for h in (0, 1) for w in ("W_query", "W_key", "W_value")],
    "multihead": ["W_query.bias", "W_key.bias", "W_value.bias"],
    "nanogpt": ["c_attn.bias", "c_proj.bias"],
}


@pytest.mark.parametrize("name", NAMES)
def test_state_dicts_have_the_published_names(name: str) -> None:
    state = build_model(name, context_length=32).state_dict()
    assert {key: tuple(value.shape) for key, value in state.items()} == LAYOUTS[name]
    with_bias = build_model(name, context_length=32, qkv_bias=True).state_dict()
    assert sorted(set(with_bias) - set(state)) == sorted(BIASES[name])
    mask = next(value for key, value in state.items() if key.endswith("mask"))
    ones = torch.ones(32, 32)
    assert torch.equal(mask, ones.tril()[None, None] if name == "nanogpt" else ones.triu(1))


@pytest.mark.parametrize("name", NAMES)
def test_the_table_tells_the_real_parameters(name: str) -> None:
    told = " ".join(key for key, _ in LAYERS[name].info.parameters)
    for key in build_model(name, qkv_bias=True).state_dict():
        assert re.sub(r"^heads\.\d+\.", "", key) in told


def test_a_stack_names_its_blocks() -> None:
    model = build_model("nanogpt", depth=2, context_length=8)
    assert isinstance(model, Stack)
    parts = ["norm.weight", "norm.bias", *(f"attention.{key}" for key in LAYOUTS["nanogpt"])]
    keys = [f"blocks.{n}.{part}" for n in (0, 1) for part in parts]
    assert sorted(model.state_dict()) == sorted(keys)
    # The first of a stack is the layer that stands alone, of the same seed.
    alone = build_model("nanogpt", context_length=8).state_dict()
    assert torch.equal(model.state_dict()["blocks.0.attention.c_attn.weight"], alone["c_attn.weight"])
    assert not torch.equal(model.state_dict()["blocks.1.attention.c_attn.weight"], alone["c_attn.weight"])


def test_a_stack_is_a_pre_norm_residual_stream() -> None:
    model = build_model("multihead", depth=2)
    x = inputs(1, 6, 16)
    expected = x
    block: Any
    for block in model.get_submodule("blocks").children():
        normed = F.layer_norm(expected, (16,), block.norm.weight, block.norm.bias)
        expected = expected + block.attention(normed)
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("layout", ["bias", "mask", "absent"])
@pytest.mark.parametrize("depth", [1, 2])
def test_nanogpt_loads_its_mask_under_either_name_or_none(layout: str, depth: int) -> None:
    theirs = build_model("nanogpt", context_length=8, depth=depth, seed=1, qkv_bias=True).state_dict()
    state = {}
    for key, value in theirs.items():
        if not key.endswith("mask") or layout == "mask":
            state[key] = value
        elif layout == "bias":
            state[key.removesuffix("mask") + "bias"] = value
    names = list(state)
    ours = build_model("nanogpt", context_length=8, depth=depth, seed=2, qkv_bias=True)
    ours.load_state_dict(state)
    assert list(state) == names
    assert all(torch.equal(value, theirs[key]) for key, value in ours.state_dict().items())
    assert {path.rpartition(".")[2] for path, _ in ours.named_buffers()} == {"mask"}


def test_nanogpt_takes_a_mask_of_booleans_named_bias() -> None:
    model = build_model("nanogpt", context_length=4)
    state = {key: value for key, value in model.state_dict().items() if key != "mask"}
    allowed = torch.eye(4, dtype=torch.bool)[None, None]
    model.load_state_dict({**state, "bias": allowed})
    (weights,) = weights_of(model, inputs(1, 4, 16))
    assert torch.equal(weights, torch.eye(4).expand(1, 2, 4, 4))


def test_a_state_dict_that_does_not_fit_is_still_refused() -> None:
    model = build_model("nanogpt", context_length=4)
    with pytest.raises(RuntimeError, match=r"c_attn\.weight"):
        model.load_state_dict({"c_proj.weight": torch.zeros(16, 16), "bias": torch.ones(1, 1, 4, 4)})


# --- dropout, seeds, state of the caller


@pytest.mark.parametrize("name", NAMES)
def test_dropout_acts_in_training_alone(name: str) -> None:
    model = build_model(name, dropout=0.5)
    x = inputs(1, 6, 16)
    assert not model.training
    assert torch.equal(model(x), build_model(name)(x))
    model.train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = model(x)
        second = model(x)
    assert not torch.equal(first, second)


def test_nanogpt_drops_on_the_weights_and_on_the_result() -> None:
    model = build_model("nanogpt", dropout=0.5).train()
    drops = {path for path, module in model.named_modules() if isinstance(module, nn.Dropout)}
    assert drops == {"attn_dropout", "resid_dropout"}
    out = model(inputs(1, 6, 16))
    assert 0.2 < (out == 0).float().mean() < 0.8


@pytest.mark.parametrize("name", NAMES)
def test_building_leaves_the_caller_as_it_was(name: str) -> None:
    torch.manual_seed(99)
    state = torch.get_rng_state()
    wanted = build_model(name).state_dict()
    Embeddings(30, 4, 5, 123)
    assert torch.equal(torch.get_rng_state(), state)
    torch.set_default_dtype(torch.float64)
    try:
        again = build_model(name).state_dict()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(
        torch.equal(value, again[key]) and again[key].dtype == value.dtype for key, value in wanted.items()
    )


def test_building_leaves_the_caller_as_it_was_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(load("causal"), "__init__", fail)
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="no memory"):
        build_model("causal")
    assert torch.equal(torch.get_rng_state(), state)


def test_seeds_differ() -> None:
    one, two = (build_model("causal", seed=seed).state_dict()["W_key.weight"] for seed in (1, 2))
    assert not torch.equal(one, two)


def test_embeddings_add_tokens_and_positions() -> None:
    embeddings = Embeddings(50257, 16, 1024, 123)
    ids = torch.tensor([[7, 50256, 7]])
    out = embeddings(ids)
    assert out.shape == (1, 3, 16)
    table, places = embeddings.token.weight.detach(), embeddings.position.weight.detach()
    assert torch.equal(out[0, 1], table[50256] + places[1])
    assert not torch.equal(out[0, 0], out[0, 2])
    assert (table.shape, places.shape) == ((50257, 16), (1024, 16))
    assert abs(float(table.mean())) < 0.01
    assert abs(float(table.std()) - 1) < 0.01
    assert all(parameter.requires_grad for parameter in embeddings.parameters())


@pytest.mark.parametrize("width", [1, 3, 16])
def test_embeddings_do_not_depend_on_how_many_there_are(width: int) -> None:
    small, large = Embeddings(7, width, 6, 123), Embeddings(300, width, 1024, 123)
    assert torch.equal(small.token.weight, large.token.weight[:7])
    assert torch.equal(small.position.weight, large.position.weight[:6])
    assert not torch.equal(small.token.weight[:6], small.position.weight)
    assert not torch.equal(small.token.weight, Embeddings(7, width, 6, 124).token.weight)


def test_embeddings_are_no_copy_of_the_stream_of_the_layer() -> None:
    drawn = torch.randn(16, 16, generator=torch.Generator().manual_seed(123))
    assert not torch.equal(Embeddings(16, 16, 16, 123).token.weight, drawn)
    assert not torch.equal(Embeddings(16, 16, 16, 123).position.weight, drawn)


# --- options


def test_no_two_axes_of_a_default_trace_have_one_size() -> None:
    for name in NAMES:
        options = resolve(name)
        sizes = [1, 6, options.d_model, options.head_dim]  # B, T = S, C, D
        sizes += [options.num_heads] if options.num_heads else []
        assert len(set(sizes)) == len(sizes), name


def test_the_defaults() -> None:
    assert resolve() == Options("multihead", 16, 16, 2, 1, 1024, 0.0, False, 123, "float32", "cpu")
    assert resolve("causal").d_out == 8
    assert resolve("causal", depth=2).d_out == 16
    assert resolve("stacked").d_out == 8
    assert resolve("stacked", num_heads=4).d_out == 4
    assert resolve("nanogpt").d_out is None
    assert resolve("multihead", d_model=3).num_heads == 1
    assert resolve("stacked", d_model=3, d_out=2).num_heads == 2
    assert set(FLAGS) == {*DEFAULTS, "d_out"}


@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_a_layer_is_known_and_reaches_it(name: str) -> None:
    entry = find(name)
    assert set(entry.info.options) <= set(FLAGS)
    assert set(entry.arguments.values()) <= set(entry.info.options)
    assert entry.info.name == name
    config = resolve(name).config()
    assert set(config) == set(entry.info.options) - {"seed"}
    out = build_model(name, d_model=6, dropout=0.1)(inputs(1, 4, 6))
    assert out.shape[-1] == resolve(name, d_model=6).out_width


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("multihed", {}, "unknown layer `multihed`; did you mean multihead?"),
        ("zzz", {}, "known: causal, stacked, multihead, nanogpt"),
        ("causal", {"num_heads": 1}, "the layer causal has no --heads; layers that have it: stacked, "),
        ("nanogpt", {"d_out": 16}, "the layer nanogpt has no --d-out"),
        ("multihead", {"num_heads": 3}, "--heads 3 does not divide --d-out 16; --heads 2 or 4 would, or "),
        ("nanogpt", {"num_heads": 32}, "--heads 32 does not divide --d-model 16; --heads 16 would, or "),
        ("multihead", {"depth": 2, "d_out": 8}, "gives 8 for 16; take --d-out 16, or --depth 1"),
        ("stacked", {"depth": 2, "d_out": 16}, "gives 32 for 16; take --d-out 8, or --depth 1"),
        ("stacked", {"depth": 2, "num_heads": 3}, "take --heads that divides 16"),
        ("causal", {"d_out": 0}, "--d-out 0 is out of range; --d-out from 1 to"),
        ("causal", {"d_model": -1}, "--d-model -1 is out of range"),
        ("causal", {"depth": 0}, "--depth 0 is out of range"),
        ("stacked", {"num_heads": 0}, "--heads 0 is out of range"),
        ("causal", {"context_length": 0}, "--context 0 is out of range"),
        ("causal", {"d_model": 2.5}, "--d-model must be a whole number, not float"),
        ("causal", {"d_model": 60_000}, "GB; a smaller --d-model would work"),
        ("causal", {"depth": 9, "context_length": 16_384}, "GB; a smaller --context would work"),
        ("causal", {"dropout": 1.5}, "--dropout 1.5 is out of range; a probability from 0 to 1"),
        ("causal", {"dropout": math.nan}, "--dropout nan is out of range"),
        ("causal", {"seed": -1}, "--seed -1 is out of range"),
        ("causal", {"dtype": "float31"}, "unknown dtype `float31`; did you mean float32"),
        ("causal", {"device": "gpu\x1b"}, r"there is no device `gpu\x1b` here; known: cpu"),
        ("causal", {"device": "meta"}, "there is no device `meta` here"),
    ],
)
def test_options_that_do_not_fit_are_told(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as error:
        build_model(name, **options)
    assert words in str(error.value)
    assert str(error.value).isprintable()


def test_the_classes_refuse_heads_that_do_not_divide() -> None:
    with pytest.raises(ValueError, match="num_heads 3 does not divide d_out 16"):
        load("multihead")(16, 16, 8, num_heads=3)
    with pytest.raises(ValueError, match="num_heads 3 does not divide d_model 16"):
        load("nanogpt")(16, 3, 8)
