"""Finding attention while the module runs, and keeping of it only what will be shown.

Each tensor carries a few flags by its serial number: whether it descends from the input (an activation),
from a product of two activations (scores), from a softmax of such (weights). A softmax of scores whose
result goes into a later product is attention, whatever the module's style.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from attnscope.ops.calls import Op
from attnscope.ops.catalog import FILLS, FRESH, NORMS, PRODUCTS, SUMS, plain
from attnscope.recorder.sdpa import recompute
from attnscope.recorder.tensors import refs_in, tensors_in, to_numpy
from attnscope.sandbox.tensors import storage_of
from attnscope.strict import passed_over

ACTIVATION, SCORES, WEIGHTS, SPREAD = 1, 2, 4, 8

_LAYERS = NORMS | {"linear", "embedding", "bilinear", "multi_head_attention_forward"}
_ADDS = SUMS | {"mul", "minimum"}
_BLOCKS = FILLS | {"fill"}
_MASKS = _BLOCKS | _ADDS
# Below every other score of its row by more than this, a score was blocked by a mask, not by the data.
_FAR_BELOW = 1000.0

Keep = Literal["weights", "pooled", "full"]


@dataclass
class Product:
    """A product of two activations: `event` is its index, `left` and `right` the serials that went in."""

    event: int
    left: int
    right: int
    operands: tuple[Tensor, Tensor] | None = None
    held: dict[str, Tensor] = field(default_factory=dict)
    mask_event: int | None = None
    mask_serials: tuple[int, ...] = ()


@dataclass
class Power:
    """Scores of which the exponential was taken: `held["given"]`; `dim` where they were normalised before."""

    held: dict[str, Tensor]
    dim: int | None


@dataclass
class Found:
    """One attention, as it was seen.

    `event` is the index of the softmax (or of the fused call), `used_by` of the product that its weights
    went into. Arrays are in the layout of the source; `attnscope.attention` brings them to [B, H, T, S].
    In capture mode "full" `tensors` holds detached copies: q, k, v, scores (before the mask), masked (what
    the softmax was given), weights, applied (what went into the product), context.
    """

    event: int
    call: int
    source: Literal["softmax", "sdpa", "mha"]
    product: Product | None
    input_serial: int
    serial: int
    dim: int
    shape: tuple[int, ...]
    heads: int | None = None
    used_by: int | None = None
    value_serial: int | None = None
    applied_serial: int | None = None
    weights: Any = None
    allowed: Any = None
    scores: Any = None
    pooled: Any = None
    mask_serial: int | None = None
    is_causal: bool = False
    note: str = ""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    held: dict[str, Tensor] = field(default_factory=dict)


class Capture:
    """Watches the recorder's calls for attention.

    `keep`: "weights" keeps each head's matrix, "pooled" reduces it to at most `cells` × `cells` with the
    `top` heaviest keys of each query as soon as it was used, "full" keeps every tensor of the computation.
    `scores` also keeps the scores before the mask.
    """

    def __init__(
        self,
        keep: Keep = "weights",
        *,
        scores: bool = False,
        pool: Callable[[Any], Any] | None = None,
        wanted: Callable[[int], bool] | None = None,
    ) -> None:
        self.found: list[Found] = []
        self.missed: list[str] = []
        self._keep = keep
        self._scores = scores or keep == "full"
        self._pool = pool
        self._wanted = wanted
        self._flags: dict[int, int] = {}
        self._filled: set[int] = set()
        self._learned: set[int] = set()
        self._products: dict[int, Product] = {}
        self._candidates: dict[int, Found] = {}
        self._live: list[dict[str, Tensor]] = []
        self._inside: list[int | None] = []
        self._tokens: int | None = None
        self._powers: dict[int, Power] = {}
        self._totals: dict[int, tuple[Power, int]] = {}

    # -- called by the recorder ----------------------------------------------------------------------

    def begin(self, serial: Callable[[Tensor], int], inputs: Sequence[Tensor]) -> None:
        """The tensors that the module is called with are activations."""
        for tensor in inputs:
            self._flags[serial(tensor)] = ACTIVATION
            if self._tokens is None and tensor.ndim == 3:
                self._tokens = tensor.shape[1]

    def enter(self, op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """PyTorch's own attention function is about to be run with its inside in view."""
        heads = kwargs.get("num_heads", args[4] if len(args) > 4 else None)
        self._inside.append(heads if isinstance(heads, int) else None)

    def leave(self) -> None:
        """The function that was entered is over."""
        self._inside.pop()

    def before_write(self, written: Tensor) -> None:
        """Values are those of the moment: what is held and about to be overwritten is copied first."""
        store = storage_of(written)
        for holder in self._live:
            for name, tensor in holder.items():
                if storage_of(tensor) == store:
                    holder[name] = tensor.detach().clone()

    def saw(
        self,
        index: int,
        op: Op,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frozen: tuple[Any, ...],
        named: Mapping[str, Any],
        serials: tuple[int, ...],
        outputs: tuple[Tensor, ...],
        call: int,
    ) -> None:
        """One call has returned."""
        try:
            self._saw(index, op.name, args, kwargs, frozen, named, serials, outputs, call)
        except Exception as error:  # a tensor of a rare kind: the run goes on, and what was not seen is said
            passed_over(error)
            self.missed.append(f"{op.name}: {type(error).__name__}")

    def _saw(
        self,
        index: int,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frozen: tuple[Any, ...],
        named: Mapping[str, Any],
        serials: tuple[int, ...],
        outputs: tuple[Tensor, ...],
        call: int,
    ) -> None:
        if name in FRESH:
            return
        refs = list(refs_in(frozen)) + list(refs_in(tuple(named.values())))
        if self._filled:
            for ref, tensor in zip(refs, tensors_in((*args, *kwargs.values())), strict=False):
                if ref not in self._flags and storage_of(tensor) in self._filled:
                    self._flags[ref] = ACTIVATION
        flags = 0
        for ref in refs:
            flags |= self._flags.get(ref, 0)
        if name == "copy_" and flags & ACTIVATION and isinstance(args[0], Tensor):
            self._filled.add(storage_of(args[0]))  # a part is written: the whole of it holds activations now
        if name == "scaled_dot_product_attention":
            self._fused(index, args, kwargs, frozen, named, serials, outputs, call)
            self._mark(serials, ACTIVATION)
        elif name in PRODUCTS:
            self._multiply(index, args, kwargs, refs, flags, serials, outputs)
        elif name == "embedding":
            self._mark(serials, ACTIVATION)
        elif not flags and name not in PRODUCTS and self._of_parameters(args, refs):
            # A layer of what was learned (positions, latents) makes queries as one of activations does.
            if name == "linear":
                self._mark(serials, ACTIVATION)
            else:
                self._learned.update(serials)
        elif name in _LAYERS and not (flags & SCORES and _mixes(name, args)):
            self._mark(serials, flags & ACTIVATION)
        elif name == "softmax" and flags & SCORES:
            self._normalise(index, args, kwargs, frozen, refs, serials, outputs, call)
        elif flags & SCORES and self._by_hand(index, name, args, kwargs, refs, serials, outputs, call):
            return
        elif flags:
            self._carry(index, name, args, kwargs, refs, flags, serials, outputs)

    # -- the kinds of calls -----------------------------------------------------------------------------

    def _of_parameters(self, args: tuple[Any, ...], refs: list[int]) -> bool:
        """Whether an operation's first input is a parameter, or was made of parameters alone."""
        return bool(refs) and (refs[0] in self._learned or (bool(args) and type(args[0]) is Parameter))

    def _mark(self, serials: tuple[int, ...], flags: int) -> None:
        if flags:
            for serial in serials:
                self._flags[serial] = flags

    def _first(self, table: dict[int, Any], refs: list[int]) -> Any:
        return next((table[ref] for ref in refs if ref in table), None)

    def _multiply(
        self,
        index: int,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        refs: list[int],
        flags: int,
        serials: tuple[int, ...],
        outputs: tuple[Tensor, ...],
    ) -> None:
        candidate = self._first(self._candidates, [r for r in refs if self._flags.get(r, 0) & WEIGHTS])
        if candidate is not None:
            tensors = list(tensors_in((*args, *kwargs.values())))
            self._confirm(index, candidate, refs, tensors, outputs[0])
            self._mark(serials, ACTIVATION)
            return
        active = [ref for ref in refs if self._flags.get(ref, 0) & ACTIVATION]
        if len(active) >= 2:
            product = Product(index, active[-2], active[-1])
            if self._scores:
                tensors = list(tensors_in((*args, *kwargs.values())))
                pair = [t for t, ref in zip(tensors, refs, strict=False) if ref in active[-2:]]
                product.held["scores"] = outputs[0].detach()
                if self._keep == "full" and len(pair) >= 2:
                    product.operands = (pair[-2].detach().clone(), pair[-1].detach().clone())
                self._live.append(product.held)
            self._products[serials[0]] = product
            self._mark(serials, ACTIVATION | SCORES)
        elif flags:
            self._carry(index, "matmul", args, kwargs, refs, flags, serials, outputs)

    def _normalise(
        self,
        index: int,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frozen: tuple[Any, ...],
        refs: list[int],
        serials: tuple[int, ...],
        outputs: tuple[Tensor, ...],
        call: int,
    ) -> None:
        dim = kwargs.get("dim", frozen[1] if len(frozen) > 1 else None)
        given = next(tensors_in((*args, *kwargs.values())))
        self._weights(index, refs, serials, given, outputs[0], dim if isinstance(dim, int) else -1, call)

    def _weights(
        self,
        index: int,
        refs: list[int],
        serials: tuple[int, ...],
        given: Tensor,
        weights: Tensor,
        dim: int,
        call: int,
    ) -> None:
        """`weights` are `given` scores made positive with sum 1 over `dim`."""
        found = Found(
            event=index,
            call=call,
            source="mha" if self._inside else "softmax",
            product=self._first(self._products, refs),
            input_serial=refs[0],
            serial=serials[0],
            dim=dim % max(weights.ndim, 1),
            shape=tuple(weights.shape),
            heads=self._inside[-1] if self._inside else None,
        )
        found.held = {"weights": weights.detach()}
        if self._keep == "full":
            found.held["masked"] = given.detach()
        # The mask is read off now: until the weights are used the scores would be held for nothing else.
        with torch.no_grad():
            found.allowed = _allowed(given, weights, found.dim)
        self._live.append(found.held)
        self._candidates[serials[0]] = found
        self._mark(serials, ACTIVATION | WEIGHTS)

    def _by_hand(
        self,
        index: int,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        refs: list[int],
        serials: tuple[int, ...],
        outputs: tuple[Tensor, ...],
        call: int,
    ) -> bool:
        """A softmax written out: `e = s.exp()`, `e / e.sum(-1, keepdim=True)`, or `log_softmax` and `exp`."""
        power = self._powers.get(refs[0])
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        dim = dim[0] if isinstance(dim, tuple | list) and len(dim) == 1 else dim
        if name == "log_softmax" and isinstance(dim, int):
            given = next(tensors_in((*args, *kwargs.values())))
            self._powers[serials[0]] = Power({"given": given.detach()}, dim)
            self._live.append(self._powers[serials[0]].held)
        elif name in ("exp", "exp_"):
            if power is not None and power.dim is not None:
                self._weights(index, refs, serials, power.held["given"], outputs[0], power.dim, call)
                self._release([power.held])
                return True
            # In place the scores are gone: the logarithm of the result is them again.
            given = outputs[0].detach().log() if name == "exp_" else next(tensors_in(args)).detach()
            power = self._powers[serials[0]] = Power({"given": given}, None)
            self._live.append(power.held)
        elif power is not None and name == "sum" and isinstance(dim, int):
            self._totals[serials[0]] = (power, dim)
        elif power is not None and name in ("div", "div_") and len(refs) == 2 and refs[1] in self._totals:
            total, dim = self._totals[refs[1]]
            if total is power and "given" in power.held:
                self._weights(index, refs, serials, power.held["given"], outputs[0], dim, call)
                self._release([power.held])
                return True
        elif power is not None and name in ("mul", "mul_", "masked_fill", "masked_fill_"):
            # Masked after the power: what is blocked is what became 0.
            power.held["given"] = outputs[0].detach().log()
            self._powers[serials[0]] = power
        return False

    def _release(self, done: list[dict[str, Tensor]]) -> None:
        self._live = [holder for holder in self._live if not any(holder is one for one in done)]
        for holder in done:
            holder.clear()

    def _cut(self, name: str, candidate: Found, args: tuple[Any, ...], output: Tensor) -> None:
        """Weights of which a part is taken: what is left out, such as a sink, was no key of any token."""
        held = candidate.held.get("weights")
        if name != "getitem" or held is None or output.ndim != held.ndim or output.shape == held.shape:
            return
        if not isinstance(args[0], Tensor) or args[0].shape != held.shape:
            return  # a second part of the same weights: the keys are given out in groups, none is a sink
        if output.shape[:-1] != held.shape[:-1] or candidate.dim != held.ndim - 1:
            return
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        if any(not isinstance(item, slice | type(Ellipsis)) for item in index):
            return
        candidate.held = {name: tensor[index] for name, tensor in candidate.held.items()}
        self._live.append(candidate.held)
        candidate.shape = tuple(output.shape)
        if candidate.allowed is not None:
            candidate.allowed = candidate.allowed[index]
        candidate.note = "part of the weight went to a sink, which is left out here"

    def _carry(
        self,
        index: int,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        refs: list[int],
        flags: int,
        serials: tuple[int, ...],
        outputs: tuple[Tensor, ...],
    ) -> None:
        """An operation between the ones that matter: what goes in is still scores, or still weights."""
        if flags & WEIGHTS:
            candidate = self._first(self._candidates, refs)
            if candidate is not None and candidate.used_by is None:
                self._cut(name, candidate, args, outputs[0])
            others = [ref for ref in refs if not self._flags.get(ref, 0) & WEIGHTS]
            if name in ("mul", "mul_") and any(self._flags.get(ref, 0) & ACTIVATION for ref in others):
                flags |= SPREAD
            elif name == "sum" and flags & SPREAD and candidate is not None:
                self._confirm(index, candidate, refs, list(tensors_in(args)), outputs[0])
                self._mark(serials, ACTIVATION)
                return
            for serial in serials:
                if candidate is not None:
                    self._candidates[serial] = candidate
        elif flags & SCORES:
            product = self._first(self._products, refs)
            if product is not None:
                self._follow(index, name, product, args, kwargs, refs, outputs)
                for serial in serials:
                    self._products[serial] = product
        elif name in ("mul", "mul_") and sum(bool(self._flags.get(r, 0) & ACTIVATION) for r in refs) >= 2:
            flags |= SPREAD
        elif name == "sum" and flags & SPREAD:
            self._products[serials[0]] = Product(index, refs[0], refs[0])
            flags = (flags & ~SPREAD) | SCORES
        self._mark(serials, flags)

    def _follow(
        self,
        index: int,
        name: str,
        product: Product,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        refs: list[int],
        outputs: tuple[Tensor, ...],
    ) -> None:
        """Note the step that masks the scores; until then the newest scores are those before the mask."""
        tensors = list(tensors_in((*args, *kwargs.values())))
        masks = tuple(
            ref
            for ref, tensor in zip(refs, tensors, strict=False)
            if not self._flags.get(ref, 0) & ACTIVATION and tensor.ndim >= 2
        )
        # A mask that is an argument of the module is an activation by descent, yet it is boolean.
        masks = masks or tuple(
            ref for ref, tensor in zip(refs, tensors, strict=False) if tensor.dtype is torch.bool
        )
        if not masks and plain(name) in _MASKS:
            masks = tuple(ref for ref in refs if not self._flags.get(ref, 0) & SCORES)
            masks = masks if plain(name) in _BLOCKS or (len(masks) and tensors[-1].ndim >= 2) else ()
        if plain(name) in _ADDS:
            kept = set(masks)
            masks = tuple(
                ref
                for ref, tensor in zip(refs, tensors, strict=False)
                if ref in kept and _looks_like_a_mask(tensor, name)
            )
        if plain(name) in _MASKS and masks:
            product.mask_event = index
            product.mask_serials = (*product.mask_serials, *masks)
        elif product.mask_event is None and self._scores and outputs:
            product.held["scores"] = outputs[0].detach()

    def _fused(
        self,
        index: int,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frozen: tuple[Any, ...],
        named: Mapping[str, Any],
        serials: tuple[int, ...],
        outputs: tuple[Tensor, ...],
        call: int,
    ) -> None:
        serial_of = dict(zip(("query", "key", "value", "attn_mask"), frozen, strict=False)) | dict(named)
        parts = recompute(args, kwargs, outputs[0])
        found = Found(
            event=index,
            call=call,
            source="mha" if self._inside else "sdpa",
            product=Product(index, int(serial_of["query"]), int(serial_of["key"])),
            input_serial=int(serial_of["query"]),
            serial=serials[0],
            dim=parts.weights.ndim - 1,
            shape=tuple(parts.weights.shape),
            heads=self._inside[-1] if self._inside else None,
            used_by=index,
            value_serial=int(serial_of["value"]),
            is_causal=parts.is_causal,
            note=parts.note,
        )
        mask = serial_of.get("attn_mask")
        found.mask_serial = int(mask) if isinstance(mask, int) and not isinstance(mask, bool) else None
        with torch.no_grad():
            found.allowed = _allowed(parts.masked, parts.weights, found.dim)
        self._finish(found, parts.masked, parts.weights, parts.scores)
        if self._keep == "full":
            q, k, v = parts.operands
            found.tensors |= {"q": q, "k": k, "v": v, "applied": parts.weights.detach().clone()}
            found.tensors["context"] = outputs[0].detach().clone()
        self.found.append(found)

    # -- what is kept -------------------------------------------------------------------------------------

    def _confirm(
        self, index: int, found: Found, refs: list[int], tensors: list[Tensor], context: Tensor
    ) -> None:
        """The weights went into a product: this is attention."""
        if found.used_by is not None:
            return
        found.used_by = index
        weighing = [i for i, ref in enumerate(refs) if self._flags.get(ref, 0) & WEIGHTS]
        others = [i for i in range(len(refs)) if i not in weighing]
        found.applied_serial = refs[weighing[0]] if weighing else None
        found.value_serial = refs[others[-1]] if others else None
        product = found.product
        if product is not None and product.mask_serials:
            found.mask_serial = product.mask_serials[0]
        scores = product.held.get("scores") if product is not None else None
        self._finish(found, found.held.get("masked"), found.held["weights"], scores)
        if self._keep == "full":
            if product is not None and product.operands is not None:
                found.tensors["q"], found.tensors["k"] = product.operands
            if weighing and weighing[0] < len(tensors):
                found.tensors["applied"] = tensors[weighing[0]].detach().clone()
            if others and others[-1] < len(tensors):
                found.tensors["v"] = tensors[others[-1]].detach().clone()
            found.tensors["context"] = context.detach().clone()
        self._release([found.held] if product is None else [found.held, product.held])
        self.found.append(found)

    def _finish(self, found: Found, masked: Tensor | None, weights: Tensor, scores: Tensor | None) -> None:
        with torch.no_grad():
            number = len(self.found)
            if self._wanted is not None and not self._wanted(number):
                return
            if self._keep == "full":
                found.tensors = {"weights": weights.clone()}
                if masked is not None:
                    found.tensors["masked"] = masked.clone()
                if scores is not None:
                    found.tensors["scores"] = scores.clone()
            if self._keep == "pooled" and self._pool is not None and found.dim == weights.ndim - 1:
                # [B, T, H, S]: the queries stand before the heads, and no name is known yet to tell.
                turned = weights.ndim == 4 and weights.shape[2] != self._tokens == weights.shape[1]
                found.pooled = self._pool(_four(weights.transpose(1, 2) if turned else weights))
            if found.pooled is None:
                found.weights = to_numpy(weights)
            if self._scores and scores is not None:
                found.scores = to_numpy(scores)


def _looks_like_a_mask(tensor: Tensor, name: str) -> bool:
    """Whether what is added to scores (or multiplied) allows and blocks, and is no bias of many values."""
    if tensor.is_meta or tensor.dtype is torch.bool or tensor.numel() == 0:
        return True
    with torch.no_grad():
        low, high = torch.aminmax(tensor.detach())
        if not name.startswith("mul") and not float(low) >= -_FAR_BELOW:  # also NaN: zero times infinity
            return True
        return bool(low != high) and bool(((tensor == low) | (tensor == high)).all())


def _mixes(name: str, args: tuple[Any, ...]) -> bool:
    """A square linear layer over scores mixes heads with one another (talking heads): still scores."""
    weight = args[1] if name == "linear" and len(args) > 1 else None
    return isinstance(weight, Tensor) and weight.ndim == 2 and weight.shape[0] == weight.shape[1]


def _allowed(masked: Tensor, weights: Tensor, dim: int) -> Any:
    """True where the softmax could give weight: what was in fact applied, in the layout of the source.

    Heads and batch entries with the same mask share its memory.
    """
    if masked.is_meta:
        return None
    if masked.numel() == 0:
        return torch.ones(masked.shape, dtype=torch.bool).numpy()
    if masked.ndim < 3 or dim != masked.ndim - 1:
        return _open(masked, weights, dim).cpu().numpy()
    kinds: list[Tensor] = []
    which: list[int] = []
    # One [T, S] at a time: of a long text, all heads at once would need several times the mask's memory.
    for scores, given in zip(masked.flatten(0, -3), weights.flatten(0, -3), strict=True):
        one = _open(scores, given, scores.ndim - 1)
        recent = range(len(kinds) - 1, max(len(kinds) - 5, -1), -1)
        place = next((i for i in recent if torch.equal(kinds[i], one)), len(kinds))
        if place == len(kinds):
            kinds.append(one)
        which.append(place)
    if len(kinds) == 1:
        return kinds[0].cpu().expand(masked.shape).numpy()
    return torch.stack([kinds[place] for place in which]).reshape(masked.shape).cpu().numpy()


def _open(masked: Tensor, weights: Tensor, dim: int) -> Tensor:
    values = masked.float()
    top = values.amax(dim=dim, keepdim=True)
    blocked = (weights == 0).logical_and_(values < top - _FAR_BELOW)
    return blocked.logical_or_(values == float("-inf")).logical_not_()


def _four(weights: Tensor) -> Any:
    value = weights.detach().float().cpu()
    while value.ndim < 4:
        value = value.unsqueeze(0)
    return value.reshape(value.shape[0], -1, *value.shape[-2:]).numpy()
