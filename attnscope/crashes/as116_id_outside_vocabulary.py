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

import ast

from attnscope.crashes.as115_context_exceeded import observed, table
from attnscope.crashes.scene import Scene
from attnscope.crashes.suspects import defined
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS116"


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, IndexError) or scene.op is None:
        return None
    found = table(scene, scene.op)
    if found is None:
        return None
    words, rows, layer, node = found
    seen = observed(scene)
    labels: list[Label] = []
    if isinstance(layer, ast.Attribute):
        setting = scene.setting(layer.attr)
        if setting is not None:
            labels.append(scene.label(setting.target, f"`{layer.attr}` has {rows} rows, 0 to {rows - 1}"))
    made = defined(scene, node)
    if made is not None:
        labels.append(made)
    text = scene.text(node, 50)
    if seen is None:
        message = f"an index in `{text}` is outside the {rows} rows of `{words}`"
        cure = f"bring the indices into 0 to {rows - 1}, or make `{words}` larger"
    else:
        wrong = seen[1] if seen[1] >= rows else seen[0]
        message = f"index {wrong} in `{text}` is outside the {rows} rows of `{words}`"
        cure = f"make `{words}` at least {wrong + 1} rows, or bring `{text}` into 0 to {rows - 1}"
        if wrong < 0:
            cure = f"replace the negative ids in `{text}` before the lookup"
    return scene.finding(CODE, message, label="looked up here", labels=labels, help=cure)
