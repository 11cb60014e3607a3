"""What the source of a class or a function says, read from its AST."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from attnscope.crashes.frames import Function
from attnscope.source import SourceFile

REGISTER = ("register_buffer", "register_parameter", "register_module", "add_module")


@dataclass(frozen=True, eq=False)
class Setting:
    """A place that gives an attribute its value: `self.x = …` or `self.register_buffer("x", …)`."""

    name: str
    node: ast.AST
    value: ast.expr | None
    function: Function
    registered: bool
    target: ast.AST


def own_walk(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function in source order, without those of functions and classes inside it."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        yield child
        yield from own_walk(child)


def methods(klass: ast.ClassDef) -> Iterator[Function]:
    for item in klass.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            yield item


def self_name(function: Function) -> str:
    arguments = [*function.args.posonlyargs, *function.args.args]
    return arguments[0].arg if arguments else "self"


def settings(klass: ast.ClassDef) -> list[Setting]:
    """Every place of the class's own methods that sets an attribute of `self`."""
    found: list[Setting] = []
    for function in methods(klass):
        me = self_name(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    found += _targets(target, node.value, node, function, me)
            elif isinstance(node, ast.AnnAssign | ast.AugAssign):
                found += _targets(node.target, node.value, node, function, me)
            elif isinstance(node, ast.For):
                found += _targets(node.target, None, node, function, me)
            elif isinstance(node, ast.Call):
                one = _registered(node, function, me)
                if one is not None:
                    found.append(one)
    return found


def _targets(
    target: ast.expr, value: ast.expr | None, node: ast.AST, function: Function, me: str
) -> list[Setting]:
    if isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        same = len(parts) == len(target.elts)
        found = []
        for index, item in enumerate(target.elts):
            found += _targets(item, parts[index] if same else value, node, function, me)
        return found
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == me:
        return [Setting(target.attr, node, value, function, False, target)]
    return []


def _registered(node: ast.Call, function: Function, me: str) -> Setting | None:
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in REGISTER:
        name = node.args[0] if node.args else _keyword(node, "name")
        value = node.args[1] if len(node.args) > 1 else (_keyword(node, "tensor") or _keyword(node, "param"))
    elif isinstance(called, ast.Name) and called.id == "setattr" and len(node.args) == 3:
        name, value = node.args[1], node.args[2]
    else:
        return None
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        return Setting(name.value, node, value, function, called_register(called), name)
    return None


def called_register(called: ast.expr) -> bool:
    return isinstance(called, ast.Attribute)


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((word.value for word in node.keywords if word.arg == name), None)


def reads(klass: ast.ClassDef) -> dict[str, list[ast.Attribute]]:
    """Attribute name → the places outside the constructor that read it from `self`."""
    found: dict[str, list[ast.Attribute]] = {}
    for function in methods(klass):
        me = self_name(function)
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Load)
                and isinstance(node.value, ast.Name)
                and node.value.id == me
                and function.name != "__init__"
            ):
                found.setdefault(node.attr, []).append(node)
    return found


def guards(file: SourceFile, node: ast.AST) -> list[ast.stmt]:
    """The `if`, loop, `try` and `with` statements that decide whether `node` runs, innermost first."""
    found: list[ast.stmt] = []
    for parent in file.ancestors(node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            break
        if isinstance(parent, ast.If | ast.For | ast.While | ast.Try | ast.With):
            found.append(parent)
    return found


def is_before(left: ast.AST, right: ast.AST) -> bool:
    """Whether `left` ends before `right` begins."""
    end = (getattr(left, "end_lineno", 0) or 0, getattr(left, "end_col_offset", 0) or 0)
    return end <= (getattr(right, "lineno", 0), getattr(right, "col_offset", 0))


def is_init_call(node: ast.AST) -> bool:
    """`super().__init__(…)` or `nn.Module.__init__(self)`."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__"
    )


def nearness(left: str, right: str) -> float:
    """How alike two names are, 0 to 1: letters, and words between underscores."""
    a, b = left.lower().strip("_"), right.lower().strip("_")
    if not a or not b:
        return 0.0
    if a.replace("_", "") == b.replace("_", ""):
        return 1.0
    ratio = difflib.SequenceMatcher(None, a, b).ratio()
    words_a, words_b = set(a.split("_")), set(b.split("_"))
    shared = len(words_a & words_b) / len(words_a | words_b)
    synonyms = max((_synonyms(x, y) for x in (a, *words_a) for y in (b, *words_b)), default=0.0)
    return max(ratio, 0.4 + 0.5 * shared if shared else 0.0, synonyms)


_SAME = (
    {"h", "n_head", "n_heads", "num_heads", "nheads", "heads", "head", "nhead", "num_attention_heads", "n_h"},
    {"d", "n_embd", "d_model", "dim", "embed_dim", "hidden_size", "width", "emb_dim", "hidden", "embd", "c"},
    {"mask", "bias", "tril", "causal_mask", "attn_mask", "causal", "keep", "look_back", "triu", "allowed"},
    {"block_size", "context_length", "max_len", "ctx", "t", "window", "max_seq_len", "seq_len", "n_ctx"},
    {"head_dim", "head_size", "hd", "d_head", "d_k", "dk", "hs", "dim_head", "head_width"},
    {"proj", "out_proj", "c_proj", "o_proj", "to_out", "wo", "out", "w_o", "proj_out", "merge", "o"},
    {"n_kv_heads", "num_kv_heads", "kv_heads", "n_kv_head", "num_key_value_heads", "n_local_kv_heads"},
    {"q", "wq", "q_proj", "query", "w_query", "w_q", "to_q", "queries"},
    {"k", "wk", "k_proj", "key", "w_key", "w_k", "to_k", "keys"},
    {"v", "wv", "v_proj", "value", "w_value", "w_v", "to_v", "values"},
    {"qkv", "c_attn", "in_proj", "to_qkv", "qkv_proj", "wqkv", "packed", "w_qkv", "w_in"},
    {"dropout", "drop", "attn_drop", "attn_dropout", "p", "attention_dropout"},
    {"scale", "scaling", "softmax_scale", "inv_sqrt", "factor"},
)


def _synonyms(left: str, right: str) -> float:
    """0.7 where the field uses both names for one thing."""
    return 0.7 if left != right and any(left in names and right in names for names in _SAME) else 0.0
