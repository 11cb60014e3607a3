"""AS201: a token sees tokens after it.

Causal attention lets a token see itself and what came before. Here an output moves when a later input token
is changed.

It is bad because training then reads the answer from the input: the loss falls fast, and the model is of no
use where the future is not there yet, when it generates.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
            visible = torch.ones(t, t, dtype=torch.bool, device=x.device).tril(diagonal=1)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
            return y.transpose(1, 2).reshape(b, t, c)

Cure: `tril()` with diagonal 0 lets a token see itself and the past, `triu(1)` is what to block. Where
there is no mask at all, pass `is_causal=True` or fill the scores above the diagonal with `-inf` before
the softmax. If the module is meant to see everything, say `--no-causal`.

    - visible = torch.ones(t, t, dtype=torch.bool, device=x.device).tril(diagonal=1)
    + visible = torch.ones(t, t, dtype=torch.bool, device=x.device).tril(diagonal=0)
"""

from __future__ import annotations

from collections.abc import Iterator

from attnscope.checks.evidence import evidence_of
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import Leak, leak_of
from attnscope.checks.places import counted, num
from attnscope.checks.severity import severity
from attnscope.diagnostic import Diagnostic, Label, Tried

CODE = "AS201"
_MINE = ("shifted", "open", "heads", "other", "elsewhere", "window", "prefix", "block")


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    if not lab.causal or lab.influence is None:
        return
    leak = leak_of(lab)
    finding = _finding(lab, leak) if leak.kind in _MINE else None
    if leak.kind == "prefix" and finding is None:
        yield Tried("future", f"only the first {leak.by} tokens are seen by those before them", True)
    else:
        kinds = {one.kind for one in evidence_of(lab)} if leak.pairs else set()
        held = leak.kind == "none" or (
            leak.kind in (*_MINE, "dropped") and severity(proof_of(leak), kinds) is None
        )
        yield Tried(
            "future",
            f"{len(leak.pairs)} of {counted(leak.total, 'pair')} leak"
            + ("" if leak.pairs else f" (above {num(lab.tolerance)})")
            + (", as is meant" if leak.pairs and held else ""),
            held,
        )
    if finding is not None:
        yield finding


def proof_of(leak: Leak) -> str:
    """The row of the severity table: heads of which some are causal are one mask's only where there is
    one."""
    masked = leak.map is not None and leak.map.found.mask_serial is not None
    return "other" if leak.kind == "heads" and not masked else leak.kind


def _finding(lab: Lab, leak: Leak) -> Diagnostic | None:
    evidence = evidence_of(lab)
    judged = severity(proof_of(leak), {one.kind for one in evidence})
    if judged is None:
        return None
    t, s, moved = leak.pairs[0]
    seen = f"output token {t} moves by {num(moved)} of the largest output when input token {s} is changed"
    if leak.weight:
        seen += f"; the largest weight on a later key is {num(leak.weight)}"
    notes = [seen]
    labels = []
    for_it = next((one for one in evidence if one.kind != "off"), None)
    against = next((one for one in evidence if one.kind == "off"), None)
    if judged == "note":
        told = "whether causal attention is meant cannot be seen"
        notes.append(f"{against.text if against else told}: --causal or --no-causal says it")
    elif for_it is not None and for_it.kind != "said":
        notes.append(f"causal attention is meant: {for_it.text}")
    span = lab.span(leak.event)
    applied = lab.span(leak.map.event) if leak.map is not None else None
    if applied is not None and span is not None and applied.line != span.line:
        labels.append(Label(applied, "the weights on later keys are made here"))
    if judged == "error" and for_it is not None and for_it.where not in (None, span, applied):
        labels.append(Label(for_it.where, for_it.text))
    return Diagnostic(
        CODE,
        judged,
        _message(leak),
        span,
        _label(leak),
        tuple(labels),
        tuple(notes),
        _help(leak),
        grid(lab),
    )


def _message(leak: Leak) -> str:
    match leak.kind:
        case "shifted":
            return f"each token sees {counted(leak.by, 'token')} after it"
        case "open":
            if leak.mask is not None or leak.owner:
                return "every token sees every later token: the mask does not follow the order"
            return "every token sees every later token: no mask is applied"
        case "window":
            return f"each token sees {counted(leak.by, 'token')} on both sides"
        case "block":
            return f"tokens see later ones within blocks of {leak.by}"
        case "heads":
            maps = counted(len(leak.detail["heads"]), "map")
            return f"{maps} of {leak.detail['of']} see later tokens, the others do not"
        case "elsewhere":
            return "tokens see later ones, though no attention weight lies on a later key"
    return f"{len(leak.pairs)} of {leak.total} pairs of a token and a later one are connected"


def _label(leak: Leak) -> str:
    match leak.kind:
        case "shifted":
            return f"the mask ends {counted(leak.by, 'token')} too late"
        case "open":
            return "every key of a row gets weight here"
        case "elsewhere":
            return "here an earlier token first changes with a later one"
    return "later keys get weight here"


def _help(leak: Leak) -> str:
    match leak.kind:
        case "shifted":
            return "end the mask at the diagonal: `tril(diagonal=0)` keeps, `triu(diagonal=1)` blocks"
        case "elsewhere":
            return (
                "keep tokens apart in this step: it must not add up, normalise or cut across the token axis"
            )
    return "mask the scores above the diagonal with -inf before the softmax, or pass is_causal=True"


def grid(lab: Lab, most: int = 8) -> tuple[tuple[str, ...], ...]:
    """Which output moved with which input: one row for each output token, numbers relative to the largest
    output."""
    influence = lab.influence
    if influence is None:
        return ()
    shown = [i for i, s in enumerate(influence.positions) if s < most]
    rows = [("output \\ input", *(str(influence.positions[i]) for i in shown))]
    for t in range(min(influence.length, most)):
        moved = influence.moved[:, t, :].max(axis=0)
        rows.append((str(t), *(num(moved[i]) if moved[i] > lab.nothing else "0" for i in shown)))
    return tuple(rows)
