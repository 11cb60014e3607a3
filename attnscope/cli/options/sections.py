"""`--show`: one or several sections of a result, by commas."""

from __future__ import annotations

from collections.abc import Sequence

from attnscope.errors import UsageError
from attnscope.text import unknown


def chosen(show: Sequence[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The sections that were named, in the order of `known`; all of them where nothing was said."""
    if not show:
        return known
    names = [name.strip() for item in show for name in item.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise unknown("section", name, known)
    if not names:
        raise UsageError("--show names no section", f"known: {', '.join(known)}")
    return tuple(section for section in known if section in names)
