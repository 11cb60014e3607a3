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

from attnscope.crashes.as113_broadcast import ELEMENTWISE, pair
from attnscope.crashes.history import Follow
from attnscope.crashes.scene import Op, Scene, sizes
from attnscope.crashes.suspects import defined, lengths, mismatch, oddities, trail, unique
from attnscope.crashes.values import is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS114"
_NAMES = ("mask", "bias", "tril", "causal", "triu", "keep", "pad", "allowed", "block", "look_back", "visible")


def looks_like_mask(scene: Scene, node: ast.AST, value: Any) -> bool:
    """Whether an operand is a mask: boolean, made by tril or triu, or so called."""
    if is_tensor(value) and str(value.dtype) == "torch.bool":
        return True
    words = scene.text(node).lower()
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Compare | ast.UnaryOp) and any(
        name in words for name in _NAMES
    ):
        return True
    return any(link.name in ("tril", "triu", "compare", "invert") for link in scene.history(node))


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or not isinstance(scene.error, RuntimeError | AssertionError):
        return None
    if is_module(op.callee) and type(op.callee).__name__ == "MultiheadAttention":
        return _multihead(scene, op)
    if op.name == "scaled_dot_product_attention":
        return _sdpa(scene, op)
    if op.name not in ELEMENTWISE:
        return None
    operands = pair(op)
    if len(operands) < 2 or mismatch(*(value.shape for _, value in operands)) is None:
        return None
    if op.name == "where":
        masks = operands[:1]
        others = [one for one in operands[1:] if one[1].dim() > 0]
    elif op.name.startswith("masked_fill"):
        masks, others = operands[1:2], operands[:1]
    else:
        masks = [one for one in operands if looks_like_mask(scene, *one)]
        others = [one for one in operands if one not in masks]
    if len(masks) != 1 or not others or mismatch(masks[0][1].shape, others[0][1].shape) is None:
        return None
    node, mask = masks[0]
    return _report(scene, node, mask, scene.show(*others[0]), tuple(others[0][1].shape), [others[0]])


def _sdpa(scene: Scene, op: Op) -> Diagnostic | None:
    q, k, mask = op.argument(0, "query"), op.argument(1, "key"), op.argument(3, "attn_mask")
    if (
        q is None
        or k is None
        or mask is None
        or not (is_tensor(q[1]) and is_tensor(k[1]) and is_tensor(mask[1]))
    ):
        return None
    scores = (*q[1].shape[:-1], int(k[1].shape[-2]))
    if mismatch(mask[1].shape, scores) is None and mask[1].dim() <= len(scores):
        return None
    return _report(
        scene,
        *mask,
        f"the scores {sizes(scores)} of `{scene.text(op.node, 40)}`",
        scores,
        [q, k] if int(scores[-1]) == int(mask[1].shape[-1]) else [k, q],
    )


def _report(
    scene: Scene,
    node: ast.AST,
    mask: Any,
    scores_text: str,
    scores: tuple[int, ...],
    made_of: list[tuple[ast.expr, Any]],
) -> Diagnostic:
    why, cure = fit(scene, node, mask, scores)
    labels = [label for label in [_origin(scene, node)] if label is not None]
    known = lengths(scene)
    if _right_length(scene, mask, scores):
        # The mask is as long as the text: then the scores are what went wrong.
        rows, columns = int(mask.shape[-2]), int(mask.shape[-1])
        keys = int(scores[-1]) not in known
        follow = Follow(int(scores[-1]) if keys else int(scores[-2]), keys)
        why = f"the scores should be {rows} × {columns}"
        cure = f"make the scores [B, H, T, S] with T {rows} and S {columns}: transpose q and k alike"
        way = [label for one, _ in made_of for label in trail(scene, one, follow=follow)]
        strange = [label for one, _ in made_of for label in oddities(scene, one, follow)]
        joined = [
            link
            for one, _ in made_of
            for link in scene.history(one, prefer=follow)
            if link.kind == "op" and link.name in ("cat", "concat")
        ]
        if strange:
            cure = f"keep the tokens at {columns}: repeat or cut along the axis of the heads or channels"
        elif joined and int(scores[-2]) in known and int(scores[-1]) > columns:
            past = int(scores[-1]) - columns
            text = _plain(scene, node)[0].split("[")[0]
            why = f"{past} keys come from before, the mask is for {columns}"
            cure = f"count them in: `{text}[{past}:{int(scores[-1])}, :{int(scores[-1])}]`"
        labels = unique([*strange, *[one for one in way if " gives " not in one.text][:3], *labels])
    else:
        for one, _ in made_of:
            labels += trail(scene, one, {label.span.line for label in labels})
    return scene.finding(
        CODE,
        f"the mask {scene.show(node, mask)} does not fit {scores_text}",
        label=why,
        labels=labels,
        help=cure,
    )


def _right_length(scene: Scene, mask: Any, scores: tuple[int, ...]) -> bool:
    """Whether the mask is as long as the function's input, and the scores are not."""
    known = lengths(scene)
    if not known or mask.dim() < 2 or len(scores) < 2:
        return False
    if int(mask.shape[-1]) not in known or int(mask.shape[-2]) not in known | {1}:
        return False
    return int(scores[-1]) not in known or int(scores[-2]) not in known


def _origin(scene: Scene, node: ast.AST) -> Label | None:
    links = scene.history(node)
    source = links[-1] if links else None
    direct = not any(link.kind == "def" for link in links)
    if direct and source is not None and source.kind == "argument" and scene.reader is not None:
        function = scene.reader.body.function
        if function is not None:
            for argument in (*function.args.args, *function.args.kwonlyargs):
                if argument.arg == source.name and is_tensor(source.value):
                    return scene.label(argument, f"`{source.name}` {sizes(source.value.shape)} is given here")
    return defined(scene, node)


def _plain(scene: Scene, node: ast.AST) -> tuple[str, Any]:
    """The mask itself, under `~`, `== 0`, `.bool()`: its words and its twin."""
    current = node
    while True:
        if isinstance(current, ast.UnaryOp):
            current = current.operand
        elif isinstance(current, ast.Compare):
            current = current.left
        elif (
            isinstance(current, ast.Call)
            and isinstance(current.func, ast.Attribute)
            and current.func.attr in ("bool", "to", "float", "logical_not", "eq", "ne", "type")
        ):
            current = current.func.value
        else:
            return scene.text(current, 50), scene.value(current)


def fit(scene: Scene, node: ast.AST, mask: Any, scores: tuple[int, ...]) -> tuple[str, str]:
    """(why the mask does not fit, what mends it)."""
    text, inner = _plain(scene, node)
    shape = [int(n) for n in (inner.shape if is_tensor(inner) else mask.shape)]
    full = list(scores)
    tokens, keys = full[-2:] if len(full) >= 2 else (1, full[-1])
    if len(shape) >= 2:
        longer = [shape[-2] > tokens > 0 and shape[-2] != 1, shape[-1] > keys > 0 and shape[-1] != 1]
        if any(longer) and shape[-1] == shape[-2]:
            cut = "[" + ":, " * (len(shape) - 2) + f":{tokens}, :{keys}]"
            names = _lengths(scene, tokens, keys)
            if names is not None:
                cut = "[" + ":, " * (len(shape) - 2) + f":{names[0]}, :{names[1]}]"
            return (
                f"mask {sizes(shape)} was not cut to T {tokens}" + (f", S {keys}" if keys != tokens else ""),
                f"cut it to the text: `{text}{cut}`",
            )
    if (
        len(full) == 4
        and len(shape) == 3
        and shape[0] in (full[0], 1)
        and mismatch(shape[1:], full[2:]) is None
    ):
        return (
            f"{sizes(shape)} has no axis for the {full[1]} heads",
            f"insert the head axis: `{text}[:, None]`",
        )
    if len(full) == 4 and len(shape) == 2 and shape[0] == full[0] and shape[1] == keys:
        return (
            f"{sizes(shape)} is one row per sequence, without axes for heads and queries",
            f"insert both axes: `{text}[:, None, None, :]`",
        )
    if len(full) == 3 and len(shape) == 2 and shape[0] == full[0] and shape[1] == keys:
        return f"{sizes(shape)} has no axis for the queries", f"insert it: `{text}[:, None, :]`"
    if len(shape) >= 2:
        turned = [*shape[:-2], shape[-1], shape[-2]]
        if shape[-2] == 1 and shape[-1] == tokens != keys:
            return (
                f"its last axis has the queries' length {tokens}, the keys are {keys}",
                f"make it over the keys: {keys} on the last axis",
            )
        if mismatch(turned, full) is None and 1 not in shape[-2:]:
            return (
                f"{sizes(shape)} has queries and keys swapped",
                f"transpose it: `{text}.transpose(-2, -1)`",
            )
        if len(shape) == 4 and mismatch([shape[0], shape[2], shape[1], shape[3]], full) is None:
            return f"{sizes(shape)} has its axes 1 and 2 swapped", f"swap them: `{text}.transpose(1, 2)`"
        if len(shape) == len(full) == 4 and shape[1] == full[0] and shape[0] in (1, full[1]):
            return f"{sizes(shape)} has batch and heads swapped", f"swap them: `{text}.transpose(0, 1)`"
    for spot in range(len(shape) + 1):
        if len(shape) < len(full) and mismatch([*shape[:spot], 1, *shape[spot:]], full) is None:
            return f"{sizes(shape)} lacks an axis", f"insert it: `{text}.unsqueeze({spot})`"
    return (
        f"{sizes(shape)} against {sizes(full)}",
        f"make the mask broadcast to {sizes(full)}: batch, heads, queries, keys"
        if len(full) == 4
        else f"make the mask broadcast to {sizes(full)}",
    )


def _lengths(scene: Scene, tokens: int, keys: int) -> tuple[str, str] | None:
    """Local names that hold the two lengths: `T` and `T`."""
    if scene.reader is None:
        return None
    known = {k: v for k, v in scene.reader.body.locals.items() if type(v) is int and k != "_"}
    common = (
        "T",
        "t",
        "n",
        "seq_len",
        "num_tokens",
        "L",
        "S",
        "s",
        "q_len",
        "seqlen",
        "seq_length",
        "length",
    )

    def pick(size: int) -> str | None:
        names = [name for name, value in known.items() if value == size]
        return next((name for name in common if name in names), names[0] if len(names) == 1 else None)

    left, right = pick(tokens), pick(keys)
    return (left, right) if left and right else None


def _multihead(scene: Scene, op: Op) -> Diagnostic | None:
    query, key = op.argument(0, "query"), op.argument(1, "key")
    if query is None or not is_tensor(query[1]):
        return None
    key_value = key[1] if key is not None and is_tensor(key[1]) else query[1]
    first = bool(read(op.callee, "batch_first"))
    heads = read(op.callee, "num_heads")
    if query[1].dim() != 3 or key_value.dim() != 3 or type(heads) is not int:
        return None
    batch, tokens = (int(query[1].shape[0 if first else 1]), int(query[1].shape[1 if first else 0]))
    keys = int(key_value.shape[1 if first else 0])
    padding, mask = op.argument(3, "key_padding_mask"), op.argument(5, "attn_mask")
    layout = "[B, T, C]" if first else "[T, B, C]"
    note = (
        f"with `batch_first={first}` the query {scene.show(*query)} "
        f"is {layout}: B {batch}, T {tokens}, S {keys}"
    )
    if padding is not None and is_tensor(padding[1]) and tuple(padding[1].shape) != (batch, keys):
        node, value = padding
        shape = tuple(int(n) for n in value.shape)
        if shape == (keys, batch):
            cure = f"give it as [B, S], whatever `batch_first` is: `{_turned(scene, node)}`"
        else:
            cure = f"give it as [B, S]: [{batch}, {keys}]"
        if shape != (keys, batch) and not first and shape == (tokens, keys):
            cure = (
                "the query is read as [T, B, C]: make the layer "
                "with `batch_first=True`, or swap the query's axes"
            )
        return scene.finding(
            CODE,
            f"`key_padding_mask` {scene.show(node, value)} is not [B, S] = [{batch}, {keys}]",
            label=f"{sizes(shape)} where [{batch}, {keys}] is needed",
            labels=unique([label for label in (_origin(scene, node), defined(scene, query[0])) if label]),
            notes=[note],
            help=cure,
        )
    if mask is not None and is_tensor(mask[1]):
        node, value = mask
        shape = tuple(int(n) for n in value.shape)
        if shape in ((tokens, keys), (batch * heads, tokens, keys)):
            return None
        text = scene.text(node, 50)
        attention = scene.text(op.node.func) if isinstance(op.node, ast.Call) else "self.attn"
        if not first and len(shape) == 2 and shape[0] == shape[1] == batch:
            why = f"the query is read as [T, B, C], so T is {tokens}"
            cure = "make the layer with `batch_first=True`, or give the query as [T, B, C]"
        elif shape == (batch, tokens, keys):
            why = f"one mask per sequence, where one per sequence and head is needed ({batch} × {heads})"
            cure = f"repeat it for the heads: `{text}.repeat_interleave({attention}.num_heads, dim=0)`"
        elif shape == (batch, heads, tokens, keys):
            why, cure = "four axes", f"merge batch and heads: `{text}.flatten(0, 1)`"
        elif len(shape) == 4:
            why = "four axes"
            cure = f"give [{tokens}, {keys}], or [B * heads, T, S] = [{batch * heads}, {tokens}, {keys}]"
        elif len(shape) == 2 and shape[0] == shape[1] and shape[0] > max(tokens, keys):
            why, cure = f"not cut to T {tokens}", f"cut it to the text: `{text}[:{tokens}, :{keys}]`"
            if shape[0] == int(query[1].shape[-1]):
                why = f"{shape[0]} is the number of channels, T is {tokens}"
                cure = f"make the mask for T {tokens}: `{scene.text(query[0])}.size({1 if first else 0})`"
        elif shape == (batch, keys):
            why = "one row per sequence"
            cure = f"this is a padding mask: give it as `key_padding_mask={text}`"
        elif shape == (heads * batch, keys, tokens) or shape == (keys, tokens):
            why, cure = "queries and keys swapped", f"transpose it: `{text}.transpose(-2, -1)`"
        else:
            why = f"{sizes(shape)}"
            cure = f"give [{tokens}, {keys}], or [B * heads, T, S] = [{batch * heads}, {tokens}, {keys}]"
        return scene.finding(
            CODE,
            f"`attn_mask` {scene.show(node, value)} is not [T, "
            f"S] = [{tokens}, {keys}] nor [B * heads, T, S] = "
            f"[{batch * heads}, {tokens}, {keys}]",
            label=why,
            labels=[label for label in (_origin(scene, node), _layer(scene, op)) if label is not None],
            notes=[note],
            help=cure,
        )
    return None


def _layer(scene: Scene, op: Op) -> Label | None:
    """Where the attention layer is set."""
    func = op.node.func if isinstance(op.node, ast.Call) else None
    setting = scene.setting(func.attr) if isinstance(func, ast.Attribute) else None
    return scene.label(setting.target, f"`{setting.name}` is made here") if setting is not None else None


def _turned(scene: Scene, node: ast.AST) -> str:
    """The operand transposed, or, where it is written with a transpose, without it."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("t", "transpose")
    ):
        return scene.text(node.func.value)
    if isinstance(node, ast.Attribute) and node.attr == "T":
        return scene.text(node.value)
    return f"{scene.text(node)}.t()"
