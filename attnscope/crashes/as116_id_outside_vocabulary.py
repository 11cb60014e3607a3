"""AS116: an index is outside the table that it is looked up in.

An embedding of N rows knows the ids 0 to N-1. A larger id, or a negative one, comes from a tokenizer with
another vocabulary, from a padding value such as -100, or from a table that was made too small.

It is bad because on a GPU the same mistake kills the process far from the line that made it.

Example:

    import torch
    from torch import nn

    x = torch.full((2, 6), 50)

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(50, 16)

        def forward(self, ids):
            return self.tokens(ids)

Cure: make the table as large as the vocabulary, or bring the ids into its range.

    - self.tokens = nn.Embedding(50, 16)
    + self.tokens = nn.Embedding(51, 16)
"""

from __future__ import annotations

from attnscope.crashes.cause import defined
from attnscope.crashes.lookup import looked_up, observed
from attnscope.crashes.scene import Scene
from attnscope.diagnostic import Diagnostic

CODE = "AS116"


def diagnose(scene: Scene) -> Diagnostic | None:
    found = looked_up(scene) if isinstance(scene.error, IndexError) else None
    if found is None:
        return None
    words, rows, seen = found.words, found.rows, observed(scene)
    text = scene.text(found.node, 50)
    message, cure = (
        f"an index in `{text}`",
        f"bring the indices into 0 to {rows - 1}, or make `{words}` larger",
    )
    if seen is not None:
        wrong = seen[1] if seen[1] >= rows else seen[0]
        message = f"index {wrong} in `{text}`"
        cure = f"make `{words}` at least {wrong + 1} rows, or bring `{text}` into 0 to {rows - 1}"
        if wrong < 0:
            cure = f"replace the negative ids in `{text}` before the lookup"
    table = scene.set_at(found.layer, f"`{words.split('.')[-1]}` has {rows} rows, 0 to {rows - 1}")
    return scene.finding(
        CODE,
        f"{message} is outside the {rows} rows of `{words}`",
        label="looked up here",
        labels=[*table, *defined(scene, found.node)],
        help=cure,
    )
