"""AS124: `is_causal` and a mask contradict each other.

In `nn.MultiheadAttention`, `is_causal=True` is only a hint about the `attn_mask` that must be given too. In
`F.scaled_dot_product_attention` it is the mask itself, and no other may be given.

It is bad because one flag means two things in one library.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            return self.attn(x, x, x, is_causal=True)[0]

Cure: give `nn.MultiheadAttention` the mask too; give `F.scaled_dot_product_attention` one of the two.

    - return self.attn(x, x, x, is_causal=True)[0]
    + mask = torch.ones(6, 6, device=x.device).triu(1).bool()
    + return self.attn(x, x, x, attn_mask=mask, is_causal=True)[0]
"""

from __future__ import annotations

from torch import nn

from attnscope.crashes.scene import Scene
from attnscope.diagnostic import Diagnostic

CODE = "AS124"


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or not isinstance(scene.error, RuntimeError | AssertionError | ValueError):
        return None
    flag = op.keywords.get("is_causal")
    if isinstance(op.callee, nn.MultiheadAttention | nn.TransformerEncoderLayer):
        mask = op.argument(5, "attn_mask")
        if flag is None or flag[1] is not True or (mask is not None and mask[1] is not None):
            return None
        words = scene.text(op.words)
        return scene.finding(
            CODE,
            f"`{words}` is told `is_causal=True` and given no `attn_mask`",
            label="in `nn.MultiheadAttention` this is only a hint",
            labels=scene.set_at(op.words, f"`{words.split('.')[-1]}` is made here"),
            help="pass the mask as well: `attn_mask=nn.Transformer.generate_square_subsequent_mask(T)`",
        )
    if op.name == "scaled_dot_product_attention":
        mask = op.argument(3, "attn_mask")
        flag = op.argument(5, "is_causal")
        if flag is None or flag[1] is not True or mask is None or mask[1] is None:
            return None
        if "is_causal" not in scene.words and "attn_mask" not in scene.words:
            return None
        return scene.finding(
            CODE,
            f"both `is_causal=True` and the mask {scene.show(*mask)} are given",
            label="one of the two",
            help="give one: leave out `is_causal`, with the causal "
            "mask in `attn_mask`, or leave out `attn_mask`",
        )
    return None
