"""Two modules: the same function? `compare` moves the weights of one into the other and runs both."""

from __future__ import annotations

from attnscope.equivalence.comparing import compare

__all__ = ["compare"]
