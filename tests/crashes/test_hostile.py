"""Whatever the module and the exception are like: a finding, no code of the user run, no error of our own."""

from __future__ import annotations

import linecache
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from attnscope.crashes import Crash, diagnose
from tests.crashes.crash_harness import crash, run
from tests.importing import load

HEAD = "import torch\nfrom torch import nn\n"


class Mute(Exception):
    """An exception that cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Touchy:
    """Everything that could be asked of it is an error, and is counted."""

    asked = 0

    def _no(self, *args: object) -> object:
        Touchy.asked += 1
        raise SystemError("touched")

    __repr__ = __str__ = __bool__ = __len__ = __iter__ = __eq__ = __hash__ = __getattr__ = _no  # type: ignore[assignment]
    __add__ = __radd__ = __mul__ = __call__ = __getitem__ = __index__ = __float__ = _no


def fault(make: object, *inputs: object) -> BaseException:
    try:
        make(*inputs)  # type: ignore[operator]
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


def test_an_exception_without_words_is_still_placed() -> None:
    def forward(x: object) -> None:
        raise Mute()

    found = diagnose(Crash(fault(forward, 1)))
    assert found[0].span is not None and found[0].severity == "error"


def test_an_exception_without_a_traceback_gives_as100() -> None:
    assert diagnose(Crash(RuntimeError("boom")))[0].code == "AS100"


def test_nothing_is_asked_of_the_users_objects() -> None:
    thing = Touchy()

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.__dict__["thing"] = thing
            self.mask = torch.ones(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            near = thing  # noqa: F841
            kept = {"a": thing, "b": [thing]}  # noqa: F841
            return x.masked_fill(self.bias == 0, 0.0)  # type: ignore[arg-type]

    module = Module()
    error = fault(module, torch.zeros(3))
    Touchy.asked = 0
    found = diagnose(Crash(error, "forward", module))
    assert found[0].code == "AS101"
    assert found[0].help == "read `self.mask`"
    assert Touchy.asked == 0


def test_properties_are_not_run() -> None:
    ran = []

    class Module(nn.Module):
        @property
        def heads(self) -> int:
            ran.append(1)
            return 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(self.heads, -1) @ x

    error = fault(Module(), torch.zeros(2, 6, 16))
    before = len(ran)
    assert diagnose(Crash(error, "forward", Module()))[0].severity == "error"
    assert len(ran) == before


def test_a_module_whose_getattr_never_ends_is_placed(tmp_path: Path) -> None:
    finding = run(
        HEAD
        + "class Example(nn.Module):\n"
        + "    def __getattr__(self, name):\n"
        + "        return getattr(self, name + '_')\n"
        + "    def forward(self, x):\n"
        + "        return x @ self.w\n",
        tmp_path,
    )
    assert finding is not None and finding.code == "AS134"


@pytest.mark.parametrize("name", ["mask_[bold]", "\x1b[31mred", "a\x00b", "\u202eflip", "🙈"])
def test_odd_words_come_out_printable(name: str, tmp_path: Path) -> None:
    def forward(x: object) -> None:
        raise RuntimeError(f"bad {name}\n\ttwo  lines")

    found = diagnose(Crash(fault(forward, 1)))[0]
    for text in (
        found.message,
        found.help,
        found.label,
        *found.notes,
        *(label.text for label in found.labels),
    ):
        assert text.isprintable()


def test_columns_count_characters_not_bytes(tmp_path: Path) -> None:
    source = (
        HEAD
        + "class Example(nn.Module):\n"
        + "    def forward(self, x):\n"
        + "        größe = 'ä🙈'; return x @ (x, größe)[0]\n"
    )
    finding = run(source, tmp_path)
    assert finding is not None and finding.span is not None
    line = source.splitlines()[finding.span.line - 1]
    assert line[finding.span.column - 1 : finding.span.end_column - 1] == "x @ (x, größe)[0]"


def test_a_call_over_several_lines_has_its_exact_span(tmp_path: Path) -> None:
    source = (
        HEAD
        + "class Example(nn.Module):\n"
        + "    def forward(self, x):\n"
        + "        return torch.matmul(\n"
        + "            x,\n"
        + "            x,\n"
        + "        )\n"
    )
    finding = run(source, tmp_path)
    assert finding is not None and finding.span is not None
    assert finding.code == "AS111"
    assert (finding.span.line, finding.span.column, finding.span.end_line, finding.span.end_column) == (
        5,
        16,
        8,
        10,
    )


def test_code_without_a_file_gives_a_finding() -> None:
    names: dict[str, object] = {"torch": torch}
    exec("def forward(x):\n    return x @ x\n", names)
    found = diagnose(Crash(fault(names["forward"], torch.zeros(2, 3))))
    assert found[0].severity == "error"


def test_a_file_that_changed_since_gives_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "changed.py"
    path.write_text(HEAD + "class M(nn.Module):\n    def forward(self, x):\n        return x @ x\n")
    module = load(path, "changed_module")
    error = fault(module.M(), torch.zeros(2, 3))
    path.write_text("this is (no python\n")
    linecache.checkcache(str(path))
    found = diagnose(Crash(error, "forward", module.M()))
    assert found[0].severity == "error" and found[0].span is not None


def test_comprehensions_lambdas_and_helpers_are_placed(tmp_path: Path) -> None:
    source = (
        HEAD
        + "def merge(y, width):\n"
        + "    return y.transpose(1, 2).reshape(2, 6, width)\n"
        + "class Example(nn.Module):\n"
        + "    def forward(self, x):\n"
        + "        split = lambda u: u.view(2, 6, 2, 8).transpose(1, 2)\n"
        + "        q, k = (split(u) for u in (x, x))\n"
        + "        return merge(q, 17)\n"
    )
    finding = run(source, tmp_path)
    assert finding is not None and finding.span is not None
    assert finding.code == "AS107" and finding.span.line == 4
    assert 9 in [label.span.line for label in finding.labels]


def test_a_config_that_answers_everything_does_not_mislead() -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = SimpleNamespace(n_head=4, n_embd=16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(2, 6, self.num_heads, -1)  # type: ignore[call-overload]

    finding = crash(Module, torch.zeros(2, 6, 16))
    assert finding is not None and finding.help == "read `self.config.n_head`"


def test_a_large_module_is_diagnosed_quickly_and_without_its_values() -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with torch.device("meta"):
                self.layers = nn.ModuleList(nn.Linear(4096, 4096) for _ in range(200))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x.view(3, 5, 7)

    module = Module()
    error = fault(module, torch.zeros(1, 2048, 4096, device="meta"))
    began = time.perf_counter()
    found = diagnose(Crash(error, "forward", module))
    assert found[0].code == "AS107"
    assert time.perf_counter() - began < 20


def test_the_random_state_and_the_module_stay_as_they_were() -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)
            self.register_buffer("mask", torch.ones(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.drop(torch.randn(4, 4)) + x
            return y @ torch.rand(3, 3)

    module: Any = Module()
    error = fault(module, torch.zeros(4, 4))
    state, buffers = torch.get_rng_state(), module.mask.clone()
    assert diagnose(Crash(error, "forward", module))[0].code == "AS111"
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(module.mask, buffers) and module.training
