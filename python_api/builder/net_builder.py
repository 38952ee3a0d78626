"""NetBuilder: networks in Python.

    b = NetBuilder("digits")
    image, label = b.input("image", [-1, 64]), b.input("label", [-1], "int64")
    hidden = b.fc(image, size=100, activation="relu")
    scores = b.fc(hidden, size=10)
    cost = b.mean(b.softmax_cross_entropy(scores, label))
    b.backward_from(cost)
    b.add_optimization(1e-3, "adam")
    scope = Scope()
    loss = b.run(scope, feed={"image": x, "label": y}, fetch=[cost])[cost.name]

Names, source lines and shapes are known while building: a wrong shape fails on the line that wrote
it. Every registered operator is a method, and so is every layer: a function in one of the modules
beside this one that takes the builder and makes the parameters of its operators (methods.py).
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...framework.base.context import OpContext
from ...framework.base.dtypes import FLOATS, SINGLE, is_whole, to_dtype
from ...framework.base.errors import (
    OpscopeError,
    ShapeError,
    SlotError,
    UnknownOperatorError,
    VariableError,
    nearest,
)
from ...framework.base.scope import Scope
from ...framework.draw.shown import Shown
from ...framework.ir.desc import (
    FORWARD,
    INPUT,
    PARAMETER,
    STATE,
    NetDesc,
    caller_location,
    make_op,
    make_var,
)
from ...framework.ir.messages import as_op_list
from ...framework.ir.names import stage_device
from ...framework.ir.op_list import OpList, OpNode, SourceLocation, VarDecl
from ...framework.ir.registry import REGISTERED, OperatorDef
from ...framework.runtime.initialize import Owner
from ...framework.runtime.plain_net import PlainNet
from .calls import (
    check_name,
    checked,
    counterparts,
    declared_shape,
    encoded_attrs,
    no_variable,
    output_names,
    pop_count,
    split_arguments,
    where,
)
from .derived_nets import Objective, RunCache
from .initializers import initializer
from .methods import BuilderMethods
from .typed_names import activation_type, operator_typed
from .var import Var
from .var.array_functions import both

_MOST_STAGES = 1 << 16
_PROBABLE_INPUT = "input"
"""`add_op("fc", input=x)`: the first input slot, whatever the operator calls it."""


def _forward_net(given: str | PlainNet) -> PlainNet:
    """The net that a builder adds to: a new one of a name, or the given one."""
    if isinstance(given, str):
        return PlainNet(OpList(given))
    if not isinstance(given, PlainNet):
        raise OpscopeError(f"NetBuilder wants a name or a PlainNet, not {given!r}")
    if given.predicts or given.last_forward_op + 1 < len(given.operators):
        why = "was loaded to predict" if given.predicts else "holds gradients or updates"
        raise OpscopeError(
            f"net {given.name!r} {why}: NetBuilder.from_desc(net.desc) takes its forward operators"
        )
    return given


_MADE_WITHIN = {
    "softmax_cross_entropy": "softmax",
    "sigmoid_cross_entropy": "sigmoid",
    "sigmoid_focal_loss": "sigmoid",
}
"""Losses of scores, and what they do with these first."""


class NetBuilder(BuilderMethods, Shown):
    """Builds a PlainNet operator by operator, with gradients and updates where asked for.

    Args:
        name: of the net; or a PlainNet of forward operators, to which the builder then adds. Its
            variables may be in use in a scope already.
        dtype: of parameters and of inputs that name none.

    Raises:
        OpscopeError: the net holds operators of gradients or updates, or was loaded to predict;
            `NetBuilder.from_desc(net.desc)` continues from its forward operators.
    """

    def __init__(self, name: str | PlainNet = "", dtype: DTypeLike = "float32") -> None:
        net = _forward_net(name)
        self.dtype = to_dtype(dtype)
        self.run_context = OpContext()  # of runs that are given none
        self.objective = Objective()
        self.owner = Owner(net.name, net.vars)
        self.shared_scopes: weakref.WeakSet[Scope] = weakref.WeakSet()
        self.settled_rates: weakref.WeakKeyDictionary[Scope, dict[str, float]]
        self.settled_rates = weakref.WeakKeyDictionary()  # see gradients.settle_rates
        self._counters: dict[str, itertools.count[int]] = {}
        self.within = ""  # the layer that is being made; see `layer_name`
        self._device = ""  # of operators that are appended; see `stage`
        self.switch_to(net)

    @classmethod
    def from_desc(cls, desc: OpList | NetDesc) -> NetBuilder:
        """A builder that continues from the forward operators of a saved net.

        Gradient and update operators are left out: call `backward_from` and `add_optimization`
        again. Their states in the scope are taken up by name, the step counter among them; constant
        learning rates are those that are asked for now. For another optimizer begin with the
        parameters alone: `opscope.load_parameters`.
        The builder's dtype is the dtype of the parameters, if they have one.
        """
        forward = as_op_list(desc).copy()
        kinds = {var.dtype for var in forward.vars if var.kind == PARAMETER}
        dtypes = [dtype for dtype in FLOATS if dtype in kinds]
        builder = cls(forward.name, dtypes[0] if len(dtypes) == 1 else SINGLE)
        builder.owner = Owner(forward.name, [var.name for var in forward.vars])
        forward.ops = [op for op in forward.ops if op.role == FORWARD]
        used = {name for op in forward.ops for name in (*op.input_names(), *op.output_names())}
        forward.vars = [var for var in forward.vars if var.name in used]
        builder.switch_to(PlainNet(forward, check=False))
        return builder

    def switch_to(self, net: PlainNet) -> None:
        """Let operators and variables go to another net: a step net while its block is open."""
        self._forward = net
        self._changed()

    def _changed(self) -> None:
        """Forget what was derived from the forward operators."""
        self._seen = self._forward.version
        self._whole: tuple[PlainNet, dict[str, str]] | None = None
        self._run_cache: RunCache | None = None

    # -- the net -------------------------------------------------------------------------------

    @property
    def forward_net(self) -> PlainNet:
        """The forward operators so far."""
        return self._forward

    @property
    def net(self) -> PlainNet:
        """The whole net: forward operators, then gradients and updates; rebuilt after changes."""
        return self._net_and_gradients()[0]

    def set_objective(self, wanted: Objective) -> None:
        """Replace what is asked for; where that is impossible, the builder is left as it was.

        Raises:
            OpscopeError: no gradient flows, or a parameter to update has none.
        """
        before = self.objective
        self.objective = wanted
        self._changed()
        try:
            self._net_and_gradients()  # built now, so that errors come from this line
        except Exception:
            self.objective = before
            self._changed()
            raise

    @property
    def gradients(self) -> dict[str, str]:
        """Variable -> the variable that holds its gradient, where there is one."""
        return self._net_and_gradients()[1]

    def _net_and_gradients(self) -> tuple[PlainNet, dict[str, str]]:
        """A copy of the forward operators, followed by the objective's."""
        if self._seen != self._forward.version:
            self._changed()
        if self._whole is None:
            wanted = self.objective
            net = self._forward.copy()
            gradients = {}
            if wanted.costs:
                wrt = wanted.wrt_of(net.vars.values())
                scale = wanted.loss_scale
                gradients = net.add_backward_ops(list(wanted.costs), wrt, loss_scale=scale)
                if wanted.recompute:
                    from ...framework.passes.memory.recompute import Recompute  # few nets want it

                    net = PlainNet(Recompute().apply(net.op_list), check=False)
            for attrs in wanted.optimizers:
                net.add_optimizer_ops(attrs)
            self._whole = net, gradients
        return self._whole

    @property
    def run_cache(self) -> RunCache:
        """What runs share until the net changes."""
        if self._seen != self._forward.version:
            self._changed()  # somebody added to the net itself
        if self._run_cache is None:
            self._run_cache = RunCache()
        return self._run_cache

    @property
    def last_forward_op(self) -> int:
        """Index in `net` of the last forward operator; -1 where there is none."""
        return self.net.last_forward_op

    @property
    def desc(self) -> NetDesc:
        """Description of `net`."""
        return self.net.desc

    @property
    def op_list(self) -> OpList:
        """Operators and variables of `net`."""
        return self.net.op_list

    @property
    def name(self) -> str:
        return self._forward.name

    # -- variables -----------------------------------------------------------------------------

    @checked
    def input(
        self, name: str, shape: Sequence[int], dtype: DTypeLike | None = None, *, levels: int = 0
    ) -> Var:
        """A variable that the caller feeds.

        Args:
            shape: -1 (or None) for a dimension that may differ from run to run.
            dtype: by default the builder's.
            levels: levels of sequences that it carries.

        Raises:
            ShapeError: no such shape. VariableError: the name is taken.
        """
        shape = declared_shape(f"input {name!r}", shape)
        check_name(name, "an input")
        if levels not in (0, 1, 2) or isinstance(levels, bool):
            raise ShapeError(
                f"{where()}: input {name!r}: levels of sequences are 0, 1 or 2, not {levels!r}"
            )
        kind = self.dtype if dtype is None else dtype
        var = make_var(name, shape, kind, INPUT, sequence_levels=levels, source=caller_location())
        self._forward.add_var(var)
        self._changed()
        return Var(self, name)

    @checked
    def parameter(
        self,
        name: str,
        shape: Sequence[int],
        init: Any = "xavier",
        *,
        dtype: DTypeLike | None = None,
        lr_factor: float | None = None,
        trainable: bool = True,
    ) -> Var:
        """A trained variable.

        Args:
            init: see `initializers.initializer`: a name, a number, or (operator type, attrs).
            lr_factor: multiplies the learning rate.
            trainable: False stops gradients at it.
        """
        extra: dict[str, Any] = {} if lr_factor is None else {"lr_factor": float(lr_factor)}
        return self._persistent(
            name, shape, init, dtype, PARAMETER, stop_gradient=not trainable, **extra
        )

    @checked
    def state(
        self, name: str, shape: Sequence[int], init: Any = 0.0, *, dtype: DTypeLike | None = None
    ) -> Var:
        """A variable that is kept from run to run and not trained."""
        return self._persistent(name, shape, init, dtype, STATE)

    def _persistent(
        self,
        name: str,
        shape: Sequence[int],
        init: Any,
        dtype: DTypeLike | None,
        kind: int,
        **extra: Any,
    ) -> Var:
        numbers = self.dtype if dtype is None else to_dtype(dtype)
        what = "parameter" if kind == PARAMETER else "state"
        check_name(name, f"a {what}")
        shape = declared_shape(f"{what} {name!r}", shape)
        if any(dim < 0 for dim in shape):
            raise ShapeError(
                f"{where()}: {what} {name!r}: all its dimensions must be known, not {list(shape)}"
            )
        fill = initializer(init, name, shape, numbers)
        source = caller_location()
        self._forward.add_var(
            make_var(name, shape, numbers, kind, initializer=fill, source=source, **extra)
        )
        self._changed()
        return Var(self, name)

    def var(self, name: str) -> Var:
        """A handle of an existing variable.

        Raises:
            VariableError: there is none of this name.
        """
        if isinstance(name, Var):
            raise VariableError(
                f"{where()}: var takes a name, not {name!r}; write b.reduce_var for the variance"
            )
        self.declared(name)
        return Var(self, name)

    def declared(self, var: Var | str) -> VarDecl:
        """The declaration of a variable, given by a handle or its name.

        Raises:
            VariableError: there is none of this name, or the handle is another builder's.
        """
        if isinstance(var, Var) and var.builder is not self:
            whose = var.builder.name or "without a name"
            raise VariableError(
                f"{where()}: {var.name!r} belongs to another NetBuilder ({whose}): a net reads its"
                " own variables only"
            )
        if not isinstance(var, (Var, str)):
            raise VariableError(f"{where()}: want a variable of the net, not {no_variable(var)}")
        name = str(var)
        declared = self._forward.vars.get(name)
        if declared is None:
            raise VariableError(
                f"the net has no variable {name!r}{nearest(name, self._forward.vars)}"
            )
        return declared

    def shape_of(self, var: Var | str) -> tuple[int, ...] | None:
        """Shape as far as it is known: -1 for unknown dimensions, None for an unknown rank."""
        return self.declared(var).shape

    def dtype_of(self, var: Var | str) -> np.dtype | None:
        """Dtype of a variable, None where it is not known yet."""
        return self.declared(var).dtype

    def unique_name(self, stem: str) -> str:
        """`stem_0`, `stem_1`, ...: the first that is free; in a layer `layer.stem`, ..."""
        counter = self._counters.setdefault(stem, itertools.count())
        name = self._free(f"{stem}_{n}" for n in counter)
        # Numbers also count on inside layers: parameters of layers without a name are called by
        # them, and names in older files must fit.
        if not self.within or stem.startswith(self.within):
            return name
        inner = f"{self.within}.{stem}"
        return self._free(itertools.chain([inner], (f"{inner}_{n}" for n in itertools.count(1))))

    def _free(self, names: Iterable[str]) -> str:
        return next(name for name in names if name not in self._forward.vars)

    def layer_name(self, name: str, kind: str) -> str:
        """The name of a layer that is made now, by default one of its own.

        What the method of the layer appends without a name from here on is called after it.
        """
        self.within = name or self.unique_name(kind)
        return self.within

    # -- operators -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def stage(self, number: int) -> Iterator[None]:
        """Operators that are appended within `with b.stage(1):` belong to stage 1 of a pipeline.

        `train` on several ranks then gives each rank one stage; one process runs all of them.
        Stages are numbered from 0 in the order in which they run. Operators outside of such blocks
        belong to the last stage whose results they read.

        Raises:
            OpscopeError: no such number, or a block within another one.
        """
        if not is_whole(number) or not 0 <= number < _MOST_STAGES:
            raise OpscopeError(
                f"{where()}: stage wants a number from 0 to {_MOST_STAGES - 1}, not {number!r}"
            )
        if self._device:
            raise OpscopeError(f"{where()}: stage {number} begins within {self._device!r}")
        self._device = stage_device(int(number))
        try:
            yield
        finally:
            self._device = ""

    def add_op(self, type: str, /, *inputs: Any, name: str = "", **given: Any) -> Any:  # noqa: A002
        """Append an operator.

        Args:
            type: operator type; types with a layer of the same name (`fc`, `conv2d`, ...) make
                their parameters where these are not given.
            inputs: variables (or lists of them, for duplicable slots) in the order of the slots; a
                layer takes what its method takes, `add_op("fc", x, 100, "sigmoid")`.
            name: of the first output; others are called `name.slot`.
            given: further inputs by slot name, and attributes. `input=` means the first slot.

        Returns:
            The output's handle, or a tuple of handles where there are several.

        Raises:
            OpscopeError: unknown operator, slot or attribute, wrong shape or dtype; the net is
                left as it was.
        """
        if not isinstance(type, str):
            raise UnknownOperatorError(
                f"{where()}: add_op wants the type of an operator first, add_op('relu', x), not"
                f" {type!r}"
            )
        if name:
            check_name(name, "a result")
        entry = REGISTERED.get(type) or operator_typed(type, where())
        if "activation" in given and "activation" in entry.attr_specs:
            given["activation"] = activation_type(f"{where()}: {type}", given["activation"])
        if _PROBABLE_INPUT in given and _PROBABLE_INPUT not in entry.input_slots:
            inputs = (given.pop(_PROBABLE_INPUT), *inputs)
        layer = self.layer_for(entry, inputs, given)
        if layer is not None:
            return layer(*inputs, name=name, **given)
        return self.append(entry, inputs, given, name=name)

    def append(
        self,
        entry: OperatorDef,
        inputs: Sequence[Any],
        given: Mapping[str, Any],
        *,
        name: str = "",
        outputs: Mapping[str, str] | None = None,
    ) -> Any:
        """`add_op` without layers; `outputs` names variables for slots that exist already."""
        keywords = dict(given)
        existing = dict(outputs or {})
        count = pop_count(entry, keywords)
        slots, attrs = split_arguments(entry, inputs, keywords, self.names_of)
        name = name or self.unique_name(entry.type)
        names = output_names(entry, name, count or counterparts(entry, slots), attrs, existing)
        source = caller_location()
        self._warn_of_twice(entry.type, slots, source)
        op = make_op(entry.type, slots, names, source=source)
        op.attrs = encoded_attrs(entry, attrs)
        for out in itertools.chain.from_iterable(names.values()):
            if out in self._forward.vars and out not in existing.values():
                raise VariableError(f"{where()}: variable {out!r} is defined already")
        self.append_desc(op)
        handles = [
            Var(self, out)
            for slot in entry.outputs
            if not slot.intermediate and slot.name not in existing
            for out in names[slot.name]
        ]
        return handles[0] if len(handles) == 1 else tuple(handles)

    def operands(self, method: str, x: Any, y: Any) -> tuple[Any, Any]:
        """Two operands of a method as variables of one dtype; numbers and arrays become constants.

        Raises:
            AttributeTypeError: one is neither variable nor number nor array.
        """
        return both(self, method, x, y)

    def _warn_of_twice(
        self, op_type: str, slots: Mapping[str, Sequence[str]], source: SourceLocation
    ) -> None:
        """Warn of a loss of scores that is given what it makes of them itself."""
        inner = _MADE_WITHIN.get(op_type)
        if inner is None or not slots.get("x"):
            return
        given = slots["x"][0]
        if any(op.type == inner and given in op.output_names() for op in self._forward.op_list.ops):
            warnings.warn_explicit(
                f"{op_type} of {given!r}, which {inner} has made: it takes scores (logits), and"
                f" does {inner} itself; give it what {inner} was given",
                UserWarning,
                source.file or "NetBuilder",
                source.line,
            )

    def append_desc(self, op: OpNode) -> None:
        """Append an operator that reads and writes the variables its description names."""
        self._forward.add_op(op.changed(device=self._device) if self._device else op)
        self._changed()

    def names_of(self, value: Any, entry: OperatorDef, slot: str) -> list[str]:
        """Names of the variables that an argument stands for: a handle, a name, or a list of them.

        Args:
            entry, slot: name the operator and its input in messages.

        Raises:
            SlotError: something else. VariableError: a variable that this builder does not have.
        """
        items = list(value) if isinstance(value, (list, tuple)) else [value]
        names = []
        for item in items:
            if isinstance(item, (Var, str)):
                names.append(self.declared(item).name)
            else:
                raise SlotError(
                    f"{where()}: {entry.type}: slot {slot!r} wants a variable, not"
                    f" {no_variable(item, operand=True)}"
                )
        return names

    def __repr__(self) -> str:
        return f"<NetBuilder {self.name or '?'}: {len(self._forward.operators)} operators>"


__all__ = ["NetBuilder"]
