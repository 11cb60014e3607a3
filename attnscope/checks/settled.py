"""What of a check's findings the user has settled by comments, and what to say of these comments."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import nn

from attnscope.checks import codes
from attnscope.checks.places import bases
from attnscope.checks.subject import parts
from attnscope.diagnostic import Diagnostic
from attnscope.ignores import complaints, settled


def without_settled(
    module: nn.Module | None,
    found: Sequence[Diagnostic],
    shown: Sequence[Diagnostic],
    wanted: Collection[str] | None,
    whole: bool,
) -> tuple[tuple[Diagnostic, ...], tuple[str, ...]]:
    """Findings that no comment settles, and notes: what was ignored, and which comments say nothing.

    Args:
        found: every finding; one that only follows from another settles whether a comment is of use.
        shown: those that would be shown.
        wanted: the codes that were looked for (None: all).
        whole: whether all experiments were done: only then can a comment be called useless.
    """
    kept, notes, _ = settled(shown)
    if module is None:
        return kept, notes
    ours = frozenset(codes())

    def looked_for(code: str) -> bool:
        return whole and (wanted is None or code in wanted) and (not code or code in ours)

    classes = dict.fromkeys(cls for _, part in parts(module) for cls in bases(part))
    return kept, (*notes, *complaints(classes, settled(found)[2], looked_for))
