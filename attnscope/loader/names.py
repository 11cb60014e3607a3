"""The field's usual names: what a parameter, a config field or a global called `n_embd` is likely to be.

A role is one of our axis letters or sizes (`C`, `H`, `G`, `D`, `T` for the context, `vocab`, `layers`,
`ffn` …) or says a plain value (`zero`, `false`, `eps` …). Nothing here is certain: what is guessed is said.
"""

from __future__ import annotations

import re
from typing import Any

SIZE_ROLES = ("C", "H", "G", "D", "T", "vocab", "layers", "ffn", "half_D", "C_over_H", "groups")

_EXACT: dict[str, str] = {
    "d": "C",
    "c": "C",
    "e": "C",
    "h": "H",
    "n": "H",
    "nh": "H",
    "g": "G",
    "t": "T",
    "p": "zero",
    "v": "vocab",
    "l": "layers",
    "dk": "D",
    "dv": "D",
    "d_k": "D",
    "d_v": "D",
    "d_q": "D",
    "dq": "D",
    "hs": "D",
    "hd": "D",
    "dh": "D",
    "d_h": "D",
    "head": "H",
    "heads": "H",
    "nhead": "H",
    "nheads": "H",
    "num_head": "H",
    "n_h": "H",
    "q_heads": "H",
    "n_q_heads": "H",
    "num_query_heads": "H",
    "dim": "C",
    "dims": "C",
    "width": "C",
    "size": "C",
    "features": "C",
    "units": "C",
    "channels": "C",
    "channel": "C",
    "nx": "C",
    "n_state": "C",
    "nf": "C",
    "kernel_size": "three",
    "stride": "one",
    "padding": "no_padding",
    "dilation": "one",
    "kdim": "none",
    "vdim": "none",
    "q_dim": "C",
    "window": "T",
    "ctx": "T",
    "context": "T",
    "block": "T",
    "base": "theta",
    "theta": "theta",
    "eps": "eps",
    "epsilon": "eps",
    "bias": "true",
    "scale": "none",
    "causal": "true",
    "is_causal": "true",
    "device": "device",
    "dtype": "dtype",
    "idx": "index",
    "layer": "index",
    "depth": "layers",
    "multiple_of": "multiple",
    "ffn_dim_multiplier": "none",
    "max_batch_size": "batch",
    "batch_size": "batch",
    "bsz": "batch",
    "vocab": "vocab",
    "act": "act",
    "activation": "act",
    "attention_type": "none",
    "attn_type": "none",
    "pretraining_tp": "one",
    "tensor_parallel_size": "one",
    "world_size": "one",
    "tp": "one",
    "n_inner": "none",
    "expansion": "four",
    "mult": "four",
    "query_pre_attn_scalar": "D",
    "model_type": "none",
    "qk_norm": "false",
    "normalize_before": "true",
    "in_chans": "three",
    "in_channels": "C",
    "out_channels": "C",
    "num_classes": "ten",
    "num_labels": "ten",
    "attn_implementation": "eager",
    "_attn_implementation": "eager",
    "norm_layer": "none",
    "num_groups": "G",
    "layer_types": "layer_types",
    "rope_parameters": "rope_parameters",
    "partial_rotary_factor": "onef",
    "rotary_pct": "onef",
    "rotary_percentage": "onef",
    "rotary_dim": "D",
    "rotary_ndims": "D",
    "rope_n_elem": "D",
    "rope_dim": "D",
    "parallel_residual": "true",
}

_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        (r"drop|(^|_)p$|_prob$|path_rate", "zero"),
        (r"kernel_size$", "three"),
        (
            r"(^|_)(pad(ding)?|sos|bos|eos|eot|unk|cls|sep|start|end|mask)(_tok(en)?)?_?(idx|id|ix|index)s?$",
            "mark",
        ),
        (r"^(src_|trg_|tgt_)?pad$", "mark"),
        (r"sliding|_indices$", "none"),
        (r"eps(ilon)?$|(^|_)eps", "eps"),
        (r"theta|rope_base|rope_freq|freq_base|rotary_.*base", "theta"),
        (r"(layer|block)_?(idx|id|index|num(ber)?|i)$", "index"),
        (r"^(use|is|has|enable|with|add|return|output|do|should|apply)_", "false"),
        (r"_(enabled|flag|only)$|^flash|flash$|_flash_", "false"),
        (r"bias$|_bias", "false"),
        (
            r"(kv|key_value|kv_?groups?|query_groups?|kv_).*heads?|n_?kv|num_kv|kv_?heads?|(num|n)_(query|kv|kv_)?_?groups",
            "G",
        ),
        (r"multi_query_group", "G"),
        (
            r"head.*(dim|size|width|feat|chan)|dim_(per_)?head|d_head|(dim|size|channels).*per_head|kv_channels|key_dim|value_dim|head_d$|^d_(key|value|kv|qk)|qk_dim|v_dim|dim_(key|k|v|q)$",
            "D",
        ),
        (r"lora_rank|rank$", "D"),
        (
            r"n_?heads?$|(num|n|att|attn|attention|encoder|decoder|q|query|multi|self|enc|dec).*heads?$|heads?$|^heads|attn_heads|num_heads|heads_num|head_(num|count)|n_attention",
            "H",
        ),
        (
            r"intermediate|ffn|ffw|feed_?forward|d_ff|ff_dim|^ff|mlp_(dim|hidden|size|width)|d_inner|inner_dim|hidden_features|d_hid$|dim_ff|fc_dim",
            "ffn",
        ),
        (r"(mlp|expansion|ffn?)_?(ratio|mult|factor)", "fourf"),
        (r"n_?layers?$|(num|n)_.*layers?$|(num|n)_.*blocks?$|_layers$|_depth$", "layers"),
        (r"vocab|(^|_)voc(_|$)|num_tokens|n_?tokens?$|num_embeddings|token_size|dict_size", "vocab"),
        (
            r"block_?size|context|ctx|(max|seq).*(len|pos|tok|seq|size)|(len|length)$|n_?positions?|num_?positions?|maxlen|^max_t|max_position|window|n_seq|num_patches|seq_?len|^len|length",
            "T",
        ),
        (r"(img|image|input)_?(size|res)|spa[ct]ial_?(dim|size|res)", "image"),
        (r"patch", "patch"),
        (r"scaling|softcap|window|alibi|clip|_quant|quant", "none"),
        (r"initializer|std$|init_", "std"),
        (r"ratio|factor|multiplier|_mult$|alpha|gamma|temperature|temp$", "onef"),
        (r"_type$|_name$|_impl(ementation)?$|_mode$|^mode$|_path$|^name$|^type$", "none"),
        (r"act(ivation)?(_fn|_func|_function|_type)?$|hidden_act", "act"),
        (r"norm(alization)?$|_norm$", "false"),
        (
            r"d_?model|n_?embd|hidden|embed|emb|dim|width|channels|model_(size|dim)|n_?state|features|d_(in|out|q|query|context)|size$|units|inner|planes",
            "C",
        ),
        (r"^d_|_d$", "C"),
        (r"(^|_)(n|num)(_|$)", "two"),
    )
)

_PLAIN: dict[str, Any] = {
    "mark": 0,
    "zero": 0.0,
    "false": False,
    "true": True,
    "none": None,
    "index": 0,
    "eps": 1e-5,
    "theta": 10000.0,
    "act": "gelu",
    "one": 1,
    "no_padding": 0,
    "onef": 1.0,
    "two": 2,
    "three": 3,
    "four": 4,
    "fourf": 4.0,
    "ten": 10,
    "std": 0.02,
    "multiple": 8,
    "eager": "eager",
    "image": 16,
    "patch": 4,
    "batch": 4,
}


def normal(name: str) -> str:
    """Lower case, camel case split, no leading underscore."""
    if name.startswith("_") and name in _EXACT:
        return name
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name) if not name.isupper() else name
    return split.lower().strip("_")


def role_of(name: str) -> str | None:
    """The role that a name has by custom, or None."""
    key = normal(name)
    if key in _EXACT:
        return _EXACT[key]
    return next((role for pattern, role in _RULES if pattern.search(key)), None)


def is_size(role: str | None) -> bool:
    """True for roles whose value is one of the sizes that must fit each other."""
    return role in SIZE_ROLES


def plain_value(role: str | None) -> Any:
    """The value of a role that is no size; None for what is not known."""
    if role == "device":
        return "cpu"
    if role == "dtype":
        import torch

        return torch.float32
    if role == "layer_types":
        return ["full_attention"] * 4
    if role == "rope_parameters":
        return {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
    return _PLAIN.get(role or "none")


def usual_value(name: str) -> Any:
    """A value for a lone name (a global that only running the script would have made)."""
    from attnscope.loader.sizes import solve

    role = role_of(name)
    return solve({}).value(role) if is_size(role) else plain_value(role)


_CONFIG = re.compile(
    r"^(model_?)?(config|cfg|conf|args?|hparams?|params?|opts?|options|settings|c)$|_?(config|cfg|args|hparams)$"
)


def is_config_name(name: str) -> bool:
    """Names under which a constructor takes its settings as one object."""
    return bool(_CONFIG.search(normal(name)))
