"""One whole check: the phases of a module's life, then the silent experiments, put together to a `Report`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.checks.consequences import fold
from attnscope.checks.judging import judge
from attnscope.checks.lab import Lab
from attnscope.checks.settled import without_settled
from attnscope.checks.subject import Subject, names_of
from attnscope.diagnostic import Diagnostic, Report, Tried
from attnscope.errors import UsageError
from attnscope.ignores import settled
from attnscope.loader import construct
from attnscope.sandbox.guard import preserved
from attnscope.schema import ModelInfo
from attnscope.selection import selection
from attnscope.targets import Prepared, Request, prepare

Progress = Callable[[str], None]


def check_target(
    request: Request,
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    progress: Progress | None = None,
) -> Report:
    """Load, construct and check a target of the command line. Raises UsageError for what that got wrong."""
    wanted = selection(select, ignore)
    _say(progress, "constructing")
    prepared = prepare(request)
    info = prepared.info()
    if prepared.crash is not None or prepared.call is None:
        from attnscope.crashes import diagnose

        assert prepared.crash is not None
        found = _chosen(diagnose(prepared.crash), wanted)
        findings, ignored = without_settled(prepared.built.module, found, found, wanted, False)
        names = {"construct": "construct", "load": "state_dict", "move": "cast"}
        tried = (
            Tried(
                names.get(prepared.crash.phase, "construct"),
                f"raises {type(prepared.crash.error).__name__}",
                False,
            ),
        )
        return Report(request.target, findings, tried, model=info, notes=ignored)
    return check_subject(subject_of(prepared), info, wanted, progress)


def subject_of(prepared: Prepared) -> Subject:
    """The subject of a target that was constructed and its call."""
    call, built, request = prepared.call, prepared.built, prepared.request
    assert call is not None

    devices = {name: "meta" for name, guess in built.guessed.items() if guess.role == "device"}

    def instead(values: Mapping[str, Any]) -> nn.Module | None:
        made = construct(
            built.target,
            request.args,
            only=request.only,
            dtype=built.dtype,
            batch=call.batch,
            length=call.length,
            vocab=built.sizes.vocab,
            variant=built.variant,
            instead=values,
        )
        return made.module

    given = {text.partition("=")[0].partition(".")[0].strip() for text in request.args}

    def rebuild(seed: int) -> nn.Module:
        sizes = built.sizes
        again = construct(
            built.target,
            request.args,
            only=request.only,
            seed=seed,
            dtype=built.dtype,
            device=built.device,
            batch=call.batch,
            length=call.length,
            vocab=sizes.vocab,
        )
        if again.module is None:
            raise again.error or RuntimeError("the module cannot be built again")
        return again.module

    return Subject(
        prepared.module,
        tuple(call.args),
        dict(call.kwargs),
        call.names,
        call.axes,
        request.causal,
        call.guessed,
        built.dtype,
        type(prepared.module).__name__,
        built.target.environment.active,
        rebuild if request.state_dict is None and isinstance(built.target.factory, type) else None,
        elsewhere=partial(instead, devices) if devices else None,
        switches={
            f"{name}={not value}": partial(instead, {name: not value})
            for name, value in built.arguments.items()
            if type(value) is bool and name not in given and request.state_dict is None
        },
    )


def check_module(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    causal: bool | None = None,
    layout: str | None = None,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
) -> Report:
    """Check a module that exists. Without arguments, those of one call are made as for a target."""
    wanted = selection(select, ignore)
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"check takes an nn.Module, not a {type(module).__name__}",
            "for a target there is `attnscope check`",
        )
    layout = layout or _layout_of(module)
    if args or kwargs:
        subject = _given(module, args, kwargs, causal, layout)
        info = _info(module)
    else:
        subject, info = _made(module, causal, layout)
    return check_subject(subject, info, wanted, None)


def check_subject(
    subject: Subject,
    info: ModelInfo | None,
    wanted: Collection[str] | None,
    progress: Progress | None = None,
) -> Report:
    """Run all phases and experiments on one subject."""
    lab = Lab(subject)
    with preserved(subject.module, (*subject.args, *subject.kwargs.values())):  # where no copy can be made
        made = judge(lab, wanted, progress or (lambda what: None))
    _say(progress, "")
    title = subject.title or type(subject.module).__name__
    found = [one.finding for one in made.findings]
    kept, _, _ = settled(found)
    # What the user has settled folds nothing: what would follow from it is shown by itself.
    shown = _chosen(fold([one for one in made.findings if one.finding in kept]), wanted)
    _, ignored = without_settled(subject.module, found, _chosen(found, wanted), wanted, made.complete)
    return Report(
        info.target if info is not None and info.target else title,
        shown,
        tuple(made.tried),
        model=info,
        notes=(*ignored, *made.notes),
        extra={
            "tolerance": lab.tolerance,
            "precision": "float64" if lab.precise else str(subject.dtype or "float32"),
        },
        complete=made.complete,
    )


def _chosen(findings: Sequence[Diagnostic], wanted: Collection[str] | None) -> tuple[Diagnostic, ...]:
    return tuple(one for one in findings if wanted is None or one.code in wanted)


def _say(progress: Progress | None, what: str) -> None:
    if progress is not None:
        progress(what)


# -- modules that exist
# ---------------------------------------------------------------------------------------


def _layout_of(module: nn.Module) -> str | None:
    """PyTorch's own sequence-first modules say so themselves."""
    if type(module).__module__.startswith("torch.nn") and vars(module).get("batch_first") is False:
        return "tbc"
    return None


def _info(module: nn.Module) -> ModelInfo:
    number = sum(
        p.numel() for p in module.parameters() if not isinstance(p, nn.parameter.UninitializedParameter)
    )
    return ModelInfo(None, type(module).__name__, {}, None, "weights as given", number)


def _made(module: nn.Module, causal: bool | None, layout: str | None) -> tuple[Subject, ModelInfo]:
    from attnscope.loader import Target, make_inputs
    from attnscope.loader.importing import Environment, parse_file

    cls = type(module)
    source = sys.modules.get(cls.__module__) or ModuleType(cls.__module__)
    import ast

    tree = ast.Module(body=[], type_ignores=[])
    try:
        file = inspect.getsourcefile(cls)
        tree = parse_file(Path(file)) if file else tree
    except (OSError, TypeError, UsageError):
        file = None
    target = Target(cls.__name__, cls.__name__, module, source, Environment((), sys.stderr), file, tree=tree)
    built = construct(target)
    request = Request(cls.__name__, causal=causal, layout=layout)
    call = make_inputs(built, layout=layout, causal=causal is not False)
    if call.error is not None and call.doubt:
        raise UsageError(call.doubt.replace('with --input "', 'as an argument of check: "').strip())
    prepared = Prepared(request, built, call, None)
    info = replace(_info(module), guesses=(call.guesses,) if call.guesses else ())
    return replace(subject_of(prepared), rebuild=None), info


def _given(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], causal: bool | None, layout: str | None
) -> Subject:
    names = names_of(module, len(args))
    main: Tensor | None = None
    axes: dict[str, tuple[str | None, ...]] = {}
    for name, value in [*zip(names, args, strict=True), *kwargs.items()]:
        if not isinstance(value, Tensor):
            continue
        axes[name] = _axes_of(value, main, layout)
        main = value if main is None else main
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), None)
    half = dtype if dtype in (torch.float16, torch.bfloat16) else None
    return Subject(
        module, tuple(args), dict(kwargs), names, axes, causal, frozenset(), half, type(module).__name__
    )


def _axes_of(value: Tensor, main: Tensor | None, layout: str | None) -> tuple[str | None, ...]:
    order = {"tbc": ("T", "B", "C"), "nc": ("T", "C")}.get(layout or "", ("B", "T", "C"))
    floating = value.is_floating_point()
    if main is None:
        if not floating:
            return {1: ("T",), 2: ("T", "B") if layout == "tbc" else ("B", "T")}.get(
                value.dim(), (None,) * value.dim()
            )
        if value.dim() == 4:
            return ("B", "H", "T", "D")
        return order if value.dim() == 3 else ("T", "C") if value.dim() == 2 else (None,) * value.dim()
    if floating and value.dim() == 3 and main.dim() == 3:
        token = order.index("T")
        if value.shape == main.shape:
            return order
        if value.shape[1 - token] == main.shape[1 - token]:
            return tuple("S" if letter == "T" else letter for letter in order)
    if floating and value.shape == main.shape and value.dim() == 4:
        return ("B", "H", "T", "D")
    return (None,) * value.dim()
