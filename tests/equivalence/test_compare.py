"""Pairs that are the same function are equal to 1e-5; pairs that are not are told apart, with where."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import attnscope
from attnscope.comparison import Comparison
from attnscope.errors import UsageError
from attnscope.layers.stack import build_model
from tests.zoo import compared as zoo

HERE = Path(zoo.__file__)
SIZES = ("dim=16", "heads=4")


def compared(a: str, b: str, **more: object) -> Comparison:
    """`compare` on two classes of the zoo, or on any targets."""

    def target(name: str) -> str:
        return f"{HERE}:{name}" if hasattr(zoo, name) else name

    args = () if {a, b} <= BUILT_IN else SIZES
    given = {"args": args, **more}
    return attnscope.compare(target(a), target(b), **given)  # type: ignore[arg-type]


BUILT_IN = {"stacked", "multihead", "nanogpt", "causal", "torch.nn:MultiheadAttention"}

EQUAL = [
    ("stacked", "multihead"),
    ("multihead", "stacked"),
    ("multihead", "nanogpt"),
    ("nanogpt", "multihead"),
    ("stacked", "nanogpt"),
    ("stacked", "torch.nn:MultiheadAttention"),
    ("multihead", "torch.nn:MultiheadAttention"),
    ("nanogpt", "torch.nn:MultiheadAttention"),
    ("torch.nn:MultiheadAttention", "stacked"),
    ("torch.nn:MultiheadAttention", "multihead"),
    ("Separate", "Renamed"),
    ("Separate", "Fused"),
    ("Fused", "Separate"),
    ("Separate", "PerHead"),
    ("PerHead", "Separate"),
    ("Fused", "PerHead"),
    ("PerHead", "Fused"),
    ("Transposed", "Fused"),
    ("Separate", "Transposed"),
    ("Raw", "Separate"),
    ("Separate", "Raw"),
    ("Transposed", "Raw"),
    ("EachHead", "Separate"),
    ("Separate", "EachHead"),
    ("ManyHeads", "Separate"),
    ("ManyHeads", "Fused"),
    ("ManyHeads", "PerHead"),
    ("Separate", "Cloned"),
    ("Cloned", "Fused"),
    ("Grouped", "Separate"),
    ("Grouped", "Fused"),
    ("TakesMask", "Fused"),
    ("TakesMask", "Separate"),
    ("TimeFirst", "Fused"),
    ("Fused", "TimeFirst"),
    ("TimeFirst", "multihead"),
    ("multihead", "Separate"),
    ("ManyHeads", "nanogpt"),
    ("Fused", "MaskBuffer"),
    ("Cached", "Fused"),
]


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_the_same_function_is_equal_to_1e_5(a: str, b: str) -> None:
    found = compared(a, b)
    assert found.findings == ()
    assert found.largest is not None and found.largest <= 1e-5
    assert found.left == ()
    assert any(run.name.startswith("gradients") and run.held for run in found.runs)


@pytest.mark.parametrize(
    "name",
    [
        n
        for n, v in vars(zoo).items()
        if isinstance(v, type) and v.__module__ == zoo.__name__ and n not in ("Conv1D", "Head", "Raises")
    ],
)
def test_a_module_is_equal_to_itself(name: str) -> None:
    found = compared(name, name)
    assert [f.severity for f in found.findings] == []


DIFFERENT = ["NoScale", "OneAhead", "MixedHeads", "SameRowsOtherOrder", "DropsInEval", "Raises", "Detached"]


@pytest.mark.parametrize("name", DIFFERENT)
@pytest.mark.parametrize("turned", [False, True])
def test_each_fault_is_told_from_the_sound_module(name: str, turned: bool) -> None:
    pair = ("Fused", name) if turned else (name, "Fused")
    found = compared(*pair)
    assert [f.code for f in found.findings if f.severity == "error"] == ["AS301"]
    assert found.failed and not found.equal


@pytest.mark.parametrize("name", ["NoScale", "OneAhead", "MixedHeads"])
@pytest.mark.parametrize("sound", ["Separate", "PerHead", "Transposed", "ManyHeads"])
def test_no_layout_makes_a_fault_look_sound(name: str, sound: str) -> None:
    assert compared(name, sound).failed
    assert compared(sound, name).failed


def test_two_cached_modules_are_told_apart_by_decoding() -> None:
    found = compared("CachedWrong", "Cached")
    failed = [run.name for run in found.runs if run.held is False]
    assert failed and all("position" in name for name in failed)
    assert "decoding token by token" in found.findings[0].message


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("Unregistered", "ManyHeads", "A does not register `heads.0.query.weight`"),
        ("ManyHeads", "Unregistered", "B does not register"),
        ("MaskAttribute", "MaskBuffer", "moved to another device, A raises"),
        ("LoadsAsIs", "Loads", "`load_conv1d`"),
    ],
)
def test_the_same_function_with_other_state_says_so(a: str, b: str, said: str) -> None:
    found = compared(a, b)
    errors = [f for f in found.findings if f.severity == "error"]
    assert [f.code for f in errors] == ["AS302"]
    assert errors[0].message.startswith("A and B are the same function, but ")
    assert said in errors[0].message


def test_what_was_moved_is_said() -> None:
    found = compared("stacked", "multihead")
    assert {m.target: m.how for m in found.moved} == dict.fromkeys(
        ("W_query.weight", "W_key.weight", "W_value.weight"), "4 heads joined"
    )
    assert [(n.side, n.name, n.value) for n in found.neutral] == [
        ("B", "out_proj.weight", "the identity"),
        ("B", "out_proj.bias", "0"),
    ]
    found = compared("Fused", "Separate")
    hows = {m.target: m.how for m in found.moved}
    assert hows["k_proj.weight"] == "rows 16 to 31"
    assert hows["v_proj.bias"] == "32 to 47"
    assert {m.target: m.how for m in compared("Transposed", "Fused").moved}["qkv.weight"] == "transposed"


def test_the_layout_that_was_taken_is_said() -> None:
    assert (
        "B's fused weight is read as rows q | k | v of each head in turn"
        in compared("Separate", "PerHead").layout
    )
    assert "A's square weights are read as [in, out]" in compared("Raw", "Separate").layout


def test_equal_names_are_moved_by_name_and_another_reading_is_only_told() -> None:
    found = compared("SameRowsOtherOrder", "Fused")
    assert {m.how for m in found.moved} == {"same name"}
    assert found.failed
    assert "of each head in turn" in found.findings[0].help


def test_names_that_tell_nothing_need_a_map() -> None:
    assert compared("Odd", "Separate").failed
    maps = [
        f"A.{one}.{part}=B.{two}.{part}"
        for one, two in (("delta", "q_proj"), ("gamma", "k_proj"), ("alpha", "v_proj"), ("beta", "o_proj"))
        for part in ("weight", "bias")
    ]
    assert compared("Odd", "Separate", maps=maps).findings == ()
    into = [
        f"A.{one}.{part}=B.qkv.{part}[{16 * i}:{16 * i + 16}]"
        for i, one in enumerate(("delta", "gamma", "alpha"))
        for part in ("weight", "bias")
    ]
    into += ["A.beta.weight=B.proj.weight", "A.beta.bias=B.proj.bias"]
    assert compared("Odd", "Fused", maps=into).findings == ()
    turned = ["A.qkv.weight.T=B.c_attn.weight", "A.proj.weight=B.c_proj.weight.T"]
    assert compared("Fused", "Transposed", maps=turned).findings == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "no pair"),
        ("A.nope.weight=B.qkv.weight", "A has no parameter `nope.weight`"),
        ("A.q_proj.weight=B.nope", "B has no parameter"),
        ("A.q_proj.weight=B.qkv.weight", "[16, 16] does not fit [48, 16]"),
        ("A.q_proj.weight[x:2]=B.qkv.weight[0:2]", "no slice"),
        ("A.q_proj.weight[99]=B.qkv.weight[0]", "out of bounds"),
    ],
)
def test_a_wrong_map_is_an_error_of_usage(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        compared("Separate", "Fused", maps=[text])
    assert said in str(error.value)


def test_where_the_traces_part() -> None:
    found = compared("MixedHeads", "Fused")
    assert found.parting is not None and found.parting.a is not None
    assert found.a.trace is not None
    assert found.a.trace.steps[found.parting.a].op in ("reshape", "scaled_dot_product_attention")
    assert found.findings[0].notes[0].startswith("first differs at A line ")
    pairs = [(p.a, p.b) for p in found.pairs if p.same]
    assert pairs[0] == (0, 0)


def test_the_finding_names_the_line_that_raises() -> None:
    found = compared("Raises", "Fused")
    finding = found.findings[0]
    assert finding.message.startswith("A raises AttributeError: ")
    assert finding.span is not None
    line = HERE.read_text(encoding="utf-8").splitlines()[finding.span.line - 1]
    assert line.strip() == "return super().forward(x) + self.missing"


def test_the_place_of_the_largest_difference_is_true() -> None:
    """Position 0 sees one token ahead; the last position sees none more."""
    found = compared("OneAhead", "Fused")
    run = next(r for r in found.runs if r.name == "forward, B 1, T 2")
    assert run.where["position"] == 0 and run.where["batch"] == 0
    alone = next(r for r in found.runs if r.name == "forward, B 1, T 1")
    assert alone.held is True


def test_modules_are_compared_and_left_as_they_were() -> None:
    torch.manual_seed(0)
    a, b = zoo.Fused(24, 3).train(), zoo.Separate(24, 3)
    before = [copy.deepcopy(m.state_dict()) for m in (a, b)]
    found = attnscope.compare(a, b, torch.randn(2, 6, 24))
    assert found.equal and found.largest is not None and found.largest < 1e-6
    for module, state in zip((a, b), before, strict=True):
        assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())
    assert a.training and all(p.grad is None for p in a.parameters())


def test_random_state_and_modules_of_two_sizes() -> None:
    a, b = zoo.Fused(24, 3), zoo.Fused(16, 2)
    state = torch.get_rng_state()
    with pytest.raises(UsageError) as error:
        attnscope.compare(a, b)
    assert "no input in common" in str(error.value)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_tied_weight_goes_to_both_places() -> None:
    tied = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    tied[1].weight = tied[0].weight
    free = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    found = attnscope.compare(tied, free, torch.randn(2, 5, 8))
    assert found.equal and found.left == ()
    assert attnscope.compare(free, tied, torch.randn(2, 5, 8)).failed


def test_stacks_of_layers_are_paired_in_order() -> None:
    sizes = {"depth": 2, "d_model": 24, "num_heads": 3, "context_length": 20}
    models = [build_model(layer, **sizes) for layer in ("stacked", "multihead", "nanogpt")]
    assert attnscope.compare(models[0], models[1]).equal
    assert attnscope.compare(models[1], models[2]).equal
    deeper = build_model("multihead", **{**sizes, "depth": 3})
    found = attnscope.compare(models[1], deeper)
    assert found.failed
    assert {x.name.split(".")[1] for x in found.left} == {"2"}


def test_what_no_attention_is_compared_too() -> None:
    x = torch.randn(2, 5, 8)
    assert attnscope.compare(nn.ReLU(), nn.GELU(), x).failed
    assert attnscope.compare(nn.LazyLinear(4), nn.LazyLinear(4), x).equal
    assert attnscope.compare(nn.Identity(), nn.Identity(), x.to(torch.complex64)).equal
    assert attnscope.compare(nn.Embedding(50, 8), nn.Embedding(50, 8), torch.randint(50, (2, 7))).equal
    one = attnscope.compare(
        nn.TransformerEncoderLayer(16, 4),
        nn.TransformerEncoderLayer(16, 4),
        torch.randn(5, 2, 16),
        layout="tbc",
    )
    assert one.equal


def test_both_layouts_of_pytorchs_attention() -> None:
    first = nn.MultiheadAttention(16, 4, batch_first=False)
    second = nn.MultiheadAttention(16, 4, batch_first=True)
    assert attnscope.compare(first, second).equal
    assert attnscope.compare(second, zoo.Fused(16, 4)).equal
    assert attnscope.compare(first, zoo.Fused(16, 4), causal=False).failed


def test_sizes_follow_the_side_that_names_them() -> None:
    found = attnscope.compare("nanogpt", f"{HERE}:Fused", args_b=("dim=24", "heads=3"))
    assert found.equal
    assert found.a.model.config["d_model"] == 24 and found.a.model.config["num_heads"] == 3


def test_arguments_that_nobody_takes_are_errors() -> None:
    with pytest.raises(UsageError, match="neither module has an argument `width`"):
        attnscope.compare("stacked", "multihead", args=("width=3",))
    with pytest.raises(UsageError, match="neither module's forward has an argument `memory`"):
        attnscope.compare("stacked", "multihead", "memory=torch.zeros(1)")
    with pytest.raises(UsageError, match="neither can be called"):
        compared("Raises", "Raises")


def test_in_half_precision_the_tolerance_is_that_of_the_type() -> None:
    found = compared("Fused", "Separate", dtype=torch.bfloat16)
    assert found.findings == ()
    assert found.tolerance == pytest.approx(6e-2)


class Untrained(nn.Linear):
    """Its modes are not to be set."""

    def train(self, mode: bool = True) -> nn.Linear:  # type: ignore[override]
        raise RuntimeError("no modes")


class Mute(nn.Linear):
    """What it raises has no words."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        class Wordless(Exception):
            def __str__(self) -> str:
                raise ValueError

        raise Wordless


@pytest.mark.parametrize(
    ("make", "message"), [(Untrained, "outside forward one raises"), (Mute, "neither can be called")]
)
def test_what_modules_raise_is_said_and_is_no_fault_of_ours(make: type[nn.Linear], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        attnscope.compare(make(8, 8), make(8, 8), torch.ones(2, 5, 8))
