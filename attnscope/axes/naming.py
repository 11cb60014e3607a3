"""Naming axes: the input is B, T, C; each recorded call carries, permutes, splits or merges the names.

The rule of each kind of operation stands in `attnscope.axes.rules`; whatever has none keeps the names of
axes that kept their place and size.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from attnscope.axes.dims import Dim, Dims, Space, regroup
from attnscope.axes.rules import (
    RULES,
    Said,
    align,
    atoms,
    is_library,
    is_one,
    is_rest,
    refs_of,
    total,
)
from attnscope.axes.scope import Scope
from attnscope.axes.vocabulary import letter_of
from attnscope.ops.catalog import FACTORIES
from attnscope.recorder.record import Event, Recording
from attnscope.recorder.tensors import Ref
from attnscope.source import SourceFile, node_at


class Axes:
    """Walks a recording once and gives each tensor serial its dimensions (`self.of`)."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.space = Space()
        self.scope = Scope(self.space)
        self.of: dict[int, Dims] = {}
        self.seen_as: dict[tuple[int, int], Dims] = {}  # (event, serial): how a step reads an input
        self._arguments()
        self._walk()

    # -- the walk --------------------------------------------------------------------------------------

    def _walk(self) -> None:
        sizes = iter(self.recording.sizes)
        waiting = next(sizes, None)
        for index, event in enumerate(self.recording.events):
            while waiting is not None and waiting[2] <= index:
                self._size(*waiting)
                waiting = next(sizes, None)
            self._event(index, event)
        while waiting is not None:
            self._size(*waiting)
            waiting = next(sizes, None)

    def _event(self, index: int, event: Event) -> None:
        self.index = index
        outputs = [self.recording.made[serial][0] for serial in event.outputs]
        named: Sequence[Dims] | None = None
        rule = RULES.get(event.op.name) or RULES.get(event.op.name.rstrip("_"))
        if rule is not None and outputs:
            try:
                named = rule(self, event)
            except (IndexError, ValueError, TypeError, KeyError, StopIteration):
                named = None  # arguments in a form that the rule does not know: fall back
        for position, (serial, shape) in enumerate(zip(event.outputs, outputs, strict=True)):
            dims = named[position] if named is not None and position < len(named) else None
            if dims is None or tuple(dim.size for dim in dims) != tuple(shape):
                dims = self._carry(event, shape)
            self.of[serial] = self._square(dims)

    def _size(self, code: Any, lasti: int, index: int, frozen: tuple[Any, ...]) -> None:
        place = node_at(code, lasti)
        if place is None or not frozen:
            return
        dims = self.dims(frozen[0])
        node = place[1]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            self.scope.saw_size(*place, dims[0])
        elif len(frozen) > 1 and isinstance(frozen[1], int):
            if -len(dims) <= frozen[1] < len(dims):
                self.scope.saw_size(*place, dims[frozen[1]])
        else:
            self.scope.saw_size(*place, dims)

    # -- where names begin -------------------------------------------------------------------------------

    def _arguments(self) -> None:
        made = self.recording.made
        first: Dims | None = None
        for name, serial in self.recording.arguments:
            shape = tuple(made[serial][0])
            given = self.recording.input_axes.get(name)
            if given is not None and len(given) == len(shape):
                dims = tuple(
                    self.space.named(letter, size) if letter else Dim(size)
                    for letter, size in zip(given, shape, strict=True)
                )
            else:
                dims = self._guess(serial, name, shape, str(made[serial][2]), first)
            self.of[serial] = dims
            first = first or dims

    def _guess(self, serial: int, name: str, shape: tuple[int, ...], dtype: str, first: Dims | None) -> Dims:
        floating = "float" in dtype
        named = self.space.named
        if first is None:
            letters = self._layout(serial) or {
                (3, True): "BTC",
                (4, True): "BHTD",
                (2, True): "TC",
                (2, False): "BT",
                (1, False): "T",
            }.get((len(shape), floating))
            if letters is None:
                return tuple(Dim(size) for size in shape)
            return tuple(named(letter, size) for letter, size in zip(letters, shape, strict=True))
        if "mask" in name or not floating or "bias" in name:
            tail = ["B", "H", "T", "S"][-len(shape) :] if len(shape) <= 4 else []
            if len(shape) == 2 and shape[0] == first[0].size and shape[0] != shape[1]:
                tail = ["B", "S"]
            if len(shape) == 3:
                tail = ["B", "T", "S"]
            if dtype.startswith("torch.int") and shape == tuple(d.size for d in first[: len(shape)]):
                return first[: len(shape)]
            return tuple(
                named(letter, size) if letter and size > 1 else Dim(size)
                for letter, size in zip(tail or [""] * len(shape), shape, strict=True)
            )
        if len(shape) == 3 and len(first) == 3 and shape[0] == first[0].size:
            tokens = first[1] if shape[1] == first[1].size else named("S", shape[1])
            channels = first[2] if shape[2] == first[2].size else Dim(shape[2])
            return (first[0], tokens, channels)
        if shape == tuple(dim.size for dim in first):
            return first
        return tuple(Dim(size) for size in shape)

    def _layout(self, serial: int) -> str | None:
        """`TBC` where the module proves to read its input [T, B, C]: `tgt_len, bsz, dim = x.size()`."""
        if len(self.recording.made[serial][0]) != 3:
            return None
        letters: dict[int, str | None] = {}
        for code, lasti, _, frozen in self.recording.sizes:
            if not frozen or frozen[0] != serial:
                continue
            place = node_at(code, lasti)
            parent = place[0].parents.get(place[1]) if place is not None else None
            if not isinstance(parent, ast.Assign):
                continue
            target = parent.targets[0]
            if len(frozen) > 1 and isinstance(frozen[1], int) and isinstance(target, ast.Name):
                letters.setdefault(frozen[1] % 3, letter_of(target.id))
            elif isinstance(target, ast.Tuple) and len(target.elts) == 3:
                for axis, item in enumerate(target.elts):
                    letters.setdefault(axis, letter_of(item.id) if isinstance(item, ast.Name) else None)
        if letters.get(0) == "T" and letters.get(1) == "B":
            return "TBC"
        for event in self.recording.events:
            if event.op.name == "multi_head_attention_forward" and event.args and event.args[0] == serial:
                return "TBC"  # the layout that this function documents
        return None

    def dims(self, ref: int) -> Dims:
        """The dimensions of a tensor; a leaf (a parameter, a buffer) gets fresh ones."""
        known = self.of.get(int(ref))
        if known is None:
            known = self.of[int(ref)] = tuple(Dim(size) for size in self.recording.made[ref][0])
        return known

    # -- general ways of carrying --------------------------------------------------------------------------

    def _carry(self, event: Event, shape: Sequence[int]) -> Dims:
        """Names for an operation without a rule of its own."""
        inputs = [self.dims(ref) for ref in refs_of(event)]
        for dims in inputs:
            if tuple(dim.size for dim in dims) == tuple(shape):
                return dims
        for dims in inputs:
            if len(dims) == len(shape):
                return tuple(
                    dim if dim.size == size else Dim(size) for dim, size in zip(dims, shape, strict=True)
                )
        return tuple(Dim(size) for size in shape)

    def _square(self, dims: Dims) -> Dims:
        """A matrix of tokens by tokens is queries by keys."""
        if len(dims) >= 2 and dims[-1].root() is dims[-2].root() and dims[-1].label == "T":
            return (*dims[:-1], self.space.named("S", dims[-1].size))
        return dims

    def broadcast(self, operands: Sequence[Dims], *, equal: bool = False) -> Dims:
        """The dimensions of an elementwise result; unnamed ones learn their names from their partners.

        `equal`: nothing is broadcast, so axes of size 1 are partners too.
        """
        rank = max((len(dims) for dims in operands), default=0)
        ordered = sorted(operands, key=len, reverse=True)
        result: list[Dim] = []
        for place in range(1, rank + 1):
            here = [dims[-place] for dims in ordered if len(dims) >= place]
            size = max((dim.size for dim in here), default=1)
            if any(dim.size == 0 for dim in here):
                size = 0
            here = [dim for dim in here if dim.size == size]
            chosen = next((d for d in here if d.known and not d.root().mixed), here[0])
            if size > 1 or equal:
                for dim in here:
                    if not dim.known and chosen.known:
                        dim.become(chosen)
            result.append(chosen)
        return tuple(reversed(result))

    # -- what the source says ------------------------------------------------------------------------------

    def place(self, event: Event) -> tuple[SourceFile, ast.AST] | None:
        """The file and node of an event that the user's own source made."""
        if event.code is None or not event.direct or event.depth:
            return None
        return node_at(event.code, event.lasti)

    def expressions(self, event: Event, count: int, keyword: str = "") -> list[Said]:
        """The source expressions of a call's size arguments, one for each of `count` sizes where known."""
        place = self.place(event)
        if place is None or not isinstance(place[1], ast.Call):
            return [None] * count
        call = place[1]
        named = {item.arg: item.value for item in call.keywords if item.arg}
        args: list[ast.expr] = list(call.args)
        if isinstance(call.func, ast.Attribute) and not is_library(call.func.value):
            pass
        elif event.op.name not in FACTORIES and args:
            args = args[1:]
        if keyword and keyword in named:
            args = [named[keyword]]
        if len(args) == 1 and isinstance(args[0], ast.Name):  # shape = (*x.shape[:-1], -1, head_dim)
            meaning = self.scope.local(place[0], args[0])
            args = [meaning] if isinstance(meaning, ast.Tuple | ast.List) else args
        if len(args) >= 1 and isinstance(args[0], ast.Tuple | ast.List):
            args = list(args[0].elts)
        return align(self._spread(place[0], args), count)

    def _spread(self, file: SourceFile, args: list[ast.expr]) -> list[Said]:
        """`zeros(x.shape)` and `view(*x.shape[:2], -1)`: whole shapes stand for their dimensions."""
        result: list[Said] = []
        for arg in args:
            whole = arg.value if isinstance(arg, ast.Starred) else arg if len(args) == 1 else None
            known = self.scope.dims_of(file, whole) if whole is not None else None
            if isinstance(known, tuple):
                result += known
            else:
                result.append(arg)
        return result

    def factor(self, event: Event, expr: Said, size: int) -> Dim | None:
        """The dimension that the expression of one size names."""
        if isinstance(expr, Dim):
            return expr if expr.size == size else None
        place = self.place(event)
        if place is None or expr is None:
            return None
        return self.scope.dim(place[0], expr, size)

    def letter(self, event: Event, expr: Said) -> str | None:
        """The letter that the expression of one size stands for."""
        if isinstance(expr, Dim):
            return expr.label
        place = self.place(event)
        return self.scope.letter(place[0], expr) if place is not None and expr is not None else None

    # -- reshaping -----------------------------------------------------------------------------------------

    def reshape(self, event: Event, before: Dims, sizes: Sequence[int], exprs: list[Said]) -> Dims:
        """The dimensions of a view with the given sizes."""
        groups = regroup([dim.size for dim in before], sizes)
        if groups is None:
            return tuple(Dim(size) for size in sizes)
        result: list[Dim] = []
        for left, right in self._with_single(event, groups, before, exprs):
            part = [before[i] for i in left]
            result += self.group(event, part, [sizes[j] for j in right], [exprs[j] for j in right])
        return tuple(result)

    def _with_single(
        self,
        event: Event,
        groups: list[tuple[range, range]],
        before: Dims,
        exprs: list[Said],
    ) -> list[tuple[range, range]]:
        """One head, one channel, one entry: an axis of size 1 may be a factor of the axis beside it."""
        joined: list[tuple[range, range]] = []
        for group in self._singles(event, groups, before, exprs):
            if joined and self._belong(event, joined[-1], group, before, exprs):
                left, right = joined[-1]
                joined[-1] = range(left.start, group[0].stop), range(right.start, group[1].stop)
            else:
                joined.append(group)
        return joined

    def _singles(
        self,
        event: Event,
        groups: list[tuple[range, range]],
        before: Dims,
        exprs: list[Said],
    ) -> list[tuple[range, range]]:
        """Match axes of size 1 by what the source says where their number changes."""
        result: list[tuple[range, range]] = []
        run: list[tuple[range, range]] = []
        for group in [*groups, None]:
            if group is not None and all(before[i].size == 1 for i in group[0]) and len(group[0]) < 2:
                run.append(group)
                continue
            if run:
                result += self._match(event, run, before, exprs)
                run = []
            if group is not None:
                result.append(group)
        return result

    def _match(
        self, event: Event, run: list[tuple[range, range]], before: Dims, exprs: list[Said]
    ) -> list[tuple[range, range]]:
        left = range(run[0][0].start, run[-1][0].stop)
        right = range(run[0][1].start, run[-1][1].stop)
        if len(left) == len(right) or not left or not right:
            return run
        said = [j for j in right if not is_one(exprs[j])]
        matched: list[tuple[range, range]] = []
        place = left.start
        for j in right:
            letters = self.letters(event, exprs[j])
            if len(left) == len(said) == 1:
                count = int(j == said[0])
            elif exprs[j] is None or is_rest(exprs[j]):
                count = int(place in left)
            else:
                while place in left and before[place].known and self._other(before, left, place, letters):
                    matched.append((range(place, place + 1), range(j, j)))
                    place += 1
                count = 0
                while place + count in left and before[place + count].label in letters - {None}:
                    count += 1
            matched.append((range(place, place + count), range(j, j + 1)))
            place += count
        return [
            *matched,
            *((range(i, i + 1), range(right.stop, right.stop)) for i in range(place, left.stop)),
        ]

    def _other(self, before: Dims, left: range, place: int, letters: set[str | None]) -> bool:
        """Whether the axis at `place` is not the one that `letters` name, while a later one is."""
        later = {before[i].label for i in left if i > place}
        return before[place].label not in letters and bool(later & letters)

    def _belong(
        self,
        event: Event,
        one: tuple[range, range],
        two: tuple[range, range],
        before: Dims,
        exprs: list[Said],
    ) -> bool:
        parts = [before[place] for place in (*one[0], *two[0])]
        said = [exprs[place] for place in (*one[1], *two[1])]
        if self._folds(event, parts, said) or self._unfolds(event, parts, said):
            return True
        if one[1] and two[1] and len(one[0]) + len(two[0]) <= 1:
            # An axis of the source beside a factor of size 1 of its own.
            first, last = exprs[one[1].start], exprs[two[1].stop - 1]
            letters = self.letter(event, first), self.letter(event, last)
            if not one[0] and not two[0]:
                return letters[0] in ("H", "G") and is_one(last)
            dim = before[(*one[0], *two[0])[0]]
            factors = [factor.label for factor in dim.root().factors or ()]
            if dim.label in ("B", "T", "S") or is_one(first) or is_one(last):
                return False
            if factors:
                return all(letter in factors or letter is None for letter in letters)
            if letters[1] == "D" or (letters[1] is None and is_rest(last)):
                heads = {"H", "G"} & {self.letter(event, exprs[j]) for j in one[1]}
                return bool(heads) or (letters[0] is None and is_rest(first))
            return letters[0] in ("H", "G") and not one[0]
        if len(one[1]) + len(two[1]) == 1:  # an axis of size 1 that is merged into its neighbour
            parts = [before[place] for place in (*one[0], *two[0])]
            if self.space.product(parts) is not None:
                return True
            expr = exprs[(*one[1], *two[1])[0]]
            return isinstance(expr, ast.BinOp) and all(
                dim.label in self.letters(event, expr) for dim in parts
            )
        return False

    def letters(self, event: Event, expr: Said) -> set[str | None]:
        """The letters of the factors of an expression such as `b * self.n_head`."""
        if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Mult):
            return self.letters(event, expr.left) | self.letters(event, expr.right)
        return {self.letter(event, expr)}

    def group(self, event: Event, part: list[Dim], sizes: list[int], exprs: list[Said]) -> list[Dim]:
        if not part or not sizes:
            return [
                self.factor(event, expr, size) or Dim(size) for expr, size in zip(exprs, sizes, strict=True)
            ]
        if len(part) == 1 and len(sizes) == 1:
            return [self._same(event, part[0], exprs[0])]
        if len(part) == 1:
            return self._split(event, part[0], sizes, exprs)
        if len(sizes) == 1:
            return [self.merge(event, part, exprs[0])]
        if self._folds(event, part, exprs) and part[1].size % sizes[1] == 0:
            heads, inner = self._split(event, part[1], [part[1].size // sizes[1], sizes[1]], [None, exprs[1]])
            return [self.merge(event, [part[0], heads], None), inner]
        if self._unfolds(event, part, exprs):
            batch, heads = part[0].root().factors or ()
            return [batch, self.merge(event, [heads, part[1]], exprs[1])]
        fine = [atom for dim in part for atom in atoms(dim)]
        groups = regroup([atom.size for atom in fine], sizes)
        if groups is not None and (len(groups) > 1 or len(fine) == len(sizes)) and len(fine) > len(part):
            result: list[Dim] = []
            for left, right in groups:
                atoms_here = [fine[i] for i in left]
                result += self.group(event, atoms_here, [sizes[j] for j in right], [exprs[j] for j in right])
            return result
        return [Dim(size, mixed=True) for size in sizes]

    def _folds(self, event: Event, part: Sequence[Dim], exprs: Sequence[Said]) -> bool:
        """`view(T, B * H, D)` of [T, B, C]: the channels are cut into heads, which join the batch."""
        if [dim.label for dim in part] != ["B", "C"] or len(exprs) != 2:
            return False
        return {"B", "H"} <= self.letters(event, exprs[0]) and self.letter(event, exprs[1]) == "D"

    def _unfolds(self, event: Event, part: Sequence[Dim], exprs: Sequence[Said]) -> bool:
        """`view(T, B, C)` of [T, B·H, D]."""
        if [dim.label for dim in part] != ["B·H", "D"] or len(exprs) != 2:
            return False
        return [self.letter(event, expr) for expr in exprs] == ["B", "C"]

    def _same(self, event: Event, dim: Dim, expr: Said) -> Dim:
        if not dim.known and not dim.root().mixed:
            named = self.factor(event, expr, dim.size)
            if named is not None:
                dim.become(named)
        return dim

    def _split(self, event: Event, dim: Dim, sizes: list[int], exprs: list[Said]) -> list[Dim]:
        root = dim.root()
        if root.mixed:
            return [Dim(size, mixed=True) for size in sizes]
        heads = self.factor(event, exprs[0], sizes[0])
        heads_first = heads is not None and heads.label in ("H", "G")
        if root.times is not None and root.times[0] == sizes[0] and not heads_first:
            rest = sizes[1:]
            inner = [root.times[1]]
            if len(rest) > 1:
                inner = self._split(event, root.times[1], rest, exprs[1:])
            return [Dim(sizes[0]), *inner]
        if root.factors is not None:
            groups = regroup([factor.size for factor in root.factors], sizes)
            if groups is not None and all(len(left) == 1 for left, _ in groups):
                result: list[Dim] = []
                for left, right in groups:
                    inner_exprs = [exprs[j] for j in right]
                    result += self.group(
                        event, [root.factors[i] for i in left], [sizes[j] for j in right], inner_exprs
                    )
                return result
            if root.merged:
                return [Dim(size, mixed=True) for size in sizes]
        dims = [self.factor(event, expr, size) for expr, size in zip(exprs, sizes, strict=True)]
        self._drop_repeats(dims, root)
        unknown = [i for i, found in enumerate(dims) if found is None]
        letters = {found.label for found in dims if found is not None}
        whole = root.label not in ("H", "G", "D")  # heads that are cut again are no channels
        if len(unknown) == 1 and letters & {"H", "G"} and "D" not in letters and whole:
            size = sizes[unknown[0]]
            count = root.times[0] if root.times is not None and size % root.times[0] == 0 else 1
            dims[unknown[0]] = self.space.multiple(count, self.space.named("D", size // count))
        elif len(unknown) == 1 and letters == {"D"} and len(sizes) == 2:
            dims[unknown[0]] = self.heads(sizes[unknown[0]])
        elif len(unknown) == 2 and len(sizes) == 2 and root.label == "C":
            heads = self.space.find("H", sizes[0])
            if heads is not None:
                dims = [heads, self.space.named("D", sizes[1])]
        final = [found or Dim(size) for found, size in zip(dims, sizes, strict=True)]
        if all(found.known for found in final):
            self.space.is_product(root, final)
        return final

    def heads(self, size: int) -> Dim:
        """An axis that can only be heads: query heads, or, where those are more, key/value heads."""
        known = self.space.find("H", size) or self.space.find("G", size)
        if known is not None:
            return known
        heads = self.space.find("H")
        grouped = heads is not None and heads.size > size and heads.size % size == 0
        return self.space.named("G" if grouped else "H", size)

    def _drop_repeats(self, dims: list[Dim | None], whole: Dim) -> None:
        """A factor cannot be the whole, nor can two factors be one dimension."""
        seen: set[int] = set()
        for i, dim in enumerate(dims):
            if dim is None:
                continue
            # Channels hold heads: an axis cut out of C is not T or B, whatever its expression says.
            outside = whole.label in ("C", "H·D") and dim.label in ("T", "B", "S", "C")
            if id(dim.root()) in seen or dim.root() is whole or outside:
                dims[i] = None
            seen.add(id(dim.root()))

    def merge(self, event: Event, part: list[Dim], expr: Said) -> Dim:
        whole = self.space.product(part)
        if whole is not None:
            return whole
        real = [dim for dim in part if dim.size != 1 or dim.known] or part[:1]
        if len(real) == 1:
            return real[0]
        if any(dim.root().mixed for dim in real):
            return Dim(total(real), mixed=True)
        known = self.space.product(real)
        if known is not None:
            return known
        if len(real) == 2:  # rotary pairs: the halves of D, taken side by side, are D again
            for one, other in (real, real[::-1]):
                part_of = one.root().part
                if part_of is not None and part_of[1] == other.size and not other.known:
                    return part_of[0]
        said = self.factor(event, expr, total(real))
        labels = [dim.label for dim in real]
        if said is not None and not said.root().mixed:
            heads_first = labels[0] in ("H", "G") and labels[-1] in ("D", None)
            repeated = labels[0] == "G" and said.label == "H"
            if repeated or (heads_first and said.label == "C") or None in labels[:1]:
                self.space.is_product(said, real)
                return said
        if labels[0] == "G":
            heads = self.space.find("H", total(real))
            if heads is not None and len(real) == 2 and labels[1] not in ("D", "T", "S"):
                return heads
        return self.space.composite(real)

    # -- products ------------------------------------------------------------------------------------------

    def product(self, left: Dims, right: Dims, left_ref: int | None, right_ref: int | None) -> Dims:
        """[… n k] @ [… k m] → [… n m]; where both n and m are tokens, m is keys."""
        if len(left) < 2 or len(right) < 2:
            raise ValueError("a product with a vector")
        inner, other = left[-1], right[-2]
        if not other.known and inner.known:
            other.become(inner)
        elif other.known and not inner.known:
            inner.become(other)
        rows, columns = left[-2], right[-1]
        if rows.label == "T" and columns.label == "T":
            columns = self.space.named("S", columns.size)
            if right_ref is not None:
                self.seen_as[(self.index, right_ref)] = (*right[:-1], columns)
        if rows.label == "T" and columns.label == "S":
            self.head_axis(inner)
            if not other.known:
                other.become(inner)
        if left[-1].label == "S" and right[-2].label == "T" and right_ref is not None:
            self.seen_as[(self.index, right_ref)] = (*right[:-2], left[-1], right[-1])
        if left[-1].label == "S" and rows.label == "T":
            self.head_axis(columns)  # what the weights mix are values, whose channels are one head's
        batch = self.broadcast([left[:-2], right[:-2]]) if len(left) > 2 or len(right) > 2 else ()
        return (*batch, rows, columns)

    def head_axis(self, dim: Dim) -> None:
        """The axis over which queries meet keys is D, unless it has a name that says more."""
        root = dim.root()
        if not root.known:
            dim.become(self.space.named("D", dim.size))
        elif root.part is not None and root.part[0].label == "C":
            root.name = "D"  # a single head's share of the channels

    def projection(self, event: Event, inside: Dim, size: int) -> Dim:
        """The output axis of a linear layer over the axis `inside`."""
        inside = inside.root()
        said, multiple = self._declared(event, size)
        if said is not None and (said.label != inside.label or said.size == inside.size):
            return said
        if multiple is None and size == inside.size:
            return inside
        if inside.times is not None and inside.times[1].size == size:
            return inside.times[1]
        count = multiple if multiple is not None else 3
        if inside.known and size == count * inside.size:
            return self.space.multiple(count, inside)
        if multiple is not None and size % multiple == 0:
            return self.space.multiple(multiple, Dim(size // multiple))
        channels = self.space.find("C", size)
        return channels if channels is not None and not channels.root().mixed else Dim(size)

    def _declared(self, event: Event, size: int) -> tuple[Dim | None, int | None]:
        """What the constructor says of the called layer: `self.key = nn.Linear(C, head_size)`.

        The dimension that the output width names, and k where it is k times something (`3 * d`).
        """
        place = node_at(event.code, event.lasti) if event.code is not None else None
        if place is None:
            return None, None
        file, node = place
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return None, None
        around = next((p for p in file.ancestors(node) if isinstance(p, ast.ClassDef)), None)
        made = self.scope.attributes(around).get(node.func.attr) if around is not None else None
        if not isinstance(made, ast.Call):
            return None, None
        named = {item.arg: item.value for item in made.keywords if item.arg}
        expr = named.get("out_features", made.args[1] if len(made.args) > 1 else None)
        if expr is None:
            return None, None
        letter = self.scope.letter(file, expr)
        # Two widths both called C would be a confusion; the second one stays without a name.
        if letter == "C" and self.space.find("C") not in (None, self.space.find("C", size)):
            letter = None
        return self.space.named(letter, size) if letter is not None else None, self.scope.multiple(file, expr)

    # -- indexing ------------------------------------------------------------------------------------------

    def index_dims(self, event: Event) -> Dims:
        """The dimensions of `x[…]`."""
        before = list(self.dims(event.args[0]))
        items = event.args[1] if isinstance(event.args[1], tuple) else (event.args[1],)
        exprs = self._index_expressions(event, len(items))
        used = sum(1 for item in items if item is not None and item is not Ellipsis)
        out = list(self.recording.made[event.outputs[0]][0])
        result: list[Dim] = []
        place = 0
        for item, expr in zip(items, exprs, strict=True):
            if item is Ellipsis:
                keep = len(before) - used
                result += before[place : place + keep]
                place += keep
            elif item is None:
                result.append(Dim(1))
            elif isinstance(item, Ref):
                index = self.dims(item)
                if "bool" in str(self.recording.made[item][2]):
                    raise ValueError("a boolean index")
                result += index
                place += 1
            elif isinstance(item, int):
                place += 1
            elif isinstance(item, slice):
                size = out[len(result)]
                result.append(self._slice(event, before[place], size, item, expr, event.args[0]))
                place += 1
            else:
                raise ValueError("an index of another kind")
        result += before[place:]
        return tuple(result)

    def _slice(self, event: Event, dim: Dim, size: int, item: slice, expr: Said, _: int) -> Dim:
        if size == dim.size:
            return dim
        if isinstance(expr, ast.Slice) and expr.upper is not None and expr.lower is None:
            named = self.factor(event, expr.upper, size)
            if named is not None:
                return named
        root = dim.root()
        if root.times is not None and size % root.times[1].size == 0:
            return self.space.multiple(size // root.times[1].size, root.times[1])
        if root.label in ("T", "S", "B"):
            return self.space.named(str(root.label), size)
        if root.known and root.label == "D" and size * 2 == dim.size:
            return self.space.part(root, 2)
        return Dim(size)

    def _index_expressions(self, event: Event, count: int) -> list[Said]:
        place = self.place(event)
        if place is None or not isinstance(place[1], ast.Subscript):
            return [None] * count
        inner = place[1].slice
        items = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
        return list(items) if len(items) == count else [None] * count
