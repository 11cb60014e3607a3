"""AS301: two modules are different functions.

`attnscope compare A B` moves the weights of A into B and calls both with the same numbers. Their outputs,
their gradients, or what they do in decoding, in training or in evaluation differ by more than rounding, or
one of them raises where the other runs.

Why it matters: two versions of one attention that are believed to be the same are not. One of them has
another mask, scale, order of heads or layout of its weights, and a checkpoint of one gives nonsense in the
other.

The finding names the first step at which the two traces part: before it both hold the same numbers.

Wrong, beside a layer that divides by the square root of the head dimension:

    scores = q @ k.transpose(-2, -1)

Right:

    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
"""

from __future__ import annotations

CODE = "AS301"
TITLE = "two modules are different functions"
