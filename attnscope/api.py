"""One function per command, for Python and for the command line alike.

Each returns the dataclass that the command prints and that a notebook shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attnscope.schema import (
    Attention,
    Later,
    Mask,
    ModelInfo,
    Output,
    Reshaping,
    Step,
    TensorInfo,
    Token,
    Trace,
)

if TYPE_CHECKING:
    import os

    import torch
    from torch import Tensor, nn

    from attnscope.comparison import Comparison
    from attnscope.diagnostic import Report
    from attnscope.layers.options import Options
    from attnscope.recorder.record import Recording
    from attnscope.runner.watch import Watch
    from attnscope.steps import Steps
    from attnscope.targets import Request


@dataclass(frozen=True, slots=True)
class Keep:
    """What a trace keeps of a run.

    `attention`: look for attention at all; `weights`: keep its weights, not the masks alone.
    `cells`: reduce weights of more queries or keys than that to so many cells a side, with the `top` heaviest
    keys of each query, as soon as they were used (None: keep each matrix whole). `scores`: also the scores
    before the mask. `values`: the numbers of every step. `inner`: also the steps of PyTorch's own code.
    """

    attention: bool = True
    weights: bool = True
    cells: int | None = None
    top: int = 4
    scores: bool = False
    values: bool = False
    inner: bool = False
    output: bool = False


def trace(
    module: nn.Module, *args: Any, attention: bool = True, values: bool = False, **kwargs: Any
) -> Trace:
    """Run `module(*args, **kwargs)` once and return what happened: steps, attention, shapes.

    Args:
        module: any `nn.Module`. It needs no change, and is left as it was: mode, buffers, random state.
        args, kwargs: what the module is called with. `attention` and `values` are taken by this function.
        attention: also find attention, and keep masks and weights.
        values: also keep the numbers of every step and of the output.

    Raises: what the module raises. The exception then has the trace of the steps before it as its attribute
        `attnscope_trace`, and a note that says where it was raised.
    """
    keep = Keep(attention=attention, values=values, output=values)
    recording = _record(module, args, kwargs, keep)
    result = _trace(recording, _module_info(module), keep)
    if recording.error is not None:
        _annotate(recording.error, result)
        raise recording.error
    return result


def watch(module: nn.Module | None = None) -> Watch:
    """`with watch(model):` explains, on standard error, a crash of `model` inside the block.

    Args:
        module: whose forwards are watched, with all its submodules; None: those of every module.

    The exception, in forward or in backward, goes on unchanged. `report` of the returned object says after
    the block what was found: findings and the trace of the last forward.
    """
    from attnscope.runner.watch import Watch

    return Watch(module)


def mask(
    kind: str = "causal",
    length: int = 8,
    *,
    window: int | None = None,
    prefix: int | None = None,
    queries: int | None = None,
    offset: int | None = None,
) -> Mask:
    """A mask [queries, length], True = may attend, with the lines of torch that build it.

    `kind` is `causal`, `full`, `sliding` (with `window`) or `prefix` (with `prefix`). Fewer `queries` than
    keys stand at the end, as with a KV cache, unless `offset` gives the position of the first.

    Raises `attnscope.errors.UsageError` for an unknown kind and for sizes that do not fit.
    """
    from attnscope.masks import build

    return build(kind, length, window=window, prefix=prefix, queries=queries, offset=offset)


def reshape(chain: str, shape: Sequence[int]) -> Reshaping:
    """Where every element goes in a chain of views and copies, on a tensor of `shape`; no torch is needed.

    `chain` is written as in torch, `view(6, 2, 8).transpose(0, 1)`, or with einops' `rearrange` and `repeat`,
    or as lines of code with names. Elements are numbered from 0 in the order of the input's memory.

    Returns one step for each call, with the numbers in logical order, strides and memory. The step that torch
    would refuse is the last: it has the reason and what would work. Raises `attnscope.errors.UsageError` for
    what is no such chain.
    """
    from attnscope.reshaping.chain import follow

    return follow(chain, shape)


def check(
    module: nn.Module,
    *args: Any,
    causal: bool | None = None,
    layout: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    **kwargs: Any,
) -> Report:
    """Look for faults of a module: what crashes, and what is silently wrong, proved by experiment.

    Args:
        module: any `nn.Module`; it is left as it was.
        args, kwargs: one call of it, as `module(*args, **kwargs)`; without them inputs are made, in the
            convention that the module proves to use. The first tensor is [B, T, C] floats or [B, T] ids.
        causal: whether causal attention is meant (None: expected where the module shows it).
        layout: `btc`, `tbc` or `nc`, the axes of the first tensor.
        select, ignore: codes to look for alone, or to leave out; `AS2` stands for all that begin so.

    Comments `# attnscope: ignore[AS208]` in the module's source count; `pyproject.toml` does for the command
    alone. Returns the findings, most telling first, and what was tried and held. `Report.failed` is True
    exactly when a finding is an error. Raises UsageError for an unknown code, or where inputs cannot be
    guessed.
    """
    from attnscope.checks.session import check_module

    return check_module(module, args, kwargs, causal=causal, layout=layout, select=select, ignore=ignore)


def assert_sound(module: nn.Module, *args: Any, **options: Any) -> None:
    """Raise AssertionError if `check(module, *args, **options)` finds an error; for a test suite.

    The message has every error: its code, what is wrong, where, and the help. Also raised where the check is
    not complete, since something raised inside or was cut off: what was not tried may hide a fault.
    """
    report = check(module, *args, **options)
    errors = [finding for finding in report.findings if finding.severity == "error"]
    missed = [one for one in report.tried if one.status == "not tried"] if not report.complete else []
    if errors or missed:
        lines = [f"{report.target} has {len(errors)} fault{'s' if len(errors) > 1 else ''}"] if errors else []
        for finding in errors:
            place = f"{finding.span.file}:{finding.span.line}: " if finding.span is not None else ""
            lines.append(f"{place}{finding.code}: {finding.message}")
            lines += [f"    help: {finding.help}"] if finding.help else []
        lines += [f"the check of {report.target} is not complete"] if missed else []
        lines += [f"{one.module}{': ' if one.module else ''}{one.name}: {one.result}" for one in missed]
        raise AssertionError("\n".join(lines))


def compare(
    a: nn.Module | str,
    b: nn.Module | str,
    *inputs: Any,
    args: Sequence[str] = (),
    args_a: Sequence[str] = (),
    args_b: Sequence[str] = (),
    inputs_a: Sequence[Any] = (),
    inputs_b: Sequence[Any] = (),
    maps: Sequence[str] = (),
    causal: bool = True,
    layout: str | None = None,
    dtype: torch.dtype | None = None,
    seed: int = 123,
) -> Comparison:
    """Whether two modules are the same function once the weights of `a` are in `b`; neither is changed.

    Args:
        a, b: modules, or targets as on the command line (`multihead`, `my_model.py:Attention`).
        inputs: what both are called with, tensors or expressions (default: made, as by `attnscope check`);
            `inputs_a` and `inputs_b` for one of them.
        args: constructor arguments of targets, `NAME=EXPR`; `args_a` and `args_b` for one of them.
        maps: `A.NAME=B.NAME`, with slices and `.T`, for weights that neither names nor layouts tell.
        causal: whether a mask that has to be made is causal.
        layout: `btc`, `tbc` or `nc`, the axes of the inputs.
        dtype: the type to compare in (default: float64 where both can).
        seed: of weights and inputs that are made.

    Raises UsageError where the two cannot be compared.
    """
    from attnscope.equivalence import compare

    return compare(
        a,
        b,
        args=args,
        args_a=args_a,
        args_b=args_b,
        inputs=inputs,
        inputs_a=inputs_a,
        inputs_b=inputs_b,
        maps=maps,
        causal=causal,
        layout=layout,
        dtype=dtype,
        seed=seed,
    )


def trace_layer(
    options: Options,
    *,
    tokens: Sequence[Token] = (),
    encoding: str = "gpt2",
    embeddings: Tensor | None = None,
    embeddings_from: str = "",
    state_dict: str | os.PathLike[str] | None = None,
    train: bool = False,
    keep: Keep | None = None,
) -> Trace:
    """Run a built-in layer, or a stack of them, on the embeddings of `tokens` or on `embeddings` [B, T, C].

    Token and position embeddings are random, seeded apart from the layer. `state_dict` is a file of weights
    in place of random ones. With `train`, dropout is active and drawn from the seed.

    Raises UsageError when the inputs do not fit the options.
    """
    import torch

    from attnscope.layers.stack import build, find_device
    from attnscope.sandbox.state import random_state, seed_torch

    keep = keep or Keep(output=True)
    device = find_device(options.device)
    dtype = getattr(torch, options.dtype)
    if embeddings is None:
        x, said = _embed(options, tokens, encoding)
    else:
        x, said = embeddings, f"input: embeddings from {embeddings_from}"
    model = build(options)
    weights = "random"
    if state_dict is not None:
        from attnscope.inputs import load_weights

        load_weights(model, state_dict)
        weights = f"weights from {state_dict}"
    model.train(train)
    with random_state(), torch.no_grad():  # nothing here needs a graph, which would keep every activation
        if train:
            seed_torch(options.seed)
        recording = _record(model, (x.to(device, dtype),), {}, keep, {"x": ("B", "T", "C")})
    if recording.error is not None:
        raise recording.error
    info = ModelInfo(
        layer=options.layer,
        target=None,
        config={**options.config(), **({"mode": "train"} if train else {})},
        seed=options.seed,
        weights=weights,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
    return _trace(recording, info, keep, tokens=tuple(tokens), embedding=said)


def trace_target(
    request: Request,
    *,
    tokens: Sequence[Token] = (),
    keep: Keep | None = None,
) -> Trace:
    """Run a user's module once, on the ids of `tokens` or on what was given or guessed.

    What the module raises is no exception here: the trace then has the steps up to the fault, and findings
    that explain it. Raises UsageError for what the command line got wrong.
    """
    from attnscope.crashes import Crash, diagnose
    from attnscope.ignores import settled
    from attnscope.loader.importing import run_user_code
    from attnscope.recorder.recording import Recording
    from attnscope.sandbox.state import global_state, seed_torch
    from attnscope.targets import prepare

    keep = keep or Keep(output=True)
    ids = [token.id for token in tokens] or None
    prepared = prepare(request, ids)
    if prepared.crash is not None or prepared.call is None:
        assert prepared.crash is not None
        findings, notes, _ = settled(diagnose(prepared.crash))
        return Trace(prepared.info(), tuple(tokens), None, (), (), findings=findings, notes=notes)
    module, call = prepared.module, prepared.call

    def run() -> Recording:
        try:
            module.train(request.train)
        except Exception as error:  # a `train` of the user's, or a module that is a part of itself
            return Recording(module, error=error)
        seed_torch(prepared.built.seed)
        args, kwargs = call.fresh()
        return _record(module, args, kwargs, keep, call.axes)

    with global_state():
        recording = run_user_code(prepared.built.target.environment, run)
    result = _trace(recording, prepared.info(), keep, tokens=prepared.repeated(tokens))
    result = prepared.noted(result, len(tokens))
    if recording.error is None:
        return result
    crash = Crash(recording.error, "forward", module, result.steps, type(module))
    findings, notes, _ = settled(diagnose(crash))
    return replace(result, findings=findings, notes=(*result.notes, *notes))


def _embed(options: Options, tokens: Sequence[Token], encoding: str) -> tuple[Tensor, str]:
    import torch

    from attnscope.layers.stack import Embeddings
    from attnscope.text import vocabulary_size

    table = Embeddings(vocabulary_size(encoding), options.d_model, options.context_length, options.seed)
    with torch.no_grad():
        x: Tensor = table(torch.tensor([[token.id for token in tokens]]))
    return x, "input: random token and position embeddings, seeded apart from the layer"


def _record(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    keep: Keep,
    input_axes: Mapping[str, tuple[str | None, ...]] | None = None,
) -> Recording:
    from attnscope.recorder.record import record

    capture = None
    if keep.attention:
        from attnscope.recorder.capture import Capture

        capture = Capture(
            "weights" if keep.cells is None else "pooled",
            scores=keep.scores,
            pool=None if keep.cells is None else _pool(keep.cells, keep.top),
            wanted=None if keep.weights else lambda number: False,
        )
    return record(
        module, args, kwargs, inner=keep.inner, values=keep.values, capture=capture, input_axes=input_axes
    )


def _pool(cells: int, top: int) -> Callable[[Any], Any]:
    from attnscope.pooling import pool, pool_size

    def reduce(weights: Any) -> Any:
        longest = max(weights.shape[-2:])
        if longest <= cells:
            return None  # every number can be shown
        factor = pool_size(longest, cells)
        return pool(weights, factor, factor, top)

    return reduce


def _trace(
    recording: Recording,
    model: ModelInfo,
    keep: Keep,
    tokens: tuple[Token, ...] = (),
    embedding: str | None = None,
) -> Trace:
    rows = _Rows(recording, keep.inner)

    def attention() -> tuple[Attention, ...]:
        if not keep.attention:
            return ()
        from attnscope.attention import build_attention
        from attnscope.parallel import join_parallel

        return tuple(join_parallel(recording, build_attention(recording, rows.steps)))

    output = None
    if recording.result_serial is not None:
        info = Later(lambda: _output_info(recording, rows.steps.rows))
        output = Output(info, _values(recording.result) if keep.output else None)
    steps = Later(lambda: tuple(rows.steps.rows))
    missed = tuple(recording.said_missed)
    return Trace(model, tokens, output, steps, Later(attention), embedding=embedding, notes=missed)


@dataclass(frozen=True)
class _Rows:
    """Steps are worked out once, for the shape trace and for the attention that refers to its rows."""

    recording: Recording
    inner: bool

    @cached_property
    def steps(self) -> Steps:
        from attnscope.steps import Steps

        return Steps(self.recording, inner=self.inner)


def _output_info(recording: Recording, steps: Sequence[Step]) -> TensorInfo:
    """The result, with the axis names that the last step which made such a tensor has."""
    shape, stride, dtype, device = recording.made[recording.result_serial or 0]
    name = str(dtype).removeprefix("torch.")
    for step in reversed(steps):
        for info in step.outputs:
            if (info.shape, info.stride, info.dtype) == (tuple(shape), tuple(stride), name):
                return info
    unnamed = (None,) * len(shape)
    contiguous = tuple(stride) == _dense(shape)
    return TensorInfo(tuple(shape), unnamed, name, tuple(stride), contiguous, str(device))


def _module_info(module: nn.Module) -> ModelInfo:
    """What ran, of a module that the user made; counting its parameters can wait."""
    number = Later(lambda: sum(parameter.numel() for parameter in module.parameters()))
    return ModelInfo(None, type(module).__name__, {}, None, "", number)


def _values(result: Any) -> Any:
    from attnscope.recorder.tensors import to_numpy
    from attnscope.sandbox.tensors import first_tensor

    tensor = first_tensor(result)
    return None if tensor is None else to_numpy(tensor)


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if shape else ()


def _annotate(error: BaseException, result: Trace) -> None:
    """Hang the trace on a module's exception, and say in a note where it was raised."""
    with suppress(AttributeError, TypeError):  # an exception class may refuse attributes
        error.attnscope_trace = result  # type: ignore[attr-defined]
    with suppress(Exception):  # the note is a courtesy; the exception is what matters
        error.add_note(_where(result.steps))


def _where(steps: Sequence[Step]) -> str:
    if not steps:
        return "attnscope: raised before the first tensor step"
    last = steps[-1]
    place = f"{last.file}:{last.line}" + (f", in {last.module}" if last.module else "")
    if last.error is not None:
        return f"attnscope: raised by step {last.index}, `{last.op}` at {place}"
    return f"attnscope: raised after step {last.index}, `{last.op}` at {place}"
