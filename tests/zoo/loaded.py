"""Targets in files of users: what the loader says that it guessed, and what is then found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILES = Path(__file__).parent / "files"


@dataclass(frozen=True)
class Loaded:
    """`guesses` of the call, in the loader's words; whether the call is causal; code and severity found.

    `needs` names a package that must be installed.
    """

    guesses: str
    causal: bool | None
    found: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""


_ALLOWED = "bool, True = may attend"
_ADDED = "[T, T] float, added: 0 = may attend, -inf = blocked"
LOADED = {
    "gpt_dataclass.py:CausalSelfAttention": Loaded("x=[B 2, T 7, C 768]", True),
    "gpt_dataclass.py:TinyGPT": Loaded("idx=[B 2, T 7] token ids", True),
    "cfgnode.py:SelfAttention": Loaded("x=[B 2, T 7, C 24]", True),
    "llama_like.py:Attention": Loaded(
        f"x=[B 2, T 7, C 24], start_pos=0, freqs_cis=complex [T, 4], mask: {_ADDED}", True
    ),
    "gemma_like.py:FamilyAttention": Loaded(
        "hidden_states=[B 2, T 7, C 48], freqs_cis=complex [T, 4], "
        f"kv_write_indices=[T 7], kv_cache=(k, v) zeros [B, T, G, D], mask: {_ADDED}",
        True,
    ),
    "whisper_like.py:MultiHead": Loaded(f"x=[B 2, T 7, C 24], mask: {_ADDED}", True),
    "annotated_like.py:MultiHeadedAttention": Loaded(
        f"query=[B 2, T 7, C 24], key=query, value=query, mask: [1, T, T] {_ALLOWED}", True
    ),
    "annotated_like.py:Residual": Loaded(f"x=[B 2, T 7, C 24], mask: [1, T, T] {_ALLOWED}", True),
    "train_script.py:Head": Loaded("x=[B 2, T 7, C 24]", True),
    "train_script.py:MultiHeadAttention": Loaded("x=[B 2, T 7, C 24]", True),
    "train_script.py:LanguageModel": Loaded("idx=[B 2, T 7] token ids", True),
    "einops_like.py:CrossAttention": Loaded("x=[B 2, T 7, C 512]", False, {"AS201": "note"}, needs="einops"),
    "fairseq_like.py:MultiheadAttention": Loaded(
        f"query=[T 7, B 2, C 24], key=query, value=query, attn_mask: {_ADDED}", True
    ),
    "pkg/deep/modeling_deep.py:DeepAttention": Loaded(
        "hidden_states=[B 2, T 7, C 48], position_embeddings=(cos, sin) [1, T, 8], "
        "attention_mask: [1, 1, T, T] float, added: 0 = may attend, -inf = blocked",
        True,
    ),
    "pkg/deep/modeling_deep.py:DeepModel": Loaded(
        "hidden_states=[B 2, T 7, C 48], position_embeddings=(cos, sin) [1, T, 8]", False, {"AS201": "note"}
    ),
    "shapes.py:SeqFirst": Loaded("x=[T 7, B 2, C 24]", False, {"AS201": "note"}),
    "shapes.py:Unbatched": Loaded("x=[T 7, C 24]", False, {"AS208": "error", "AS201": "note"}),
    "shapes.py:Heads": Loaded(f"q=[B 2, H 3, T 7, D 8], k like q, v like q, mask: [T, T] {_ALLOWED}", True),
    "shapes.py:Cross": Loaded(
        "x=[B 2, T 7, C 24], memory=[B 2, S 5, C 24], memory_mask: [B, S] bool, True = blocked",
        False,
        {"AS208": "error"},
    ),
    "shapes.py:Patches": Loaded("img=[B 2, C 3, 24, 24]", None),
    "shapes.py:Vision": Loaded("img=[B 2, C 3, 16, 16]", None),
    "translators.py:EncoderLayer": Loaded(f"x=[B 2, T 7, C 32], mask: [1, T, T] {_ALLOWED}", True),
    "translators.py:Encoder": Loaded(f"x=[B 2, T 7, C 32], mask: [1, T, T] {_ALLOWED}", True),
    "translators.py:DecoderLayer": Loaded(
        "x=[B 2, T 7, C 32], memory=[B 2, S 5, C 32], "
        f"src_mask: [B, 1, S] {_ALLOWED}, tgt_mask: [1, T, T] {_ALLOWED}",
        True,
    ),
    "translators.py:EncoderDecoder": Loaded(
        "tgt=[B 2, T 7] token ids, src=[B 2, S 5] token ids, "
        f"src_mask: [B, 1, S] {_ALLOWED}, tgt_mask: [1, T, T] {_ALLOWED}",
        True,
    ),
    "translators.py:build": Loaded(
        "tgt=[B 2, T 7] token ids, src=[B 2, S 5] token ids, "
        f"src_mask: [B, 1, S] {_ALLOWED}, tgt_mask: [1, T, T] {_ALLOWED}",
        True,
    ),
    "translators.py:Padded": Loaded("trg=[B 2, T 7] token ids, src=[B 2, S 5] token ids", None),
    "translators.py:Forecast": Loaded("target=[S 5, B 2, C 24], inputs=[T 7, B 2, C 24]", False),
}
