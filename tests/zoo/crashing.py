"""A whole attention with one fault that makes it crash, for each code; the page's own example is smaller."""

from __future__ import annotations

from dataclasses import dataclass

from tests.changes import changed

_BASE = """
class Module(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=-1)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
        y = (weights @ v).transpose(1, 2).reshape(b, t, c)
        return self.out(y)
"""


@dataclass(frozen=True)
class Crashing:
    """`fault` is what makes a `Module` crash that runs: `base`, changed by `first`, below `head`."""

    fault: str
    first: str = ""
    base: str = _BASE
    head: str = ""
    x: str = "torch.randn(2, 6, 16)"

    @property
    def mended(self) -> str:
        module = changed(self.base, self.first) if self.first else self.base
        return f"import torch\nfrom torch import nn\n{self.head}\n{module}"

    @property
    def broken(self) -> str:
        return changed(self.mended, self.fault)


CRASHING = {
    "AS100": Crashing(
        """
- scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
+ scores = q @ k.transpose(-2, -1) * (1 / (t - t))
""",
    ),
    "AS101": Crashing(
        """
- weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
+ weights = scores.masked_fill(~self.bias[:t, :t], float("-inf")).softmax(dim=-1)
""",
    ),
    "AS102": Crashing(
        """
- self.register_buffer("mask", torch.ones(context, context).tril().bool())
+ self.fused = hasattr(nn.functional, "scaled_dot_product_attention")
+ if not self.fused:
+     self.register_buffer("mask", torch.ones(context, context).tril().bool())
""",
    ),
    "AS103": Crashing(
        """
  self.qkv = nn.Linear(dim, 3 * dim)
+ nn.Module.__init__(self)
+ self.heads = heads
""",
    ),
    "AS104": Crashing(
        """
- super().__init__()
""",
    ),
    "AS105": Crashing(
        """
  self.heads = heads
+ self.mask = None
""",
    ),
    "AS106": Crashing(
        """
- return self.dim // self.heads
+ return self.width // self.heads
""",
        base="""
class Module(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.dim, self.heads = dim, heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    @property
    def head_dim(self):
        return self.dim // self.heads

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=-1)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / self.head_dim**0.5
        weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
        y = (weights @ v).transpose(1, 2).reshape(b, t, c)
        return self.out(y)
""",
    ),
    "AS107": Crashing(
        """
- return self.out(y.reshape(b, t, self.embed_dim))
+ return self.out(y.reshape(b, t, width))
""",
        base="""
class Module(nn.Module):
    def __init__(self, dim=16, embed_dim=20, heads=2, context=8):
        super().__init__()
        self.embed_dim, self.heads = embed_dim, heads
        self.qkv = nn.Linear(dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = (u.view(b, t, self.heads, -1).transpose(1, 2) for u in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / (self.embed_dim // self.heads) ** 0.5
        weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
        y = (weights @ v).transpose(1, 2)
        return self.out(y.reshape(b, t, self.embed_dim))
""",
    ),
    "AS108": Crashing(
        """
- y = (weights @ v).transpose(1, 2).reshape(b, t, c)
+ y = (weights @ v).transpose(1, 2).view(b, t, c)
""",
    ),
    "AS109": Crashing(
        """
- def __init__(self, dim=16, heads=2, context=8):
+ def __init__(self, dim=16, heads=3, context=8):
""",
    ),
    "AS110": Crashing(
        """
- self.qkv = nn.Linear(dim, 3 * dim)
+ self.qkv = nn.Linear(dim, 2 * dim)
""",
    ),
    "AS111": Crashing(
        """
- scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
+ scores = q @ k / (c // self.heads) ** 0.5
""",
    ),
    "AS112": Crashing(
        """
- y = (weights @ v).transpose(1, 2).reshape(b, t, c)
+ y = weights.transpose(1, 2).reshape(b, t, -1)
""",
    ),
    "AS113": Crashing(
        """
- y = (weights @ v).transpose(1, 2).reshape(b, t, c)
- return x + self.out(y)
+ y = weights @ v
+ return self.out(x + y)
""",
        first="""
- return self.out(y)
+ return x + self.out(y)
""",
    ),
    "AS114": Crashing(
        """
- weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
+ weights = scores.masked_fill(~self.mask, float("-inf")).softmax(dim=-1)
""",
    ),
    "AS115": Crashing(
        """
- def __init__(self, dim=16, heads=2, context=8):
+ def __init__(self, dim=16, heads=2, context=4):
""",
        first="""
  self.qkv = nn.Linear(dim, 3 * dim)
+ self.positions = nn.Parameter(torch.zeros(1, context, dim))

- q, k, v = self.qkv(x).split(c, dim=-1)
+ q, k, v = self.qkv(x + self.positions[:, :t]).split(c, dim=-1)
""",
    ),
    "AS116": Crashing(
        """
- def __init__(self, vocabulary=50, dim=16, heads=2, context=8):
+ def __init__(self, vocabulary=40, dim=16, heads=2, context=8):
""",
        base="""
class Module(nn.Module):
    def __init__(self, vocabulary=50, dim=16, heads=2, context=8):
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(vocabulary, dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, ids):
        x = self.tokens(ids)
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=-1)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
        y = (weights @ v).transpose(1, 2).reshape(b, t, c)
        return self.out(y)
""",
        x="torch.arange(36, 48).view(2, 6)",
    ),
    "AS117": Crashing(
        """
  v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
+ q = q * torch.ones(t, 1, dtype=torch.float64, device=x.device)
""",
    ),
    "AS118": Crashing(
        """
- self.register_buffer("mask", torch.ones(context, context).tril().bool())
+ self.register_buffer("mask", torch.ones(context, context).tril())
""",
    ),
    "AS119": Crashing(
        """
- self.register_buffer("mask", torch.ones(context, context).tril().bool())
+ self.mask = torch.ones(context, context).tril().bool()
""",
    ),
    "AS120": Crashing(
        """
  q, k, v = self.qkv(x).split(c, dim=-1)
+ q.mul_(0.5)
""",
    ),
    "AS121": Crashing(
        """
  weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
+ weights.mul_(0.5)
""",
    ),
    "AS122": Crashing(
        """
- return self.out((weights @ v).transpose(1, 2).reshape(b, t, c))
+ return self.out((weights @ v).transpose(1, 2).reshape(b, t, c)).detach()
""",
        base="""
class Module(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, self.heads, -1).transpose(1, 2) for u in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, c))
""",
    ),
    "AS123": Crashing(
        """
- return torch.cat([head(x, mask) for head in self.heads], dim=-1)
+ return torch.cat([head(x) for head in self.heads], dim=-1)
""",
        base="""
class Head(nn.Module):
    def __init__(self, dim, head_dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, head_dim) for _ in range(3))

    def forward(self, x, mask):
        scores = self.q(x) @ self.k(x).transpose(-2, -1) / self.k.out_features**0.5
        return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1) @ self.v(x)


class Module(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.heads = nn.ModuleList(Head(dim, dim // heads) for _ in range(heads))
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        t = x.size(1)
        mask = self.mask[:t, :t]
        return torch.cat([head(x, mask) for head in self.heads], dim=-1)
""",
    ),
    "AS124": Crashing(
        """
- y, _ = self.attn(x, x, x, attn_mask=mask, is_causal=True)
+ y, _ = self.attn(x, x, x, is_causal=True)
""",
        base="""
class Module(nn.Module):
    def __init__(self, dim=16, heads=2):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device, dtype=x.dtype)
        y, _ = self.attn(x, x, x, attn_mask=mask, is_causal=True)
        return y
""",
    ),
    "AS125": Crashing(
        """
- y, _ = self.attn(x, x, x, attn_mask=mask, is_causal=True)
+ y = self.attn(x, x, x, attn_mask=mask, is_causal=True)
""",
        base="""
class Module(nn.Module):
    def __init__(self, dim=16, heads=2):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device, dtype=x.dtype)
        y, _ = self.attn(x, x, x, attn_mask=mask, is_causal=True)
        return y.flatten(2)
""",
    ),
    "AS126": Crashing(
        """
- q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
+ q = q.transpose(1, 3)
""",
    ),
    "AS127": Crashing(
        """
- past = torch.zeros(b, self.heads, 3, c // self.heads, device=x.device)
+ past = torch.zeros(b, 3, self.heads, c // self.heads, device=x.device)
""",
        base="""
class Module(nn.Module):
    def __init__(self, dim=16, heads=2, context=16):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=-1)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        past = torch.zeros(b, self.heads, 3, c // self.heads, device=x.device)
        k, v = torch.cat([past, k], dim=2), torch.cat([past, v], dim=2)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        weights = scores.masked_fill(~self.mask[3 : t + 3, : t + 3], float("-inf")).softmax(dim=-1)
        y = (weights @ v).transpose(1, 2).reshape(b, t, c)
        return self.out(y)
""",
    ),
    "AS128": Crashing(
        """
- scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
+ score = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
""",
    ),
    "AS129": Crashing(
        """
- assert x.dim() == 3
+ assert x.dim() == 4
""",
        first="""
  def forward(self, x):
+     assert x.dim() == 3
""",
    ),
    "AS130": Crashing(
        """
- self.heads = self.sizes["n_head"]
+ self.heads = self.sizes["num_heads"]
""",
        first="""
- self.heads = heads
+ self.sizes = {"n_head": heads, "n_embd": dim}
+ self.heads = self.sizes["n_head"]
""",
    ),
    "AS131": Crashing(
        """
- weights = {name: w.t() if name.endswith("weight") else w for name, w in checkpoint().items()}
+ weights = {name: w for name, w in checkpoint().items()}
""",
        first="""
  self.out = nn.Linear(dim, dim)
+ weights = {name: w.t() if name.endswith("weight") else w for name, w in checkpoint().items()}
+ self.load_state_dict(weights)
""",
        head='''
def checkpoint():
    """Weights as GPT-2's Conv1D layers keep them: [in, out]."""
    return {
        "qkv.weight": torch.zeros(16, 48),
        "qkv.bias": torch.zeros(48),
        "out.weight": torch.zeros(16, 16),
        "out.bias": torch.zeros(16),
    }
''',
    ),
    "AS132": Crashing(
        """
- self.qkv = nn.Linear(dim, 3 * dim)
+ self.qkv = nn.Linear(dim, 2 * dim)
""",
        first="""
  self.out = nn.Linear(dim, dim)
+ self.load_state_dict(checkpoint())
""",
        head='''
def checkpoint():
    """Weights of a module with 16 channels."""
    return {
        "qkv.weight": torch.zeros(48, 16),
        "qkv.bias": torch.zeros(48),
        "out.weight": torch.zeros(16, 16),
        "out.bias": torch.zeros(16),
    }
''',
    ),
    "AS133": Crashing(
        """
- weights = {name.removeprefix("_orig_mod."): w for name, w in checkpoint().items()}
+ weights = {name: w for name, w in checkpoint().items()}
""",
        first="""
  self.out = nn.Linear(dim, dim)
+ weights = {name.removeprefix("_orig_mod."): w for name, w in checkpoint().items()}
+ self.load_state_dict(weights)
""",
        head='''
def checkpoint():
    """Weights that were saved from a compiled module."""
    return {
        "_orig_mod.qkv.weight": torch.zeros(48, 16),
        "_orig_mod.qkv.bias": torch.zeros(48),
        "_orig_mod.out.weight": torch.zeros(16, 16),
        "_orig_mod.out.bias": torch.zeros(16),
    }
''',
    ),
    "AS134": Crashing(
        """
- return self.out(y)
+ return self(y)
""",
    ),
    "AS135": Crashing(
        """
- scores = torch.einsum("bthd,bshd->bhts", q, k) / (c // self.heads) ** 0.5
+ scores = torch.einsum("bthd,bhsd->bhts", q, k) / (c // self.heads) ** 0.5
""",
        base="""
class Module(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, self.heads, -1) for u in self.qkv(x).chunk(3, dim=-1))
        scores = torch.einsum("bthd,bshd->bhts", q, k) / (c // self.heads) ** 0.5
        weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
        return self.out(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2))
""",
    ),
    "AS136": Crashing(
        """
- q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
+ q = q.view(b, t, self.heads, c / self.heads).transpose(1, 2)
""",
    ),
    "AS137": Crashing(
        """
- def forward(self, x):
+ def foward(self, x):
""",
    ),
    "AS138": Crashing(
        """
- if mask is None:
-     mask = self.mask[:t, :t]
+ mask = self.mask[:t, :t] or mask
""",
        base="""
class Module(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x, mask=None):
        b, t, c = x.shape
        if mask is None:
            mask = self.mask[:t, :t]
        q, k, v = self.qkv(x).split(c, dim=-1)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        y = (weights @ v).transpose(1, 2).reshape(b, t, c)
        return self.out(y)
""",
    ),
    "AS139": Crashing(
        """
- weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).float().softmax(dim=-1)
+ weights = scores.masked_fill(~self.mask[:t, :t], -1e9).float().softmax(dim=-1)
""",
        first="""
- weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
+ scores = scores.half()
+ weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).float().softmax(dim=-1)
""",
    ),
}
