"""`attnscope trace`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from attnscope.cli.messages import warn
from attnscope.cli.options.builtin import BuiltIn
from attnscope.cli.options.output import Output, keep_stdout_apart
from attnscope.cli.options.target import Own, Weights
from attnscope.cli.options.text import Text
from attnscope.cli.options.view import Show, View
from attnscope.cli.progress import Progress
from attnscope.errors import UsageError
from attnscope.layers import options as layer_options

if TYPE_CHECKING:
    from attnscope.layers.options import Options
    from attnscope.schema import Trace
    from attnscope.targets import Request

EXAMPLES = (
    'attnscope trace "Your journey starts with one step"',
    'attnscope trace "The cat sat down" --layer nanogpt --heads 4 --show weights',
)


@dataclass(frozen=True)
class _Layer(BuiltIn):
    PANEL: ClassVar[str] = "Only for a built-in layer"


@dataclass(frozen=True)
class _Module(Own):
    PANEL: ClassVar[str] = "Only for your own module"


def run(
    *,
    text: Text,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="In place of a text: embeddings [T, C] or [B, T, C] in a .npy, .pt or .json file. With "
            "--module: an argument of forward, [NAME=]EXPR in torch, B and T, or a file (repeatable).",
            rich_help_panel=Text.PANEL,
        ),
    ] = None,
    layer: _Layer,
    module: Annotated[
        str | None,
        typer.Option(
            "--module",
            metavar="TARGET",
            help="FILE.py:CLASS, pkg.mod:CLASS or FILE.py; the text may be left out.",
            rich_help_panel=_Module.PANEL,
        ),
    ] = None,
    own: _Module,
    weights: Weights,
    train: Annotated[
        bool,
        typer.Option(
            "--train", help="Run in training mode: dropout is active.", rich_help_panel=Weights.PANEL
        ),
    ] = False,
    show: Show,
    output: Output,
) -> None:
    """Run an attention layer, or your own module, on a text: tokens, shapes, mask, weights of every head.

    Each row of the shape trace is one tensor operation, with the line of source that calls it. The layer has
    random weights unless --state-dict gives others. With --module the text may be left out.
    """
    view = show.view(output.destination())
    if module is None:
        _refuse(own.flags(), "without --module", "name your module with --module FILE.py:CLASS")
        trace = _trace_layer(layer, text, _one_file(input), weights, train, view)
    else:
        _refuse(layer.flags(), "with --module", "arguments of the constructor are given by --arg NAME=EXPR")
        trace = _trace_target(own.request(module, weights, input, train), text, view)
    view.send(trace)
    if any(finding.severity == "error" for finding in trace.findings):
        raise typer.Exit(1)


def _refuse(options: Mapping[str, Any], where: str, hint: str) -> None:
    """An option that the target has no use for is an error, never ignored."""
    for option, value in options.items():
        if value is not None and value is not False and value != []:
            raise UsageError(f"{option} has no use {where}", hint)


def _one_file(inputs: Sequence[str] | None) -> str | None:
    if inputs and len(inputs) > 1:
        raise UsageError("--input was given twice", "a built-in layer takes one file of embeddings")
    return inputs[0] if inputs else None


def _trace_layer(
    layer: BuiltIn, text: Text, file: str | None, weights: Weights, train: bool, view: View
) -> Trace:
    embeddings = None if file is None else _embeddings(text, file)
    tokens = text.tokens() if embeddings is None else ()
    sizes = layer.sizes()
    if embeddings is not None:
        sizes["d_model"] = _width_of(embeddings, sizes["d_model"])
    options = layer_options.resolve(
        layer.layer or layer_options.DEFAULT_LAYER,
        **sizes,
        seed=weights.seed,
        dtype=weights.dtype,
        device=weights.device,
    )
    length = len(tokens) if embeddings is None else embeddings.shape[1]
    _check_length(options, length, "the text" if embeddings is None else f"--input {file}")
    draws = train and bool(options.dropout)
    if train and not draws:
        warn("trace", "--train changes nothing here: --dropout is 0")
    from_files = embeddings is not None and weights.state_dict is not None
    if weights.seed is not None and from_files and not draws:
        raise UsageError("--seed has no use: the input and the weights both come from files", "leave it out")

    from attnscope.api import trace_layer

    return trace_layer(
        options,
        tokens=tokens,
        encoding=text.encoding_name,
        embeddings=embeddings,
        embeddings_from=file or "",
        state_dict=weights.state_dict,
        train=train,
        keep=view.keep(),
    )


def _trace_target(request: Request, text: Text, view: View) -> Trace:
    tokens: tuple[Any, ...] = ()
    if text.given:
        tokens = text.tokens()
        if request.length is not None:
            raise UsageError("--len has no use with a text", "the text says how many tokens there are")
    else:
        _refuse(text.flags(), "without a text", "give a text, or leave it out")

    from attnscope.api import trace_target

    keep_stdout_apart()
    with Progress("trace"):
        return trace_target(request, tokens=tokens, keep=view.keep())


def _embeddings(text: Text, file: str) -> Any:
    """The embeddings [B, T, C] of `--input`, beside which a text has no use."""
    given = {"TEXT": text.text, "--file": text.file, **text.flags()}
    _refuse(given, "with --input", "give a text or --input, not both")
    from attnscope.inputs import read_embeddings

    return read_embeddings(file)


def _width_of(embeddings: Any, d_model: int | None) -> int:
    """C of the embeddings, which --d-model may repeat but not change."""
    width = int(embeddings.shape[-1])
    if d_model is not None and d_model != width:
        raise UsageError(
            f"--d-model {d_model} does not fit --input, whose C is {width}", "leave --d-model out"
        )
    return width


def _check_length(options: Options, length: int, what: str) -> None:
    if length <= options.context_length:
        return
    longest = layer_options.MAX_SIZE["context_length"]
    hint = f"--context {length} would work" if length <= longest else f"at most {longest} tokens would work"
    raise UsageError(f"{what} has {length} tokens, the context is {options.context_length}", hint)
