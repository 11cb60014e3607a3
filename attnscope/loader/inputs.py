"""What `forward` is called with: from `--input`, and for the rest from what the module proves to use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnscope.errors import UsageError
from attnscope.loader.arguments import Built
from attnscope.loader.call import CallInputs
from attnscope.loader.expressions import printable
from attnscope.loader.fitting import (
    descend,
    equal_lengths,
    first_choice,
    fit_widths,
    furthest_layout,
    other_layouts,
    plainest,
    settle_lazy,
)
from attnscope.loader.outcome import result
from attnscope.loader.probe import Outcome
from attnscope.loader.proofs import prove_layout, prove_main, prove_masks
from attnscope.loader.search import LAYOUTS, Search
from attnscope.loader.sizes import BATCH, LENGTH
from attnscope.loader.stubs import MissingImport, to_install
from attnscope.loader.submodule import caught_inputs


def make_inputs(
    built: Built,
    inputs: Sequence[str] = (),
    *,
    batch: int = BATCH,
    length: int = LENGTH,
    text_tokens: Sequence[int] | None = None,
    layout: str | None = None,
    causal: bool = True,
    thorough: bool = True,
    free_length: bool = True,
) -> CallInputs:
    """Make the arguments of one call.

    Args:
        built: from `construct`, with a module.
        inputs: `--input` texts, `EXPR` (in the order of forward's parameters) or `NAME=EXPR`.
        batch: B where it is free.
        length: T where it is free.
        text_tokens: ids of a text; then T is their number, and equal tokens get equal inputs.
        layout: `btc`, `tbc` or `nc`, where the user said so.
        causal: whether causal attention is meant; a mask that is made is causal then, else lets all through.
        thorough: try long, and say where a crash hangs on what was guessed.
        free_length: where no call runs, other lengths may be tried; a text is repeated for them.

    Raises:
        UsageError: an input is wrong, forward needs what is not installed, or it does not end.
    """
    if built.root is None or built.module is None:
        raise ValueError("the module was not constructed")
    if layout is not None and layout not in LAYOUTS:
        raise UsageError(f"--layout `{printable(layout)}` is not known", "it is btc, tbc or nc")
    search = Search(built, built.root, batch, length, text_tokens, layout, causal, thorough, free_length)
    try:
        search.take(inputs)
        made = _run(search)
        if isinstance(made.error, MissingImport):
            raise made.error
        return caught_inputs(built, made) if built.only else made
    except MissingImport as error:
        raise to_install(error, built.target.file) from error


def _run(search: Search) -> CallInputs:
    """Choose everything that was not given.

    Whether entries of a batch are mixed shows with two of them only, so also where one text is shown what is
    chosen is chosen with two.
    """
    if not search.parameters:
        outcome = search.attempt(search.given)
        return result(search, search.given, outcome, None)
    frame = search.frame
    if frame.B == 1 and search.main not in search.given:
        search.frame = replace(frame, B=3 if frame.T == 2 else 2)
        outcome, proven = _choose(search)
        if outcome.ran:
            search.frame = replace(search.frame, B=1)
            one = search.try_choice(search.choice)
            if one.ran:
                return result(search, search.values(search.choice), one, proven)
        search.restart(frame)
    outcome, proven = _choose(search)
    return result(search, search.values(search.choice), outcome, proven)


def _choose(search: Search) -> tuple[Outcome, bool | None]:
    first_choice(search)
    outcome = search.try_choice(search.choice)
    outcome = fit_widths(search, outcome)
    if not outcome.ran and not search.hopeless(outcome):
        outcome = furthest_layout(search, outcome)
    if not outcome.ran and not search.hopeless(outcome):
        outcome = descend(search, outcome)
    if not outcome.ran and search.main not in search.given and not search.hopeless(outcome):
        outcome = other_layouts(search, outcome)
    if not outcome.ran and search.main not in search.given and not search.hopeless(outcome):
        outcome = equal_lengths(search, outcome)
    if not outcome.ran:
        outcome = plainest(search, outcome)
    if outcome.endless:
        raise UsageError(
            f"`forward` of `{printable(search.built.target.name)}` was stopped: {printable(outcome.error)}",
            "smaller sizes (--arg, --len) or other inputs (--input) may end",
        )
    if outcome.ran:
        outcome = settle_lazy(search, outcome)
    if outcome.ran and search.main not in search.given and search.layout is None:
        outcome = prove_layout(search, prove_main(search, outcome))
    proven: bool | None = None
    if outcome.ran:
        outcome, proven = prove_masks(search, outcome)
    return outcome, proven
