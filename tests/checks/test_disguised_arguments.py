"""Verdicts over arguments, buffers and attributes stand whatever these are called: two names, one verdict."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import attnscope

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(24, 24) for _ in range(3))
        self.temperature = 1.0

    def split(self, x, y=None):
        y = x if y is None else y
        pairs = ((self.q_proj, x), (self.k_proj, y), (self.v_proj, y))
        return [p(u).view(*u.shape[:2], 3, 8).transpose(1, 2) for p, u in pairs]

    def forward(self, x, ARGS):
        BODY
        return (s.softmax(-1) @ v).transpose(1, 2).flatten(2)
"""
SCORES = "q, k, v = self.split(x); s = q @ k.mT / 8**0.5; "

KEEP = torch.tensor([[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]])
TRIANGLE = torch.ones(7, 7).tril().bool()

# name: arguments of forward, body, what is given, then code and severity of what is found (notes too).
CASES: dict[str, tuple[str, str, tuple[Any, ...], dict[str, str]]] = {
    "keys": ("attention_mask", SCORES + "s = s.masked_fill(attention_mask[:, None, None] == 0, -1e9)",
             (KEEP,), {}),
    "keys, additive": ("attention_mask", SCORES + "s = s + (1.0 - attention_mask[:, None, None]) * -1e9",
                       (KEEP.float(),), {}),
    "queries": ("keep", SCORES + "s = s.masked_fill(~keep[:, None, :, None], -1e9)", (KEEP.bool(),),
                {"AS221": "error"}),
    "0 and 1 added": ("attention_mask", SCORES + "s = s + attention_mask[:, None, None]", (KEEP.float(),),
                      {"AS221": "error"}),
    "inverted": ("keep", SCORES + "s = s.masked_fill(keep[:, None, None], -1e9)", (KEEP.bool(),),
                 {"AS221": "note"}),
    "padding": ("pad", SCORES + "s = s.masked_fill(pad[:, None, None], -1e9)", (~KEEP.bool(),), {}),
    "thrown away": ("keep", SCORES + "s.masked_fill(~keep[:, None, None], -1e9)", (KEEP.bool(),),
                    {"AS204": "error"}),
    "not read": ("mask", SCORES, (KEEP.bool(),), {"AS204": "note"}),
    "output alone": ("mask", SCORES + "v = v * mask[:, None, :, None]", (KEEP.bool(),), {"AS221": "note"}),
    "two masks": ("mask, other", SCORES + "s = s.masked_fill(~mask, -1e9).masked_fill(~other[:, None, None],"
                  " -1e9)", (TRIANGLE, KEEP.bool()), {}),
    "memory": ("memory", "q, k, v = self.split(x, memory); s = q @ k.mT / 8**0.5", (torch.randn(2, 5, 24),),
               {}),
    "memory as long": ("memory", "q, k, v = self.split(x, memory); s = q @ k.mT / 8**0.5",
                       (torch.randn(2, 7, 24),), {}),
    "memory not read": ("memory", SCORES, (torch.randn(2, 5, 24),), {"AS204": "error"}),
    "segments": ("other", SCORES + "s = s.masked_fill(other[:, None, :, None] != other[:, None, None], -1e9)",
                 (KEEP,), {}),
    "labels": ("target", SCORES + "y = s.softmax(-1) @ v; self.loss = (y.mean((1, 3)) - target).sum().item()",
               (KEEP,), {}),
    "no scale": ("temperature", "q, k, v = self.split(x); s = q @ k.mT", (1.0,), {"AS208": "error"}),
    "unit on the way": ("temperature", "q, k, v = self.split(x); s = q @ k.mT / self.temperature", (1.0,),
                        {"AS208": "note"}),
}  # fmt: skip

NAMES = "attention_mask keep pad mask other memory target temperature q_proj k_proj v_proj split".split()


def made(arguments: str, body: str, disguised: bool) -> torch.nn.Module:
    source = HEAD.replace("ARGS", arguments).replace("BODY", body)
    if disguised:
        for number, name in enumerate(NAMES):
            source = re.sub(rf"(?<![\w.]){name}\b|(?<=self\.){name}\b", f"a{number}", source)
        source = source.replace("Attention", "Layer")
    space: dict[str, Any] = {"__name__": "case"}
    exec(compile(source, "<case>", "exec"), space)
    torch.manual_seed(0)
    module: torch.nn.Module = space["Layer" if disguised else "Attention"]()
    return module


@pytest.mark.parametrize("name", CASES)
def test_a_name_changes_nothing(name: str) -> None:
    arguments, body, given, expected = CASES[name]
    x = torch.randn(2, 7, 24, generator=torch.Generator().manual_seed(3))
    for disguised in (False, True):
        report = attnscope.check(made(arguments, body, disguised), x, *given, causal=False)
        assert {one.code: one.severity for one in report.findings} == expected, disguised


CACHED = """
import torch
from torch import nn
from torch.nn import functional as F

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(24, 72)

    def forward(self, x, bias=None, past=None, use_cache=False):
        q, k, v = (u.unflatten(-1, (3, 8)).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        seen = torch.ones(x.size(1), k.size(2), dtype=torch.bool, device=x.device).tril(START)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)
        return (y, (k, v)) if use_cache else y
"""


@pytest.mark.parametrize(("start", "found"), [("k.size(2) - x.size(1)", []), ("0", ["AS218"])])
def test_a_cache_is_found_by_trying(start: str, found: list[str]) -> None:
    x = torch.randn(2, 7, 24, generator=torch.Generator().manual_seed(3))
    for past, flag in (("past", "use_cache"), ("a3", "a4")):
        source = CACHED.replace("START", start).replace("past", past).replace("use_cache", flag)
        space: dict[str, Any] = {"__name__": "case"}
        exec(compile(source, "<case>", "exec"), space)
        report = attnscope.check(space["Layer"](), x, select=["AS218"])
        assert [one.code for one in report.findings] == found
        assert [one.name for one in report.tried if "cache" in one.name] == ["cached decoding"]
