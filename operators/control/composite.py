"""Composite operators: other operators take their place before a net runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ...framework.base.errors import AttributeTypeError, OpscopeError, SlotError, VariableError
from ...framework.base.sizes.shape import OperatorView, ShapeArgs
from ...framework.ir.desc import (
    FORWARD,
    KIND_NAMES,
    PARAMETER,
    PLAIN,
    ROLE_NAMES,
    STATE,
    TEMPORARY,
    TYPE_NAMES,
    enum_name,
    make_op,
)
from ...framework.ir.names import SUM_OP, inner_name
from ...framework.ir.op_list import OpList, OpNode, VarDecl
from ...framework.ir.operation import Operator
from ...framework.ir.registry import REGISTERED, AttrSpec, Slot, lookup, operator
from ..linear.matmul import NUM_FLATTEN_DIMS, affine_shape

fc = operator(
    "fc",
    doc=(
        "Fully connected layer: out = activation(sum_i x_i w_i + b). Each x_i [..., K_i] has its"
        " own w_i [K_i, N]; b [N]; out [..., N]. Stands for `affine`, `sum` where there are several"
        " inputs, and the activation."
    ),
    inputs=[
        Slot("x", "[..., K], one or several", duplicable=True),
        Slot("w", "[K, N], one for each x", duplicable=True),
        Slot("b", "[N]", optional=True),
    ],
    outputs=[Slot("out", "[..., N]")],
    attrs=[
        AttrSpec("activation", "string", 'type of an operator from x to out; "" = none', ""),
        NUM_FLATTEN_DIMS,
    ],
    source="Paddle: paddle/operators/fc_op.cc",
)


@fc.shape_rule
def fc_shape(s: ShapeArgs) -> None:
    dtype = s.floats("x", "w", "b") if s.has("b") else s.floats("x", "w")
    pairs = zip(s.shapes("x"), s.shapes("w"), strict=True)
    shapes = [affine_shape(s, x, w) for x, w in pairs]
    s.set("out", (s.same_shape("the products of x and w", *shapes), dtype))


@fc.expansion
def fc_expansion(desc: OpNode) -> list[OpNode]:
    op = Operator(desc)
    xs, ws, (out,) = op.inputs["x"], op.inputs["w"], op.outputs["out"]
    if len(xs) != len(ws):
        raise SlotError(op.describe(f"{len(xs)} x want as many w, not {len(ws)}", {}))
    activation = op.attrs["activation"]
    linear = inner_name(out, "LINEAR") if activation else out
    attrs = {"num_flatten_dims": op.attrs["num_flatten_dims"]}
    products = [inner_name(out, f"PRODUCT{i}") for i in range(len(xs))] if len(xs) > 1 else [linear]
    ops = []
    for x, w, product in zip(xs, ws, products, strict=True):
        # With the first product alone: each of them would add it otherwise.
        bias = op.inputs.get("b", ()) if not ops else ()
        ops.append(make_op("affine", {"x": x, "w": w, "b": bias}, {"out": product}, attrs))
    if len(products) > 1:
        ops.append(make_op(SUM_OP, {"x": products}, {"out": linear}))
    if activation:
        check_activation(op, activation)
        ops.append(make_op(activation, {"x": linear}, {"out": out}))
    return ops


def check_activation(op: Operator, activation: str) -> None:
    """Refuse an activation that is no operator from x to out."""
    entry = REGISTERED.get(activation) or lookup(activation, op.title())
    wanted = [slot.name for slot in entry.inputs if not slot.optional]
    results = [slot.name for slot in entry.outputs if not (slot.optional or slot.intermediate)]
    if wanted != ["x"] or results != ["out"]:
        raise AttributeTypeError(
            f"{op.title()}: activation={activation!r} is no operator from x to out: it takes"
            f" {', '.join(wanted) or 'nothing'} and gives {', '.join(results) or 'nothing'}"
        )


net = operator(
    "net",
    doc=(
        "A nested PLAIN net. `inputs` take the place of the inner variables `input_names`,"
        " `outputs` replace `output_names`. PARAMETER and STATE variables of the inner net keep"
        " their names: declare them in the outer net and list them in `parameters`. All other inner"
        " variables get names of their own. Stands for the operators of the inner net."
    ),
    inputs=[
        Slot("inputs", "variables for `input_names`", duplicable=True, optional=True),
        Slot("parameters", "PARAMETER and STATE variables it uses", duplicable=True, optional=True),
    ],
    outputs=[Slot("outputs", "variables for `output_names`", duplicable=True)],
    attrs=[
        AttrSpec("net", "net", "the inner net"),
        AttrSpec("input_names", "strings", "inner names of `inputs`", ()),
        AttrSpec("output_names", "strings", "inner names of `outputs`"),
    ],
    source="Paddle: paddle/operators/net_op.h",
)


@net.expansion
def net_expansion(desc: OpNode) -> list[OpNode]:
    return _inner_ops(Operator(desc))


def _inner_ops(op: OperatorView) -> list[OpNode]:
    """The inner net's operators over outer names."""
    inner = op.attrs["net"]
    names = _Names(op, inner)
    ops = []
    for desc in inner.ops:
        # Gradients and updates are made of the outer net, once the inner operators are part of it.
        if desc.role != FORWARD:
            names.refuse(f"holds the {enum_name(ROLE_NAMES, desc.role)} operator {desc.type}")
        reads, writes = desc.input_names(), desc.output_names()
        for name in reads:
            names.read(name, desc)
        for name in writes:
            names.write(name, desc)
        ops.append(desc.renamed({name: names.outer(name) for name in (*reads, *writes)}))
    for name in op.attrs["output_names"]:
        if name not in names.written:
            names.refuse(f"does not write {name!r} of output_names", VariableError)
    return ops


class _Names:
    """Inner variables and their names in the outer net."""

    def __init__(self, op: OperatorView, inner: OpList) -> None:
        self.op = op
        self.inner = inner
        self.written: set[str] = set()
        if inner.type != PLAIN:
            self.refuse(f"is {enum_name(TYPE_NAMES, inner.type)}, want PLAIN")
        self.inputs = self._pair("inputs", op.inputs)
        self.outputs = self._pair("outputs", op.outputs)
        self.parameters = set(op.inputs.get("parameters", ()))
        self.declared = {var.name: var for var in inner.vars}
        self.own = {
            var.name for var in inner.vars if var.kind in (PARAMETER, STATE)
        } - self.inputs.keys()
        for var in inner.vars:
            self._check_declaration(var)

    def _pair(self, slot: str, slots: Any) -> dict[str, str]:
        attr = f"{slot[:-1]}_names"
        inner: Sequence[str] = self.op.attrs[attr]
        outer: Sequence[str] = slots.get(slot, ())
        if len(inner) != len(outer):
            self.fail(f"{len(inner)} {attr} want as many {slot}, not {len(outer)}", SlotError)
        if len(set(inner)) < len(inner):
            self.fail(f"{attr} names a variable twice: {', '.join(inner)}", AttributeTypeError)
        return dict(zip(inner, outer, strict=True))

    def _check_declaration(self, var: VarDecl) -> None:
        """Refuse declarations that cannot be carried over to the outer net by a name alone."""
        if var.view is not None:
            self.refuse(f"holds the view {var.name!r}; declare it in the outer net", VariableError)
        if var.stop_gradient and var.kind == TEMPORARY:
            why = f"stops the gradient at {var.name!r}; make that an output and say so outside"
            self.refuse(why, VariableError)

    def read(self, name: str, desc: OpNode) -> None:
        if name in self.inputs or name in self.written:
            return
        if name not in self.own:
            why = f"reads {name!r} in {desc.type}: nothing writes it and input_names lacks it"
            self.refuse(why, VariableError)
        if name not in self.parameters:
            kind = enum_name(KIND_NAMES, self.declared[name].kind)
            self.refuse(
                f"uses its {kind} {name!r}: declare {name!r} in the outer net too, and list it in"
                " the slot 'parameters'",
                VariableError,
            )

    def write(self, name: str, desc: OpNode) -> None:
        if name in self.inputs:
            # It goes by its outer name, so the outer net's variable would change.
            self.refuse(f"overwrites its input {name!r} in {desc.type}", VariableError)
        if name in self.own:
            self.read(name, desc)
        self.written.add(name)

    def outer(self, name: str) -> str:
        if name in self.own:
            return name
        return self.inputs.get(name) or self.outputs.get(name) or self._own(name)

    def _own(self, name: str) -> str:
        return inner_name(self.op.outputs["outputs"][0], name)

    def refuse(self, why: str, error: type[OpscopeError] = AttributeTypeError) -> NoReturn:
        self.fail(f"the inner net {self.inner.name!r} {why}", error)

    def fail(self, why: str, error: type[OpscopeError]) -> NoReturn:
        raise error(self.op.describe(why, {}))
