"""Files in the style of public code load, construct and run; guesses are said; nothing is left behind."""

from __future__ import annotations

import io
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from attnscope.errors import UsageError
from attnscope.loader import Built, CallInputs, construct, load_target, make_inputs
from attnscope.loader.expressions import parse_binding
from tests.zoo import FILES, LOADED, Loaded


def build(name: str, *args: str, **options: Any) -> Built:
    target = load_target(str(FILES / name), console_err=io.StringIO())
    return construct(target, args, **options)


def inputs(built: Built, *given: str, **options: Any) -> CallInputs:
    return make_inputs(built, given, **options)


def run(built: Built, call: CallInputs) -> Any:
    assert built.module is not None
    with torch.no_grad(), built.target.environment.active():
        return built.module.eval()(*call.args, **call.kwargs)


def _row(name: str, row: Loaded) -> Any:
    lacks = row.needs and find_spec(row.needs) is None
    mark = pytest.mark.skipif(bool(lacks), reason=f"{row.needs} is not installed")
    return pytest.param(name, row, id=name, marks=mark)


@pytest.mark.parametrize(("name", "row"), [_row(*item) for item in LOADED.items()])
def test_a_class_alone_constructs_and_runs(name: str, row: Loaded) -> None:
    built = build(name)
    assert built.error is None
    call = inputs(built)
    assert call.error is None and call.doubt == ""
    assert (call.guesses, call.causal) == (row.guesses, row.causal)
    run(built, call)


def test_sizes_fit_and_differ() -> None:
    built = build("gpt_dataclass.py:TinyGPT")
    s = built.sizes
    assert s.C == s.H * s.D and s.context > s.T
    assert len({s.B, s.T, s.C, s.H, s.D, s.S, s.context}) == 7
    assert built.guesses == (
        "config.block_size=16 config.vocab_size=61 config.n_layer=2 config.n_head=3 config.n_embd=24"
        " (constructor; its own sizes make more than 5,000,000 numbers)"
    )


def test_defaults_that_can_be_tried_are_kept() -> None:
    built = build("gpt_dataclass.py:CausalSelfAttention")
    assert (built.guesses, built.sizes.C, built.sizes.H) == ("", 768, 12)


@pytest.mark.parametrize(
    ("args", "heads", "width"),
    [
        (("config.n_head=4",), 4, 768),
        (("config.n_embd=20",), 5, 20),
        (("config.n_head=2", "config.n_embd=12"), 2, 12),
        (("config=TinyGPTConfig(n_head=4, n_embd=16)",), 4, 16),
    ],
)
def test_arguments_of_the_user_win_and_the_rest_follows(
    args: tuple[str, ...], heads: int, width: int
) -> None:
    module: Any = build("gpt_dataclass.py:CausalSelfAttention", *args).module
    assert (module.n_head, module.out.in_features) == (heads, width)


def test_a_default_read_with_getattr_is_not_overridden() -> None:
    module: Any = build("cfgnode.py:SelfAttention").module
    assert module.softcap == 30.0


def test_globals_of_a_script_are_set_by_arg_and_the_script_never_runs() -> None:
    os.environ.pop("ATTNSCOPE_TRAINED", None)
    built = build("train_script.py:MultiHeadAttention", "n_embd=20", "num_heads=2", "head_size=10")
    module: Any = built.module
    assert built.error is None and module.proj.out_features == 20 and len(module.heads) == 2
    assert "ATTNSCOPE_TRAINED" not in os.environ
    assert inputs(built).guesses == "x=[B 2, T 7, C 20]"


@pytest.mark.parametrize("how", ["blocked", "allowed", "additive", "ones"])
def test_a_mask_is_made_in_the_convention_that_the_module_proves(how: str) -> None:
    built = build("shapes.py:Masked", f"how={how!r}")
    call = inputs(built)
    assert call.causal is True
    out, x = run(built, call), call.args[0].clone()
    x[:, -1] += 3.0
    moved = built.module(x, *call.args[1:])  # type: ignore[misc]
    assert torch.equal(out[:, :-1], moved.detach()[:, :-1])
    assert not torch.allclose(out[:, -1], moved.detach()[:, -1])


def test_without_causality_the_mask_lets_all_through_in_the_same_convention() -> None:
    for how, mask in (("blocked", torch.zeros(7, 7).bool()), ("additive", torch.zeros(7, 7))):
        call = inputs(build("shapes.py:Masked", f"how={how!r}"), causal=False)
        assert torch.equal(call.args[1], mask)


def test_a_padding_mask_is_proven_on_one_hidden_key() -> None:
    call = inputs(build("shapes.py:Masked", "how='padding'"))
    assert call.mask == "blocked" and torch.equal(call.args[1], torch.zeros(2, 7).bool())


def test_a_mask_that_is_never_read_is_still_given() -> None:
    call = inputs(build("shapes.py:Masked", "how='never'"))
    assert call.error is None and call.causal is False and call.args[1].shape[-1] == 7


def test_text_gives_ids_or_equal_rows_for_equal_tokens() -> None:
    ids = inputs(build("gpt_dataclass.py:TinyGPT", vocab=100), text_tokens=[5, 99, 5], batch=1)
    assert ids.args[0].tolist() == [[5, 99, 5]]
    with pytest.raises(UsageError) as refused:
        inputs(build("gpt_dataclass.py:TinyGPT"), text_tokens=[5, 40000, 5, 70], batch=1)
    assert str(refused.value) == (
        "token ids 40000, 70 of the text do not fit the vocabulary of 61 of `TinyGPT`; an --encoding of at "
        'most 61 tokens would, or ids of its own: --input "idx=torch.tensor([[0, 1, 2]])"'
    )
    x = inputs(build("gpt_dataclass.py:CausalSelfAttention"), text_tokens=[5, 40000, 5], batch=1).args[0]
    assert x.shape == (1, 3, 768) and torch.equal(x[0, 0], x[0, 2]) and not torch.equal(x[0, 0], x[0, 1])


def test_given_inputs_are_kept_and_the_rest_is_made_to_fit() -> None:
    built = build("llama_like.py:Attention")
    call = inputs(built, "torch.randn(3, 5, 24)", "start_pos=1")
    assert call.args[0].shape == (3, 5, 24) and call.args[1] == 1
    assert (call.batch, call.length) == (3, 5) and call.args[2].shape == (5, 4)
    assert call.axes["x"] == ("B", "T", "C") and "x" not in call.guessed


def test_axes_of_a_given_mask_are_told_by_its_sizes() -> None:
    built = build("shapes.py:Masked")
    for shape, axes in (((7, 7), ("T", "S")), ((2, 1, 1, 7), ("B", None, None, "S")), ((2, 7), ("B", "S"))):
        call = inputs(built, f"mask=torch.zeros({shape}).bool()")
        assert call.axes["mask"] == axes


@pytest.mark.parametrize(
    ("text", "name", "expression"),
    [
        ("torch.randn(2, 7, generator=None)", None, "torch.randn(2, 7, generator=None)"),
        ("x=torch.randn(2, generator=None)", "x", "torch.randn(2, generator=None)"),
        (" cfg.n_head = 4", "cfg", "4"),
        ("x == y", None, "x == y"),
        ("(a:=3)", None, "(a:=3)"),
    ],
)
def test_a_name_is_told_from_an_expression(text: str, name: str | None, expression: str) -> None:
    binding = parse_binding(text)
    assert (binding.name, binding.expression) == (name, expression)


def test_input_files_are_read_without_running_anything(tmp_path: Path) -> None:
    import numpy as np

    x = np.arange(48, dtype=np.float32).reshape(1, 2, 24)
    np.save(tmp_path / "x.npy", x)
    torch.save(torch.from_numpy(x), tmp_path / "x.pt")
    (tmp_path / "x.json").write_text(str(x.tolist()))
    built = build("gpt_dataclass.py:CausalSelfAttention")
    for name in ("x.npy", "x.pt", "x.json"):
        assert torch.equal(inputs(built, str(tmp_path / name)).args[0], torch.from_numpy(x))
    torch.save(nn.Linear(1, 1), tmp_path / "evil.pt")
    with pytest.raises(UsageError, match="does not hold a plain array"):
        inputs(built, str(tmp_path / "evil.pt"))
    with pytest.raises(UsageError, match="there is no file"):
        inputs(built, "x=gone.npy")


def test_only_catches_what_the_submodule_is_called_with() -> None:
    built = build("gpt_dataclass.py:TinyGPT", only="blocks.1")
    call = inputs(built)
    assert call.args[0].shape == (2, 7, 24) and call.axes["x"] == ("B", "T", "C")
    assert not torch.equal(call.args[0], inputs(build("gpt_dataclass.py:TinyGPT", only="blocks.0")).args[0])
    with pytest.raises(UsageError, match=r"no submodule `block\.1`; did you mean `blocks\.1`"):
        build("gpt_dataclass.py:TinyGPT", only="block.1")


def test_state_dict_problems_are_kept_for_the_diagnosis(tmp_path: Path) -> None:
    good: Any = build("gpt_dataclass.py:CausalSelfAttention", seed=7).module
    torch.save(good.state_dict(), tmp_path / "good.pt")
    loaded: Any = build("gpt_dataclass.py:CausalSelfAttention", state_dict=tmp_path / "good.pt").module
    assert torch.equal(loaded.out.weight, good.out.weight)
    torch.save({"out.weight": torch.zeros(3, 3)}, tmp_path / "bad.pt")
    built = build("gpt_dataclass.py:CausalSelfAttention", state_dict=tmp_path / "bad.pt")
    assert built.phase == "state_dict" and "size mismatch for out.weight" in str(built.error)
    assert built.module is not None


def test_dtype_casts_module_and_inputs() -> None:
    built = build("gpt_dataclass.py:CausalSelfAttention", dtype=torch.bfloat16)
    call = inputs(built, "torch.randn(2, 5, 768)")
    assert call.args[0].dtype is torch.bfloat16 and run(built, call).dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("name", "kind"), [("Exits", SystemExit), ("NoSuper", AttributeError)], ids=["exits", "no super"]
)
def test_what_a_constructor_raises_is_passed_on(name: str, kind: type[BaseException]) -> None:
    built = build(f"hostile.py:{name}")
    assert built.module is None and built.phase == "constructor" and isinstance(built.error, kind)
    assert built.error.__traceback__ is not None


def test_what_forward_raises_is_passed_on() -> None:
    call = inputs(build("hostile.py:Recurses"))
    assert isinstance(call.error, RecursionError) and call.doubt == ""


def test_a_hostile_getattr_does_no_harm() -> None:
    assert inputs(build("hostile.py:Attributes")).error is None


def test_where_a_guess_may_be_to_blame_it_is_said() -> None:
    call = inputs(build("shapes.py:Wants"))
    assert call.error is not None
    assert call.doubt == (
        "`forward` raises TypeError: 'NoneType' object is not subscriptable at shapes.py:112, "
        'and that hangs on a guess: `plan` is None; give it with --input "plan=torch.…"'
    )
    assert inputs(build("shapes.py:Wants"), "plan={'kind': 'secret'}").error is None


def test_a_fault_that_no_input_could_mend_is_not_laid_on_a_guess(tmp_path: Path) -> None:
    source = (FILES / "gemma_like.py").read_text()
    for old, new in (("k_cache.index_copy_(1", "self.gone.index_copy_(1"), ("+ mask", "+ maks")):
        assert old in source
        (tmp_path / "broken.py").write_text(source.replace(old, new))
        call = make_inputs(construct(load_target(f"{tmp_path / 'broken.py'}:FamilyAttention")))
        assert isinstance(call.error, (AttributeError, NameError)) and call.doubt == ""


def test_the_module_and_the_process_are_left_as_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    path, modules = list(sys.path), {n for n in sys.modules if n.startswith("nosuch")}
    torch.manual_seed(3)
    before = torch.get_rng_state()
    built = build("hostile.py:Remembers")
    module: Any = built.module
    inputs(built)
    assert module.seen == [] and module.count.item() == 0 and module.training
    build("llama_like.py:Attention")
    assert torch.equal(torch.get_rng_state(), before)
    assert sys.path == path and {n for n in sys.modules if n.startswith("nosuch")} == modules
    assert capsys.readouterr().out == ""


def test_prints_and_missing_packages_go_to_the_console() -> None:
    err = io.StringIO()
    load_target(str(FILES / "hostile.py") + ":Exits", console_err=err)
    assert err.getvalue() == "said while it is imported\n"
    err = io.StringIO()
    load_target(str(FILES / "pkg/deep/modeling_deep.py") + ":DeepAttention", console_err=err)
    assert err.getvalue() == "note: not installed, a stand-in takes its place: nosuchtransformers\n"


def test_a_guarded_import_fails_as_python_would() -> None:
    module: Any = build("fairseq_like.py:MultiheadAttention").module
    assert module.fast is False


def test_the_same_seed_gives_the_same_weights_and_inputs() -> None:
    one, two = build("gpt_dataclass.py:TinyGPT", seed=5), build("gpt_dataclass.py:TinyGPT", seed=5)
    for a, b in zip(one.module.parameters(), two.module.parameters(), strict=True):  # type: ignore[union-attr]
        assert torch.equal(a, b)
    assert torch.equal(inputs(one).args[0], inputs(two).args[0])


def test_memory_that_is_never_set_is_filled() -> None:
    one: Any = build("hostile.py:Uninitialised").module
    two: Any = build("hostile.py:Uninitialised").module
    assert torch.equal(one.position, two.position) and 0.05 < one.position.std() < 0.2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shapes.py:SeqFrist", "has no class `SeqFrist`; did you mean `SeqFirst`"),
        ("shape.py:SeqFirst", "there is no file"),
        ("shapes.py:", "names no class after the colon"),
        ("gpt_dataclass.py:TinyGPTConfig", "is no nn.Module; the module classes there are"),
        ("annotated_like.py", None),
        (
            "shapes.py",
            "has several attention classes: `SeqFirst`, `Unbatched`, `Masked`, `Heads`, `Cross`, `Vision`",
        ),
        ("pkg", "is a folder"),
    ],
)
def test_a_target_that_is_wrong_is_told(text: str, message: str | None) -> None:
    if message is None:
        assert load_target(str(FILES / text), console_err=io.StringIO()).name == "MultiHeadedAttention"
        return
    with pytest.raises(UsageError) as raised:
        load_target(str(FILES / text), console_err=io.StringIO())
    assert message in str(raised.value)


def test_arguments_that_are_wrong_are_told() -> None:
    for args, message in (
        (("n_haed=4",), "has no argument `n_haed`; there are `config`"),
        (("4",), "has no name; write --arg NAME=EXPRESSION"),
        (("config=Tiny",), "`Tiny` is not known; a text is written in quotes"),
        (("config=(",), "is not a Python expression"),
        (("config=1/0",), "raises ZeroDivisionError"),
    ):
        with pytest.raises(UsageError) as raised:
            build("gpt_dataclass.py:CausalSelfAttention", *args)
        assert message in str(raised.value) and "\n" not in str(raised.value)


def test_functions_and_built_in_layers_are_targets() -> None:
    assert inputs(build("shapes.py:make_cross")).error is None
    with pytest.raises(UsageError, match=r"returns a int, not an nn\.Module"):
        build("shapes.py:make_number")
    built = construct(load_target("multihead", console_err=io.StringIO()))
    assert built.target.layer == "multihead" and inputs(built).causal is True


def test_a_file_that_is_no_python_is_told(tmp_path: Path) -> None:
    for content, message in ((b"def (", "is not valid Python"), (b"\x00", "is not"), (b"\xff\xfe", "is not")):
        (tmp_path / "bad.py").write_bytes(content)
        with pytest.raises(UsageError, match=message):
            load_target(f"{tmp_path / 'bad.py'}:X", console_err=io.StringIO())


def test_absolute_imports_of_a_repository_are_found_from_a_file_deep_in_it(tmp_path: Path) -> None:
    layers = tmp_path / "models_of_repo" / "layers"
    layers.mkdir(parents=True)
    (layers / "scale.py").write_text("def scale(d):\n    return d**-0.5\n")
    (layers / "attn.py").write_text(
        "from torch import nn\nfrom models_of_repo.layers.scale import scale\n\n"
        "class A(nn.Module):\n    def __init__(self, d):\n"
        "        super().__init__()\n        self.s = scale(d)\n"
    )
    err = io.StringIO()
    built = construct(load_target(f"{layers / 'attn.py'}:A", console_err=err))
    assert built.error is None and err.getvalue() == ""


def test_a_dotted_name_is_found_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dotted_pkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("import nosuch_needed\n")
    (folder / "mod.py").write_text("from torch import nn\n\nclass A(nn.Module):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    assert load_target("dotted_pkg.mod:A", console_err=io.StringIO()).name == "A"
    with pytest.raises(UsageError, match=r"there is no module `dotted_pkg\.mud`"):
        load_target("dotted_pkg.mud:A", console_err=io.StringIO())
    with pytest.raises(UsageError, match="neither a built-in layer, a file nor a module; did you mean"):
        load_target("multihed", console_err=io.StringIO())


def test_a_class_that_fails_at_import_is_told_and_its_neighbours_still_load(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(
        "from torch import nn\n\nclass Good(nn.Module):\n    pass\n\n"
        "class Bad(nn.Module):\n    size = 1 / 0\n"
    )
    assert load_target(f"{tmp_path / 'half.py'}:Good", console_err=io.StringIO()).name == "Good"
    with pytest.raises(UsageError, match=r"half\.py:7` raises ZeroDivisionError when it is imported"):
        load_target(f"{tmp_path / 'half.py'}:Bad", console_err=io.StringIO())


def test_two_files_of_one_name_do_not_mix(tmp_path: Path) -> None:
    for n in (1, 2):
        folder = tmp_path / str(n)
        folder.mkdir()
        (folder / "helper_of_model.py").write_text(f"SIZE = {n}\n")
        (folder / "model.py").write_text(
            "from torch import nn\nfrom helper_of_model import SIZE\n\nclass M(nn.Module):\n    size = SIZE\n"
        )
    made = [load_target(f"{tmp_path / str(n) / 'model.py'}:M", console_err=io.StringIO()) for n in (1, 2)]
    assert [t.factory.size for t in made] == [1, 2]
