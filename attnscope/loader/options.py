"""What an argument of `forward` could be, by its role, the likeliest first."""

from __future__ import annotations

import re

import torch
from torch import nn

from attnscope.loader import candidates as cand
from attnscope.loader import roles, rotary
from attnscope.loader.candidates import Candidate
from attnscope.loader.search import MASKS, SAME, Search


def options_of(search: Search, p: roles.Parameter) -> list[Candidate]:
    """What an argument could be, the likeliest first; sequences in the order of axes of the main one."""
    options = _options_of(search, p)
    if search.layout_name(None) in ("tbc", "tb"):
        options = [cand.turned(option) for option in options]
    return options


def _options_of(search: Search, p: roles.Parameter) -> list[Candidate]:
    frame = search.frame
    match p.role:
        case "key" | "value" | "query":
            return [SAME, *cand.second()]
        case "main":
            return [SAME, *cand.second()]
        case "tokens" if p.name != search.main:
            return [cand.SECOND["bs"], cand.SECOND["bt"], cand.NONE]
        case "tokens":
            return [cand.MAIN["ids"], cand.MAIN["id"]]
        case "memory":
            lengths = [c for c in cand.second() if "S" in c.axes], [c for c in cand.second() if "T" in c.axes]
            # What attends from one sequence to another takes any lengths: equal ones would hide a fault.
            return [*lengths[0], *(() if search.crossed else lengths[1]), cand.NONE]
        case "condition":
            return [*cand.second(), SAME, cand.NONE]
        case "mask" | "padding":
            return [*mask_options(search, p), cand.NONE]
        case "lengths":
            return [Candidate("[0, T]", lambda f: torch.tensor([0, f.T], dtype=torch.int32)), cand.NONE]
        case "bias":
            return cand.biases()
        case "head_mask":
            return [cand.NONE]
        case "cos" | "sin":
            return list(rotary.rope_part(frame, p.role))
        case "complex":
            return [*rotary.rope_complex(frame), *rotary.rope_pairs(frame)]
        case "angles":
            return [
                *rotary.rope_angles(frame),
                *rotary.rope_complex(frame),
                *rotary.rope_pairs(frame),
                cand.NONE,
            ]
        case "pair":
            return [*rotary.rope_pairs(frame), cand.MAIN["btc"], cand.NONE]
        case "positions":
            return cand.positions()
        case "start" | "index":
            return [cand.constant("0", 0), cand.NONE]
        case "cache":
            return cand.caches()
        case "causal":
            return [cand.constant(str(search.causal), search.causal)]
        case "flag":
            return [cand.constant("False", False)]
        case "seqlen" | "counts" | "batch" | "height" | "width":
            return _numbers(search, p)
        case "timestep":
            return [
                Candidate("[B] zeros", lambda f: torch.zeros(f.B, dtype=torch.long), ("B",)),
                *cand.second(),
            ]
        case _:
            return cand.unknown()


def _numbers(search: Search, p: roles.Parameter) -> list[Candidate]:
    """Sizes of the call, as numbers."""
    frame = search.frame
    match p.role:
        case "seqlen":
            return [cand.constant("T", frame.T), cand.constant("0", 0)]
        case "counts":
            return cand.counts(
                second=bool(_SOURCE_MASK.search(p.name.lower())) and search.second_length() is not None
            )
        case "batch":
            return [cand.constant("B", frame.B)]
        case "height":
            return [cand.constant("1", 1), cand.constant("T", frame.T), cand.constant("4", 4)]
        case "width":
            return [cand.constant("T", frame.T), cand.constant("1", 1), cand.constant("5", 5)]
        case _:
            return []


def mask_options(search: Search, p: roles.Parameter, pattern: str = "causal") -> list[Candidate]:
    prior = roles.mask_convention(search.source, p.name)
    if prior is None and isinstance(search.built.target.tree.body, list):
        import ast

        prior = roles.mask_convention(ast.unparse(search.built.target.tree), p.name)
    if prior is None and any(isinstance(part, nn.MultiheadAttention) for part in search.module.modules()):
        prior = "blocked"  # what PyTorch's own layers take
    block = [cand.block_mask()] if "flex_attention" in search.source and pattern == "causal" else []
    options: list[Candidate] = []
    for over, keys in _masked_sequences(search, p):
        kind = p.role == "padding"
        options += cand.masks(search.frame, prior, padding=kind, keys=keys, pattern=pattern, over=over)
    added = roles.axes_added(search.source, p.name)
    if added:  # more than four axes would spread over the scores', and run, and mix entries of the batch
        options.sort(key=lambda option: len(option.axes) + added > 4)
    return block + options


_SOURCE_MASK = re.compile(r"(^|_)(src|source|e|enc|encoder|mem|memory|context|ctx|cross|kv|c|x_attn)(_|$)")
_GOAL_MASK = re.compile(r"(^|_)(tgt|trg|target|d|dec|decoder|self|causal|look|attn)(_|$)")


def _masked_sequences(search: Search, p: roles.Parameter) -> list[tuple[str, int]]:
    """The sequences whose keys a mask may be for, the likeliest first: the main one or the second."""
    second = search.second_length()
    if second is None:
        return [("T", search.keys())]
    name = p.name.lower()
    both = [("T", search.frame.T), ("S", second)]
    masks = sum(other.role in MASKS for other in search.parameters)
    first = _SOURCE_MASK.search(name) or (masks == 1 and not _GOAL_MASK.search(name))
    return both[::-1] if first else both
