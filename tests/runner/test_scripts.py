"""Scripts with modules: results bit for bit, other people's tracebacks, warnings; and the explained crash."""

from __future__ import annotations

import json

from tests.runner.script_process import Runner

UNCHANGED = """
import os
os.environ["OMP_NUM_THREADS"] = "3"
import sys, threading, traceback
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
print("threads", torch.get_num_threads())
torch.set_num_threads(1)
def bits(t): return [v.hex() for v in t.detach().flatten()[:4].tolist()]
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
    def forward(self, x):
        return F.softmax(self.l(x).view(-1, 4)) + 1  # warns: no dim
torch.manual_seed(0)
m, x = Layer(), torch.randn(3, 4)
for _ in range(2):
    print(bits(m(x)))
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
class Encode(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = encoder
        self.a = nn.MultiheadAttention(16, 4, batch_first=True)
    def forward(self, x):
        return self.a(self.e(x), x, x)[0]
y = torch.randn(2, 5, 16)
whole = Encode().eval()
with torch.no_grad():
    print("fused", bits(encoder(y)), bits(whole(y)))
with torch.autocast("cpu", torch.bfloat16):
    print("autocast", bits(whole.train()(y).float()))
class Again(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.d = Layer(), nn.Dropout(0.5)
    def forward(self, x):
        return checkpoint(lambda y: self.d(self.l(y)), x, use_reentrant=False)
again = Again()
again(x.clone().requires_grad_()).sum().backward()
print("checkpoint", bits(again.l.l.weight.grad))
class Matmul(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = Layer()
    def forward(self, x):
        return self.l(x) @ torch.ones(3, 3)
class Norm(nn.Module):
    def forward(self, x):
        return F.layer_norm(x, (7,))
class Split(nn.Module):
    def forward(self, x):
        return x.split([1, 1], dim=1)
for bad in (Matmul(), nn.Sequential(Norm()), Split()):
    try:
        bad(x)
    except RuntimeError:
        traceback.print_exc()
print("scripted", bits(nn.Sequential(torch.jit.script(nn.Linear(4, 4)))(x)))
class Generate(nn.Module):
    def forward(self, x):
        yield m(x)
print("generator", [bits(v) for v in Generate()(x)])
results = []
threads = [threading.Thread(target=lambda: results.append(bits(m(x)))) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
print("threads", results)
print("limit", sys.getrecursionlimit())
class Deep(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return self.inner(x)
deep = nn.Identity()
for _ in range(240):
    deep = Deep(deep)
print("deep", bits(deep(x)))
print("vmap", torch.func.vmap(m)(x.expand(2, 3, 4)).shape)
"""

CRASH = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 2
    def __getitem__(self, i): return torch.full((6, 16), float(i))
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)))
    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        att = q @ k.transpose(1, 2)
        return att.masked_fill(self.bias[:T, :T] == 0, float("-inf")) @ v
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Attention()
    def forward(self, x):
        return x + self.attn(x)
if __name__ == "__main__":
    for batch in DataLoader(Data(), num_workers=1, multiprocessing_context=sys.argv[1]):
        print("batch", tuple(batch.shape))
        try:
            Block()(batch)
        except AttributeError as error:
            raise RuntimeError("training failed") from error
"""


def test_a_script_with_modules_is_unchanged(runner: Runner) -> None:
    runner.write("script.py", UNCHANGED)
    plain, scoped = runner.plain("script.py"), runner.scoped("script.py")
    assert plain.code == 0, plain.err
    assert scoped == plain


def test_a_crash_is_explained_before_the_traceback(runner: Runner) -> None:
    runner.write("script.py", CRASH)
    plain = runner.plain("script.py", "fork")
    scoped = runner.scoped("script.py", "fork")
    assert (scoped.code, scoped.out) == (plain.code, plain.out) == (1, "batch (1, 6, 16)\n")
    assert scoped.err.endswith("\n\n" + plain.err)
    said = scoped.err.removesuffix(plain.err)
    assert "error[AS101]: `Attention` has no attribute `bias`" in said
    assert "--> script.py:18:32" in said
    assert "linear  qkv: C 16" in said


def test_a_report_in_a_file(runner: Runner) -> None:
    runner.write("script.py", CRASH)
    plain = runner.plain("script.py", "spawn")
    scoped = runner.scoped("--output", "report.json", "script.py", "spawn")
    assert scoped == plain
    report = json.loads((runner.folder / "report.json").read_text())
    assert (report["schema"], report["command"], report["exit_code"]) == ("attnscope/1", "run", 1)
    assert report["exception"]["type"] == "AttributeError"
    assert [finding["code"] for finding in report["findings"]] == ["AS101"]
    assert [step["op"] for step in report["trace"]["steps"]] == ["linear", "split", "transpose", "matmul"]
    assert {step["module"] for step in report["trace"]["steps"]} == {"attn"}


def test_nan_and_attention(runner: Runner) -> None:
    runner.write(
        "script.py",
        "import torch, torch.nn.functional as F\nfrom torch import nn\n"
        "class A(nn.Module):\n"
        "    def forward(self, x, blocked):\n"
        "        scores = x @ x.transpose(1, 2)\n"
        "        scores = scores.masked_fill(blocked, float('-inf'))\n"
        "        return F.softmax(scores, dim=-1) @ x\n"
        "x = torch.ones(1, 3, 4)\n"
        "print(A()(x, torch.ones(3, 3).triu(1) == 1).sum().item())\n"
        "print(A()(x, torch.ones(3, 3).triu(0) == 1).isnan().any().item())\n",
    )
    ran = runner.scoped("--nan", "--attention", "script.py")
    assert (ran.code, ran.out) == (1, "12.0\n")
    assert "0  1.00    ·    ·" in ran.err
    assert "2  0.33 0.33 0.33" in ran.err
    assert "error: `softmax` makes nan out of inputs that have none" in ran.err
    assert "1 of 3 rows are -inf throughout" in ran.err
    assert "= help: let every query attend to at least one key" in ran.err
    assert "Traceback" not in ran.err
    plain = runner.scoped("script.py")
    assert (plain.code, plain.out, plain.err) == (0, "12.0\nTrue\n", "")
