"""The registry of operators: one registration carries schema, shape rule, kernels and gradient.

    relu = operator("relu", doc="...", inputs=[Slot("x", "...")], outputs=[Slot("out", "...")],
                    shape=same_as("x"))

    @relu.kernel
    def relu_kernel(k: KernelArgs) -> Call:
        return partial(k.xp.maximum, k["x"], 0, out=k["out"])

    @relu.backward()
    def relu_grad_kernel(k: KernelArgs) -> Call:
        ...

`framework` knows operators by these entries alone; packages of third parties add theirs through the
entry-point group `opscope.operators`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import numpy as np

from ...proto import net_pb2 as pb
from ..base.errors import OpscopeError, UnknownOperatorError, nearest
from ..base.machine.installed import any_elsewhere
from ..base.options.plugins import entry_points, load_plugin
from ..base.python.cached import new_waiting_rlock
from ..base.sizes.shape import ArraySpec, OperatorView, Shape, ShapeArgs, ShapeRule
from .gradient_args import GradientArgs, GradientMaker, check_forward
from .kernel_args import Call, KernelArgs
from .messages import encode_attr
from .op_list import OpNode
from .rows import RowsRule
from .schema import REQUIRED, AttrSpec, Slot

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

ENTRY_POINTS = "opscope.operators"
BUILTIN_OPERATORS = "...operators.all"  # by name: framework imports no operator
COMMON_OPERATORS = "...operators.common"  # of these, what most nets are made of
EVERYWHERE = ("cpu", "gpu")
"""The devices, for `takes_halves`."""
REFERENCE = "xp"
"""The library of the kernels that NumPy and CuPy share, against which all others are tested."""


Kernel = Callable[[KernelArgs], Call | None]
"""Binds an operator to arrays and returns the call that computes it; None where it declines."""
Bind = TypeVar("Bind", bound=Kernel)
Maker = TypeVar("Maker", bound=GradientMaker)
Form = TypeVar("Form", bound=Callable[[Any], None])
Given = ParamSpec("Given")
Expansion = Callable[[OpNode], list[OpNode]]
"""From a composite operator to simpler ones that compute the same."""
StateRule = Callable[[Sequence[Shape], np.dtype, Mapping[str, Any]], Mapping[str, ArraySpec]]
"""From shapes and dtype of the parameters, and attributes, to the (shape, dtype) of each state."""
EpilogueSplit = Callable[[OperatorView], list[OpNode]]
"""From an operator to a head and its elementwise epilogue; no operators where it has none."""


@dataclass(frozen=True)
class KernelEntry:
    """A kernel and where it applies. It may decline by returning None.

    Args:
        bind: makes the call. device: "cpu", "gpu", or "" for both.
        dtypes: None for all. library: `REFERENCE`, or the name of a faster one ("mkl").
        in_loops: it serves in the steps of loops only, whose weights are prepared beforehand.
        channels_last: slots whose arrays [N, C, ...] it takes with their channels last in memory;
            those in one group lie alike (see runtime/plans/layouts.py).
        tails: types of operators that it computes along with its own, in this order, where they
            alone read its result, as their first input or as the one that `TYPE.SLOT` names; any of
            them may be left out (see runtime/fused/tails.py).
        inference_tails: the tails that it takes only in runs without training.
        epilogues: it also computes a loop of elementwise operators that follows (see tails.py).
        spans: of an operator and those after it, how many after it the kernel computes with it as
            one step, of which each alone reads the result of the one before; it takes nothing else.
    """

    bind: Kernel
    _: KW_ONLY
    device: str = ""
    dtypes: InitVar[Iterable[DTypeLike] | None] = None
    library: str = REFERENCE
    in_loops: bool = False
    channels_last: tuple[tuple[str, ...], ...] = ()
    tails: tuple[str, ...] = ()
    inference_tails: tuple[str, ...] = ()
    epilogues: bool = False
    spans: Callable[[Sequence[OperatorView]], int] | None = None
    only: frozenset[np.dtype] | None = field(init=False, default=None)

    def __post_init__(self, dtypes: Iterable[DTypeLike] | None) -> None:
        if dtypes is not None:
            object.__setattr__(self, "only", frozenset(np.dtype(dtype) for dtype in dtypes))


class KernelAdder(Generic[Given]):
    """Decorator: a kernel; without arguments the reference one, for NumPy and CuPy alike.

    `KernelEntry` describes the arguments.
    """

    def __init__(
        self, entry: OperatorDef, make: Callable[Concatenate[Kernel, Given], KernelEntry]
    ) -> None:
        self._entry = entry
        self._make = make

    @overload
    def __call__(self, bind: Bind, *given: Given.args, **named: Given.kwargs) -> Bind: ...

    @overload
    def __call__(self, *given: Given.args, **named: Given.kwargs) -> Callable[[Bind], Bind]: ...

    def __call__(self, bind: Any = None, *given: Any, **named: Any) -> Any:
        def add(bind: Any) -> Any:
            self._entry.add_kernel(self._make(bind, *given, **named))
            return bind

        return add if bind is None else add(bind)


@dataclass(eq=False)
class OperatorDef:
    """The entry of one operator type in the registry; `operator` makes and registers it.

    Args:
        doc: what it computes, with shapes; without it there is no registration.
        source: paper, or file of the original program.
        scalar: for elementwise operators, the C expression of an output's element in terms of
            slots and attributes (`x > 0 ? x : alpha * x`); several outputs: slot -> expression.
        no_gradient: why there is none.
        random: the result depends on the random state (such operators are never merged).
        world: it and its gradient touch the world outside, other ranks say: no pass drops it,
            merges it, or moves it past another one.
        boundary: it computes nothing; runs end there, and go on there or elsewhere. A list that
            ends with one is run again: after the one before, it hands values to what ran already.
        joins: an input slot whose variables the plan lays out side by side in memory, where they
            are temporaries: a bucket, which is sent without packing (see `KernelArgs.joined`).
        rows: when it works on each row by itself (see rows.py); not needed beside `scalar`.
        accumulates: its kernels, where all inputs are matrices, add to what the output holds if
            `k.accumulate` says so.
        column_views: for operators that only copy, the slots of an array and of its parts side by
            side along the attribute `axis`; these may be views of its columns instead.
        takes_range: for operators that only copy, of one and the number of channels of its input:
            the first channel, where its output is a range of them and of nothing else; -1: it is
            not.
        reshapes: the first output has the elements of the first input in their order. Where nothing
            writes to either of them afterwards, both are one memory.
        state_rule: for optimizers whose states are not of the parameter's shape; see
            passes/optimizer.py.
        takes_halves: devices on which its kernels and its gradient's kernels get float16 and
            bfloat16 as they are: they only move values, or are exact enough by themselves. All
            others see float32 (see framework/runtime/halves.py).
        whole: a composite that stands for one operator and names all variables of it: a net keeps
            it as it was written, in its op list and in files, and runs the other.
        judges: of a loss or metric, the input slot of what it judges (see results.py).
        beside: output slots that are results of a net only where somebody names them.

    Attributes:
        expressions: output slot -> its scalar expression.
        shape_only, intermediate: names of the slots that have these flags.
        inplace: output slot -> the input slot that it may write over.
        module: whose import registers it; "" where a function does it later.
        forms: what writes it for another system; see `form`.

    Raises:
        OpscopeError: no doc text.
    """

    type: str
    _: KW_ONLY
    doc: str
    inputs: Sequence[Slot] = ()
    outputs: Sequence[Slot] = ()
    attrs: Sequence[AttrSpec] = ()
    source: str = ""
    shape: ShapeRule | None = None
    scalar: str | Mapping[str, str] | None = None
    no_gradient: str = ""
    random: bool = False
    world: bool = False
    joins: str = ""
    rows: RowsRule | None = None
    accumulates: bool = False
    column_views: tuple[str, str] | None = None
    takes_range: Callable[[OperatorView, int], int] | None = None
    reshapes: bool = False
    state_rule: StateRule | None = None
    takes_halves: tuple[str, ...] = ()
    boundary: bool = False
    whole: bool = False
    judges: str = ""
    beside: tuple[str, ...] = ()
    gradient: GradientMaker | None = field(init=False, default=None)
    expand: Expansion | None = field(init=False, default=None)
    split_epilogue: EpilogueSplit | None = field(init=False, default=None)
    forms: dict[str, Callable[[Any], None]] = field(init=False, default_factory=dict)
    kernels: list[KernelEntry] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if not self.doc.strip():
            raise OpscopeError(f"operator {self.type!r} has no doc text, so it is not registered")
        self.module = _module_being_imported()
        self.inputs = tuple(self.inputs)
        self.outputs = tuple(self.outputs)
        self.attrs = tuple(self.attrs)
        scalar = self.scalar or {}
        self.expressions = {self.outputs[0].name: scalar} if isinstance(scalar, str) else scalar
        self.kernel = KernelAdder(self, KernelEntry)
        self.input_slots = {slot.name: slot for slot in self.inputs}
        self.output_slots = {slot.name: slot for slot in self.outputs}
        self.shape_only = frozenset(slot.name for slot in self.inputs if slot.shape_only)
        self.intermediate = frozenset(slot.name for slot in self.outputs if slot.intermediate)
        self.inplace = {slot.name: slot.inplace for slot in self.outputs if slot.inplace}
        self.attr_specs = {attr.name: attr for attr in self.attrs}
        self._fitting: dict[Any, list[KernelEntry]] = {}  # what `kernels_for` has found
        self.required_inputs, self.required_outputs = (
            tuple([slot for slot in slots if not slot.optional and not slot.intermediate])
            for slots in (self.inputs, self.outputs)
        )

    def shape_rule(self, rule: ShapeRule) -> ShapeRule:
        """Decorator: the shape rule."""
        self.shape = rule
        return rule

    def add_kernel(self, kernel: KernelEntry) -> None:
        self.kernels.append(kernel)
        # A third party's kernel may come after a plan has asked already.
        self._fitting.clear()

    def expansion(self, expand: Expansion) -> Expansion:
        """Decorator: makes the operator a composite, replaced by the operators returned."""
        self.expand = expand
        return expand

    def epilogue(self, split: EpilogueSplit) -> EpilogueSplit:
        """Decorator: the same operator as a head and an elementwise epilogue, for fusion.

        The function takes the Operator; it returns no operators where there is no epilogue.
        """
        self.split_epilogue = split
        return split

    def form(self, system: str) -> Callable[[Form], Form]:
        """Decorator: what writes the operator for another system, "onnx" or "torch".

        An operator of another package that has a scalar expression or an expansion needs none. The
        function takes the `Emission` of bridges/onnx/export, or of bridges/torch/op_list.
        """

        def add(write: Form) -> Form:
            self.forms[system] = write
            return write

        return add

    def gradient_maker(self, maker: Maker) -> Maker:
        """Decorator: the function that writes the gradient; see `GradientMaker`."""
        self.gradient = maker
        return maker

    def backward(
        self,
        *wrt: str,
        scalar: Mapping[str, str] | None = None,
        inplace: Mapping[str, str] | None = None,
    ) -> Callable[..., Any]:
        """Decorator: kernel of the operator `TYPE_grad`, whose schema follows from the flags here.

        `TYPE_grad` reads all inputs (those flagged `not_in_gradient` for their shapes only), the
        outputs not flagged so, and `OUT_grad` for each output that is not `intermediate`; it
        writes `IN_grad` for each of `wrt` (by default every input).
        """
        wrt = wrt or tuple(slot.name for slot in self.inputs)
        saved = [slot for slot in self.outputs if not slot.not_in_gradient]
        grads = [slot for slot in self.outputs if not slot.intermediate]
        inputs = [
            replace(s, shape_only=s.not_in_gradient, not_in_gradient=False) for s in self.inputs
        ]
        inputs += [Slot(s.name, s.doc, duplicable=s.duplicable, optional=s.optional) for s in saved]
        inputs += [
            Slot(f"{s.name}_grad", f"gradient of the loss with respect to {s.name}", s.duplicable)
            for s in grads
        ]
        sharing = inplace or {}
        outputs = [
            Slot(
                f"{name}_grad",
                f"gradient of the loss with respect to {name}",
                duplicable=self.input_slots[name].duplicable,
                optional=True,
                inplace=sharing.get(f"{name}_grad", ""),
            )
            for name in wrt
        ]

        def shape(s: ShapeArgs) -> None:
            check_forward(s, self)
            for name in wrt:
                s.set(f"{name}_grad", *s.specs(name))
                s.copy_offsets(f"{name}_grad", name)

        grad = operator(
            f"{self.type}_grad",
            doc=f"Gradient of `{self.type}`.",
            inputs=inputs,
            outputs=outputs,
            attrs=self.attrs,
            source=self.source,
            shape=shape,
            scalar=scalar,
            no_gradient="the gradient of a gradient is not built",
            world=self.world,
            takes_halves=self.takes_halves,
        )

        def maker(g: GradientArgs) -> list[OpNode]:
            reads = {slot.name: g.inputs(slot.name) for slot in self.inputs}
            reads |= {slot.name: g.outputs(slot.name) for slot in saved}
            reads |= {f"{slot.name}_grad": g.output_grads(slot.name) for slot in grads}
            writes = {f"{name}_grad": g.input_grads(name) for name in wrt}
            return [g.op(grad.type, reads, writes, g.attrs)]

        self.gradient = maker
        return grad.kernel

    def kernels_for(
        self, device: str, dtype: np.dtype, libraries: Sequence[str]
    ) -> list[KernelEntry]:
        """Kernels that fit, best library first and the reference last."""
        key = device, dtype, tuple(libraries)
        kernels = self._fitting.get(key)
        if kernels is None:
            # Kernels of other modules also, where an import of its own one registered the operator.
            _load_common()
            fitting = [
                entry
                for entry in self.kernels
                if entry.device in ("", device)
                and (entry.only is None or dtype in entry.only)
                and entry.library in libraries
            ]
            kernels = sorted(fitting, key=lambda entry: libraries.index(entry.library))
            self._fitting[key] = kernels
        return kernels

    def to_proto(self) -> pb.OpProto:
        """The documented class as a message."""
        proto = pb.OpProto(type=self.type, doc=self.doc, source=self.source)
        for target, slots in ((proto.inputs, self.inputs), (proto.outputs, self.outputs)):
            for slot in slots:
                target.add(**vars(slot))
        for attr in self.attrs:
            entry = proto.attrs.add(
                name=attr.name,
                type=attr.type,
                doc=attr.doc,
                minimum=attr.minimum,
                maximum=attr.maximum,
                choices=[str(choice) for choice in attr.choices],
            )
            if attr.default is not REQUIRED and attr.default is not None:
                entry.default_value.CopyFrom(encode_attr(attr.default, attr.type))
        if self.no_gradient:
            proto.gradient = f"none: {self.no_gradient}"
        elif self.gradient is not None:
            proto.gradient = "yes"
        elif self.expand is not None:
            proto.gradient = "the gradients of the operators it stands for"
        return proto


REGISTERED: dict[str, OperatorDef] = {}
"""The types that are registered so far, to be read only; `lookup` finds those to come, too."""
_load_state = "no"
_common_there = False
_load_error: Exception | None = None
_lock = new_waiting_rlock()


def _registering(make: Callable[Given, OperatorDef]) -> Callable[Given, OperatorDef]:
    @wraps(make, updated=())
    def operator(*given: Given.args, **named: Given.kwargs) -> OperatorDef:
        entry = make(*given, **named)
        with _lock:
            if entry.type in REGISTERED:
                raise OpscopeError(f"operator {entry.type!r} is registered already")
            REGISTERED[entry.type] = entry
        return entry

    return operator


operator = _registering(OperatorDef)
"""Register an operator type, with the arguments of `OperatorDef`; kernels, gradient and shape rule
are added to the result.

Raises:
    OpscopeError: no doc text, or the type is taken.
"""


def _module_being_imported() -> str:
    """Name of the module whose import registers an operator; "" where a function does it later."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return "" if frame is None else frame.f_globals.get("__name__", "")


def unregister(op_type: str) -> None:
    """Remove an operator and its `_grad` (for tests and interactive work)."""
    with _lock:
        REGISTERED.pop(op_type, None)
        REGISTERED.pop(f"{op_type}_grad", None)


def load_operators() -> None:
    """Register the operators of this package and of every installed plug-in, once."""
    global _load_state, _load_error
    if _load_state == "done":
        return
    with _lock:  # other threads wait here; the loading thread itself may come by again
        if _load_error is not None:
            raise _load_error.with_traceback(None)  # half a registry would mislead
        if _load_state != "no":
            return
        _load_state = "loading"
        try:
            importlib.import_module(BUILTIN_OPERATORS, __package__)
            for entry_point in entry_points(group=ENTRY_POINTS):
                load_plugin(entry_point)
        except Exception as error:
            _load_error = error
            raise
        _load_state = "done"


def _load_common() -> None:
    """Register the operators that most nets are made of, which is quicker than all.

    Where another package brings operators, all are: it may add kernels to ours.
    """
    global _common_there
    if _common_there or _load_state != "no":
        return
    with _lock:
        if _common_there or _load_state != "no":
            return
        if any_elsewhere(ENTRY_POINTS):
            load_operators()
        else:
            importlib.import_module(COMMON_OPERATORS, __package__)
        _common_there = True


def lookup(op_type: str, where: str = "") -> OperatorDef:
    """The entry of a type.

    Raises:
        UnknownOperatorError: with the nearest names.
    """
    entry = REGISTERED.get(op_type)
    for load in (_load_common, load_operators):
        if entry is None:
            load()
            entry = REGISTERED.get(op_type)
    if entry is None:
        prefix = f"{where}: " if where else ""
        raise UnknownOperatorError(
            f"{prefix}no operator of type {op_type!r}{nearest(op_type, REGISTERED)}"
        )
    return entry


def kernel_libraries(wanted: Iterable[str] = ()) -> set[str]:
    """The libraries of all kernels that are registered so far, and the reference.

    Args:
        wanted: libraries for which more operators are registered, unless they are known.
    """
    for load in (_load_common, load_operators):
        if not _kernel_libraries().issuperset(wanted):
            load()
    return _kernel_libraries()


def _kernel_libraries() -> set[str]:
    return {REFERENCE, *(kernel.library for op in REGISTERED.values() for kernel in op.kernels)}


def operator_types() -> list[str]:
    """All registered types, sorted."""
    load_operators()
    return sorted(REGISTERED)
