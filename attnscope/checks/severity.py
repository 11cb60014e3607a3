"""How bad a proven fault is: one pure function of what was proved and of the kinds of evidence, in one table.

A proof is an experiment's; evidence is what shows, as data, what is meant (`evidence.py`). Nothing else has a
say: no name, no text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from attnscope.diagnostic import Severity

Kind = Literal[
    "said",  # the user's --causal, causal=True
    "flag",  # a flag of exactly the field's name for it is True in this very module or call
    "off",  # such a flag is False, or a switch that would mask is off
    "triangle",  # the module builds or registers a causal triangle
    "handed",  # the mask that it was handed is a causal triangle
    "siblings",  # the other attentions over the same tokens are causal
    "decodes",  # it predicts the ids of its own sequence beside another sequence that it reads
    "unread",  # beside a second sequence, an argument is asked for that no step reads
    "factor",  # an explicit factor stands on the way of q·k to the softmax
    "bias",  # a learned bias is added to the scores
    "given bias",  # a bias of many values is added to the scores, and was handed in
    "raw",  # what is multiplied are no projections: states, embeddings, feature maps
    "scores",  # the argument meets the scores, or the weights, and no query or key
    "guessed",  # the argument is the tool's own
    "others hide",  # another attention over the same keys hides what this one does not
    "thrown away",  # nothing at all is made of the marks
]


@dataclass(frozen=True)
class Row:
    """`bare` is the severity without any evidence (None: nothing is reported), `error` the kinds any of which
    make it an error, `instead` the kinds that speak against it, unless the user said otherwise."""

    proof: str
    bare: Severity | None
    reason: str
    error: frozenset[Kind] = frozenset()
    instead: Mapping[Kind, Severity | None] = field(default_factory=dict)


_ANY: frozenset[Kind] = frozenset({"said", "flag", "triangle", "handed", "siblings", "decodes", "unread"})
_EXPLICIT: frozenset[Kind] = frozenset({"said", "flag"})
_BEYOND_A_SWITCH: frozenset[Kind] = frozenset({"said", "siblings"})

ROWS: tuple[Row, ...] = (
    Row("open", "note", "an encoder has no causal mask either: as often meant as not", _ANY, {"off": None}),
    Row("shifted", "error", "a full triangle that ends late is a causal mask that misses its diagonal",
        _BEYOND_A_SWITCH, instead={"off": "note"}),
    Row("dropped", "error", "a mask that is made and reaches no score was meant to",
        _BEYOND_A_SWITCH, instead={"off": None}),
    Row("heads", "error", "one mask for all heads is meant where some heads are causal by it",
        _BEYOND_A_SWITCH, instead={"off": "note"}),
    Row("other", "note", "masks of graphs, segments and permutations show later tokens on purpose",
        _ANY, {"off": None}),
    Row("window", "note", "a band to both sides is an encoder's local attention", _EXPLICIT, {"off": None}),
    Row("block", "note", "whole blocks are seen on purpose: frames, patches, chunks", _EXPLICIT,
        {"off": None}),
    Row("prefix", None, "a prefix that all may see is a language model's design", frozenset({"said"})),
    Row("elsewhere", "note", "tokens may be mixed on purpose where no attention is causal", _ANY,
        {"off": "note"}),
    Row("scale missing", "error", "nearly every design needs 1/√D, and no step shows that it is left out on"
        " purpose", instead={"factor": "note", "given bias": "note", "raw": "note", "bias": None}),
    Row("scale wrong", "error", "a factor that is another formula than 1/√D was meant to be it",
        instead={"raw": "note"}),
    Row("scale of its own", "error",
        "no design scales one attention of a stack otherwise than all its equals"),
    Row("no effect", "note", "what meets no score may be for something else than attention",
        frozenset({"scores"}), {"guessed": "note"}),
    Row("never read", "error", "a second sequence that is asked for and never read"),
    Row("padding moves", "note", "marks that meet no score may be for the output alone",
        frozenset({"scores"}), {"guessed": "note"}),
    Row("padding seen", None, "what tells padding apart may serve the result alone",
        frozenset({"scores", "others hide", "thrown away"})),
    Row("text blocked", "note", "an entry whose marks are all equal is a whole text, or none at all"),
)  # fmt: skip
_TABLE = {row.proof: row for row in ROWS}
_ORDER: tuple[Severity | None, ...] = (None, "note", "warning", "error")


def severity(proof: str, kinds: Collection[Kind]) -> Severity | None:
    """How bad `proof` is beside these kinds of evidence; None where it is not to be reported."""
    row = _TABLE[proof]
    # The user's word settles it; a switch that is off in one layer alone, and on in its siblings, does not,
    # nor does one where the target reads its own answers.
    if not (_BEYOND_A_SWITCH | {"decodes"}) & row.error.intersection(kinds):
        against = [row.instead[kind] for kind in kinds if kind in row.instead]
        if against:
            return min(against, key=_ORDER.index)
    return "error" if row.error.intersection(kinds) else row.bare
