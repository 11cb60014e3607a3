"""User files become modules and inputs: `load_target`, `construct`, `make_inputs`."""

from __future__ import annotations

from attnscope.loader.arguments import Built, construct
from attnscope.loader.call import CallInputs
from attnscope.loader.inputs import make_inputs
from attnscope.loader.settling import Change, Made, settled
from attnscope.loader.target import SeveralClasses, Target, load_target, may_have_attention

__all__ = [
    "Built",
    "CallInputs",
    "Change",
    "Made",
    "SeveralClasses",
    "Target",
    "construct",
    "load_target",
    "make_inputs",
    "may_have_attention",
    "settled",
]
