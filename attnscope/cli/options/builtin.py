"""A built-in layer and its sizes."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from attnscope.cli.options import Group, among
from attnscope.layers import LAYERS, OWN
from attnscope.layers import options as layer_options

_D = layer_options.DEFAULTS


@dataclass(frozen=True)
class _Common(Group):
    """Which layer, and how large."""

    PANEL: ClassVar[str] = "A built-in layer"

    layer: Annotated[
        str | None,
        typer.Option(
            "--layer",
            metavar="NAME",
            help=f"{', '.join(list(LAYERS)[:-1])} or {list(LAYERS)[-1]} "
            f"(default: {layer_options.DEFAULT_LAYER}).",
            autocompletion=among(LAYERS),
        ),
    ] = None
    d_model: Annotated[
        int | None,
        typer.Option("--d-model", metavar="C", help=f"Width of the input (default: {_D['d_model']})."),
    ] = None
    d_out: Annotated[
        int | None, typer.Option("--d-out", metavar="N", help="Width of the output; stacked: of one head.")
    ] = None
    heads: Annotated[
        int | None,
        typer.Option("--heads", metavar="H", help=f"Number of heads (default: {_D['num_heads']})."),
    ] = None
    depth: Annotated[
        int | None,
        typer.Option("--depth", metavar="N", help="Layers in a pre-norm residual stack (default: 1, bare)."),
    ] = None
    context: Annotated[
        int | None,
        typer.Option("--context", metavar="N", help=f"Longest text (default: {_D['context_length']})."),
    ] = None
    dropout: Annotated[
        float | None,
        typer.Option("--dropout", metavar="P", help="Probability of dropout, active with --train."),
    ] = None
    qkv_bias: Annotated[
        bool | None,
        typer.Option("--qkv-bias/--no-qkv-bias", help="Give the projections a bias (default: no)."),
    ] = None

    def sizes(self) -> dict[str, Any]:
        """The sizes by the names that the layers have for them; None for what was not given."""
        return {
            "d_model": self.d_model,
            "d_out": self.d_out,
            "num_heads": self.heads,
            "depth": self.depth,
            "context_length": self.context,
            "dropout": self.dropout,
            "qkv_bias": self.qkv_bias,
            **{name: getattr(self, name) for name in OWN},
        }

    def flags(self) -> dict[str, Any]:
        """What was given of it, by the option's name."""
        sizes = {layer_options.FLAGS[name]: value for name, value in self.sizes().items()}
        return {"--layer": self.layer, **sizes}


def _declared(name: str) -> Any:
    """An option that only some layers have, as their rows declare it."""
    option = OWN[name]
    layers = ", ".join(layer for layer, row in LAYERS.items() if row.takes(name))
    text = f"{layers}: {option.help} (default: {option.default})."
    return Annotated[int | None, typer.Option(option.flag, metavar=option.metavar, help=text)]


if TYPE_CHECKING:
    BuiltIn = _Common
else:
    BuiltIn = make_dataclass(
        "BuiltIn", [(name, _declared(name), None) for name in OWN], bases=(_Common,), frozen=True
    )
