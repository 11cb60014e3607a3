"""The architecture, held by tests: who may import whom, and what each way in may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import attnscope

ROOT = Path(attnscope.__file__).parent

RANKS = {
    0: "schema diagnostic comparison errors source strict",
    1: """text files folding masks pooling codebook render selection ignores settings reshaping
        sandbox ops recorder axes steps attention parallel""",
    2: "layers loader inputs",
    3: "crashes targets checks",
    4: "runner equivalence api",
    5: "cli __main__",
}
RANK = {name: rank for rank, names in RANKS.items() for name in names.split()}

# `schema` draws itself when it is printed, and `attnscope` hands out `api`: both only when asked.
LAZY = {("schema", "render"), ("__init__", "api")}


def files() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    """`render.show` for attnscope/render/show.py; a package's own file bears the package's name."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if len(parts) > 1 and parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def part(name: str) -> str:
    return name.partition(".")[0]


@cache
def known_names() -> frozenset[str]:
    return frozenset(name_of(path) for path in files())


@cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Every module that a file imports, and whether that happens as soon as the file is imported.

    Imports for a type checker alone count too, as imports that load nothing.
    """
    return tuple(_imports(ast.parse(path.read_text(encoding="utf-8")), True))


def _imports(node: ast.AST, at_once: bool) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _imports(child, False)
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, at_once) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            module = child.module or ""
            for alias in child.names:  # either a file of the package `module`, or a name in the file `module`
                whole = f"{module}.{alias.name}"
                is_file = whole.removeprefix("attnscope.") in known_names()
                yield (whole if is_file else module), at_once
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, at_once and not inside)


def own(path: Path, at_once_only: bool = False) -> set[str]:
    """The files of attnscope's own that a file imports, by name."""
    found = set()
    for module, at_once in imports(path):
        if module.startswith("attnscope.") and (at_once or not at_once_only):
            name = module.removeprefix("attnscope.")
            if name in known_names():
                found.add(name)
    return found - {name_of(path)}


@pytest.mark.parametrize("path", files(), ids=name_of)
def test_imports_point_downward(path: Path) -> None:
    here = part(name_of(path))
    for other in own(path):
        pair = here, part(other)
        if pair in LAZY:
            assert other not in own(path, at_once_only=True)
        elif pair[0] != pair[1] and here != "__init__":
            assert RANK[pair[1]] <= RANK[here], f"{here} (rank {RANK[here]}) imports {other}"


def test_every_part_has_a_rank() -> None:
    parts = {part(name_of(path)) for path in files()} - {"__init__"}
    assert parts <= set(RANK), f"without a rank: {sorted(parts - set(RANK))}"


# Circles that are left, counting imports inside functions and for a type checker. The list may only shrink.
CIRCLES = {
    ("render.show", "render.save"),
    ("checks.roles", "checks.lab"),
    ("cli.parsing", "cli.help"),
    ("runner.session", "runner.scripts"),
}


def test_there_is_no_cycle() -> None:
    graph = {name_of(path): own(path) for path in files()}
    for name in graph:
        graph[name] = {x for x in graph[name] if (name, x) not in CIRCLES}
        graph[name] = {x for x in graph[name] if (part(name), part(x)) not in LAZY}
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " imports ".join((*way[way.index(name) :], name))
        if name not in done:
            for other in sorted(graph.get(name, ())):
                visit(other, (*way, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize(
    "path",
    [path for path in files() if RANK.get(part(name_of(path)), 9) == 0 or part(name_of(path)) == "render"],
    ids=name_of,
)
def test_data_and_renderers_never_see_torch(path: Path) -> None:
    assert not [module for module, _ in imports(path) if part(module) == "torch"]


def test_no_module_bears_the_name_of_a_public_function() -> None:
    public = set(attnscope.__all__) - {"__version__"}
    assert not public & {part(name_of(path)) for path in files()}


# --- what is loaded --------------------------------------------------------------------------------------


def loaded(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has imported after `code`."""
    program = (
        f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}}, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return set(result.stderr.split())


def loaded_by_command(*args: str) -> set[str]:
    return loaded(f"from attnscope.cli.boundary import run\nassert run({list(args)!r}) == 0")


def test_the_package_imports_the_standard_library_alone() -> None:
    # What `site` loads for this environment (editable installs, coverage) is no doing of the package's.
    extra = loaded("import attnscope") - loaded("")
    assert extra - set(sys.stdlib_module_names) == {"attnscope"}


@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        ("--version",),
        ("trace", "--help"),
        ("mask", "--help"),
        ("layers", "--help"),
        ("tokens", "--help"),
        ("mask", "--len", "8"),
        ("reshape", "view(6, 2, 8).transpose(0, 1)", "--shape", "6,16"),
        ("layers",),
        ("layers", "--format", "json"),
        ("tokens", "one step"),
        ("explain", "AS101"),
        ("check", "--help"),
        ("run", "--help"),
        ("compare", "--help"),
    ],
    ids=" ".join,
)
def test_torch_is_not_imported_before_it_is_needed(args: tuple[str, ...]) -> None:
    assert "torch" not in loaded_by_command(*args)


@pytest.mark.parametrize("args", [("mask", "--len", "8"), ("layers",), ("--help",)], ids=" ".join)
def test_parsing_needs_no_pydantic(args: tuple[str, ...]) -> None:
    assert "pydantic" not in loaded_by_command(*args)


def test_a_trace_does_not_load_the_compiler() -> None:
    code = "from attnscope.cli.boundary import run\nassert run(['trace', 'one step']) == 0"
    program = f"import sys\n{code}\nprint('torch._dynamo' in sys.modules, file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stderr.strip() == "False"


# --- one room for each piece of knowledge ----------------------------------------------------------------

ROOMS = {"sandbox": {"get_rng_state", "set_rng_state", "setrecursionlimit", "redirect_stdout"}}


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_room_knows_stands_nowhere_else(room: str) -> None:
    strangers = {
        f"{name_of(path)}: {node.attr}"
        for path in files()
        if part(name_of(path)) != room
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ROOMS[room]
    }
    assert not strangers


# What is still too long: it may only get shorter, and what is short enough leaves the list.
LONG_FILES = {
    "api": 473,
    "axes.details": 424,
    "checks.lab": 446,
    "loader.arguments": 417,
    "loader.configs": 442,
    "loader.importing": 628,
    "recorder.capture": 404,
    "reshaping.moves": 469,
    "text": 442,
}
LONG_FUNCTIONS = {
    "loader.arguments.construct": 67,
    "loader.planning.make_plan": 83,
    "recorder.mode._note": 82,
    "targets.prepare": 62,
}
MOST_LINES, MOST_IN_A_FUNCTION = 400, 60


def test_files_and_functions_are_short() -> None:
    long_files, long_functions = {}, {}
    for path in files():
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MOST_LINES:
            long_files[name_of(path)] = text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MOST_IN_A_FUNCTION:
                    long_functions[f"{name_of(path)}.{node.name}"] = lines
    for now, known in ((long_files, LONG_FILES), (long_functions, LONG_FUNCTIONS)):
        assert {name: n for name, n in now.items() if n > known.get(name, 0)} == {}
        assert sorted(set(known) - set(now)) == [], "short enough now: take it from the list"
