"""What kind of operation a name stands for. Names are canonical (`matmul` for `@`); this imports no torch.

In-place twins (`masked_fill_`) are the same kind: ask `kind in` with `plain(name)`.
"""

from __future__ import annotations


def plain(name: str) -> str:
    """The name without the underscore of an in-place twin."""
    return name.rstrip("_")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CUTS = _names("view reshape flatten unflatten ravel _unsafe_view view_as reshape_as")
"""They give the same elements, in order, another shape."""

PARTS = _names("chunk split tensor_split split_with_sizes unbind getitem narrow select")
"""They give some of the elements."""

TURNS = _names("transpose permute movedim T mT H mH t swapaxes adjoint flip roll")
"""They give the same elements in another order."""

SINGLES = _names("unsqueeze squeeze expand expand_as")
"""They add, drop or spread axes of size 1."""

REPEATS = _names("repeat repeat_interleave tile")
JOINS = _names("cat stack hstack vstack dstack")

CASTS = _names("to type type_as float double half bfloat16 long int bool cpu cuda cast")
SAME = _names(
    """
    contiguous clone detach alias as_strided identity requires_grad_ data dropout view_as_complex view_as_real
    resolve_conj
    """
)
"""They give what they are given: copied, kept, or seen as another kind of number."""

MOVES = CUTS | PARTS | TURNS | SINGLES | REPEATS | SAME | (CASTS - {"long", "int", "bool"})
"""They move numbers or cast them, and change none."""

LENDING = _names("to type_as expand_as view_as reshape_as")
"""Of what these are given, only the first is what they give; the others lend their type or size."""

LIKES = _names(
    """
    ones_like zeros_like full_like empty_like rand_like randn_like new_zeros new_ones new_full new_empty
    new_tensor
    """
)
"""They take only the shape or the type of what they are given."""

COMPARISONS = _names("eq ne lt le gt ge")
FRESH = (
    LIKES
    | COMPARISONS
    | _names("isnan isinf isfinite argmax argmin logical_not logical_and logical_or logical_xor")
)
"""None of the numbers that they are given is in what they give: a shape at most, or true and false."""

FACTORIES = _names("ones zeros full empty rand randn eye arange linspace")
TRIANGLES = _names("tril triu tril_indices triu_indices")

SUMS = _names("add sub")
FACTORS = _names("mul div")
ARITHMETIC = SUMS | FACTORS
FILLS = _names("masked_fill where setitem index_put")
"""They put other numbers where a mask says so."""

ADDED = _names("baddbmm addmm addbmm")
"""Products whose first operand is added to what they sum."""

MATMULS = _names("matmul mm bmm") | ADDED
PRODUCTS = MATMULS | _names("einsum tensordot")
"""They sum over an axis of two tensors."""

NORMS = _names("layer_norm rms_norm normalize group_norm batch_norm instance_norm")
FUSED = _names("scaled_dot_product_attention multi_head_attention_forward")
LAYERS = _names("linear conv1d conv2d conv3d embedding bilinear")
SOURCES = LAYERS | FUSED | PRODUCTS | {"softmax"}
"""What they give is new: its size says nothing of the size of what they are given."""

SOFTMAXES = _names("softmax log_softmax")
REDUCTIONS = _names("sum mean amax amin max min var std logsumexp argmax argmin norm all any prod")
