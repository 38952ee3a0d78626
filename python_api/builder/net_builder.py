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
it. Every registered operator is a method (methods.py); layers.py holds those that also make
their parameters.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.errors import (
    AttributeTypeError,
    GradientError,
    SlotError,
    VariableError,
    nearest,
)
from ...framework.ir.desc import (
    FORWARD,
    INPUT,
    PARAMETER,
    STATE,
    NetDesc,
    OpDesc,
    caller_location,
    clone,
    encode_attr,
    make_op,
    make_var,
    var_dtype,
    var_shape,
)
from ...framework.ir.registry import OperatorDef, lookup
from ...framework.passes.optimizer import OptimizerAttrs
from ...framework.runtime.plain_net import PlainNet
from .initializers import initializer
from .layers import Layers
from .methods import OpMethods
from .recurrent import Recurrent
from .running import Running
from .trees import Trees
from .variable import Var

_PROBABLE_INPUT = "input"
"""`add_op("fc", input=x)`: the first input slot, whatever the operator calls it."""

_PARTS, _SECTIONS = "num", "sections"
"""How many variables a duplicable output slot gets: `num=3`, or one for each of `sections`."""


class NetBuilder(Layers, Recurrent, Trees, Running, OpMethods):
    """Builds a PlainNet operator by operator, with gradients and updates where asked for.

    Args:
        name: of the net.
        dtype: of parameters and of inputs that name none.
    """

    def __init__(self, name: str = "", dtype: str = "float32") -> None:
        self.dtype = np.dtype(dtype)
        self._forward = PlainNet(NetDesc(name=name))
        self._counters: dict[str, itertools.count] = {}
        self._costs: list[str] = []
        self._wrt: list[str] | None = None
        self._optimizations: list[OptimizerAttrs] = []
        self._gradients: dict[str, str] = {}
        self._context = OpContext()
        self._changed()

    @classmethod
    def from_desc(cls, desc: NetDesc) -> NetBuilder:
        """A builder that goes on from the forward operators of a saved net.

        Gradient and update operators are left out: call `backward_from` and `add_optimization`
        again. Their states in the scope are taken up by name.
        """
        builder = cls(desc.name)
        forward = clone(desc)
        del forward.ops[:], forward.vars[:]
        forward.ops.extend(op for op in desc.ops if op.role == FORWARD)
        used = {
            name
            for op in forward.ops
            for slots in (op.inputs, op.outputs)
            for slot in slots
            for name in slot.vars
        }
        forward.vars.extend(var for var in desc.vars if var.name in used)
        builder._forward = PlainNet(forward)
        return builder

    def _changed(self) -> None:
        self._net: PlainNet | None = None
        self._forget_runs()

    # -- the net -------------------------------------------------------------------------------

    @property
    def net(self) -> PlainNet:
        """The whole net: forward operators, then gradients and updates; rebuilt after changes."""
        if self._net is None:
            net = PlainNet(self._forward.desc)
            if self._costs:
                self._gradients = net.add_backward_ops(self._costs, self._wrt)
            for attrs in self._optimizations:
                net.add_optimizer_ops(attrs)
            self._net = net
        return self._net

    @property
    def desc(self) -> NetDesc:
        """Description of `net`."""
        return self.net.desc

    @property
    def name(self) -> str:
        return self._forward.desc.name

    # -- variables -----------------------------------------------------------------------------

    def input(
        self, name: str, shape: Sequence[int], dtype: object = None, *, levels: int = 0
    ) -> Var:
        """A variable that the caller feeds.

        Args:
            shape: -1 for a dimension that may differ from run to run.
            dtype: by default the builder's.
            levels: levels of sequences that it carries.
        """
        dtype = self.dtype if dtype is None else dtype
        var = make_var(name, shape, dtype, INPUT, sequence_levels=levels, source=caller_location())
        self._forward.add_var(var)
        self._changed()
        return Var(self, name)

    def parameter(
        self,
        name: str,
        shape: Sequence[int],
        init: Any = "xavier",
        *,
        dtype: object = None,
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

    def state(
        self, name: str, shape: Sequence[int], init: Any = 0.0, *, dtype: object = None
    ) -> Var:
        """A variable that is kept from run to run and not trained."""
        return self._persistent(name, shape, init, dtype, STATE)

    def _persistent(
        self, name: str, shape: Sequence[int], init: Any, dtype: object, kind: int, **extra: Any
    ) -> Var:
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        fill = initializer(init, name, shape, dtype)
        source = caller_location()
        self._forward.add_var(
            make_var(name, shape, dtype, kind, initializer=fill, source=source, **extra)
        )
        self._changed()
        return Var(self, name)

    def var(self, name: str) -> Var:
        """A handle of an existing variable.

        Raises:
            VariableError: there is none of this name.
        """
        self._declared(name)
        return Var(self, name)

    def _declared(self, name: str) -> Any:
        found = self._forward.vars.get(name)
        if found is None:
            raise VariableError(
                f"the net has no variable {name!r}{nearest(name, self._forward.vars)}"
            )
        return found

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """Shape as far as it is known: -1 for unknown dimensions, None for an unknown rank."""
        return var_shape(self._declared(name))

    def dtype_of(self, name: str) -> np.dtype | None:
        return var_dtype(self._declared(name))

    def unique_name(self, stem: str) -> str:
        """`stem_0`, `stem_1`, ...: the first that is free."""
        counter = self._counters.setdefault(stem, itertools.count())
        return next(
            name for name in (f"{stem}_{n}" for n in counter) if name not in self._forward.vars
        )

    # -- operators -----------------------------------------------------------------------------

    def add_op(self, type: str, *inputs: Any, name: str = "", **given: Any) -> Any:  # noqa: A002
        """Append an operator.

        Args:
            type: operator type; types with a layer of the same name (`fc`, `conv2d`, ...) make
                their parameters where these are not given.
            inputs: variables (or lists of them, for duplicable slots) in the order of the slots.
            name: of the first output; others are called `name.slot`.
            given: further inputs by slot name, and attributes. `input=` means the first slot.

        Returns:
            The output's handle, or a tuple of handles where there are several.

        Raises:
            OpscopeError: unknown operator, slot or attribute, wrong shape or dtype; the net is
                left as it was.
        """
        entry = lookup(type, str(_where()))
        if _PROBABLE_INPUT in given and _PROBABLE_INPUT not in entry.input_slots:
            inputs = (given.pop(_PROBABLE_INPUT), *inputs)
        layer = self.layer_for(entry, len(inputs), given)
        if layer is not None:
            try:
                inspect.signature(layer).bind(*inputs, name=name, **given)
            except TypeError as error:
                raise AttributeTypeError(f"{_where()}: layer {entry.type}: {error}") from None
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
        given = dict(given)
        parts = given.pop(_PARTS, 1) if _takes_parts(entry) else 1
        slots, attrs = self._split(entry, inputs, given)
        name = name or self.unique_name(entry.type)
        parts = len(attrs[_SECTIONS]) if attrs.get(_SECTIONS) else parts
        names = _output_names(entry, name, parts, outputs or {})
        encoded = {
            key: encode_attr(
                value, None if key not in entry.attr_specs else _kind(entry, key, value)
            )
            for key, value in attrs.items()
            if value is not None
        }
        op = make_op(entry.type, slots, names, encoded, source=caller_location())
        for slot in names:
            for out in [names[slot]] if isinstance(names[slot], str) else names[slot]:
                if out in self._forward.vars and out not in (outputs or {}).values():
                    raise VariableError(f"{_where()}: variable {out!r} is defined already")
        self._forward.add_op(op)
        self._changed()
        handles = [
            Var(self, out)
            for slot in entry.outputs
            if not slot.intermediate and slot.name not in (outputs or {})
            for out in (
                [names[slot.name]] if isinstance(names[slot.name], str) else names[slot.name]
            )
        ]
        return handles[0] if len(handles) == 1 else tuple(handles)

    def _split(
        self, entry: OperatorDef, inputs: Sequence[Any], given: Mapping[str, Any]
    ) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """Positional and keyword arguments as input slots and attributes."""
        if len(inputs) > len(entry.inputs):
            raise SlotError(
                f"{_where()}: {entry.type} takes {len(entry.inputs)} inputs, not {len(inputs)}"
            )
        slots = {}
        for slot, value in zip(entry.inputs, inputs, strict=False):
            if value is not None:
                slots[slot.name] = self._names(value, entry, slot.name)
        attrs = {}
        for key, value in given.items():
            if key in entry.input_slots:
                if key in slots:
                    raise SlotError(f"{_where()}: {entry.type}: slot {key!r} is given twice")
                if value is not None:
                    slots[key] = self._names(value, entry, key)
            elif key in entry.attr_specs:
                attrs[key] = value
            else:
                known = (*entry.input_slots, *entry.attr_specs)
                raise AttributeTypeError(
                    f"{_where()}: {entry.type} has no slot or attribute {key!r}"
                    f"{nearest(key, known)}; it has {', '.join(known)}"
                )
        return slots, attrs

    def _names(self, value: Any, entry: OperatorDef, slot: str) -> list[str]:
        items = list(value) if isinstance(value, (list, tuple)) else [value]
        names = []
        for item in items:
            if isinstance(item, Var) and item.builder is not self:
                raise VariableError(f"{_where()}: {item.name!r} belongs to another NetBuilder")
            if isinstance(item, (Var, str)):
                name = str(item)
                self._declared(name)
                names.append(name)
            else:
                raise SlotError(
                    f"{_where()}: {entry.type}: slot {slot!r} wants a variable, not {item!r}"
                )
        return names

    # -- gradients and updates -----------------------------------------------------------------

    def backward_from(self, cost: Var | str, wrt: Sequence[Var | str] | None = None) -> None:
        """Ask for gradients of `cost` (of the sum of all costs named so).

        Args:
            wrt: variables to differentiate with respect to; by default every parameter.

        Raises:
            GradientError: now, where no gradient flows.
        """
        self._declared(str(cost))
        before = (list(self._costs), self._wrt)
        self._costs.append(str(cost))
        if wrt is not None:
            self._wrt = [*(self._wrt or []), *(str(var) for var in wrt)]
        self._rebuild_or(before)

    def _rebuild_or(self, before: tuple[list[str], list[str] | None]) -> None:
        self._changed()
        try:
            self.net  # noqa: B018  built now, so that errors come from this line
        except Exception:
            self._costs, self._wrt = before
            self._changed()
            raise

    def add_optimization(
        self,
        learning_rate: float = 0.01,
        type: str = "sgd",  # noqa: A002  the design's signature
        *,
        schedule: str = "",
        schedule_attrs: Mapping[str, Any] | None = None,
        clip_value: float = 0.0,
        clip_norm: float = 0.0,
        parameters: Sequence[Var | str] | None = None,
        **attrs: Any,
    ) -> None:
        """Append an optimizer; see `OptimizerAttrs` for the arguments.

        Raises:
            GradientError: no `backward_from` before, or a parameter without gradient.
            AttributeTypeError: unknown optimizer or attribute.
        """
        if not self._costs:
            raise GradientError(f"{_where()}: add_optimization needs backward_from(cost) first")
        wanted = OptimizerAttrs(
            type=type,
            learning_rate=learning_rate,
            attrs=attrs,
            schedule=schedule,
            schedule_attrs=dict(schedule_attrs or {}),
            clip_value=clip_value,
            clip_norm=clip_norm,
            parameters=None if parameters is None else [str(name) for name in parameters],
        )
        self._optimizations.append(wanted)
        self._changed()
        try:
            self.net  # noqa: B018
        except Exception:
            self._optimizations.pop()
            self._changed()
            raise

    def gradient(self, var: Var | str) -> str:
        """Name of the variable that holds the gradient with respect to `var`.

        Raises:
            GradientError: there is none.
        """
        self.net  # noqa: B018
        found = self._gradients.get(str(var))
        if found is None:
            raise GradientError(
                f"no gradient of {str(var)!r} is computed; name it in backward_from"
            )
        return found

    def __repr__(self) -> str:
        return f"<NetBuilder {self.name or '?'}: {len(self._forward.operators)} operators>"


def _takes_parts(entry: OperatorDef) -> bool:
    return _PARTS not in entry.attr_specs and any(slot.duplicable for slot in entry.outputs)


def _output_names(
    entry: OperatorDef, name: str, parts: int, fixed: Mapping[str, str]
) -> dict[str, Any]:
    """Slot -> variable name, or names where the slot holds several."""
    names: dict[str, Any] = dict(fixed)
    first = True
    for slot in entry.outputs:
        if slot.name in names:
            continue
        own = name if first else f"{name}.{slot.name}"
        first = False
        names[slot.name] = [f"{own}.{n}" for n in range(parts)] if slot.duplicable else own
    return names


def _kind(entry: OperatorDef, key: str, value: Any) -> str | None:
    """The declared attribute type where Python's own type would be ambiguous."""
    kind = entry.attr_specs[key].type
    return kind if kind in ("dtype", "tensor") or (kind == "net" and value is not None) else None


def _where() -> str:
    location = caller_location()
    return f"{location.file}:{location.line}" if location.file else "NetBuilder"


__all__ = ["NetBuilder", "Var", "OpDesc"]
