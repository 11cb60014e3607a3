"""Why a module crashed: an exception and the steps before it → diagnostics, most telling first.

One file for each code; this table names them in the order in which they are asked. A file's docstring is
what `attnscope explain` prints.
"""

from __future__ import annotations

import ast
import importlib
from dataclasses import replace
from typing import TYPE_CHECKING

from attnscope.crashes.crash import Crash, Phase
from attnscope.diagnostic import Diagnostic, Label
from attnscope.strict import passed_over

if TYPE_CHECKING:
    from attnscope.crashes.scene import Scene

__all__ = ["RULES", "Crash", "Phase", "diagnose"]

RULES: tuple[str, ...] = (
    "as134_endless_recursion",
    "as131_load_transposed",
    "as133_load_names",
    "as132_load_sizes",
    "as104_super_init",
    "as106_property",
    "as103_init_twice",
    "as102_set_on_one_path",
    "as125_not_a_tensor",
    "as101_missing_attribute",
    "as105_name_taken",
    "as137_no_forward",
    "as128_unknown_name",
    "as121_inplace_spoils_backward",
    "as122_no_backward",
    "as120_inplace_forbidden",
    "as119_device",
    "as124_is_causal_flag",
    "as138_truth_of_a_tensor",
    "as139_number_too_large",
    "as136_size_is_no_integer",
    "as109_not_divisible",
    "as118_mask_dtype",
    "as117_dtypes_differ",
    "as115_context_exceeded",
    "as116_id_outside_vocabulary",
    "as107_element_count",
    "as108_view_of_noncontiguous",
    "as110_wrong_number_of_parts",
    "as126_axis_out_of_range",
    "as112_wrong_features",
    "as114_mask_shape",
    "as111_matmul_sizes",
    "as127_joined_sizes",
    "as135_einsum",
    "as113_broadcast",
    "as123_call_arguments",
    "as130_missing_key",
    "as129_refused_by_the_code",
    "as100_unexplained",
)


def _ordered(scene: Scene, call: ast.AST, finding: Diagnostic) -> list[ast.expr]:
    """The call's arguments, those first whose parameters the finding speaks of."""
    given: list[ast.expr] = list(getattr(call, "args", ()))
    function = scene.reader.body.function if scene.reader is not None else None
    names = [one.arg for one in function.args.args] if function is not None else []
    if len(names) == len(given) + 1:
        names = names[1:]
    spoken = [f"`{name}`" in finding.message for name in names]
    return sorted(given, key=lambda one: not (given.index(one) < len(spoken) and spoken[given.index(one)]))


def _called(scene: Scene, finding: Diagnostic) -> Diagnostic:
    """Adds, where the fault stands in a helper, the line of the same file that called it."""
    if scene.reader is None or len(scene.shots) < 2 or finding.code in ("AS134", "AS121"):
        return finding
    bodies = [shot for shot in scene.shots if shot.frame is not scene.reader.shot.frame]
    caller = next((shot for shot in reversed(bodies) if shot is not scene.reader.body), None)
    if caller is None or finding.span is None or caller.file != finding.span.file or caller.node is None:
        return finding
    lines = {label.span.line for label in finding.labels[:3]} | {finding.span.line}
    if caller.span.line in lines or scene.reader.body.frame.f_code is caller.frame.f_code:
        return finding
    from attnscope.crashes.history import history
    from attnscope.crashes.names import FrameReader

    added = [Label(caller.span, "called from here")]
    place = scene.shots.index(caller)
    outer = scene.shots[place - 1] if place else None
    env = FrameReader(caller, outer, scene.read.assigned).env()
    for argument in _ordered(scene, caller.node, finding):
        made = next((link for link in history(argument, env, scene.read) if link.kind == "def"), None)
        if made is not None and made.node.lineno not in {*lines, caller.span.line}:  # type: ignore[attr-defined]
            added.append(Label(scene.head(made.node), f"`{made.name}` is made here"))
            break
    kept = 1 if len(added) > 1 else 2
    return replace(finding, labels=(*finding.labels[:kept], *added, *finding.labels[kept:])[:3])


def diagnose(crash: Crash) -> tuple[Diagnostic, ...]:
    """What is to be said of one crash; at least one finding, and never an exception.

    A rule that itself fails on an unusual module is passed over: the next one, at last AS100, answers.
    """
    import torch

    from attnscope.crashes.scene import Scene

    # The user's function modes and tensor subclasses stay out of what is only looked at.
    with torch._C.DisableTorchFunction(), torch.no_grad():
        scene = Scene(crash)
        for name in RULES:
            try:
                finding: Diagnostic | None = importlib.import_module(f"{__name__}.{name}").diagnose(scene)
            except Exception as error:
                passed_over(error)
                finding = None
            if finding is not None:
                return (_called(scene, finding),)
    return (Diagnostic("AS100", "error", f"`{type(crash.error).__name__}` was raised"),)
