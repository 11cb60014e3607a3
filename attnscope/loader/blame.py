"""Whose fault a crash is: the module's own, or that of a value that was guessed for it.

Told by experiment, one guess at a time: where another guess gets past the operation that failed, the crash
hangs on the guess; where every other one ends at the same operation, it is the module's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from attnscope.loader import candidates as cand
from attnscope.loader import roles
from attnscope.loader.candidates import Candidate
from attnscope.loader.expressions import printable, words
from attnscope.loader.options import options_of
from attnscope.loader.preparing import to_prepare
from attnscope.loader.probe import Outcome, user_frames
from attnscope.loader.reading import reads_alone
from attnscope.loader.search import SEQUENCES, Search
from attnscope.loader.sizes import as_size
from attnscope.source import node_at

_MOST = 24  # other guesses for one argument
_CERTAIN = (*SEQUENCES, "flag", "causal", "head_mask", "tokens", "image")


@dataclass(frozen=True, slots=True)
class Failure:
    """Where a call or a constructor failed: through which instructions, and how far it had come."""

    kind: type
    chain: tuple[tuple[str, int, int], ...]
    progress: tuple[int, int]

    @classmethod
    def of(cls, error: BaseException, steps: int = 0) -> Failure:
        frames = user_frames(error)
        places = ((f.f_code.co_filename, line, lasti) for f, line, lasti in frames)
        chain = tuple(dict.fromkeys(places))  # a recursion comes through one place many times
        return cls(type(error), chain, (steps, chain[0][1] if chain else 0))

    def moves(self, other: Failure, unknown: bool) -> bool:
        """Whether with another guess it failed further on.

        At the same operation, another kind of exception tells only of a guess for which no role is known.
        """
        if self.chain == other.chain:
            return unknown and self.kind is not other.kind
        if self.progress == other.progress and self.chain[:1] == other.chain[:1]:
            return True  # one line calls both: the other was deeper in it, or later
        return other.progress > self.progress


def said(error: BaseException | None) -> str:
    """The exception in one line: its kind, what it says, and where: `file.py:12`."""
    first = words(error).strip().partition("\n")[0]
    frames = user_frames(error)
    own = [f for f in frames if "site-packages" not in f[0].f_code.co_filename] or frames
    at = f" at {Path(own[-1][0].f_code.co_filename).name}:{own[-1][1]}" if own else ""
    return printable(f"{type(error).__name__}{f': {first}' if first else ''}{at}", 240)


def doubt(search: Search, outcome: Outcome) -> str:
    """Why a call that failed may have failed for what was guessed; nothing where the module is to blame."""
    if outcome.error is None or search.hopeless(outcome):
        return ""
    missing = to_prepare(outcome.error)
    if missing is not None:
        return (
            f"`forward` raises {said(outcome.error)}: `self.{printable(missing[0])}` is None until "
            f"`{printable(missing[1])}` is called; name a function that constructs the module and calls it"
        )
    if _wants_a_gpu(outcome.error):
        return f"`forward` raises {said(outcome.error)}: it asks for a GPU, and there is none here"
    name = _moved_by(search, outcome) or _read_alone(search, outcome)
    if not name:
        return ""
    raised = f"`forward` raises {said(outcome.error)}"
    if name in _SIZES:
        return f"{raised}, and gets further with another --batch or --len"
    label = printable(search.choice[name].label, 80) if name in search.choice else "left out"
    return (
        f"{raised}, and that hangs on a guess: `{printable(name)}` is {label}; "
        f'give it with --input "{printable(name)}=torch.…"'
    )


def _wants_a_gpu(error: BaseException) -> bool:
    """Whether PyTorch's own start of CUDA refused."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code is torch.cuda._lazy_init.__code__


_SIZES = ("--batch", "--len")


def _moved_by(search: Search, outcome: Outcome) -> str | None:
    """The argument of which another guess gets further, the others kept."""
    assert outcome.error is not None
    base = Failure.of(outcome.error, outcome.steps)
    for name, others in _others(search):
        unknown = name in search.by_name and search.by_name[name].role == "other"
        for option in others[:_MOST]:
            if search.prober.tries >= search.prober.limit + _MOST:
                return None
            tried = search.try_choice({**search.choice, name: option})
            if tried.error is None or base.moves(Failure.of(tried.error, tried.steps), unknown):
                return name
    return _moved_by_sizes(search, base)


def _others(search: Search) -> Iterator[tuple[str, list[Candidate]]]:
    for name, chosen in list(search.choice.items()):
        if name in search.given:
            continue
        if name == search.main:
            others = [cand.MAIN[n] for n in layouts(search)]
        else:
            others = options_of(search, search.by_name[name])
        yield name, [o for o in others if o is not chosen and o.label != chosen.label]


def layouts(search: Search) -> list[str]:
    """What else the main input could be, as far as the source says which rank it wants."""
    if search.layout is not None:
        return [search.layout]
    seen = roles.unpacked(search.tree, search.main)
    known = seen.rank if seen is not None else roles.least_rank(search.tree, search.main)
    return {
        2: ["ids", "nc"],
        3: ["btc", "bct"],
        4: ["image", "bhwc", "heads", "bthd"],
    }.get(known or 0, ["nc", "heads", "bthd", "image", "bhwc", "bct", "ids"])


def images(search: Search) -> list[tuple[int, int, int]]:
    """Other channels, heights and widths of a picture, as far as the constructor's numbers suggest them."""
    numbers = [n for value in search.built.arguments.values() if (n := as_size(value)) is not None]
    sides = [n for n in dict.fromkeys((*numbers, 16)) if 4 <= n <= 64]
    return [(channels, side, side) for side in sides[:6] for channels in (3, 1, search.frame.C)]


def _moved_by_sizes(search: Search, base: Failure) -> str | None:
    """Another B, another T: none that another axis has, for a coincidence must not let a fault pass."""
    if search.main in search.given or search.frame.tokens is not None:
        return None
    frame = search.frame
    taken = {*search.built.sizes.all(), *frame.head_dims, frame.B, frame.T, frame.C}
    batch = next(n for n in (5, 4, 6, 7, 9, 11) if n not in taken)
    length = next(
        (n for n in (10, 6, 12, 4, 5) if n not in taken and n < search.built.sizes.context), frame.T
    )
    others = [("--batch", replace(frame, B=batch)), ("--len", replace(frame, T=length))]
    if search.choice.get(search.main) is cand.MAIN["image"]:
        others += [(search.main, replace(frame, image=image)) for image in images(search)]
    try:
        for option, other in others:
            search.frame = other
            tried = search.try_choice(search.choice)
            if tried.error is None or base.moves(Failure.of(tried.error, tried.steps), False):
                return option
    finally:
        search.frame = frame
    return None


def _read_alone(search: Search, outcome: Outcome) -> str | None:
    """An argument whose role leaves much open, of which alone the failing operation has an operand."""
    made = [
        n
        for n in search.choice
        if n not in search.given and n != search.main and search.by_name[n].role not in _CERTAIN
    ]
    made += [
        p.name for p in search.parameters if not p.required and p.name not in search.values(search.choice)
    ]
    if search.main not in search.given and _asks_of_its_input(outcome.error):
        made.append(search.main)
    code = code_of(search.module.forward)
    return reads_alone(outcome.error, {code: {n: n for n in made}}) if made and code is not None else None


def _asks_of_its_input(error: BaseException | None) -> bool:
    """Whether the module's own `assert` or `raise` refused, and no operation."""
    frames = user_frames(error)
    place = node_at(frames[-1][0].f_code, frames[-1][2]) if frames else None
    if place is None:
        return False
    around = [place[1], *place[0].ancestors(place[1])]
    return any(isinstance(node, ast.Assert | ast.Raise) for node in around)


def code_of(function: Any) -> CodeType | None:
    """The code of a function or a method, where it has one."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) else None
