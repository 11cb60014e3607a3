"""AS221: padding moves what is not padding.

An argument says which tokens are padding. When a padded token is changed, outputs of other tokens move:
the mask does not reach the keys. Most often it was broadcast along the queries: `[B, 1, T, 1]` in place
of `[B, 1, 1, T]`.

It is bad because a text's result then depends on how much it was padded.

Example:

    import torch
    from torch import nn

    causal = False
    x = torch.randn(2, 6, 16), torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]]).bool()

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x, keep):
            b, t, c = x.shape
            q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
            scores = q @ k.transpose(-2, -1) / 8**0.5
            scores = scores.masked_fill(~keep[:, None, :, None], -1e9)
            return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)

Cure: a padding mask [B, T] belongs to the keys: `mask[:, None, None, :]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from attnscope.checks.lab import Lab
from attnscope.checks.leaks import mask_of
from attnscope.checks.places import num
from attnscope.diagnostic import Diagnostic, Tried

CODE = "AS221"
_PADDING = re.compile(r"pad|keep|valid|mask|attention_mask|lengths?$|attend", re.I)


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    base = lab.base.output
    if base is None or lab.main is None or lab.length < 2 or not lab.maps:
        return
    axes = lab.output_axes(base)
    if axes[0] is None or axes[1] is None:
        return
    for name, value in lab.exact.arguments.items():
        if not isinstance(value, Tensor) or not _PADDING.search(name) or name in lab.together:
            continue
        if tuple(value.shape) != (lab.batch, lab.length) or value.is_complex():
            continue
        marks = value.bool() if value.dtype is torch.bool else value != 0
        binary = value.dtype is torch.bool or bool(((value == 0) | (value == 1)).all())
        if not binary or bool(marks.all()) or not bool(marks.any()):
            continue
        moved = {side: _moved(lab, marks if side else ~marks, axes) for side in (True, False)}
        known = [m for m in moved.values() if m is not None]
        if not known:
            continue
        least = min(known)
        held = least <= lab.tolerance
        meant = _meaning(name)
        if held and meant is not None and name not in lab.subject.guessed:
            wrong = moved[meant]
            if wrong is not None and wrong > lab.tolerance and moved[not meant] is not None:
                yield _turned_round(lab, name, meant, moved)
                continue
        yield Tried(f"padding `{name}`", f"padded tokens move others by {num(least)}", held)
        if held:
            continue
        one = lab.maps[0]
        apply = mask_of(one, lab)[1]
        on_queries = _on_queries(lab, marks)
        span = lab.span(apply if apply is not None else one.event)
        added = apply is not None and lab.recording.events[apply].op.name.rstrip("_") == "add"
        yield Diagnostic(
            CODE,
            "error" if re.search(r"pad|keep|valid|attention_mask", name, re.I) or on_queries else "note",
            f"`{name}` masks queries, not keys: padding moves what is not padding"
            if on_queries
            else f"tokens that `{name}` marks as padding move the others",
            span,
            "whole rows are masked here" if on_queries else "padded keys keep weight after this",
            (),
            (
                f"when marked tokens are changed, unmarked outputs move by {num(moved[True] or 0)}"
                f" of the largest output; the other way round by {num(moved[False] or 0)}",
            ),
            f"an added mask needs 0 where keys may be seen and -inf elsewhere: "
            f'`scores.masked_fill({name}[:, None, None, :] == 0, float("-inf"))` in its place'
            if added and not on_queries
            else f"broadcast it along the keys: `{name}[:, None, None, :]`",
            (
                ("changed", "largest change of the others"),
                (f"where {name} is 1", num(moved[True] or 0)),
                (f"where {name} is 0", num(moved[False] or 0)),
            ),
        )


def _meaning(name: str) -> bool | None:
    """The value that marks padding in an argument of that name; None where names do not agree on it."""
    word = name.strip("_").lower()
    if re.search(r"keep|valid|^attention_mask$", word) and "invalid" not in word:
        return False
    if word in ("pad", "pads", "is_pad", "is_padding", "key_padding_mask", "src_key_padding_mask"):
        return True
    return None


def _turned_round(lab: Lab, name: str, padding: bool, moved: dict[bool, float | None]) -> Diagnostic:
    one = lab.maps[0]
    apply = mask_of(one, lab)[1]
    return Diagnostic(
        CODE,
        "error",
        f"`{name}` is taken the wrong way round: padding is attended to, the text is not",
        lab.span(apply if apply is not None else one.event),
        f"keys where `{name}` is {int(not padding)} are blocked here",
        (),
        (f"an argument called `{name}` is {int(padding)} where there is padding",),
        f"pass its opposite, `~{name}`",
        (
            ("changed", "largest change of the others"),
            (f"where {name} is 1", num(moved[True] or 0)),
            (f"where {name} is 0", num(moved[False] or 0)),
        ),
    )


def _moved(lab: Lab, changed: Tensor, axes: tuple[int | None, int | None]) -> float | None:
    """How much tokens outside `changed` [B, T] move when those inside are changed; empty queries left out."""
    b, t = lab.input_axes
    if b is None or t is None:
        return None
    if bool((changed.all(dim=1) | ~changed.any(dim=1)).all()):
        return None
    values = {}
    fresh: dict[int, Tensor] = {}
    for name in lab.together:
        old = lab.exact.arguments[name]
        if id(old) not in fresh:
            new = lab.other(old, old, 23)
            if (b, t) not in ((0, 1), (1, 0)):
                return None
            where = changed if b < t else changed.T
            where = where.reshape(*where.shape, *[1] * (old.dim() - 2))
            fresh[id(old)] = torch.where(where, new, old)
        values[name] = fresh[id(old)]
    outcome = lab.run(values)
    base = lab.base.output
    if outcome.output is None or base is None or outcome.output.shape != base.shape:
        return None
    moved = lab.difference(outcome.output, axes)
    kept = ~changed.cpu().numpy()
    # Entries that are padded completely have nothing to attend to: what comes out is of no account.
    kept &= ~changed.all(dim=1, keepdim=True).cpu().numpy()
    if lab.empty.shape == kept.shape:
        kept &= ~lab.empty
    return float(moved[kept].max()) if kept.any() else None


def _on_queries(lab: Lab, marks: Tensor) -> bool:
    """Whether whole rows of the scores are masked exactly where tokens are marked."""
    empty = torch.from_numpy(lab.empty)
    if empty.shape != marks.shape or not bool(empty.any()):
        return False
    return bool((empty == marks.cpu()).all() or (empty == ~marks.cpu()).all())
