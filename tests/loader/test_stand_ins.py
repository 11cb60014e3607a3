"""A stand-in is a base class, a decorator, an annotation; what it would compute, nobody knows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from torch import nn

from attnscope.errors import UsageError
from attnscope.loader import construct, load_target, make_inputs
from attnscope.loader.names import role_of
from attnscope.loader.sizes import solve
from attnscope.loader.stubs import MissingImport, Stub, attribute


def test_a_stub_as_base_decorator_and_annotation() -> None:
    model, config, wrap = (Stub(f"gone.{n}") for n in ("PreTrainedModel", "PretrainedConfig", "wrap"))

    class Settings(config):  # type: ignore[misc, valid-type]
        pass

    class Net(model):  # type: ignore[misc, valid-type]
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.lin = nn.Linear(2, 2)

    @wrap
    def bare(x: Optional[model]) -> int:  # type: ignore[valid-type] # noqa: UP045
        return 1

    @wrap("name", fast=True)  # type: ignore[untyped-decorator]
    def called(x: model | None) -> int:  # type: ignore[valid-type]
        return 2

    assert (bare(None), called(None)) == (1, 2)
    assert isinstance(Net(Settings(width=3)), nn.Module) and Settings(width=3).width == 3
    assert not isinstance(3, model) and not model and list(model) == []  # type: ignore[arg-type]


def test_a_stub_says_so_when_a_tensor_needs_it() -> None:
    out = Stub("gone.ops.attend")(torch.ones(2))
    with pytest.raises(MissingImport, match="`gone` is not installed, and it is called at line"):
        torch.ones(2) + out
    with pytest.raises(MissingImport):
        nn.functional.linear(out, torch.ones(2, 2))
    assert issubclass(attribute("gone.SomeError"), Exception)


HEAD = """from __future__ import annotations
import torch
from torch import nn
from gone.layers import Norm, Attend, init_, SIZE, Mixin, Model
from gone.ops import attend, Causal


def plain(dim):
    return nn.Linear(dim, dim)

"""
CALLS = {
    "Function": (
        """
    def __init__(self, dim):
        super().__init__()
        self.w = plain(dim)
        init_(self.w.weight, std=0.02)

    def forward(self, x):
        h = self.w(x)
        return attend(h, h, h, attn_bias=Causal())
""",
        "called at line 20",
    ),
    "Layer": (
        """
    def __init__(self, dim):
        super().__init__()
        self.norm = Norm(dim)
        self.w = plain(dim)

    def forward(self, x):
        return self.w(self.norm(x))
""",
        "called at line 19",
    ),
    "InSequence": (
        """
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Sequential(Attend(dim), plain(dim))

    def forward(self, x):
        return self.w(x)
""",
        "called at line 15",
    ),
    "Size": (
        """
    def __init__(self, dim, heads):
        super().__init__()
        self.w = nn.Linear(dim, heads // SIZE)

    def forward(self, x):
        return self.w(x)
""",
        "called at line 15",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_missing_package_that_is_called_is_to_be_installed(tmp_path: Path, name: str) -> None:
    body, words = CALLS[name]
    (tmp_path / "mine.py").write_text(f"{HEAD}\nclass {name}(nn.Module):{body}")
    with pytest.raises(UsageError) as said:
        made = construct(load_target(f"{tmp_path / 'mine.py'}:{name}", console_err=io.StringIO()))
        make_inputs(made)
    assert str(said.value) == f"`gone` is not installed, and it is {words}: install it"


def test_what_a_missing_base_class_should_have_given(tmp_path: Path) -> None:
    source = f"""{HEAD}
class Lacks(Model):
    def __init__(self, dim):
        super().__init__()
        self.w = plain(dim)

    def forward(self, x):
        return self.shared(self.w(x))


class NoForward(Model):
    pass


class Plain(Mixin):
    pass
"""
    (tmp_path / "mine.py").write_text(source)
    for name, at in (("Lacks", " at line 18"), ("NoForward", ""), ("Plain", "")):
        with pytest.raises(UsageError) as said:
            make_inputs(construct(load_target(f"{tmp_path / 'mine.py'}:{name}", console_err=io.StringIO())))
        assert str(said.value) == f"`gone` is not installed, and it is called{at}: install it"


def test_a_missing_package_that_nothing_calls_does_no_harm(tmp_path: Path) -> None:
    source = f"""{HEAD}
class Own(Model):
    def __init__(self, dim: Norm, kind: Attend[int] = None):
        super().__init__()
        self.w = plain(dim)
        init_(self.w.weight, std=0.02)
        self.post_init()

    def forward(self, x: Norm) -> Attend:
        return self.w(x)
"""
    (tmp_path / "mine.py").write_text(source)
    call = make_inputs(construct(load_target(f"{tmp_path / 'mine.py'}:Own", console_err=io.StringIO())))
    assert (call.error, call.guesses) == (None, "x=[B 2, T 7, C 24]")


@pytest.mark.parametrize(
    ("role", "names"),
    [
        (
            "C",
            "d d_model n_embd dim hidden_size embed_dim emb_dim width channels d_in d_out n_state",
        ),
        (
            "H",
            "h H n_head n_heads num_heads num_attention_heads heads nhead encoder_attention_heads",
        ),
        ("G", "n_kv_heads num_kv_heads num_key_value_heads n_query_groups num_kv_groups kv_heads"),
        ("D", "head_dim head_size dim_head d_k d_v d_head kv_channels"),
        (
            "T",
            "T block_size context_length max_seq_len max_position_embeddings ctx_len n_positions n_ctx",
        ),
        (
            "zero",
            "dropout p attn_pdrop resid_pdrop attention_dropout attention_probs_dropout_prob drop_path",
        ),
        ("vocab", "vocab_size n_vocab padded_vocab_size num_tokens"),
        ("layers", "n_layer num_layers num_hidden_layers depth n_blocks"),
        ("index", "layer_idx layer_id block_idx layer_index"),
        ("ffn", "intermediate_size d_ff ffn_dim mlp_dim dim_feedforward"),
        ("false", "bias qkv_bias use_bias attention_bias use_cache"),
        ("eps", "norm_eps eps rms_norm_eps layer_norm_epsilon"),
        ("theta", "rope_theta theta rope_base"),
    ],
)
def test_usual_names(role: str, names: str) -> None:
    got = {n: role_of(n) for n in names.split()}
    expected = dict.fromkeys(names.split(), role)
    expected.update({n: "true" for n in names.split() if n == "bias"})
    assert got == expected


@pytest.mark.parametrize(
    "fixed",
    [
        {},
        {"H": 8},
        {"C": 48},
        {"C": 30},
        {"D": 16},
        {"H": 4, "D": 16},
        {"G": 2},
        {"H": 8, "G": 4},
        {"C": 32, "G": 2},
    ],
)
def test_sizes_are_coherent(fixed: dict[str, int]) -> None:
    s = solve(fixed, {"G"} if "G" in fixed else ())
    assert s.C == s.H * s.D and s.H % s.G == 0 and s.context > s.T
    assert all({"C": s.C, "H": s.H, "D": s.D, "G": s.G}[k] == v for k, v in fixed.items())
    assert len({s.B, s.T, s.S, s.C, s.D}) == 5


def test_key_value_heads_differ_from_heads_and_batch() -> None:
    s = solve({}, {"G"})
    assert len({s.B, s.T, s.C, s.H, s.G, s.D, s.S, s.context}) == 8
