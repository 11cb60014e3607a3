"""`--only MODULE.PATH`: a submodule is called with what the whole model calls it with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.errors import UsageError
from attnscope.loader import roles
from attnscope.loader.arguments import Built
from attnscope.loader.call import CallInputs
from attnscope.loader.expressions import printable
from attnscope.loader.importing import run_user_code
from attnscope.loader.stubs import MissingImport
from attnscope.sandbox.copying import cloned


def caught_inputs(built: Built, whole: CallInputs) -> CallInputs:
    """What the submodule `only` is called with when the whole model runs."""
    root, target = built.root, built.module
    assert root is not None and target is not None
    caught: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not caught:
            caught.append((cloned(args), cloned(kwargs)))

    handle = target.register_forward_pre_hook(hook, with_kwargs=True)
    modes = {m: m.training for m in root.modules()}
    error: BaseException | None = None
    try:
        root.eval()

        def call() -> Any:
            with torch.no_grad():
                return root(*cloned(whole.args), **cloned(dict(whole.kwargs)))

        run_user_code(built.target.environment, call)
    except (KeyboardInterrupt, MissingImport):
        raise
    except BaseException as raised:
        error = raised
    finally:
        handle.remove()
        for module, training in modes.items():
            module.training = training
    if not caught:
        why = (
            f"`{printable(built.target.name)}` raises {type(error).__name__} before"
            if error
            else "it is not called"
        )
        raise UsageError(f"`{printable(built.only)}` is not reached: {why}", "look at the whole model first")
    args, kwargs = caught[0]
    parameters = roles.forward_parameters(target)
    names = tuple(p.name for p in parameters)[: len(args)]
    axes: dict[str, tuple[str | None, ...]] = {}
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        if isinstance(value, Tensor):
            axes[name] = _natural_axes(value, whole)
    says = f"{built.only} is called as in the whole model"
    return replace(
        whole,
        args=args,
        kwargs=kwargs,
        names=names,
        axes=axes,
        guesses=f"{whole.guesses}; {says}" if whole.guesses else says,
        error=None,
        doubt="",
        layout="btc" if args and isinstance(args[0], Tensor) and args[0].dim() == 3 else whole.layout,
    )


def _natural_axes(value: Tensor, whole: CallInputs) -> tuple[str | None, ...]:
    if value.dim() == 3 and value.shape[:2] == (whole.batch, whole.length):
        return ("B", "T", "C")
    if value.dim() == 2 and tuple(value.shape) == (whole.batch, whole.length):
        return ("B", "T")
    return (None,) * value.dim()
