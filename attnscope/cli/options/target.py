"""What is looked at: the user's own module, its arguments, its weights, and how it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from attnscope.cli.options import Group

if TYPE_CHECKING:
    from attnscope.targets import Request


@dataclass(frozen=True)
class Weights(Group):
    """Where numbers come from, and what they run as."""

    PANEL: ClassVar[str] = "Weights and device"

    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Seed of random weights and inputs (default: 123)."),
    ] = None
    state_dict: Annotated[
        str | None,
        typer.Option("--state-dict", metavar="FILE", help="Weights saved with torch.save; nothing is run."),
    ] = None
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="NAME", help="float32, float64, float16 or bfloat16, for all."),
    ] = None
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="cpu (default), cuda, mps ...")
    ] = None


@dataclass(frozen=True)
class Own(Group):
    """How a module of the user's own is constructed and called."""

    PANEL: ClassVar[str] = "Your own module"

    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="NAME=EXPR",
            help="An argument of the constructor; a dotted name sets one field (repeatable).",
        ),
    ] = None
    only: Annotated[
        str | None, typer.Option("--only", metavar="PATH", help="Look at this submodule alone.")
    ] = None
    batch: Annotated[
        int | None, typer.Option("--batch", metavar="B", help="Batch size of inputs that are made.")
    ] = None
    length: Annotated[
        int | None, typer.Option("--len", metavar="T", help="Number of tokens of inputs that are made.")
    ] = None
    layout: Annotated[
        str | None,
        typer.Option("--layout", metavar="AXES", help="Batch and tokens of --input: btc, tbc or nc."),
    ] = None
    causal: Annotated[
        bool | None,
        typer.Option("--causal/--no-causal", help="Whether causal attention is meant (default: yes)."),
    ] = None

    def flags(self) -> dict[str, Any]:
        """What was given of it, by the option's name."""
        return {
            "--arg": self.arg,
            "--only": self.only,
            "--batch": self.batch,
            "--len": self.length,
            "--layout": self.layout,
            "--causal": self.causal,
        }

    def request(
        self, target: str, weights: Weights, inputs: Sequence[str] | None, train: bool = False
    ) -> Request:
        """All that was said of `target`."""
        from attnscope.targets import Request

        return Request(
            target,
            tuple(self.arg or ()),
            tuple(inputs or ()),
            self.only,
            self.batch,
            self.length,
            self.layout,
            self.causal,
            weights.seed,
            weights.dtype,
            weights.device,
            weights.state_dict,
            train,
        )
