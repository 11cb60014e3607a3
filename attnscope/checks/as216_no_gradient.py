"""AS216: parameters that get no gradient.

After a forward and a backward pass some parameters have no gradient at all: no output depends on them, or the
way back to them is cut.

It is bad because they never learn. Most often another layer was called in their place: the key projection for
the query, for instance.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x):
            q, k, v = self.k(x), self.k(x), self.v(x)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

Cure: call each projection that was made; delete what is not wanted; leave `.detach()`, `.data` and
`torch.no_grad()` out of what is to be trained.

    - q, k, v = self.k(x), self.k(x), self.v(x)
    + q, k, v = self.q(x), self.k(x), self.v(x)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.checks.lab import Lab
from attnscope.checks.places import counted, declared, listed, reads_outside_constructor
from attnscope.checks.roles import projections
from attnscope.checks.subject import parts
from attnscope.checks.unused_share import Idle, unused_shares
from attnscope.diagnostic import Diagnostic, Label, Tried
from attnscope.sandbox.copying import copied
from attnscope.sandbox.state import quiet, seeded

CODE = "AS216"


@dataclass(frozen=True)
class Backward:
    """One backward pass: parameters left without a gradient, and which share of a matrix's rows got zeros."""

    missing: list[str]
    zeros: dict[str, float]


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    missing = without_gradient(lab)
    if missing is None:
        return
    wanted = [n for n, p in lab.subject.module.named_parameters() if p.requires_grad]
    if not wanted:
        return
    yield Tried(
        "gradients",
        f"{len(wanted) - len(missing)} of {counted(len(wanted), 'parameter')} get one",
        not missing,
    )
    by_module: dict[str, list[str]] = {}
    for name in missing:
        by_module.setdefault(name.rpartition(".")[0], []).append(name)
    called = _called(lab)
    groups: dict[str, list[str]] = {"unused": [], "swapped": [], "cut": [], "idle": []}
    twice = [name for name, number in called.items() if number > 1]
    modules = dict(parts(lab.subject.module))
    for path, names in by_module.items():
        groups[_kind(path, names, modules, called, lab)] += [path or names[0]]
    idle = sorted(p for p in groups["unused"] + groups["idle"] if not called.get(p))
    swapped, again = _swapped(idle, twice, modules, called)
    if swapped:
        yield _instead(lab, swapped, again, modules, called)
        for kind in ("unused", "idle"):
            groups[kind] = [p for p in groups[kind] if p not in swapped]
    if groups["unused"]:
        yield _unused(lab, sorted(groups["unused"]), modules)
    without_effect = [path for path in groups["cut"] if not _moves_output(lab, by_module, path)]
    groups["cut"] = [path for path in groups["cut"] if path not in without_effect]
    groups["idle"] += without_effect
    if groups["cut"]:
        yield _cut(lab, groups["cut"], modules)
    else:
        partly = _partly(lab)
        if partly:
            yield _cut(lab, partly, modules)
    done = lab.once(_backward)
    for part in unused_shares(lab, done.zeros if done is not None else {}):
        yield _same(lab, part)
    if groups["idle"]:
        yield Diagnostic(
            CODE,
            "note",
            f"{listed(sorted(groups['idle']))} had no part in this run and got no gradient",
            notes=("it may be for other inputs or options",),
        )


def _same(lab: Lab, part: Idle) -> Diagnostic:
    sides, share = " and ".join(part.names), f"{100 * part.share:.0f} %"
    event = part.one.found.product.event if part.one.found.product is not None else part.one.event
    return Diagnostic(
        CODE, "error", f"{sides} are the same numbers, and {share} of `{part.parameter}` has no effect",
        lab.span(event), f"both come from one part of `{part.parameter}`", (),
        (f"{share} of its rows get a gradient of exactly zero",),
        f"take {sides} from parts of their own", module=lab.steps.owner(part.one.found.call),
    )  # fmt: skip


def without_gradient(lab: Lab) -> list[str] | None:
    """Names of the parameters that a backward pass leaves without a gradient; None where there was no
    pass."""
    done = lab.once(_backward)
    return None if done is None else done.missing


def _partly(lab: Lab) -> list[str]:
    """Projections of queries and keys a good part of which gets a gradient of exactly zero, where a step
    cuts."""
    done = lab.once(_backward)
    zeros = {} if done is None else done.zeros
    index = _cutter(lab)
    if index is None or not lab.maps:
        return []
    made = set().union(*(projections(lab, one) for one in lab.maps))
    return sorted(name for name in made if zeros.get(name, 0.0) >= 0.3)


def _backward(lab: Lab) -> Backward | None:
    lab.spend(3)
    subject = lab.exact
    module = copied(subject.module)
    if module is None:
        return None
    with quiet(subject.environment), seeded(0), torch.enable_grad():
        try:
            module.train()
            for p in module.parameters():
                p.grad = None
            result = module(*_wanting(subject.args), **{k: _wanting(v) for k, v in subject.kwargs.items()})
            total = _total(result)
            if total is None or not total.requires_grad:
                return None
            total.backward()  # type: ignore[no-untyped-call]
        except KeyboardInterrupt:
            raise
        except BaseException:
            return None
    given = dict(module.named_parameters())
    return Backward(
        [name for name, p in given.items() if p.requires_grad and p.grad is None],
        {name: _zero_share(p.grad) for name, p in given.items() if p.grad is not None and p.dim() == 2},
    )


def _moves_output(lab: Lab, by_module: dict[str, list[str]], path: str) -> bool:
    """Whether other values of a module's parameters give another output: only then they take part in it."""
    names = {name for module, found in by_module.items() for name in found if (module or found[0]) == path}
    module = copied(lab.exact.module)
    base = lab.base.output
    if module is None or base is None:
        return True
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name in names and p.is_floating_point():
                p.copy_(torch.randn(p.shape, generator=generator).to(p))
    other = lab.run(module=module).output
    return other is None or other.shape != base.shape or not torch.equal(other, base)


def _zero_share(gradient: Tensor) -> float:
    """The share of rows, or of columns, that are exactly zero."""
    if gradient.is_sparse:
        return 0.0
    return max(float((gradient == 0).all(dim=axis).double().mean()) for axis in (0, 1))


def _wanting(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _total(result: Any, depth: int = 0) -> Tensor | None:
    """A number that depends on every floating number of a result."""
    if isinstance(result, Tensor):
        if not result.is_floating_point() and not result.is_complex():
            return None
        value = torch.view_as_real(result) if result.is_complex() else result
        return (value * torch.randn_like(value)).sum() if value.requires_grad else None
    if depth > 4:
        return None
    items = list(result.values()) if isinstance(result, dict) else result
    if not isinstance(items, tuple | list):
        items = (
            list(vars(items).values())
            if hasattr(items, "__dict__") and not isinstance(items, nn.Module)
            else []
        )
    totals = [t for t in (_total(item, depth + 1) for item in items) if t is not None]
    return sum(totals[1:], totals[0]) if totals else None


def _called(lab: Lab) -> dict[str, int]:
    """How often each registered module was called in the recorded run."""
    called: dict[str, int] = {}
    for index in range(len(lab.recording.calls)):
        path = lab.recording.path_of(index)
        called[path] = called.get(path, 0) + 1
    return called


def _kind(
    path: str, names: list[str], modules: dict[str, nn.Module], called: dict[str, int], lab: Lab
) -> str:
    """Why parameters of one module got no gradient: `unused`, `cut` (used, way back cut) or `idle` (not
    known)."""
    used = set(lab.recording.leaves.values())
    inside = dict(parts(lab.recording.root)).get(path)
    if inside is not None:
        table = vars(inside).get("_parameters") or {}
        if any(id(table.get(name.rpartition(".")[2])) in used for name in names):
            return "cut"
    owner_path, _, attribute = (path or names[0]).rpartition(".")
    owner = modules.get(owner_path)
    if owner is None or (owner_path and not called.get(owner_path)):
        return "idle"
    if type(owner).__module__.startswith("torch.nn"):
        return "idle"
    if reads_outside_constructor(owner, attribute):
        # Read in a branch that was not taken: another option may use it. Called elsewhere in the same run:
        # cut.
        return "idle"
    return "unused"


def _turn_of(path: str, other: str, modules: dict[str, nn.Module]) -> int | None:
    """How many entries the list has of which two layers are one and the same part, each in an entry of its
    own."""
    left, right = path.split("."), other.split(".")
    apart = [i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b]
    if len(left) != len(right) or len(apart) != 1 or not (left[apart[0]] + right[apart[0]]).isdigit():
        return None
    entries = modules.get(".".join(left[: apart[0]]))
    return len(entries) if isinstance(entries, nn.ModuleList) else None


def _swapped(
    idle: list[str], twice: list[str], modules: dict[str, nn.Module], called: dict[str, int]
) -> tuple[list[str], list[str]]:
    """Layers that never ran though one of the same size ran more than once in their place: one beside it, or
    the same layer of another entry of a list, called as often as the list is long; and those."""
    never, again = [], []
    for path in idle:
        part = modules.get(path)
        for other in twice:
            like = modules.get(other)
            if not isinstance(part, nn.Linear) or not isinstance(like, nn.Linear):
                continue
            same = (part.in_features, part.out_features) == (like.in_features, like.out_features)
            beside = other.rpartition(".")[0] == path.rpartition(".")[0]
            if same and (beside or _turn_of(path, other, modules) == called.get(other)):
                never.append(path)
                again.append(other)
                break
    return never, list(dict.fromkeys(again))


def _owner(path: str, modules: dict[str, nn.Module]) -> tuple[nn.Module | None, str]:
    owner, _, name = path.rpartition(".")
    return modules.get(owner), name


def _instead(
    lab: Lab, unused: list[str], twice: list[str], modules: dict[str, nn.Module], called: dict[str, int]
) -> Diagnostic:
    recording = lab.recording
    calls = [
        i for i, event in enumerate(recording.events)
        if event.op.name == "linear" and event.call >= 0 and recording.path_of(event.call) in twice
    ]  # fmt: skip
    spans = [span for span in (lab.span(i) for i in calls) if span is not None]
    distinct = list(dict.fromkeys(spans))
    owner, name = _owner(unused[0], modules)
    made = declared(owner, name) if owner is not None else None
    labels = [Label(span, f"`{twice[0]}` again") for span in distinct[1:3]]
    if made is not None:
        labels.append(Label(made, f"{listed(unused)} made here, and never called"))
    help_ = f"call {listed(unused)} where it is meant"
    if _turn_of(unused[0], twice[0], modules) is not None:
        pairs = zip(unused[0].split("."), twice[0].split("."), strict=True)
        entries = ".".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        help_ = (
            f"go over all entries: `for layer in self.{entries}`, or index it with the loop's own variable"
        )
    rows = [("layer", "calls"), *((p, str(called.get(p, 0))) for p in (*twice, *unused))]
    return Diagnostic(
        CODE, "error", (f"{listed(unused)} {'is' if len(unused) == 1 else 'are'} never used: "
            f"`{twice[0]}` is called {called[twice[0]]} times"),
        distinct[0] if distinct else made, f"`{twice[0]}` is called here", tuple(labels),
        ("their weights get no gradient",), help_, tuple(rows),
    )  # fmt: skip


def _unused(lab: Lab, paths: list[str], modules: dict[str, nn.Module]) -> Diagnostic:
    owner, name = _owner(paths[0], modules)
    made = declared(owner, name) if owner is not None else None
    return Diagnostic(
        CODE, "error", (f"{listed(paths)} {'is' if len(paths) == 1 else 'are'} never used: no "
            "gradient, no effect"),
        made, "made here, and read by no method", (), ("no output depends on it",),
        "use it in `forward`, or delete it",
        (("parameter", "gradient"), *((p, "none") for p in paths[:8])),
    )  # fmt: skip


def _cut(lab: Lab, paths: list[str], modules: dict[str, nn.Module]) -> Diagnostic:
    index = _cutter(lab)
    span = lab.span(index)
    event = lab.recording.events[index] if index is not None else None
    owner, name = _owner(paths[0], modules)
    made = declared(owner, name) if owner is not None else None
    labels = [Label(made, "gets no gradient")] if made is not None else []
    word = f"`{event.op.name}` cuts the way back" if event is not None else "the way back is cut"
    return Diagnostic(
        CODE, "error", (f"{listed(sorted(paths))} {'takes' if len(paths) == 1 else 'take'} part in "
            "the output and get no gradient"),
        span if span is not None else made, word, tuple(labels) if span is not None else (), (),
        ("leave `.detach()`, `.data` and `torch.no_grad()` out of the way, or freeze with "
            "`requires_grad_(False)`"),
        (("parameter", "gradient"), *((p, "none") for p in sorted(paths)[:8])),
    )  # fmt: skip


def _cutter(lab: Lab) -> int | None:
    for index, event in enumerate(lab.recording.events):
        cuts = event.op.name in ("detach", "detach_", "data", "numpy", "round", "argmax", "tolist", "item")
        if cuts and any(ref in lab.lineage.active for ref in lab.lineage.refs(event)):
            return index
    return None
