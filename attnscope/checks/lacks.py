"""What an experiment may need and is not at hand, in words: why a check does not apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnscope.checks.registry import Need

if TYPE_CHECKING:
    from attnscope.checks.lab import Lab

_NOT_CAUSAL = {
    "self": "it is said not to be causal",
    "cross": "keys are another sequence",
    "encoder": "it is looked at as a second sequence",
}


def lacks(lab: Lab) -> dict[Need, str]:
    """What experiments may need and is not at hand here, and why."""
    found: dict[Need, str] = {}
    output = lab.base.output
    if not lab.maps:
        found["attention"] = "no attention was found"
    if not lab.causal:
        part = lab.subject.part
        kind = "self" if part is None or lab.subject.causal is False else part.kind
        found["causal"] = _NOT_CAUSAL[kind]
    if lab.main is None:
        found["tokens"] = "no argument with tokens was found"
    elif lab.length < 2:
        found["tokens"] = "there is one token"
    elif output is None:
        found["tokens"] = "the result holds no numbers"
    elif lab.output_axes(output)[1] is None:
        found["tokens"] = f"the output {list(output.shape)} has no axis of the {lab.length} tokens"
    elif lab.influence is None:
        found["tokens"] = "the output changes its shape with the tokens"
    if lab.batch < 2:
        found["batch"] = "there is one entry"
    elif lab.crossing is None:
        found["batch"] = found.get("tokens", "the output has no axis of the batch")
    return found
