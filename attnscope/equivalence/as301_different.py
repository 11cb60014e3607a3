"""AS301: two modules are different functions.

`attnscope compare A B` moves the weights of A into B and calls both with the same numbers. Their outputs,
their gradients, or what they do in decoding, in training or in evaluation differ by more than rounding, or
one of them raises where the other runs.

Why it matters: two versions of one attention that are believed to be the same are not. One of them has
another mask, scale, order of heads or layout of its weights, and a checkpoint of one gives nonsense in the
other.

Example:

    def scores(q, k):
        return q @ k.transpose(-2, -1)          # beside q @ k.transpose(-2, -1) / q.size(-1) ** 0.5

Cure: look at the step that the finding names: before it both hold the same numbers. Give both the same
scale, mask, order of heads or layout of weights there; where only names differ, say with `--map` what belongs
together.
"""

from __future__ import annotations

CODE = "AS301"
TITLE = "two modules are different functions"
