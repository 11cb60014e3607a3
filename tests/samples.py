"""The samples of all codes, written from the pages: `python -m tests.samples`.

A page is the docstring of the rule's own file, which `attnscope explain` prints. Its example becomes
`Broken`, and what the cure changes in it makes `Mended`. Who writes a new rule or mends a page runs this, and
looks at what changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attnscope.codebook import Explanation, codes
from tests.changes import changed

FOLDER = Path(__file__).resolve().parents[1] / "samples"
_USUAL = "torch.randn(2, 6, 16)"


@dataclass(frozen=True)
class Sample:
    """One file of `samples/`; what `attnscope check` is to be told besides the class."""

    name: str
    code: str
    text: str
    inputs: tuple[str, ...]
    causal: bool | None
    dtype: str | None

    @property
    def path(self) -> Path:
        return FOLDER / self.name


def samples() -> list[Sample]:
    """Those of all codes of `check`; two modules of `compare` make none."""
    return [sample(one) for one in codes() if one.code[:3] in ("AS1", "AS2")]


def sample(page: Explanation) -> Sample:
    name = Path(page.path).name
    tree = ast.parse(page.example)
    said = {ast.unparse(one.targets[0]): one.value for one in tree.body if isinstance(one, ast.Assign)}
    inputs = tuple(_inputs(tree, said.get("x")))
    causal = None if "causal" not in said else bool(ast.literal_eval(said["causal"]))
    dtype = re.search(r"dtype=torch\.(\w+)", " ".join(inputs))
    words = [f'--input "{text}"' for text in inputs]
    words += ["--no-causal"] if causal is False else []
    words += [f"--dtype {dtype[1]}"] if dtype else []
    command = " ".join([f"attnscope check samples/{name}:Broken", *words])
    if len(command) > 108:
        command = " \\\n    ".join([f"attnscope check samples/{name}:Broken", *words])
    kept = [one for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef)]
    parts = [_source(page.example, one) for one in kept if one.name != "Example"]
    broken = next(_source(page.example, one) for one in kept if one.name == "Example")
    parts += [broken.replace("Example", "Broken"), changed(broken, page.change).replace("Example", "Mended")]
    names = {node.id for node in ast.walk(ast.parse("\n".join(parts))) if isinstance(node, ast.Name)}
    imports = [
        ast.unparse(one)
        for one in tree.body
        if isinstance(one, ast.Import | ast.ImportFrom)
        if names & {(name.asname or name.name) for name in one.names}
    ]
    quotes = "r" * ("\\" in command) + '"""'
    head = f'{quotes}{page.code}: {page.title}.\n\n{command}\n"""\n\n' + "\n".join(imports)
    return Sample(name, page.code, "\n\n\n".join([head, *parts]) + "\n", inputs, causal, dtype and dtype[1])


def _inputs(tree: ast.Module, x: ast.expr | None) -> Iterator[str]:
    """Expressions as `--input` takes them: several bear the names of the parameters of `forward`."""
    if isinstance(x, ast.Tuple):
        (forward,) = (
            one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == "forward"
        )
        for argument, value in zip(forward.args.args[1:], x.elts, strict=True):
            yield f"{argument.arg}={ast.unparse(value)}"
    else:
        yield _USUAL if x is None else ast.unparse(x)


def _source(text: str, node: ast.stmt) -> str:
    return str(ast.get_source_segment(text, node))


if __name__ == "__main__":
    made = samples()
    for path in {*FOLDER.glob("as[12]*.py")} - {one.path for one in made}:
        path.unlink()
    for one in made:
        one.path.write_text(one.text, encoding="utf-8")
