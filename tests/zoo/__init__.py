"""Attention, right and broken: one table, which every test that a case concerns goes through.

A case is added in one place: a class with `@ZOO.row(…)` above it in one of the files here, or a file in
`files/` and its row in `loaded.py`.

- `styles`: right, as people write it; made without arguments. Its text is mutated, too (`tests/properties`).
- `recorded`: made with (channels, heads, context); traces must show the weights of the row's `oracle`.
- `compared`: made with (channels, heads); the same function in many layouts, and with faults.
- `loaded`: files of users, which only the loader constructs and calls.

What a check finds in a row is compared with the row's `found`, as the module stands and in other words.
"""

from __future__ import annotations

from tests.zoo import compared, recorded, styles
from tests.zoo.loaded import FILES, LOADED, Loaded
from tests.zoo.table import Row, Zoo, made

PARTS = {"styles": styles, "recorded": recorded, "compared": compared}
# Every row of a module that is called, as `styles.Flash`.
CALLED: dict[str, Row] = {f"{part}.{name}": row for part, of in PARTS.items() for name, row in of.ZOO.items()}

__all__ = ["CALLED", "FILES", "LOADED", "PARTS", "Loaded", "Row", "Zoo", "made"]
