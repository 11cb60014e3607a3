"""Known names of packages that are not installed, with what they mean: parallel linear layers, DropPath …

Each does on one device and without training tricks exactly what the original does, so that a class that
uses it computes what it would compute there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from attnscope.loader import einops_standin


class ParallelLinear(nn.Linear):
    """fairscale's and Megatron's column- or row-parallel linear layer on one device."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, **kwargs: Any) -> None:
        super().__init__(in_features, out_features, bias=bias)


class ParallelEmbedding(nn.Embedding):
    """A vocabulary- or width-parallel embedding on one device."""

    def __init__(self, num_embeddings: int, embedding_dim: int, **kwargs: Any) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=kwargs.get("padding_idx"))


class DropPath(nn.Module):
    """Stochastic depth: the whole branch of a sample is dropped in training."""

    def __init__(self, drop_prob: float = 0.0, scale_by_keep: bool = True) -> None:
        super().__init__()
        self.drop_prob = drop_prob
        self.scale_by_keep = scale_by_keep

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape in, the same shape out."""
        if not self.drop_prob or not self.training:
            return x
        keep = 1 - self.drop_prob
        kept = x.new_empty((x.shape[0],) + (1,) * (x.dim() - 1)).bernoulli_(keep)
        return x * (kept.div_(keep) if self.scale_by_keep and keep > 0 else kept)


class TransposedLinear(nn.Module):
    """GPT-2's `Conv1D`: a linear layer whose weight is [in, out]."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.nx = nx
        self.weight = nn.Parameter(torch.empty(nx, nf).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out]"""
        return (x.reshape(-1, x.shape[-1]) @ self.weight + self.bias).view(*x.shape[:-1], self.nf)


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis."""

    def __init__(self, hidden_size: int, eps: float = 1e-6, **kwargs: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape in, the same shape out."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class NewGELU(nn.Module):
    """The tanh form of GELU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape in, the same shape out."""
        return F.gelu(x, approximate="tanh")


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape in, the same shape out."""
        return x * torch.sigmoid(1.702 * x)


class EagerAttention(dict[str, Any]):
    """transformers' table of attention functions: here only the file's own eager one is there."""

    def get_interface(self, name: str, default: Any) -> Any:
        """`default`, which is the eager function of the file."""
        return default


class _Activations(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)()


ACTIVATIONS = _Activations(
    gelu=nn.GELU,
    gelu_new=NewGELU,
    gelu_fast=NewGELU,
    gelu_pytorch_tanh=NewGELU,
    quick_gelu=QuickGELU,
    relu=nn.ReLU,
    relu6=nn.ReLU6,
    silu=nn.SiLU,
    swish=nn.SiLU,
    tanh=nn.Tanh,
    sigmoid=nn.Sigmoid,
    mish=nn.Mish,
)


def _to_tuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    def convert(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, (tuple, list)) else (x,) * n

    return convert


def _one(*args: Any, **kwargs: Any) -> int:
    return 1


def _zero(*args: Any, **kwargs: Any) -> int:
    return 0


def _same(x: Any = None, *args: Any, **kwargs: Any) -> Any:
    return x


def _trunc_normal(tensor: torch.Tensor, mean: float = 0.0, std: float = 1.0, **kwargs: Any) -> torch.Tensor:
    return nn.init.trunc_normal_(tensor, mean, std)


def _variance_init(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return nn.init.normal_(tensor, std=1 / math.sqrt(max(tensor.shape[-1], 1)))


def _exists(value: Any) -> bool:
    return value is not None


def _default(value: Any, fallback: Any) -> Any:
    return value if value is not None else fallback() if callable(fallback) else fallback


class ViTAttention(nn.Module):
    """timm's plain `Attention`: one `qkv` layer, no mask."""

    def __init__(self, dim: int, num_heads: int = 8, qkv_bias: bool = False, **kwargs: Any) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(
        self, x: torch.Tensor, attn_mask: torch.Tensor | None = None, is_causal: bool = False
    ) -> torch.Tensor:
        """[B, T, C] -> [B, T, C]"""
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        out: torch.Tensor = self.proj(
            F.scaled_dot_product_attention(q, k, v, attn_mask, 0.0, is_causal)
            .transpose(1, 2)
            .reshape(b, t, c)
        )
        return out


class Mlp(nn.Module):
    """timm's two-layer perceptron."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        act_layer: Callable[[], nn.Module] = nn.GELU,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        hidden = hidden_features or in_features
        self.fc1 = nn.Linear(in_features, hidden)
        self.act = act_layer()
        self.fc2 = nn.Linear(hidden, out_features or in_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out]"""
        out: torch.Tensor = self.fc2(self.act(self.fc1(x)))
        return out


class Dropout(nn.Dropout):
    """A dropout layer of another library, whatever further arguments it takes."""

    apply_during_inference = False

    def __init__(self, p: float = 0.0, *args: Any, **kwargs: Any) -> None:
        super().__init__(p)


def memory_efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None = None,
    p: float = 0.0,
    scale: float | None = None,
    **kwargs: Any,
) -> torch.Tensor:
    """xformers' attention on [B, T, H, D] (or [B, T, D])."""
    split = query.dim() == 4
    q, k, v = (t.transpose(1, 2) if split else t for t in (query, key, value))
    bias = attn_bias if isinstance(attn_bias, torch.Tensor) else None
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
    return out.transpose(1, 2) if split else out


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    **kwargs: Any,
) -> torch.Tensor:
    """flash_attn's attention on [B, T, H, D]; fewer key/value heads are repeated."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=softmax_scale).transpose(1, 2)


def flash_attn_qkvpacked_func(qkv: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The same with q, k, v stacked on axis 2: [B, T, 3, H, D]."""
    q, k, v = qkv.unbind(2)
    return flash_attn_func(q, k, v, *args, **kwargs)


# By the end of a class's name, where the name itself is not known.
ENDINGS: tuple[tuple[str, Any], ...] = (
    ("Dropout", Dropout),
    ("RMSNorm", RMSNorm),
    ("LayerNorm", nn.LayerNorm),
    ("Linear", ParallelLinear),
)

KNOWN: dict[str, Any] = {
    "memory_efficient_attention": memory_efficient_attention,
    "flash_attn_func": flash_attn_func,
    "flash_attn_qkvpacked_func": flash_attn_qkvpacked_func,
    "ColumnParallelLinear": ParallelLinear,
    "RowParallelLinear": ParallelLinear,
    "QKVParallelLinear": ParallelLinear,
    "ReplicatedLinear": ParallelLinear,
    "ParallelEmbedding": ParallelEmbedding,
    "VocabParallelEmbedding": ParallelEmbedding,
    "get_model_parallel_world_size": _one,
    "get_tensor_model_parallel_world_size": _one,
    "get_model_parallel_rank": _zero,
    "get_tensor_model_parallel_rank": _zero,
    "reduce_from_model_parallel_region": _same,
    "copy_to_model_parallel_region": _same,
    "gather_from_model_parallel_region": _same,
    "DropPath": DropPath,
    "StochasticDepth": DropPath,
    "to_1tuple": _to_tuple(1),
    "to_2tuple": _to_tuple(2),
    "to_3tuple": _to_tuple(3),
    "trunc_normal_": _trunc_normal,
    "lecun_normal_": _variance_init,
    "Conv1D": TransposedLinear,
    "ACT2FN": ACTIVATIONS,
    "ALL_ATTENTION_FUNCTIONS": EagerAttention(),
    "NewGELUActivation": NewGELU,
    "QuickGELUActivation": QuickGELU,
    "RMSNorm": RMSNorm,
    "FusedRMSNorm": RMSNorm,
    "MixedFusedRMSNorm": RMSNorm,
    "LlamaRMSNorm": RMSNorm,
    "FusedLayerNorm": nn.LayerNorm,
    "MixedFusedLayerNorm": nn.LayerNorm,
    "LayerNorm": nn.LayerNorm,
    "Sequential": nn.Sequential,
    "Identity": nn.Identity,
    "exists": _exists,
    "default": _default,
}

TIMM: dict[str, Any] = {"Attention": ViTAttention, "Mlp": Mlp}

EINOPS: dict[str, Any] = {
    "rearrange": einops_standin.rearrange,
    "repeat": einops_standin.repeat,
    "reduce": einops_standin.reduce,
    "Rearrange": einops_standin.Rearrange,
    "Reduce": einops_standin.Reduce,
    "pack": einops_standin.pack,
    "unpack": einops_standin.unpack,
    "einsum": einops_standin.einsum,
}
