"""Finding attention while the module runs, and keeping of it only what will be shown.

Each tensor carries a few flags by its serial number: whether it descends from the input (an activation),
from a product of two activations (scores), from a softmax of such (weights). A softmax of scores whose
result goes into a later product is attention, whatever the module's style.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from attnscope.ops.calls import Op
from attnscope.ops.catalog import FILLS, FRESH, NORMS, PRODUCTS, SUMS, plain
from attnscope.recorder.found import Found, Power, Product, Seen
from attnscope.recorder.masked import allowed, looks_like_a_mask
from attnscope.recorder.sdpa import recompute
from attnscope.recorder.tensors import refs_in, to_numpy
from attnscope.sandbox.tensors import storage_of
from attnscope.strict import passed_over

ACTIVATION, SCORES, WEIGHTS, SPREAD = 1, 2, 4, 8

_LAYERS = NORMS | {"linear", "embedding", "bilinear", "multi_head_attention_forward"}
_ADDS = SUMS | {"mul", "minimum"}
_BLOCKS = FILLS | {"fill"}
_MASKS = _BLOCKS | _ADDS

Keep = Literal["weights", "pooled", "full"]


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
        if op.name in FRESH:
            return
        refs = [*refs_in(frozen), *refs_in(tuple(named.values()))]
        try:
            self._saw(Seen(index, op.name, args, kwargs, frozen, named, refs, serials, outputs, call))
        except Exception as error:  # a tensor of a rare kind: the run goes on, and what was not seen is said
            passed_over(error)
            self.missed.append(f"{op.name}: {type(error).__name__}")

    def _saw(self, seen: Seen) -> None:
        name, refs, args = seen.name, seen.refs, seen.args
        if self._filled:
            for ref, tensor in zip(refs, seen.tensors, strict=False):
                if ref not in self._flags and storage_of(tensor) in self._filled:
                    self._flags[ref] = ACTIVATION
        flags = 0
        for ref in refs:
            flags |= self._flags.get(ref, 0)
        if name == "copy_" and flags & ACTIVATION and isinstance(args[0], Tensor):
            self._filled.add(storage_of(args[0]))  # a part is written: the whole of it holds activations now
        if name == "scaled_dot_product_attention":
            self._fused(seen)
            self._mark(seen.serials, ACTIVATION)
        elif name in PRODUCTS:
            self._multiply(seen, flags)
        elif name == "embedding":
            self._mark(seen.serials, ACTIVATION)
        elif not flags and self._of_parameters(args, refs):
            # A layer of what was learned (positions, latents) makes queries as one of activations does.
            if name == "linear":
                self._mark(seen.serials, ACTIVATION)
            else:
                self._learned.update(seen.serials)
        elif name in _LAYERS and not (flags & SCORES and _mixes(name, args)):
            self._mark(seen.serials, flags & ACTIVATION)
        elif name == "softmax" and flags & SCORES:
            dim = seen.kwargs.get("dim", seen.frozen[1] if len(seen.frozen) > 1 else None)
            self._weights(seen, seen.tensors[0], dim if isinstance(dim, int) else -1)
        elif flags & SCORES and self._by_hand(seen):
            return
        elif flags:
            self._carry(seen, flags)

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

    def _multiply(self, seen: Seen, flags: int) -> None:
        weighing = [ref for ref in seen.refs if self._flags.get(ref, 0) & WEIGHTS]
        candidate = self._first(self._candidates, weighing)
        if candidate is not None:
            self._confirm(candidate, seen)
            self._mark(seen.serials, ACTIVATION)
            return
        active = [ref for ref in seen.refs if self._flags.get(ref, 0) & ACTIVATION]
        if len(active) >= 2:
            product = Product(seen.event, active[-2], active[-1])
            if self._scores:
                pair = [t for t, ref in zip(seen.tensors, seen.refs, strict=False) if ref in active[-2:]]
                product.held["scores"] = seen.outputs[0].detach()
                if self._keep == "full" and len(pair) >= 2:
                    product.operands = (pair[-2].detach().clone(), pair[-1].detach().clone())
                self._live.append(product.held)
            self._products[seen.serials[0]] = product
            self._mark(seen.serials, ACTIVATION | SCORES)
        elif flags:
            self._carry(seen, flags)

    def _weights(self, seen: Seen, given: Tensor, dim: int) -> None:
        """The call made of `given` scores numbers that are positive, with sum 1 over `dim`."""
        weights = seen.outputs[0]
        found = Found(
            event=seen.event,
            call=seen.call,
            source="mha" if self._inside else "softmax",
            product=self._first(self._products, seen.refs),
            input_serial=seen.refs[0],
            serial=seen.serials[0],
            dim=dim % max(weights.ndim, 1),
            shape=tuple(weights.shape),
            heads=self._inside[-1] if self._inside else None,
        )
        found.held = {"weights": weights.detach()}
        if self._keep == "full":
            found.held["masked"] = given.detach()
        # The mask is read off now: until the weights are used the scores would be held for nothing else.
        with torch.no_grad():
            found.allowed = allowed(given, weights, found.dim)
        self._live.append(found.held)
        self._candidates[seen.serials[0]] = found
        self._mark(seen.serials, ACTIVATION | WEIGHTS)

    def _by_hand(self, seen: Seen) -> bool:
        """A softmax written out: `e = s.exp()`, `e / e.sum(-1, keepdim=True)`, or `log_softmax` and `exp`."""
        name, refs, made = seen.name, seen.refs, seen.serials[0]
        power, dim = self._powers.get(refs[0]), seen.argument(1, "dim")
        dim = dim[0] if isinstance(dim, tuple | list) and len(dim) == 1 else dim
        if name == "log_softmax" and isinstance(dim, int):
            self._powers[made] = Power({"given": seen.tensors[0].detach()}, dim)
            self._live.append(self._powers[made].held)
        elif plain(name) == "exp":
            if power is not None and power.dim is not None:
                self._weights(seen, power.held["given"], power.dim)
                self._release([power.held])
                return True
            # In place the scores are gone: the logarithm of the result is them again.
            given = seen.outputs[0].detach().log() if name == "exp_" else seen.tensors[0].detach()
            power = self._powers[made] = Power({"given": given}, None)
            self._live.append(power.held)
        elif power is not None and name == "sum" and isinstance(dim, int):
            self._totals[made] = (power, dim)
        elif power is not None and plain(name) == "div" and len(refs) == 2 and refs[1] in self._totals:
            total, dim = self._totals[refs[1]]
            if total is power and "given" in power.held:
                self._weights(seen, power.held["given"], dim)
                self._release([power.held])
                return True
        elif power is not None and plain(name) in ("mul", "masked_fill"):
            # Masked after the power: what is blocked is what became 0.
            power.held["given"] = seen.outputs[0].detach().log()
            self._powers[made] = power
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

    def _carry(self, seen: Seen, flags: int) -> None:
        """An operation between the ones that matter: what goes in is still scores, or still weights."""
        factor = plain(seen.name) == "mul"
        if flags & WEIGHTS:
            candidate = self._first(self._candidates, seen.refs)
            if candidate is not None and candidate.used_by is None:
                self._cut(seen.name, candidate, seen.args, seen.outputs[0])
            others = [ref for ref in seen.refs if not self._flags.get(ref, 0) & WEIGHTS]
            if factor and any(self._flags.get(ref, 0) & ACTIVATION for ref in others):
                flags |= SPREAD
            elif seen.name == "sum" and flags & SPREAD and candidate is not None:
                self._confirm(candidate, seen)
                self._mark(seen.serials, ACTIVATION)
                return
            for serial in seen.serials:
                if candidate is not None:
                    self._candidates[serial] = candidate
        elif flags & SCORES:
            product = self._first(self._products, seen.refs)
            if product is not None:
                self._follow(seen, product)
                for serial in seen.serials:
                    self._products[serial] = product
        elif factor and sum(bool(self._flags.get(r, 0) & ACTIVATION) for r in seen.refs) >= 2:
            flags |= SPREAD
        elif seen.name == "sum" and flags & SPREAD:
            self._products[seen.serials[0]] = Product(seen.event, seen.refs[0], seen.refs[0])
            flags = (flags & ~SPREAD) | SCORES
        self._mark(seen.serials, flags)

    def _follow(self, seen: Seen, product: Product) -> None:
        """Note the step that masks the scores; until then the newest scores are those before the mask."""
        given = list(zip(seen.refs, seen.tensors, strict=False))
        name = plain(seen.name)
        masks = [
            ref for ref, tensor in given if not self._flags.get(ref, 0) & ACTIVATION and tensor.ndim >= 2
        ]
        # A mask that is an argument of the module is an activation by descent, yet it is boolean.
        masks = masks or [ref for ref, tensor in given if tensor.dtype is torch.bool]
        if not masks and name in _MASKS:
            masks = [ref for ref in seen.refs if not self._flags.get(ref, 0) & SCORES]
            masks = masks if name in _BLOCKS or (masks and given[-1][1].ndim >= 2) else []
        if name in _ADDS:
            masks = [ref for ref, tensor in given if ref in masks and looks_like_a_mask(tensor, name)]
        if name in _MASKS and masks:
            product.mask_event = seen.event
            product.mask_serials = (*product.mask_serials, *masks)
        elif product.mask_event is None and self._scores and seen.outputs:
            product.held["scores"] = seen.outputs[0].detach()

    def _fused(self, seen: Seen) -> None:
        serial_of = dict(zip(("query", "key", "value", "attn_mask"), seen.frozen, strict=False))
        serial_of |= dict(seen.named)
        parts = recompute(seen.args, seen.kwargs, seen.outputs[0])
        found = Found(
            event=seen.event,
            call=seen.call,
            source="mha" if self._inside else "sdpa",
            product=Product(seen.event, int(serial_of["query"]), int(serial_of["key"])),
            input_serial=int(serial_of["query"]),
            serial=seen.serials[0],
            dim=parts.weights.ndim - 1,
            shape=tuple(parts.weights.shape),
            heads=self._inside[-1] if self._inside else None,
            used_by=seen.event,
            value_serial=int(serial_of["value"]),
            is_causal=parts.is_causal,
            note=parts.note,
        )
        mask = serial_of.get("attn_mask")
        found.mask_serial = int(mask) if isinstance(mask, int) and not isinstance(mask, bool) else None
        with torch.no_grad():
            found.allowed = allowed(parts.masked, parts.weights, found.dim)
        self._finish(found, parts.masked, parts.weights, parts.scores)
        if self._keep == "full":
            q, k, v = parts.operands
            found.tensors |= {"q": q, "k": k, "v": v, "applied": parts.weights.detach().clone()}
            found.tensors["context"] = seen.outputs[0].detach().clone()
        self.found.append(found)

    # -- what is kept -------------------------------------------------------------------------------------

    def _confirm(self, found: Found, seen: Seen) -> None:
        """The weights went into a product: this is attention."""
        if found.used_by is not None:
            return
        refs, tensors = seen.refs, seen.tensors
        found.used_by = seen.event
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
            found.tensors["context"] = seen.outputs[0].detach().clone()
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


def _mixes(name: str, args: tuple[Any, ...]) -> bool:
    """A square linear layer over scores mixes heads with one another (talking heads): still scores."""
    weight = args[1] if name == "linear" and len(args) > 1 else None
    return isinstance(weight, Tensor) and weight.ndim == 2 and weight.shape[0] == weight.shape[1]


def _four(weights: Tensor) -> Any:
    value = weights.detach().float().cpu()
    while value.ndim < 4:
        value = value.unsqueeze(0)
    return value.reshape(value.shape[0], -1, *value.shape[-2:]).numpy()
