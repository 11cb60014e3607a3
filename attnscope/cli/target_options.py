"""Options of the commands that look at a user's module, each declared once."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

Args = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--arg", metavar="NAME=EXPR", help="An argument of the constructor (repeatable)."),
]
Inputs = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--input",
        metavar="[NAME=]EXPR",
        help="An argument of forward: a .npy, .pt or .json file, or an expression in torch, B and T "
        "(repeatable).",
    ),
]
Batch = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--batch", metavar="B", help="Batch size of inputs that are made."),
]
Length = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--len", metavar="T", help="Number of tokens of inputs that are made."),
]
Layout = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--layout", metavar="btc|tbc|nc", help="Which axes of --input are batch and tokens."),
]
Causal = Annotated[
    Optional[bool],  # noqa: UP045
    typer.Option("--causal/--no-causal", help="Whether causal attention is meant (default: yes)."),
]
Only = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--only", metavar="MODULE.PATH", help="Look at this submodule alone."),
]
Seed = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--seed", metavar="N", help="Seed of random weights and inputs (default: 123)."),
]
StateDict = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--state-dict", metavar="FILE", help="Weights saved with torch.save; nothing is run."),
]
Dtype = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--dtype", metavar="NAME", help="float32, float64, float16 or bfloat16, for all."),
]
Device = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--device", metavar="NAME", help="cpu (default), cuda, mps ..."),
]
