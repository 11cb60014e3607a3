"""Changing one argument after another until the call runs, or gets no further."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from attnscope.loader import candidates as cand
from attnscope.loader import roles
from attnscope.loader.blame import images, layouts
from attnscope.loader.candidates import Candidate
from attnscope.loader.expressions import words
from attnscope.loader.importing import run_user_code
from attnscope.loader.lengths import fixed_length, of_length, window_lengths, with_time
from attnscope.loader.options import options_of
from attnscope.loader.probe import (
    Outcome,
    Prober,
    along,
    changed,
    disturb,
)
from attnscope.loader.search import MASKS, ROPE, SEQUENCES, Search
from attnscope.sandbox.state import seed_torch

_ROUNDS = 6
_LIKELY = 12
_ON_FAILURE = (
    *ROPE,
    "positions",
    "start",
    "tokens",
    "memory",
    "condition",
    "key",
    "value",
    *MASKS,
    "cache",
    "seqlen",
    "timestep",
)


def first_choice(search: Search) -> None:
    if search.main not in search.given:
        likely = cand.MAIN[search.layout or _likely_layout(search)]
        search.choice[search.main] = cand.turned(likely) if _tokens_first(search) else likely
    for p in search.parameters:
        if p.name in search.given or p.name == search.main or not p.required:
            continue
        options = options_of(search, p)
        search.choice[p.name] = options[0]


def _tokens_first(search: Search) -> bool:
    """PyTorch's own layers say it themselves; what users write has to be tried."""
    if search.layout is not None or not type(search.module).__module__.startswith("torch.nn."):
        return False
    flags = [getattr(part, "batch_first", None) for part in search.module.modules()]
    return next((not flag for flag in flags if isinstance(flag, bool)), False)


def _likely_layout(search: Search) -> str:
    p = search.by_name[search.main]
    embeds = any(isinstance(m, nn.Embedding) for m in search.module.modules())
    if p.role == "tokens" and embeds:
        return "ids"
    if p.role == "image":
        return "image"
    seen = roles.unpacked(search.tree, search.main)
    if seen is not None and seen.layout is not None:
        if seen.layout == "nc" and embeds:
            return "ids"
        return seen.layout
    return "btc"


def fit_widths(search: Search, outcome: Outcome) -> Outcome:
    """Give each input the width that the first layer which takes it wants; ids where that embeds."""
    for _ in range(6):
        mended = False
        for name, (function, width) in outcome.first.items():
            if name in search.given or name not in search.choice:
                continue
            if function == "conv2d" and name == search.main and search.choice[name] is cand.MAIN["btc"]:
                search.choice[name] = cand.MAIN["image"]
                mended = True
            if function == "embedding":
                if search.choice[name] not in cand.IDS:
                    search.choice[name] = cand.as_ids(search.choice[name])
                    mended = True
                if name == search.main:
                    search.fits_vocabulary(width)
                if name == search.main and width < search.frame.vocab:
                    search.frame = replace(search.frame, vocab=width)
                    mended = True
                elif name != search.main and width < search.vocabularies.get(name, search.frame.vocab):
                    search.vocabularies[name] = width
                    mended = True
            elif not outcome.ran and _misfits(search, name, width):
                if name == search.main:
                    search.frame = replace(search.frame, C=width)
                else:
                    search.widths[name] = width
                mended = True
        if not mended or outcome.ran:
            break
        outcome = search.try_choice(search.choice)
    return outcome


def _misfits(search: Search, name: str, width: int) -> bool:
    ends_in_width = search.choice[name].axes[-1:] == ("C",)
    return ends_in_width and width != search.widths.get(name, search.frame.C)


def _groups(search: Search, required: bool) -> list[tuple[str, ...]]:
    """Parameters that are tried together: cos with sin."""
    free = [
        p
        for p in search.parameters
        if p.name not in search.given
        and p.name != search.main
        and (p.required or (p.role in _ON_FAILURE and not required))
        and p.role not in ("flag", "causal", "head_mask")
    ]
    pair = tuple(p.name for p in free if p.role in ("cos", "sin"))
    order = [
        "key",
        "value",
        "query",
        "main",
        "tokens",
        "memory",
        "condition",
        *ROPE,
        "positions",
        "start",
        "seqlen",
        "counts",
        "height",
        "width",
    ]
    order += ["timestep", "other", "cache", "mask", "padding"]
    groups: list[tuple[str, ...]] = [
        (p.name,) for p in sorted(free, key=lambda p: order.index(p.role) if p.role in order else 99)
    ]
    if len(pair) == 2:
        groups = [pair, *(g for g in groups if g[0] not in pair)]
    return sorted(groups, key=lambda g: not any(search.by_name[n].required for n in g))


def descend(search: Search, outcome: Outcome, required: bool = False) -> Outcome:
    """Change one argument (or pair) at a time, keeping what gets furthest, until the call runs.

    With `required`, those that have a default are left out.
    """
    best = outcome
    few = any(p.role in MASKS for p in search.parameters)  # at first the likely masks: others may be to blame
    for _ in range(_ROUNDS):
        before = best.progress
        for group in _groups(search, required):
            parameters = [search.by_name[n] for n in group]
            most = _LIKELY if few and parameters[0].role in MASKS else None
            for options in islice(zip(*(options_of(search, p) for p in parameters), strict=False), most):
                if search.spent:
                    return best
                choice = {**search.choice, **dict(zip(group, options, strict=True))}
                tried = search.try_choice(choice)
                told = parameters[0].role != "other" or parameters[0].name in tried.first
                better = tried.ran or (tried.progress > best.progress and told)
                if better:
                    search.choice, best = choice, tried
                    best = fit_widths(search, best) if not best.ran else best
                if best.ran or search.hopeless(best):
                    return best
                if better and parameters[0].role in MASKS:
                    break  # what stops it now may be another argument; this one gets its turn again
                if parameters[0].role in ROPE and not tried.ran:
                    _learn_dims(search, tried)
        if best.progress <= before:
            if not few:
                break
            few = False
    return best


def _learn_dims(search: Search, outcome: Outcome) -> None:
    """A rope table that does not fit may be told the right size by the error itself."""
    text = words(outcome.error)
    if "must match" in text:
        sizes = [int(n) for n in re.findall(r"\((\d+)\)", text)[:1]]
        new = [
            n
            for n in sizes
            if n > 1 and n not in search.frame.head_dims and n not in (search.frame.T, search.frame.B)
        ]
        if new:
            search.frame = replace(search.frame, head_dims=(*search.frame.head_dims, *new)[:8])


def furthest_layout(search: Search, outcome: Outcome) -> Outcome:
    """All sequences as ids where the module embeds, or with tokens first: what gets furthest is kept."""
    if search.layout is not None or search.main in search.given:
        return outcome
    kept = dict(search.choice), search.frame, dict(search.widths), dict(search.vocabularies)
    best, state = outcome, kept
    embeds = any(isinstance(part, nn.Embedding) for part in search.module.modules())
    changes: list[Callable[[Candidate], Candidate]] = [cand.turned]
    if embeds:
        changes += [cand.as_ids, lambda c: cand.turned(cand.as_ids(c))]
    for change in changes:
        search.choice, search.frame = dict(kept[0]), kept[1]
        search.widths, search.vocabularies = dict(kept[2]), dict(kept[3])
        search.choice.update({name: change(kept[0][name]) for name in sequences_of(search)})
        tried = fit_widths(search, search.try_choice(search.choice)) if search.choice != kept[0] else best
        if tried.ran and _wrong_way_round(search, tried):
            continue
        if tried.ran or tried.progress > best.progress:
            best = tried
            state = dict(search.choice), search.frame, dict(search.widths), dict(search.vocabularies)
        if best.ran:
            break
    search.choice, search.frame, search.widths, search.vocabularies = state
    return best


def other_layouts(search: Search, outcome: Outcome) -> Outcome:
    """Where the source does not say which rank it wants, others are tried; the first that runs stays.

    One under which an attention has more than one token comes before one under which none has.
    """
    kept = dict(search.choice), search.frame, dict(search.widths)
    for length in window_lengths(search):
        search.frame = of_length(kept[1], length)
        tried = search.try_choice(search.choice)
        if tried.ran:
            return tried
        search.frame = kept[1]
    main = kept[0].get(search.main)
    seen = [(main, outcome)] if main is not None else []
    single = None
    for candidate in [c for c in (main, *(cand.MAIN[n] for n in layouts(search))) if c is not None]:
        pictures = images(search) if candidate is cand.MAIN["image"] else []
        for image in [*([kept[1].image] if candidate is not main else []), *pictures]:
            if search.spent:
                continue
            search.choice = {**kept[0], search.main: candidate}
            search.frame, search.widths = replace(kept[1], image=image), {}
            tried = fit_widths(search, search.try_choice(search.choice))
            if not tried.ran and len(search.required_others()) > 0:
                tried = descend(search, tried, required=True)
            if tried.ran and _wrong_way_round(search, tried):
                continue
            if tried.ran and not tried.alone:
                return tried
            if tried.ran and single is None:
                single = tried, (dict(search.choice), search.frame, dict(search.widths))
            seen.append((candidate, tried))
    if single is not None:
        search.choice, search.frame, search.widths = single[1]
        return single[0]
    search.choice, search.frame, search.widths = kept
    furthest = with_time(seen)
    first = [main] if main is not None and main not in furthest and "T" in main.axes else []
    return fixed_length(search, outcome, [*first, *furthest])


def _wrong_way_round(search: Search, outcome: Outcome) -> bool:
    """[T, B, C] runs, and no token moves another: the module takes the entries for tokens, of which it takes
    fewer."""
    main = search.choice.get(search.main)
    if main is None or main.axes[:2] != ("T", "B"):
        return False
    found = reach(search, outcome)
    return found is not None and not found[0]


def reach(search: Search, outcome: Outcome) -> tuple[bool, bool] | None:
    """Whether the first place of the main input moves others along its first axis, and along its second."""
    values = search.values(search.choice)
    x, output = values[search.main], outcome.output
    if output is None or output.dim() < 2 or output.shape[:2] != x.shape[:2]:
        return None
    moved = x.clone()
    moved[0] = disturb(x[0], 0, 0, search.frame.vocab)  # no factor, no shift: a norm would undo those
    other = search.attempt({n: moved if v is x else v for n, v in values.items()})
    difference = changed(output, other.output)
    if difference is None:
        return None
    return any(along(difference, 0)[1:]), any(along(difference, 1)[1:])


def equal_lengths(search: Search, outcome: Outcome) -> Outcome:
    """Where nothing runs with sequences of two lengths: what a module does with two of one length.

    Not where an attention from one to the other came about: it takes two lengths, what follows does not.
    """
    if search.second_length() is None or search.frame.S == search.frame.T or search.crossed:
        return outcome
    kept = dict(search.choice), search.frame, dict(search.widths), dict(search.vocabularies)
    search.restart(replace(search.frame, S=search.frame.T))
    first_choice(search)
    tried = fit_widths(search, search.try_choice(search.choice))
    for change in (furthest_layout, descend):
        if not tried.ran and not search.hopeless(tried):
            tried = change(search, tried)
    if tried.ran:
        return tried
    search.choice, search.frame, search.widths, search.vocabularies = kept
    return outcome


def sequences_of(search: Search) -> list[str]:
    """The arguments that are chosen and are rows or ids, with tokens and batch on two axes."""
    sequences = (*cand.MAIN.values(), *cand.SECOND.values())
    return [name for name, candidate in search.choice.items() if candidate in sequences]


def plainest(search: Search, outcome: Outcome) -> Outcome:
    """Nothing runs: sequences are again what they are by custom, as users meet the fault."""
    choice = dict(search.choice)
    for name in search.required_others():
        if search.by_name[name].role in SEQUENCES and name in choice and choice[name] not in cand.IDS:
            choice[name] = options_of(search, search.by_name[name])[0]
    if choice == search.choice:
        return outcome
    search.choice = choice
    return search.try_choice(choice)


def settle_lazy(search: Search, outcome: Outcome) -> Outcome:
    """Lazy layers take their sizes from the call that ran, so that all later calls see one module."""
    if not any(is_lazy(t) for t in [*search.module.parameters(), *search.module.buffers()]):
        return outcome
    args, kwargs, _ = search.call(search.values(search.choice))
    training = {m: m.training for m in search.module.modules()}
    search.module.eval()

    def call() -> Any:
        seed_torch(search.built.seed)
        with torch.no_grad():
            return search.module(*args, **kwargs)

    try:
        run_user_code(search.built.target.environment, call)
    finally:
        for module, mode in training.items():
            module.training = mode
    search.prober = Prober(search.module, search.built.target.environment, search.thorough)
    return search.try_choice(search.choice)
