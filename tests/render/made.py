"""Hand-made results: what the drawings are pinned with. Nothing here runs a module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attnscope.diagnostic import Diagnostic, Label, Report, Tried
from attnscope.schema import (
    Attention,
    LayerInfo,
    Mask,
    MaskOrigin,
    ModelInfo,
    Output,
    Span,
    Step,
    TensorInfo,
    Token,
    Trace,
)

HERE = Path(__file__).parent
SOURCE = "attention.py"
PIECES = ("Your", "·journey", "·starts", "·with", "·one", "·step")


def tokens(pieces: Sequence[str] = PIECES) -> tuple[Token, ...]:
    return tuple(
        Token(place, 7120 + 13 * place, piece, piece.replace("·", " ").encode("utf-8", "backslashreplace"))
        for place, piece in enumerate(pieces)
    )


def info(text: str, stride: Sequence[int] | None = None, dtype: str = "float32") -> TensorInfo:
    """`B 1, T 6, 16` as a TensorInfo; contiguous unless another stride is given."""
    names: list[str | None] = []
    shape: list[int] = []
    for part in filter(None, text.split(", ")):
        name, _, size = part.rpartition(" ")
        names.append(name or None)
        shape.append(int(size))
    whole = [1]
    for count in reversed(shape[1:]):
        whole.insert(0, whole[0] * count)
    straight = tuple(whole[: len(shape)])
    given = straight if stride is None else tuple(stride)
    return TensorInfo(tuple(shape), tuple(names), dtype, given, given == straight)


class Steps:
    """Steps in the order in which they are added, numbered, spans found in the source text."""

    def __init__(self, file: str = SOURCE, module: str = "") -> None:
        self.file, self.module, self.steps = file, module, list[Step]()

    def add(
        self,
        line: int,
        op: str,
        detail: str,
        variable: str | None,
        outputs: Sequence[TensorInfo],
        memory: str = "new",
        inputs: Sequence[TensorInfo] = (),
        since: int | None = None,
        error: str | None = None,
        inner: bool = False,
    ) -> int:
        span = Span(self.file, line, 9, line, 20)
        index = len(self.steps)
        self.steps.append(
            Step(
                index,
                self.module,
                op,
                detail,
                variable,
                span,
                tuple(inputs),
                tuple(outputs),
                memory,  # type: ignore[arg-type]
                since,
                inner,
                error,
            )
        )
        return index


def forward_steps(
    file: str = SOURCE, module: str = "", fails: bool = False, into: Steps | None = None
) -> Steps:
    """The steps of `source/attention.py` for B 1, T 6, C 16, H 2; with `fails`, its last `view` raises."""
    s = Steps() if into is None else into
    s.module = module
    s.add(14, "linear", "C 16 → 3C 48", None, [info("B 1, T 6, 3C 48")], inputs=[info("B 1, T 6, C 16")])
    third = info("B 1, T 6, C 16", (288, 48, 1))
    split = s.add(14, "split", "3C → C, C, C", "q, k, v", [third, third, third], "view")
    apart = info("B 1, T 6, H 2, D 8", (288, 48, 8, 1))
    swapped = info("B 1, H 2, T 6, D 8", (288, 8, 48, 1))
    for line, name in ((15, "q"), (16, "k"), (17, "v")):
        s.add(line, "view", "C 16 → H 2 × D 8", None, [apart], "view", since=split)
        s.add(line, "transpose", "T ↔ H", name, [swapped], "view", since=split)
    turned = len(s.steps)
    s.add(18, "transpose", "T ↔ D", None, [info("B 1, H 2, D 8, S 6", (288, 8, 1, 48))], "view", since=split)
    s.add(18, "matmul", "[… T D] @ [… D S] → [… T S]", None, [info("B 1, H 2, T 6, S 6")])
    s.add(18, "mul", "× 0.3536", "att", [info("B 1, H 2, T 6, S 6")])
    s.add(
        19,
        "getitem",
        "mask [:T, :T]  [8, 8] → [T 6, S 6]",
        None,
        [info("T 6, S 6", (8, 1))],
        "view",
        since=turned + 3,
    )
    s.add(19, "eq", "== 0", None, [info("T 6, S 6", dtype="bool")])
    s.add(19, "masked_fill", "-inf where mask [T 6, S 6] is True", "att", [info("B 1, H 2, T 6, S 6")])
    s.add(20, "softmax", "over S", "att", [info("B 1, H 2, T 6, S 6")])
    s.add(21, "matmul", "[… T S] @ [… S D] → [… T D]", "y", [info("B 1, H 2, T 6, D 8")])
    back = len(s.steps)
    s.add(22, "transpose", "H ↔ T", None, [info("B 1, T 6, H 2, D 8", (96, 8, 48, 1))], "view", since=back)
    given = [info("B 1, T 6, H 2, D 8", (96, 8, 48, 1))]
    if fails:
        message = "view size is not compatible with input tensor's size and stride\nUse .reshape(...)."
        s.add(22, "view", "", "y", [], "view", inputs=given, error=message)
    else:
        s.add(22, "reshape", "H 2 × D 8 → C 16", "y", [info("B 1, T 6, C 16")], "copy", inputs=given)
    return s


def causal_weights(batch: int, heads: int, queries: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(batch, heads, queries, queries)) * 1.5
    scores = np.where(np.tril(np.ones((queries, queries), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def attention(module: str = "", heads: int = 2, queries: int = 6, seed: int = 0, batch: int = 1) -> Attention:
    return Attention(
        module=module,
        source="softmax",
        step=13,
        heads=heads,
        shape=(batch, heads, queries, queries),
        mask=np.tril(np.ones((1, queries, queries), bool)),
        mask_origin=MaskOrigin("buffer", "mask", SOURCE, 19),
        weights=causal_weights(batch, heads, queries, seed),
    )


def model(**changes: object) -> ModelInfo:
    fields: dict[str, object] = {
        "layer": "multihead",
        "target": None,
        "config": {"d_model": 16, "d_out": 16, "heads": 2, "context": 8, "dropout": 0.0, "qkv_bias": False},
        "seed": 123,
        "weights": "random",
        "parameters": 1040,
    }
    return ModelInfo(**{**fields, **changes})  # type: ignore[arg-type]


def trace(steps: Sequence[Step] | None = None, attentions: Sequence[Attention] | None = None) -> Trace:
    some = tuple(forward_steps().steps if steps is None else steps)
    found = (attention(),) if attentions is None else tuple(attentions)
    return Trace(
        model=model(),
        tokens=tokens(),
        output=Output(info("B 1, T 6, C 16"), None),
        steps=some,
        attention=found,
    )


def mask(queries: int, keys: int | None = None, kind: str = "causal") -> Mask:
    keys = queries if keys is None else keys
    allowed = np.tril(np.ones((queries, keys), bool), keys - queries)
    lines = {
        "allowed": f"torch.ones({queries}, {keys}, dtype=torch.bool).tril()",
        "blocked": f"torch.ones({queries}, {keys}, dtype=torch.bool).triu(1)",
        "additive": f"torch.zeros({queries}, {keys}).masked_fill("
        f'torch.ones({queries}, {keys}, dtype=torch.bool).triu(1), float("-inf"))',
    }
    return Mask(kind, allowed, {"length": keys, "queries": queries, "offset": keys - queries}, lines)


BUG = Diagnostic(
    code="AS101",
    severity="error",
    message="`CausalAttention` has no attribute `bias`",
    span=Span("bug.py", 46, 31, 46, 40),
    label="read here, before `att` [B 1, H 2, T 6, S 6] can be masked",
    labels=(
        Label(Span("bug.py", 30, 30, 30, 36), "`mask` [1, 1, 1024, 1024] is registered here and never read"),
    ),
    help="read `self.mask[:, :, :T, :T]`",
)

FUTURE = Diagnostic(
    code="AS201",
    severity="warning",
    message="queries look into the future",
    span=Span(SOURCE, 20, 15, 20, 34),
    notes=("changing token 5 changed the outputs of queries 0 to 4",),
    help="mask the scores before the softmax",
    evidence=(("query", "weight on the future", "allowed"), ("0", "0.81", "0"), ("1", "0.62", "0")),
)


def report() -> Report:
    tried = (
        Tried("construct", "1,040 parameters", True),
        Tried("future", "6 of 15 pairs leak", False),
        Tried("state_dict", "2 entries came back equal", True),
    )
    return Report("attention.py:CausalAttention", (FUTURE,), tried, notes=("half types were not tried",))


LAYERS = (
    LayerInfo(
        "causal",
        "one causal head",
        "Vaswani et al. 2017, arXiv 1706.03762",
        ("--d-model", "--d-out", "--context", "--dropout", "--qkv-bias", "--seed"),
        (("W_query.weight", "[d_out, d_model]"), ("mask", "[context, context]")),
        "x → q, k, v → q @ kᵀ → mask → softmax → @ v",
    ),
)
