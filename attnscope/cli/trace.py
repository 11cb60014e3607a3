"""`attnscope trace`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from attnscope.cli.options import Color, Debug, Download, Encoding, File, Format, Output, Special, Text, Width
from attnscope.cli.output import Destination, destination, keep_stdout_apart, send, warn
from attnscope.cli.target_options import (
    Args,
    Batch,
    Causal,
    Device,
    Dtype,
    Layout,
    Length,
    Only,
    Seed,
    StateDict,
)
from attnscope.errors import UsageError
from attnscope.layers import options as layer_options
from attnscope.text import encode, read_text, unknown

if TYPE_CHECKING:
    from attnscope.api import Keep
    from attnscope.layers.options import Options
    from attnscope.render.terminal import Lines, Style
    from attnscope.schema import Trace
    from attnscope.targets import Request

EXAMPLES = (
    'attnscope trace "Your journey starts with one step"',
    'attnscope trace "The cat sat down" --layer nanogpt --heads 4 --show shapes,weights',
)

SECTIONS = ("tokens", "shapes", "mask", "weights")
WHOLE_UP_TO = 128
"""With more keys than this no number can be read: weights are reduced to this many cells as they come."""

MOST_IN_JSON = 25_000_000
"""About half a gigabyte of text, and several while it is made."""

_D = layer_options.DEFAULTS


def run(
    text: Text = None,
    file: File = None,
    input: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--input",
            metavar="FILE",
            help="Embeddings [T, C] or [B, T, C]: .npy, .pt or .json. With --module: [NAME=]EXPR or a file, "
            "an argument of forward (repeatable).",
        ),
    ] = None,
    encoding: Encoding = None,
    special: Special = False,
    download: Download = False,
    module: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--module", metavar="TARGET", help="Your own: FILE.py:CLASS, pkg.mod:CLASS or FILE.py."),
    ] = None,
    arg: Args = None,
    only: Only = None,
    batch: Batch = None,
    length: Length = None,
    layout: Layout = None,
    causal: Causal = None,
    layer: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--layer",
            metavar="NAME",
            help=f"causal, stacked, multihead or nanogpt (default: {layer_options.DEFAULT_LAYER}).",
        ),
    ] = None,
    d_model: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--d-model", metavar="C", help=f"Width of the input (default: {_D['d_model']})."),
    ] = None,
    d_out: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--d-out", metavar="N", help="Width of the output; stacked: of one head."),
    ] = None,
    heads: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--heads", metavar="H", help=f"Number of heads (default: {_D['num_heads']})."),
    ] = None,
    depth: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--depth", metavar="N", help="Layers in a pre-norm residual stack (default: 1, bare)."),
    ] = None,
    context: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--context", metavar="N", help=f"Longest text (default: {_D['context_length']})."),
    ] = None,
    dropout: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--dropout", metavar="P", help="Probability of dropout, active with --train."),
    ] = None,
    qkv_bias: Annotated[
        Optional[bool],  # noqa: UP045
        typer.Option("--qkv-bias/--no-qkv-bias", help="Give the projections a bias (default: no)."),
    ] = None,
    seed: Seed = None,
    state_dict: StateDict = None,
    dtype: Dtype = None,
    device: Device = None,
    train: Annotated[bool, typer.Option("--train", help="Run in training mode: dropout is active.")] = False,
    show: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--show", metavar="SECTIONS", help="tokens, shapes, mask, weights: one or several, by commas."
        ),
    ] = None,
    head: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option("--head", metavar="N", help="Only this head's weights (repeatable; from 0)."),
    ] = None,
    layer_index: Annotated[
        Optional[list[int]],  # noqa: UP045
        typer.Option("--layer-index", metavar="N", help="Only this layer's attention (repeatable; from 0)."),
    ] = None,
    precision: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--precision", metavar="N", help="Decimals of the weights (default: 2)."),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="JSON: also the scores before the mask.")] = False,
    values: Annotated[bool, typer.Option("--values", help="JSON: also the numbers of every step.")] = False,
    inner: Annotated[
        bool, typer.Option("--inner", help="Also show the steps of PyTorch's own code.")
    ] = False,
    format: Format = None,
    output: Output = None,
    width: Width = None,
    color: Color = None,
    debug: Debug = False,
) -> None:
    """Run an attention layer, or your own module, on a text: tokens, shapes, mask, weights of every head.

    Each row of the shape trace is one tensor operation, with the line of source that calls it. The layer has
    random weights unless --state-dict gives others. With --module the text may be left out.
    """
    to = destination(format, output, width, color)
    view = _view(to, show, head, layer_index, precision, scores, values)
    sizes = {
        "d_model": d_model,
        "d_out": d_out,
        "num_heads": heads,
        "depth": depth,
        "context_length": context,
        "dropout": dropout,
        "qkv_bias": qkv_bias,
    }
    for_module = {
        "--arg": arg,
        "--only": only,
        "--batch": batch,
        "--len": length,
        "--layout": layout,
        "--causal": causal,
    }
    if module is None:
        _refuse(for_module, "without --module", "name your module with --module FILE.py:CLASS")
        source = _Source(text, file, _one_file(input), encoding, special, download)
        shared = {"seed": seed, "dtype": dtype, "device": device}
        trace = _trace_layer(
            layer or layer_options.DEFAULT_LAYER, {**sizes, **shared}, source, state_dict, train, view, inner
        )
    else:
        _refuse(
            {"--layer": layer, **{layer_options.FLAGS[name]: value for name, value in sizes.items()}},
            "with --module",
            "arguments of the constructor are given by --arg NAME=EXPR",
        )
        source = _Source(text, file, None, encoding, special, download)
        from attnscope.targets import Request

        request = Request(
            target=module,
            args=tuple(arg or ()),
            inputs=tuple(input or ()),
            only=only,
            batch=batch,
            length=length,
            layout=layout,
            causal=causal,
            seed=seed,
            dtype=dtype,
            device=device,
            state_dict=state_dict,
            train=train,
        )
        trace = _trace_target(request, source, view, inner)
    view.send(trace)
    if any(finding.severity == "error" for finding in trace.findings):
        raise typer.Exit(1)


def _refuse(options: Mapping[str, Any], where: str, hint: str) -> None:
    """An option that the target has no use for is an error, never ignored."""
    for option, value in options.items():
        if value is not None and value != []:
            raise UsageError(f"{option} has no use {where}", hint)


def _one_file(inputs: Sequence[str] | None) -> str | None:
    if inputs and len(inputs) > 1:
        raise UsageError("--input was given twice", "a built-in layer takes one file of embeddings")
    return inputs[0] if inputs else None


def _trace_layer(
    layer: str,
    chosen: Mapping[str, Any],
    source: _Source,
    state_dict: str | None,
    train: bool,
    view: _View,
    inner: bool,
) -> Trace:
    embeddings, tokens = source.read()
    if embeddings is not None:
        chosen = {**chosen, "d_model": _width_of(embeddings, chosen["d_model"])}
    options = layer_options.resolve(layer, **chosen)
    length = len(tokens) if embeddings is None else embeddings.shape[1]
    _check_length(options, length, "the text" if embeddings is None else f"--input {source.input}")
    draws = train and bool(options.dropout)
    if train and not draws:
        warn("trace", "--train changes nothing here: --dropout is 0")
    from_files = embeddings is not None and state_dict is not None
    if chosen["seed"] is not None and from_files and not draws:
        raise UsageError("--seed has no use: the input and the weights both come from files", "leave it out")

    from attnscope.api import trace_layer

    return trace_layer(
        options,
        tokens=tokens,
        encoding=source.encoding_name,
        embeddings=embeddings,
        embeddings_from=source.input or "",
        state_dict=state_dict,
        train=train,
        keep=view.keep(inner),
    )


def _trace_target(request: Request, source: _Source, view: _View, inner: bool) -> Trace:
    tokens: tuple[Any, ...] = ()
    if source.text is not None or source.file is not None:
        tokens = source.read()[1]
        if request.length is not None:
            raise UsageError("--len has no use with a text", "the text says how many tokens there are")
    else:
        _refuse(
            {
                "--encoding": source.encoding,
                "--special": source.special or None,
                "--download": source.download or None,
            },
            "without a text",
            "give a text, or leave it out",
        )

    from attnscope.api import trace_target

    keep_stdout_apart()
    return trace_target(request, tokens=tokens, keep=view.keep(inner))


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the input comes from, and the options that only a text has a use for."""

    text: str | None
    file: str | None
    input: str | None
    encoding: str | None
    special: bool
    download: bool

    @property
    def encoding_name(self) -> str:
        return self.encoding or "gpt2"

    def read(self) -> tuple[Any, tuple[Any, ...]]:
        """The embeddings [B, T, C] of `--input` and no tokens, or None and the tokens of the text."""
        if self.input is None:
            text = read_text(self.file, self.text)
            return None, encode(text, self.encoding_name, special=self.special, download=self.download)
        for name, given in (
            ("TEXT", self.text is not None),
            ("--file", self.file is not None),
            ("--encoding", self.encoding is not None),
            ("--special", self.special),
            ("--download", self.download),
        ):
            if given:
                raise UsageError(f"{name} has no use with --input", "give a text or --input, not both")
        from attnscope.inputs import read_embeddings

        return read_embeddings(self.input), ()


@dataclass(frozen=True, slots=True)
class _View:
    """What of a trace is shown, and where."""

    to: Destination
    sections: tuple[str, ...]
    heads: tuple[int, ...] | None
    layers: tuple[int, ...] | None
    precision: int
    scores: bool
    values: bool

    def keep(self, inner: bool) -> Keep:
        """What the run must keep so that this can be shown; nothing else is."""
        from attnscope.api import Keep

        weights = "weights" in self.sections
        return Keep(
            attention=weights or "mask" in self.sections,
            weights=weights,
            cells=None if self.to.json else WHOLE_UP_TO,
            scores=self.scores,
            values=self.values,
            inner=inner,
            output=self.to.json,
        )

    def send(self, trace: Trace) -> None:
        try:
            self._check_picks(trace)
        except UsageError:
            if not any(finding.severity == "error" for finding in trace.findings):
                raise
            # The crash came before what was picked, and is what there is to say.
            sections = tuple(one for one in self.sections if one not in ("mask", "weights"))
            return replace(self, sections=sections, heads=None, layers=None).send(trace)
        if self.to.json:
            trace = self._picked(trace)
        send(self.to, trace, "trace", self._draw(trace), self._edit)

    def _picked(self, trace: Trace) -> Trace:
        """The trace with the layers that were asked for; refused if it would be too much to read back."""
        picked = [
            one for number, one in enumerate(trace.attention) if self.layers is None or number in self.layers
        ]
        numbers = sum(prod(one.shape) for one in picked if one.weights is not None)
        if "weights" in self.sections and numbers > MOST_IN_JSON:
            raise UsageError(
                f"{numbers:,} weights are too many for JSON, which takes {MOST_IN_JSON:,}",
                "pick layers with --layer-index, leave weights out of --show, or take a shorter text",
            )
        return replace(trace, build_attention=lambda: picked)

    def _check_picks(self, trace: Trace) -> None:
        found = trace.attention if self.heads is not None or self.layers is not None else ()
        if self.layers is not None:
            for number in self.layers:
                if not 0 <= number < len(found):
                    raise UsageError(f"there is no layer {number}", _range("--layer-index", len(found)))
            found = tuple(found[number] for number in self.layers)
        for head in self.heads or ():
            most = max((one.heads for one in found), default=0)
            if not 0 <= head < most:
                raise UsageError(f"there is no head {head}", _range("--head", most))

    def _draw(self, trace: Trace) -> Any:
        def draw(style: Style) -> Lines:
            from attnscope.render.show import trace_lines

            return trace_lines(style, trace, self.sections, self.heads, self.layers, self.precision)

        return draw

    def _edit(self, body: dict[str, Any]) -> dict[str, Any]:
        """JSON with the sections and heads that were asked for; a section left out is no key."""
        sections = self.sections
        for one in body["attention"]:
            one["heads"] = [h for h in one["heads"] if self.heads is None or h["head"] in self.heads]
            if "weights" not in sections:
                del one["heads"]
            if "mask" not in sections:
                del one["mask"], one["mask_origin"]
        dropped = {"tokens": "tokens" not in sections, "steps": "shapes" not in sections}
        dropped["attention"] = "mask" not in sections and "weights" not in sections
        return {key: value for key, value in body.items() if not dropped.get(key, False)}


def _view(
    to: Destination,
    show: Sequence[str] | None,
    head: Sequence[int] | None,
    layer_index: Sequence[int] | None,
    precision: int | None,
    scores: bool,
    values: bool,
) -> _View:
    """Check what was asked to be shown."""
    sections: tuple[str, ...] = SECTIONS
    if show:
        names = [name.strip() for item in show for name in item.split(",") if name.strip()]
        for name in names:
            if name not in SECTIONS:
                raise unknown("section", name, SECTIONS)
        sections = tuple(section for section in SECTIONS if section in names)
        if not sections:
            raise UsageError("--show names no section", f"known: {', '.join(SECTIONS)}")
    needs = {
        "--head": (bool(head), "weights"),
        "--precision": (precision is not None, "weights"),
        "--scores": (scores, "weights"),
        "--values": (values, "shapes"),
    }
    for option, (given, section) in needs.items():
        if given and section not in sections:
            raise UsageError(
                f"{option} has no use without the section {section}",
                f"add it to --show, or leave {option} out",
            )
    if layer_index and "weights" not in sections and "mask" not in sections:
        raise UsageError("--layer-index has no use without the section mask or weights", "add one to --show")
    for option, given in (("--scores", scores), ("--values", values)):
        if given and not to.json:
            raise UsageError(f"{option} is for JSON", "add --format json")
    if precision is not None:
        if to.json:
            raise UsageError("--precision has no use for JSON, which is exact", "leave it out")
        if not 0 <= precision <= 8:
            raise UsageError(f"--precision {precision} is out of range", "from 0 to 8 would work")
    return _View(
        to,
        sections,
        tuple(dict.fromkeys(head)) if head else None,
        tuple(dict.fromkeys(layer_index)) if layer_index else None,
        2 if precision is None else precision,
        scores,
        values,
    )


def _range(option: str, number: int) -> str:
    if number == 0:
        return "no attention was found"
    return f"{option} 0 would work" if number == 1 else f"{option} from 0 to {number - 1} would work"


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
