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

    - scores = scores.masked_fill(~keep[:, None, :, None], -1e9)
    + scores = scores.masked_fill(~keep[:, None, None, :], -1e9)
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from attnscope.checks.lab import Lab
from attnscope.checks.leaks import mask_of
from attnscope.checks.padded_keys import seen_padding
from attnscope.checks.places import num
from attnscope.checks.roles import effect_of, marks, meets_scores, reaches_result
from attnscope.checks.severity import Kind, severity
from attnscope.diagnostic import Diagnostic, Severity, Tried
from attnscope.ops.catalog import plain

CODE = "AS221"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    part = lab.subject.part
    if part is None or not part.path:
        yield from seen_padding(lab)
    base = lab.base.output
    if base is None or lab.main is None or lab.length < 2 or not lab.maps:
        return
    axes = lab.output_axes(base)
    if axes[0] is None or axes[1] is None:
        return
    for name, value in lab.exact.arguments.items():
        marked = marks(value)
        if marked is None or name in lab.together or tuple(value.shape) != (lab.batch, lab.length):
            continue
        meets = meets_scores(lab, name)
        if not meets and not reaches_result(lab, name):
            continue
        moved = {side: _moved(lab, marked if side else ~marked, axes) for side in (True, False)}
        known = [m for m in moved.values() if m is not None]
        if not known:
            continue
        least = min(known)
        held = least <= lab.tolerance
        kinds: set[Kind] = {"scores"} if meets else set()
        kinds |= {"guessed"} if name in lab.subject.guessed else set()
        blocked = _blocked_entry(lab, marked, moved) if held else None
        if blocked is not None:
            judged = severity("text blocked", kinds)
            if judged is not None:
                yield Tried(f"padding `{name}`", f"every key of entry {blocked[0]} is blocked", False)
                yield _turned_round(lab, name, judged, *blocked, moved)
            continue
        yield Tried(f"padding `{name}`", f"padded tokens move others by {num(least)}", held)
        judged = severity("padding moves", kinds)
        if not held and judged is not None and effect_of(lab, name) != 0.0:  # else it is not applied at all
            yield _finding(lab, name, marked, judged, meets, moved)


def _finding(
    lab: Lab, name: str, marked: Tensor, judged: Severity, meets: bool, moved: dict[bool, float | None]
) -> Diagnostic:
    one = lab.maps[0]
    apply = mask_of(one, lab)[1]
    on_queries = _on_queries(lab, marked)
    added = apply is not None and plain(lab.recording.events[apply].op.name) == "add"
    return Diagnostic(
        CODE,
        judged,
        f"`{name}` masks queries, not keys: padding moves what is not padding"
        if on_queries
        else f"tokens that `{name}` marks as padding move the others",
        lab.span(apply if apply is not None else one.event),
        "whole rows are masked here"
        if on_queries
        else "padded keys keep weight after this"
        if meets
        else f"`{name}` does not come here",
        (),
        (
            f"when marked tokens are changed, unmarked outputs move by {num(moved[True] or 0)}"
            f" of the largest output; the other way round by {num(moved[False] or 0)}",
        ),
        f"an added mask needs 0 where keys may be seen and -inf elsewhere: "
        f'`scores.masked_fill({name}[:, None, None, :] == 0, float("-inf"))` in its place'
        if added and not on_queries
        else f"broadcast it along the keys: `{name}[:, None, None, :]`",
        _rows(name, moved),
    )


def _rows(name: str, moved: dict[bool, float | None]) -> tuple[tuple[str, str], ...]:
    return (
        ("changed", "largest change of the others"),
        (f"where {name} is 1", num(moved[True] or 0)),
        (f"where {name} is 0", num(moved[False] or 0)),
    )


def _blocked_entry(lab: Lab, marked: Tensor, moved: dict[bool, float | None]) -> tuple[int, bool] | None:
    """An entry whose marks are all equal and every key of which is blocked, and its mark: a text without
    padding, for an entry that is padding from end to end is none. Where that gives NaN, that is said
    instead."""
    blocks = [side for side, m in moved.items() if m is not None and m <= lab.tolerance]
    output = lab.base.output
    if len(blocks) != 1 or output is None or bool(output.isnan().any()):
        return None
    side = blocks[0]
    for entry in range(marked.shape[0]):
        same = bool(marked[entry].all()) if side else not bool(marked[entry].any())
        if same and lab.empty.shape == tuple(marked.shape) and bool(lab.empty[entry].all()):
            return entry, side
    return None


def _turned_round(
    lab: Lab, name: str, judged: Severity, entry: int, side: bool, moved: dict[bool, float | None]
) -> Diagnostic:
    one = lab.maps[0]
    apply = mask_of(one, lab)[1]
    return Diagnostic(
        CODE,
        judged,
        f"`{name}` blocks every key of entry {entry}, whose marks are all equal",
        lab.span(apply if apply is not None else one.event),
        f"keys where `{name}` is {int(side)} are blocked here",
        (),
        (f"`{name}` is {int(side)} throughout entry {entry}, which has no padding unless it is empty",),
        f"pass its opposite, `~{name}`, or leave empty texts out",
        _rows(name, moved),
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
