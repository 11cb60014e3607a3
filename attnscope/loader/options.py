"""What an argument of `forward` could be, by its role, the likeliest first."""

from __future__ import annotations

import torch

from attnscope.loader import candidates as cand
from attnscope.loader import roles
from attnscope.loader.candidates import Candidate
from attnscope.loader.search import SAME, Search


def options_of(search: Search, p: roles.Parameter) -> list[Candidate]:
    """What an argument could be, the likeliest first."""
    frame = search.frame
    match p.role:
        case "key" | "value" | "query":
            return [SAME, *cand.second(11)]
        case "main":
            return [SAME, *cand.second(11)]
        case "tokens":
            return [cand.MAIN["ids"], cand.MAIN["id"]]
        case "memory":
            return [c for c in cand.second() if "S" in c.axes] + [cand.NONE]
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
            return list(cand.rope_part(frame, p.role))
        case "complex":
            return [*cand.rope_complex(frame), *cand.rope_pairs(frame)]
        case "angles":
            return [
                *cand.rope_angles(frame),
                *cand.rope_complex(frame),
                *cand.rope_pairs(frame),
                cand.NONE,
            ]
        case "pair":
            return [*cand.rope_pairs(frame), cand.MAIN["btc"], cand.NONE]
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
        case "seqlen":
            return [cand.constant("T", frame.T), cand.constant("0", 0)]
        case "batch":
            return [cand.constant("B", frame.B)]
        case "height":
            return [cand.constant("1", 1), cand.constant("T", frame.T), cand.constant("4", 4)]
        case "width":
            return [cand.constant("T", frame.T), cand.constant("1", 1), cand.constant("5", 5)]
        case "timestep":
            return [
                Candidate("[B] zeros", lambda f: torch.zeros(f.B, dtype=torch.long), ("B",)),
                *cand.second(),
            ]
        case _:
            return cand.unknown()


def mask_options(search: Search, p: roles.Parameter, pattern: str = "causal") -> list[Candidate]:
    prior = roles.mask_convention(search.source, p.name)
    if prior is None and isinstance(search.built.target.tree.body, list):
        import ast

        prior = roles.mask_convention(ast.unparse(search.built.target.tree), p.name)
    block = [cand.block_mask()] if "flex_attention" in search.source and pattern == "causal" else []
    options = list(
        cand.masks(search.frame, prior, padding=p.role == "padding", keys=search.keys(), pattern=pattern)
    )
    added = roles.axes_added(search.source, p.name)
    if added:  # more than four axes would spread over the scores', and run, and mix entries of the batch
        options.sort(key=lambda option: len(option.axes) + added > 4)
    return block + options
