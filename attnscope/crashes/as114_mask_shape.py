"""AS114: a mask does not have the shape of the scores that it masks.

Scores are [B, H, T, S]. A mask must broadcast to that: [T, S], [1, 1, T, S], [B, 1, T, S], [B, 1, 1, S]. It
may be longer than the text and not cut to it, it may lack the axis of the heads, it may be turned round.
`nn.MultiheadAttention` wants [T, S] or [B * heads, T, S] for `attn_mask`, [B, S] for `key_padding_mask`.

It is bad because the same mistake passes unseen whenever the batch is as large as the heads, or T as S.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(8, 8).tril().bool())

        def forward(self, x):
            scores = x @ x.transpose(-2, -1)
            return scores.masked_fill(~self.mask, float("-inf"))

Cure: cut it to the text, `self.mask[:T, :T]`; insert the head axis, `mask[:, None]`.

    - return scores.masked_fill(~self.mask, float("-inf"))
    + return scores.masked_fill(~self.mask[:6, :6], float("-inf"))
"""

from __future__ import annotations

import ast
from typing import Any

from torch import nn

from attnscope.crashes.cause import lengths, mismatch, oddities, trail, unique
from attnscope.crashes.history import Follow
from attnscope.crashes.masks import bare, given_at, looks_like_mask
from attnscope.crashes.multihead import multihead
from attnscope.crashes.repairs import AXES, BATCH, HEADS, TURN, broadcasts, fitting
from attnscope.crashes.scene import Op, Scene, sizes
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic, Label
from attnscope.ops.outcomes import ELEMENTWISE

CODE = "AS114"
Operand = tuple[ast.expr, Any]
_LENGTHS = ("T", "t", "n", "seq_len", "num_tokens", "L", "S", "s", "q_len", "seqlen", "seq_length", "length")


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or not isinstance(scene.error, RuntimeError | AssertionError):
        return None
    if isinstance(op.callee, nn.MultiheadAttention):
        return multihead(scene, op, CODE)
    if op.name == "scaled_dot_product_attention":
        return _sdpa(scene, op)
    operands = [one for one in op.inputs if is_tensor(one[1])]
    if op.name not in ELEMENTWISE or mismatch(*(value.shape for _, value in operands)) is None:
        return None
    if op.name == "where":
        masks, others = operands[:1], [one for one in operands[1:] if one[1].dim() > 0]
    elif op.name.startswith("masked_fill"):
        masks, others = operands[1:2], operands[:1]
    else:
        masks = [one for one in operands if looks_like_mask(scene, *one)]
        others = [one for one in operands if one not in masks]
    if len(masks) != 1 or not others or mismatch(masks[0][1].shape, others[0][1].shape) is None:
        return None
    return _report(scene, masks[0], scene.show(*others[0]), tuple(others[0][1].shape), [others[0]])


def _sdpa(scene: Scene, op: Op) -> Diagnostic | None:
    q, k, mask = op.argument(0, "query"), op.argument(1, "key"), op.argument(3, "attn_mask")
    if q is None or k is None or mask is None or not all(is_tensor(one[1]) for one in (q, k, mask)):
        return None
    scores = (*q[1].shape[:-1], int(k[1].shape[-2]))
    if mismatch(mask[1].shape, scores) is None and mask[1].dim() <= len(scores):
        return None
    shown = f"the scores {sizes(scores)} of `{scene.text(op.node, 40)}`"
    return _report(scene, mask, shown, scores, [q, k] if scores[-1] == int(mask[1].shape[-1]) else [k, q])


def _report(
    scene: Scene, operand: Operand, scores_text: str, scores: tuple[int, ...], made_of: list[Operand]
) -> Diagnostic:
    node, mask = operand
    labels = given_at(scene, node)
    if _right_length(scene, mask, scores):
        more, why, cure = _scores(scene, operand, scores, made_of)
        labels = unique([*more, *labels])
    else:
        why, cure = _fit(scene, node, mask, scores)
        for one, _ in made_of:
            labels += trail(scene, one, {label.span.line for label in labels})
    message = f"the mask {scene.show(node, mask)} does not fit {scores_text}"
    return scene.finding(CODE, message, label=why, labels=labels, help=cure)


def _right_length(scene: Scene, mask: Any, scores: tuple[int, ...]) -> bool:
    """Whether the mask is as long as the function's input, and the scores are not."""
    known = lengths(scene)
    if not known or mask.dim() < 2 or len(scores) < 2:
        return False
    if int(mask.shape[-1]) not in known or int(mask.shape[-2]) not in known | {1}:
        return False
    return int(scores[-1]) not in known or int(scores[-2]) not in known


def _scores(
    scene: Scene, operand: Operand, scores: tuple[int, ...], made_of: list[Operand]
) -> tuple[list[Label], str, str]:
    """(labels, why, help) where the mask is as long as the text: then the scores are what went wrong."""
    (node, mask), known = operand, lengths(scene)
    rows, columns = int(mask.shape[-2]), int(mask.shape[-1])
    keys = int(scores[-1]) not in known
    follow = Follow(int(scores[-1] if keys else scores[-2]), keys)
    why = f"the scores should be {rows} × {columns}"
    cure = f"make the scores [B, H, T, S] with T {rows} and S {columns}: transpose q and k alike"
    strange = [label for one, _ in made_of for label in oddities(scene, one, follow)]
    links = [link for one, _ in made_of for link in scene.history(one, prefer=follow)]
    past = int(scores[-1]) - columns
    if strange:
        cure = f"keep the tokens at {columns}: repeat or cut along the axis of the heads or channels"
    elif any(link.name in ("cat", "concat") for link in links) and int(scores[-2]) in known and past > 0:
        text = bare(scene, node)[0].split("[")[0]
        why = f"{past} keys come from before, the mask is for {columns}"
        cure = f"count them in: `{text}[{past}:{int(scores[-1])}, :{int(scores[-1])}]`"
    way = [label for one, _ in made_of for label in trail(scene, one, follow=follow)]
    return [*strange, *[one for one in way if " gives " not in one.text][:3]], why, cure


def _fit(scene: Scene, node: ast.AST, mask: Any, scores: tuple[int, ...]) -> tuple[str, str]:
    """(why the mask does not fit, what mends it): the first edit after which it broadcasts."""
    text, inner = bare(scene, node)
    mask = inner if is_tensor(inner) else mask
    shape, full = [int(n) for n in mask.shape], [int(n) for n in scores]
    tokens, keys = full[-2:] if len(full) >= 2 else (1, full[-1])
    said, lead = sizes(shape), ":, " * (len(shape) - 2)
    if len(shape) >= 2 and shape[-1] == shape[-2] != 1 and (shape[-2] > tokens > 0 or shape[-1] > keys > 0):
        names = _named(scene, tokens, keys)
        return (
            f"mask {said} was not cut to T {tokens}" + (f", S {keys}" if keys != tokens else ""),
            f"cut it to the text: `{text}[{lead}:{names[0]}, :{names[1]}]`",
        )
    if len(full) == 4 and len(shape) == 3 and shape[0] in (full[0], 1) and broadcasts(shape[1:], full[2:]):
        return f"{said} has no axis for the {full[1]} heads", f"insert the head axis: `{text}[:, None]`"
    if shape == [full[0], keys] and len(full) == 4:
        return (
            f"{said} is one row per sequence, without axes for heads and queries",
            f"insert both axes: `{text}[:, None, None, :]`",
        )
    if shape == [full[0], keys] and len(full) == 3:
        return f"{said} has no axis for the queries", f"insert it: `{text}[:, None, :]`"
    if len(shape) >= 2 and shape[-2] == 1 and shape[-1] == tokens != keys:
        return (
            f"its last axis has the queries' length {tokens}, the keys are {keys}",
            f"make it over the keys: {keys} on the last axis",
        )
    edits = [TURN] if 1 not in shape[-2:] else []
    edits += [HEADS, BATCH, *(AXES if len(shape) < len(full) else ())]
    for edit in fitting(mask, lambda tensor: broadcasts(tensor.shape, full), edits):
        verb = "transpose it" if edit is TURN else "insert it" if edit in AXES else "swap them"
        return edit.why.format(said), f"{verb}: `{edit.words.format(text)}`"
    axes = ": batch, heads, queries, keys" if len(full) == 4 else ""
    return f"{said} against {sizes(full)}", f"make the mask broadcast to {sizes(full)}{axes}"


def _named(scene: Scene, tokens: int, keys: int) -> tuple[object, object]:
    """Local names that hold the two lengths (`T` and `T`), else the lengths."""
    known = scene.reader.body.locals if scene.reader is not None else {}

    def pick(size: int) -> str | None:
        names = [key for key, value in known.items() if type(value) is int and value == size and key != "_"]
        return next((name for name in _LENGTHS if name in names), names[0] if len(names) == 1 else None)

    left, right = pick(tokens), pick(keys)
    return (left, right) if left and right else (tokens, keys)
