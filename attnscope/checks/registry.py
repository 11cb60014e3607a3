"""The table of silent faults: one row for each, in the order in which they are tried, most telling first.

A row says of what a check speaks (one attention, the whole target, or both), what its fault disturbs, and
what its proof rests on: a finding whose proof rests on what another one disturbs may be its consequence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Of = Literal["attention", "whole", "both"]
Word = Literal["connectivity", "axes", "magnitude", "finite", "state", "gradient", "randomness"]
Need = Literal["attention", "tokens", "batch", "causal"]


@dataclass(frozen=True)
class Row:
    """One check.

    `name` stands in the table of what was tried where the check says nothing itself: nothing was found where
    it is `quiet`, else it does not apply, `otherwise` says why. `needs` are what it cannot do without. A
    `local` proof lies in one attention, which ends where its weights meet the values; others lie in the
    outputs, which descend from every step.
    """

    code: str
    module: str
    of: Of
    name: str
    quiet: bool = False
    otherwise: str = ""
    needs: tuple[Need, ...] = ()
    disturbs: frozenset[Word] = field(default=frozenset())
    rests: frozenset[Word] = field(default=frozenset())
    local: bool = False


def _words(*words: Word) -> frozenset[Word]:
    return frozenset(words)


CHECKS: tuple[Row, ...] = (
    Row("AS217", "as217_unregistered", "whole", "registered", disturbs=_words("state", "gradient")),
    Row(
        "AS220", "as220_made_in_forward", "whole", "layers", quiet=True,
        disturbs=_words("state", "gradient", "randomness"),
    ),
    Row(
        "AS214", "as214_random_in_eval", "both", "two runs in eval", otherwise="the result holds no numbers",
        disturbs=_words("randomness"), rests=_words("randomness"),
    ),
    Row(
        "AS223", "as223_overflow", "whole", "overflow", quiet=True,
        disturbs=_words("finite", "magnitude"), rests=_words("magnitude"),
    ),
    Row(
        "AS206", "as206_nan", "whole", "finite", otherwise="the result holds no numbers",
        disturbs=_words("finite", "connectivity", "gradient"), rests=_words("finite"),
    ),
    Row(
        "AS224", "as224_expanded_write", "whole", "in-place writes", quiet=True,
        disturbs=_words("connectivity", "finite", "axes"),
    ),
    Row(
        "AS212", "as212_batch_mixed", "both", "batch", needs=("tokens", "batch"),
        disturbs=_words("axes", "connectivity"), rests=_words("axes"),
    ),
    Row(
        "AS209", "as209_over_heads", "attention", "over tokens", quiet=True,
        needs=("attention", "tokens"),
        disturbs=_words("axes", "connectivity"), rests=_words("axes"), local=True,
    ),
    Row(
        "AS211", "as211_mixed_by_view", "both", "reshapes", quiet=True, needs=("tokens",),
        disturbs=_words("axes", "connectivity"), rests=_words("axes"), local=True,
    ),
    Row(
        "AS207", "as207_softmax_axis", "attention", "softmax axis", needs=("attention",),
        otherwise="it cannot be told which axis the values are summed over",
        disturbs=_words("axes", "connectivity", "finite"), local=True,
    ),
    Row(
        "AS203", "as203_inverted", "attention", "mask direction", quiet=True,
        needs=("attention", "tokens", "causal"),
        disturbs=_words("connectivity", "finite"), rests=_words("axes"),
    ),
    Row(
        "AS204", "as204_unused_mask", "both", "masks at hand", quiet=True, needs=("attention",),
        disturbs=_words("connectivity"), rests=_words("connectivity"),
    ),
    Row(
        "AS213", "as213_weak_mask", "attention", "mask strength", quiet=True,
        needs=("attention", "tokens", "causal"),
        disturbs=_words("connectivity"), rests=_words("connectivity"),
    ),
    Row(
        "AS205", "as205_mask_after_softmax", "attention", "mask place", quiet=True,
        needs=("attention",), rests=_words("axes"), local=True,
    ),
    Row(
        "AS225", "as225_row_sums", "attention", "rows sum to 1", needs=("attention",),
        otherwise="the weights that were applied could not be read",
        disturbs=_words("magnitude"), rests=_words("axes", "randomness"), local=True,
    ),
    Row(
        "AS201", "as201_future", "both", "future", needs=("tokens", "causal"),
        disturbs=_words("connectivity"), rests=_words("connectivity"),
    ),
    Row(
        "AS202", "as202_blind", "both", "past", needs=("attention", "tokens"),
        otherwise="its keys are not its own tokens",
        disturbs=_words("connectivity"), rests=_words("connectivity"),
    ),
    Row(
        "AS226", "as226_causal_cross", "both", "second sequence", needs=("attention", "tokens"),
        otherwise="there is none", disturbs=_words("connectivity"), rests=_words("connectivity", "axes"),
    ),
    Row(
        "AS221", "as221_padding", "both", "padding", needs=("attention", "tokens"),
        otherwise="no argument marks some of the tokens",
        disturbs=_words("connectivity", "finite"), rests=_words("axes"),
    ),
    Row(
        "AS208", "as208_scale", "attention", "scale", needs=("attention",),
        otherwise="it is learned, or what is done to q and k is no scale",
        disturbs=_words("magnitude"), rests=_words("axes", "magnitude"), local=True,
    ),
    Row(
        "AS210", "as210_number_of_maps", "attention", "heads", needs=("attention", "tokens"),
        otherwise="no number of heads is at hand", rests=_words("axes"), local=True,
    ),
    Row(
        "AS219", "as219_kv_heads", "attention", "key/value heads", needs=("attention",),
        otherwise="none is repeated", rests=_words("axes"), local=True,
    ),
    Row(
        "AS222", "as222_positions", "whole", "positions", needs=("tokens",),
        otherwise="no step turns queries and keys by their positions", rests=_words("connectivity"),
    ),
    Row(
        "AS218", "as218_cache", "whole", "cached decoding", needs=("tokens", "causal"),
        otherwise="no cache is taken or kept, or later tokens are seen",
        rests=_words("state", "randomness", "finite", "connectivity"),
    ),
    Row(
        "AS216", "as216_no_gradient", "whole", "gradients",
        otherwise="nothing wants any, or no way leads back", rests=_words("gradient"),
    ),
    Row(
        "AS215", "as215_not_saved", "whole", "state_dict",
        otherwise="the module cannot be built a second time", rests=_words("state", "randomness"),
    ),
)  # fmt: skip

ROWS = {row.code: row for row in CHECKS}

# What is raised when a module is moved or its state is loaded rests on what is registered.
CRASHES: dict[str, frozenset[Word]] = {"AS119": _words("state")}


def rests_on(code: str) -> frozenset[Word]:
    """What the proof of a finding rests on."""
    return ROWS[code].rests if code in ROWS else CRASHES.get(code, frozenset())


def disturbed_by(code: str) -> frozenset[Word]:
    """What a fault makes a proof of no use."""
    return ROWS[code].disturbs if code in ROWS else frozenset()
