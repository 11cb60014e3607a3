"""The data that a trace is made of: frozen dataclasses, no torch, no glyph, no colour.

Everything that attnscope prints, saves or hands to a notebook is drawn from these. Axis letters:
`B` batch, `T` tokens (queries), `S` keys, `C` channels, `H` heads, `G` key/value heads, `D` head
dimension; `None` where nothing decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:  # numpy is imported where arrays are made: `import attnscope` stays light
    import numpy as np
    from numpy.typing import NDArray

Memory = Literal["view", "copy", "new", "in-place"]
Source = Literal["softmax", "sdpa", "mha"]
Severity = Literal["error", "warning", "note"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Later(Generic[T]):
    """What a field declared `MayWait` may be given in place of its value: how it is worked out."""

    build: Callable[[], T]


class MayWait(Generic[T]):
    """A field whose value may be worked out when it is first read; it is a plain value from then on.

    Naming and explaining what was recorded costs more than recording it: nobody pays who does not look.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> T:
        if instance is None:
            raise AttributeError(self._name)  # for the dataclass: there is no default
        fields = vars(instance)
        value = fields[self._name]
        if isinstance(value, Later):
            value = fields[self._name] = value.build()
        return value  # type: ignore[no-any-return]

    def __set__(self, instance: object, value: T | Later[T]) -> None:
        vars(instance)[self._name] = value


class Shown:
    """Shows itself: drawn as text where it is printed, as HTML in a notebook, by the same renderers."""

    __slots__ = ()

    def __repr__(self) -> str:
        from attnscope.render.show import shown

        return shown(self)

    def _repr_html_(self) -> str:
        from attnscope.render.show import shown

        return shown(self, html=True)


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its place in the text, its id, and its text in a form that is safe to print.

    `piece` shows spaces and line ends as visible marks and broken bytes as `\\xf0`; `raw` are the bytes.
    """

    index: int
    id: int
    piece: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of source. Columns count characters from 1, the end is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Label:
    """A span of the user's source and what is to be said of it (lower case, no final full stop)."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `span` is where it shows; `labels` say why, `notes` what was observed, `help` how to mend.

    `message` says what is wrong and never how to mend it. `evidence` is a small table (header row first)
    of the numbers that prove a silent fault; empty for a crash. `label` is what stands under `span`.
    `module` is the path of the attention that was judged by itself, or of the module in which the step that
    is blamed stands; empty where that is the target itself.
    """

    code: str
    severity: Severity
    message: str
    span: Span | None = None
    label: str = ""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str = ""
    evidence: tuple[tuple[str, ...], ...] = ()
    module: str = ""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What is known of one tensor at one step. `axes` has a name or None for each axis of `shape`."""

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    dtype: str
    stride: tuple[int, ...]
    contiguous: bool
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Step:
    """One tensor operation that the module's own source calls.

    `module` is the path of the module in whose code the line stands ("" for the traced module itself);
    `variable` is what the line assigns (None inside a chain); `detail` explains the arguments, e.g.
    `C 16 → H 2 × D 8`. `noncontiguous_since` is the index of the step that made the (first) output
    non-contiguous. `inner` steps belong to PyTorch's own code. A step that raised has `error` set and
    no outputs.
    """

    index: int
    module: str
    op: str
    detail: str
    variable: str | None
    span: Span
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    memory: Memory
    noncontiguous_since: int | None = None
    inner: bool = False
    error: str | None = None
    values: tuple[NDArray[Any], ...] | None = None

    @property
    def file(self) -> str:
        return self.span.file

    @property
    def line(self) -> int:
        return self.span.line


@dataclass(frozen=True, slots=True)
class MaskOrigin:
    """Where an applied mask came from: a buffer, a parameter, an argument, `is_causal`, or a line."""

    kind: Literal["buffer", "parameter", "attribute", "argument", "is_causal", "made", "none"]
    name: str | None = None
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Pooled:
    """Weights reduced for the eye: summed over the keys of a block, averaged over its queries.

    `weights` is [B, H, T', S']; one cell stands for `factor` = (queries, keys). `top_keys` and
    `top_weights` are [B, H, T, k]: the heaviest keys of each query, heaviest first.
    """

    weights: NDArray[np.float32]
    factor: tuple[int, int]
    top_keys: NDArray[np.int64]
    top_weights: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention that the trace found.

    `mask` is [B or 1, T, S], True = may attend: what was in fact applied. `weights` is [B, H, T, S] as the
    softmax gave them (after that nothing: dropout comes later), or None where only `pooled` was kept.
    `scores` is [B, H, T, S] before the mask, on request. `step` is the index of the step that made the
    weights (None when it is hidden inside PyTorch).
    """

    module: str
    source: Source
    step: int | None
    heads: int
    shape: tuple[int, int, int, int]
    mask: NDArray[np.bool_] | None
    mask_origin: MaskOrigin
    weights: NDArray[Any] | None
    pooled: Pooled | None = None
    scores: NDArray[Any] | None = None
    note: str = ""


@dataclass(frozen=True)
class ModelInfo:
    """What ran: a built-in `layer` or a `target`, its sizes, its seed, and where its weights are from."""

    layer: str | None
    target: str | None
    config: Mapping[str, Any]
    seed: int | None
    weights: str
    parameters: MayWait[int] = MayWait()
    guesses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Output:
    """The module's (first) output tensor: its info and, on request, its values."""

    info: MayWait[TensorInfo] = MayWait()
    values: NDArray[Any] | None = None


@dataclass(frozen=True, repr=False)
class Trace(Shown):
    """Everything that one run of a module showed."""

    model: ModelInfo
    tokens: tuple[Token, ...]
    output: Output | None
    steps: MayWait[tuple[Step, ...]] = MayWait()
    attention: MayWait[tuple[Attention, ...]] = MayWait()
    findings: tuple[Diagnostic, ...] = ()
    notes: tuple[str, ...] = ()
    embedding: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Mask(Shown):
    """A mask [queries, keys], True = may attend, and the lines of torch that build it.

    `torch_lines` maps a convention (`allowed`, `blocked`, `additive`) to one line of code.
    """

    kind: str
    allowed: NDArray[np.bool_]
    parameters: Mapping[str, int]
    torch_lines: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How a tensor's elements lie: `numbers` are their places in the input, in logical order.

    `memory` holds the same numbers in the order in which they lie there; element [i, j, …] stands at
    `offset + i * strides[0] + j * strides[1] + …`.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    contiguous: bool
    numbers: NDArray[np.int64]
    memory: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReshapeStep:
    """One step of a chain, on a tensor of shape `given`: the tensors that it gave, one of most steps.

    `memory`: `view` shares the memory of what it was given, `same` is that very tensor, `copy` has its own.
    A step that cannot be done has `error`, the reason, and `cures`, texts that could stand in its place.
    """

    text: str
    op: str
    memory: Literal["view", "copy", "same", "none"]
    outputs: tuple[Arrangement, ...]
    given: tuple[int, ...]
    error: str | None = None
    cures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Reshaping(Shown):
    """What a chain of views does to a tensor of `shape` whose elements are numbered in memory order."""

    chain: str
    shape: tuple[int, ...]
    input: Arrangement
    steps: tuple[ReshapeStep, ...]

    @property
    def failed(self) -> bool:
        """True when the last step cannot be done: exit code 1."""
        return any(step.error is not None for step in self.steps)


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """One row of `attnscope layers`, known without torch."""

    name: str
    title: str
    source: str
    options: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    steps: str
