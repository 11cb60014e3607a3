"""No verdict changes with the words: every zoo of modules, right and broken, in other words.

What is right must stay silent and what is broken must keep its codes and their severities. Where a module's
own test pins what is found in it as it is written, only the disguised one is run here.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import attnscope
from attnscope.checks.session import check_target
from attnscope.diagnostic import Report
from attnscope.targets import Request
from tests.checks import mutants, styles
from tests.crashes.crash_harness import crash
from tests.crashes.test_samples import given
from tests.equivalence import modules
from tests.loader import test_loader
from tests.properties.disguise import Disguised, disguise
from tests.recorder import attention_styles

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
HEAD = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
MUTANTS = list(mutants.mutants(mutants.KILLING))[20::45]
Verdict = list[tuple[str, str]]
_numbers = itertools.count()


def load(text: str, folder: Path) -> ModuleType:
    name = f"disguised_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# What changes with the words today. Whoever mends one takes it from here, or its test fails.
PARTS = "what a constructor's parameter is made of is chosen by the names of classes"
CHANGED = {
    "annotated_like.py:Residual": PARTS,
}


def known(names: Iterable[str]) -> list[Any]:
    """Names as parameters of a test, those that are known to change marked as such."""
    return [
        pytest.param(name, id=name, marks=pytest.mark.xfail(strict=True, reason=CHANGED[name]))
        if name in CHANGED
        else name
        for name in names
    ]


def verdict(report: Report) -> Verdict:
    return sorted((one.code, one.severity) for one in report.findings)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disguised")


def _given(forward: Any, *args: Any, **kwargs: Any) -> frozenset[str]:
    """The parameters that a call gives."""
    return frozenset(inspect.signature(forward).bind(*args, **kwargs).arguments)


@cache
def _given_to_styles() -> frozenset[str]:
    """The parameters that are given wherever a style has them."""
    yes, no = set(), set()
    for row in styles.STYLES.values():
        if isinstance(row.make, type):
            bound = _given(row.make.forward, None, *row.args, **row.kwargs)
            yes |= bound
            no |= set(inspect.signature(row.make.forward).parameters) - bound
    return frozenset(yes - no - {"self"})


@cache
def _zoo(source: str, folder: Path) -> tuple[Disguised, ModuleType]:
    disguised = disguise(source, _given_to_styles())
    return disguised, load(disguised.source, folder)


def style_verdict(source: str, name: str, folder: Path) -> Verdict:
    """What is found in one style of a (perhaps mutated) text of all styles, disguised."""
    disguised, zoo = _zoo(source, folder)
    row = zoo.STYLES.get(name) or zoo.STYLES[disguised.called(name)]
    kwargs = {disguised.parameters.get(key, key): value for key, value in row.kwargs.items()}
    torch.manual_seed(5)
    module = row.make()
    if not isinstance(row.make, type):
        kwargs = row.kwargs
    return verdict(attnscope.check(module, *row.args, **kwargs, **row.options))


@pytest.mark.parametrize("name", styles.STYLES)
def test_a_correct_style_stays_silent(name: str, folder: Path) -> None:
    source = Path(styles.__file__).read_text(encoding="utf-8")
    assert style_verdict(source, name, folder) == [(code, "note") for code in styles.NOTED.get(name, ())]


@pytest.mark.parametrize("name", known(mutant.name for mutant in MUTANTS))
def test_a_mutant_keeps_its_verdict(name: str, folder: Path) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    row = styles.STYLES[mutant.style]
    module = mutants.made(mutants.load(mutant, folder), mutant.style)
    plain = verdict(attnscope.check(module, *row.args, **row.kwargs, **row.options))
    assert style_verdict(mutant.source, mutant.style, folder) == plain, mutant.name


# Of `tests/recorder/attention_styles.py`: those that leave the device or the sizes of other modules behind.
RECORDED: dict[str, Verdict] = {
    name: [("AS119", "error")]
    for name in ("folded einsum grouped grouped_five_axes rope cached softcap_alibi loop_over_heads").split()
} | {
    "tokens_batch_channels": [("AS119", "error"), ("AS212", "error")],
    "grouped_expand_sdpa": [("AS109", "error")],
    "gqa_flag": [("AS107", "error")],
    "no_batch": [("AS201", "note")],
}


@pytest.mark.parametrize("name", attention_styles.STYLES)
def test_a_recorded_style_keeps_its_verdict(name: str, folder: Path) -> None:
    disguised = disguise(HEAD + textwrap.dedent(attention_styles.STYLES[name]))
    zoo = load(disguised.source, folder)
    torch.manual_seed(0)
    module = getattr(zoo, disguised.called("Att"))(24, 3, 10)
    assert verdict(attnscope.check(module, *zoo.inputs(2, 7, 24, 3))) == RECORDED.get(name, [])


COMPARED = dict.fromkeys(
    """Separate Renamed Fused PerHead Transposed Raw EachHead Head ManyHeads Cloned Odd SameRowsOtherOrder
        MaskBuffer Cached""".split(),
    "",
) | {
    "TakesMask": "AS203",
    "NoScale": "AS208",
    "OneAhead": "AS201",
    "MixedHeads": "AS211",
    "DropsInEval": "AS214",
    "Raises": "AS101",
    "Detached": "AS216",
    "Unregistered": "AS217",
    "MaskAttribute": "AS119",
    "CachedWrong": "AS218",
}


@cache
def _compared(folder: Path) -> tuple[Disguised, ModuleType]:
    disguised = disguise(
        Path(modules.__file__).read_text(encoding="utf-8"), frozenset({"x", "mask", "inputs"})
    )
    return disguised, load(disguised.source, folder)


@pytest.mark.parametrize("name", known(COMPARED))
def test_a_compared_module_keeps_its_verdict(name: str, folder: Path) -> None:
    disguised, zoo = _compared(folder)
    torch.manual_seed(0)
    module = getattr(zoo, disguised.called(name))(24, 3)
    mask = (torch.ones(7, 7).tril().bool(),) if name == "TakesMask" else ()
    found = verdict(attnscope.check(module, torch.randn(2, 7, 24), *mask))
    severity = "note" if name == "NoScale" else "error"  # `scale=1.0` is said in as many words
    assert found == [(code, severity) for code in COMPARED[name].split()]


def _checked(text: str, target: str, folder: Path, inputs: tuple[str, ...] = (), **options: Any) -> Verdict:
    path = folder / f"disguised_{next(_numbers)}.py"
    path.write_text(text, encoding="utf-8")
    return verdict(check_target(Request(f"{path}:{target}", inputs=inputs, **options)))


SILENT = sorted(SAMPLES.glob("as2*.py"))


@pytest.mark.parametrize("name", known(path.stem for path in SILENT))
def test_a_silent_sample_keeps_its_code(name: str, folder: Path) -> None:
    text = (SAMPLES / f"{name}.py").read_text(encoding="utf-8")
    command = re.search(r"attnscope check \S+:Broken((?:.*\\\n)*.*)", text)
    assert command is not None
    inputs = tuple(re.findall(r'--input "([^"]+)"', command[1]))
    causal = False if "--no-causal" in command[1] else None
    dtype = re.search(r"--dtype (\w+)", command[1])
    disguised = disguise(text, frozenset({"x"} if not any("=" in one for one in inputs) else ()))
    target = disguised.called("Broken")
    found = _checked(
        disguised.source, target, folder, inputs, causal=causal, dtype=dtype[1] if dtype else None
    )
    assert [one for one in found if one[1] != "note"] == [(name[:5].upper(), "error")]


CRASHES = sorted(SAMPLES.glob("as1*.py"))


@pytest.mark.parametrize("path", CRASHES, ids=lambda path: path.stem)
def test_a_crash_keeps_its_code(path: Path, folder: Path) -> None:
    disguised = disguise(path.read_text(encoding="utf-8"))
    module = load(disguised.source, folder)
    device = "meta" if path.stem.startswith("as119") else None
    finding = crash(getattr(module, disguised.called("Broken")), given(path), device=device)
    assert finding is not None and finding.code == path.name[:5].upper()


ALONE = [
    target
    for target, _, causal in test_loader.ALONE
    if causal and "pkg" not in target and "fairseq" not in target
]


@pytest.mark.parametrize("target", known(ALONE))
def test_a_loaded_file_keeps_its_verdict(target: str, folder: Path) -> None:
    file, _, cls = target.partition(":")
    text = (test_loader.HERE / file).read_text(encoding="utf-8")
    disguised = disguise(text)
    found = _checked(disguised.source, disguised.called(cls), folder)
    assert found == _checked(text, cls, folder)
