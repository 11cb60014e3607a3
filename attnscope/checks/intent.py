"""Is causal attention meant? What a module's own source, flags and buffers say of it."""

from __future__ import annotations

import inspect
import io
import re
import tokenize
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from attnscope.checks.subject import parts

if TYPE_CHECKING:
    from attnscope.checks.lab import Lab

_MAKES = re.compile(r"\btril|\btriu|tril_indices|triu_indices|generate_square_subsequent_mask")
_NAMES = re.compile(
    r"causal|autoregress|look_?ahead|subsequent|no_peek|(^|_)future|decoder_?only|unidirectional", re.I
)
_CLASSES = re.compile(r"causal|GPT(?!Neo)|Autoregressive|Decoder(?!.*Cross)|MaskedSelf|MaskedMulti|MaskedAtt")


def evidence(lab: Lab) -> str:
    """One clause that says what shows that causal attention is meant; empty where nothing does."""
    module = lab.subject.module
    said = []
    for argument, value in lab.subject.arguments.items():
        if isinstance(value, Tensor) and argument not in lab.subject.guessed and is_triangle(value):
            said.append(f"the argument `{argument}` holds a triangle")
    for path, part in parts(module):
        if type(part).__module__.startswith("torch.nn"):
            continue
        flag = _flag(part)
        if flag is False:
            return ""
        name = type(part).__name__
        if flag is True:
            said.append(f"`{name}` has a flag that says causal")
        if _CLASSES.search(name):
            said.append(f"the class is called `{name}`")
        buffer = triangular(part)
        if buffer:
            said.append(f"`{f'{path}.{buffer}' if path else buffer}` holds a triangle")
        words = words_of(part)
        if _MAKES.search(" ".join(words)):
            said.append(f"`{name}` builds a triangular mask")
        elif any(_NAMES.search(word) for word in words):
            word = next(word for word in words if _NAMES.search(word))
            said.append(f"the source of `{name}` speaks of `{word}`")
    return said[0] if said else ""


def _flag(part: nn.Module) -> bool | None:
    """What `self.causal`, `self.is_causal` and their like are set to; None where there is none."""
    for name, value in list(vars(part).items()):
        if isinstance(value, bool) and re.search(r"causal|autoregress|is_decoder|unidirectional", name):
            return value
        if isinstance(value, bool) and re.search(r"bidirectional", name):
            return not value
    return None


def triangular(part: nn.Module) -> str:
    """The name of a buffer or plain tensor that is a lower or upper triangle."""
    tables = [vars(part).get("_buffers") or {}, vars(part)]
    for table in tables:
        for name, value in list(table.items()):
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and is_triangle(value):
                return str(name)
    return ""


def is_triangle(value: Tensor) -> bool:
    """Whether a square matrix holds one value on one side of its diagonal and another on the other side."""
    if value.is_meta or value.dim() < 2 or value.shape[-1] < 3 or value.shape[-1] != value.shape[-2]:
        return False
    if value.numel() != value.shape[-1] ** 2 and value.numel() > 1 << 22:
        return False
    square = value.detach().reshape(-1, value.shape[-1], value.shape[-1])[0][:64, :64]
    square = square.to(torch.float64).nan_to_num(posinf=1e30, neginf=-1e30)
    n = square.shape[0]
    above = square[torch.ones(n, n).triu(2).bool()]
    below = square[torch.ones(n, n).tril(-2).bool()]
    if not above.numel() or not below.numel():
        return False
    return bool((above == above[0]).all() and (below == below[0]).all() and above[0] != below[0])


def words_of(part: nn.Module) -> list[str]:
    """The identifiers in the source of a module's class, comments and texts left out."""
    try:
        source = inspect.getsource(type(part))
    except (OSError, TypeError):
        return []
    words = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.NAME:
                words.append(token.string)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    return words
