"""What `nn.MultiheadAttention` asks of its masks."""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.cause import defined, unique
from attnscope.crashes.masks import given_at
from attnscope.crashes.scene import Op, Scene, sizes
from attnscope.crashes.values import is_tensor, read
from attnscope.diagnostic import Diagnostic


def multihead(scene: Scene, op: Op, code: str) -> Diagnostic | None:
    """The finding for a `key_padding_mask` or an `attn_mask` of another shape than the layer takes."""
    query, key = op.argument(0, "query"), op.argument(1, "key")
    first, heads = bool(read(op.callee, "batch_first")), read(op.callee, "num_heads")
    if query is None or not is_tensor(query[1]) or query[1].dim() != 3 or type(heads) is not int:
        return None
    keyed = key[1] if key is not None and is_tensor(key[1]) else query[1]
    if keyed.dim() != 3:
        return None
    batch, tokens = (int(n) for n in (query[1].shape[:2] if first else reversed(query[1].shape[:2])))
    keys = int(keyed.shape[1 if first else 0])
    note = (
        f"with `batch_first={first}` the query {scene.show(*query)} "
        f"is {'[B, T, C]' if first else '[T, B, C]'}: B {batch}, T {tokens}, S {keys}"
    )
    padding, mask = op.argument(3, "key_padding_mask"), op.argument(5, "attn_mask")
    if padding is not None and is_tensor(padding[1]) and tuple(padding[1].shape) != (batch, keys):
        node, value = padding
        shape = tuple(int(n) for n in value.shape)
        cure = f"give it as [B, S]: [{batch}, {keys}]"
        if shape == (keys, batch):
            cure = f"give it as [B, S], whatever `batch_first` is: `{_turned(scene, node)}`"
        elif not first and shape == (tokens, keys):
            cure = (
                "the query is read as [T, B, C]: make the layer "
                "with `batch_first=True`, or swap the query's axes"
            )
        return scene.finding(
            code,
            f"`key_padding_mask` {scene.show(node, value)} is not [B, S] = [{batch}, {keys}]",
            label=f"{sizes(shape)} where [{batch}, {keys}] is needed",
            labels=unique([*given_at(scene, node), *defined(scene, query[0])]),
            notes=[note],
            help=cure,
        )
    if mask is None or not is_tensor(mask[1]):
        return None
    node, value = mask
    if tuple(value.shape) in ((tokens, keys), (batch * heads, tokens, keys)):
        return None
    why, cure = _mask(scene, op, node, value, (batch, heads, tokens, keys), query)
    layer = scene.set_at(op.words, f"`{scene.text(op.words).split('.')[-1]}` is made here")
    return scene.finding(
        code,
        f"`attn_mask` {scene.show(node, value)} is not [T, S] = [{tokens}, {keys}] "
        f"nor [B * heads, T, S] = [{batch * heads}, {tokens}, {keys}]",
        label=why,
        labels=[*given_at(scene, node), *layer],
        notes=[note],
        help=cure,
    )


def _mask(
    scene: Scene, op: Op, node: ast.expr, value: Any, full: tuple[int, ...], query: tuple[ast.expr, Any]
) -> tuple[str, str]:
    """(why an `attn_mask` does not fit [B, heads, T, S], what mends it)."""
    batch, heads, tokens, keys = full
    shape, text = tuple(int(n) for n in value.shape), scene.text(node, 50)
    first = bool(read(op.callee, "batch_first"))
    give = f"give [{tokens}, {keys}], or [B * heads, T, S] = [{batch * heads}, {tokens}, {keys}]"
    square = len(shape) == 2 and shape[0] == shape[1]
    if square and not first and shape[0] == batch:
        return (
            f"the query is read as [T, B, C], so T is {tokens}",
            "make the layer with `batch_first=True`, or give the query as [T, B, C]",
        )
    if shape == (batch, tokens, keys):
        return (
            f"one mask per sequence, where one per sequence and head is needed ({batch} × {heads})",
            f"repeat it for the heads: `{text}.repeat_interleave({scene.text(op.words)}.num_heads, dim=0)`",
        )
    if len(shape) == 4:
        return "four axes", f"merge batch and heads: `{text}.flatten(0, 1)`" if shape == full else give
    if square and shape[0] > max(tokens, keys):
        if shape[0] == int(query[1].shape[-1]):
            return (
                f"{shape[0]} is the number of channels, T is {tokens}",
                f"make the mask for T {tokens}: `{scene.text(query[0])}.size({1 if first else 0})`",
            )
        return f"not cut to T {tokens}", f"cut it to the text: `{text}[:{tokens}, :{keys}]`"
    if shape == (batch, keys):
        return "one row per sequence", f"this is a padding mask: give it as `key_padding_mask={text}`"
    if shape in ((heads * batch, keys, tokens), (keys, tokens)):
        return "queries and keys swapped", f"transpose it: `{text}.transpose(-2, -1)`"
    return sizes(shape), give


def _turned(scene: Scene, node: ast.AST) -> str:
    """The operand transposed, or, where it is written with a transpose, without it."""
    inner = node.func if isinstance(node, ast.Call) else node
    if isinstance(inner, ast.Attribute) and inner.attr in ("t", "transpose", "T"):
        return scene.text(inner.value)
    return f"{scene.text(node)}.t()"
