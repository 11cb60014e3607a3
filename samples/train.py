"""A small training script: `attnscope run samples/train.py` explains why it crashes.

With `--mended` it trains the corrected module, a few steps on random numbers, and prints the loss.
"""

import sys

import torch

if "--mended" in sys.argv:
    from nanogpt_mended import CausalSelfAttention, GPTConfig
else:
    from nanogpt_bug import CausalSelfAttention, GPTConfig

torch.manual_seed(0)
model = CausalSelfAttention(GPTConfig())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

# The target of each token is the mean of the tokens up to it: what causal attention can learn.
for _ in range(20):
    x = torch.randn(4, 8, 16)
    target = x.cumsum(dim=1) / torch.arange(1, 9).view(8, 1)
    loss = (model(x) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
