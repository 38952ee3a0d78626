"""Comparisons, logic and selection. Truth values are arrays of dtype bool."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ..base.calls import copying, reducing

_NO_GRADIENT = "its result is a truth value"


def _compared(s: ShapeArgs) -> None:
    if s.dtype("x") != s.dtype("y"):
        s.fail("x and y want one dtype")
    s.set("out", (s.broadcast(s["x"], s["y"]), bool))


def _logical(s: ShapeArgs) -> None:
    for slot in ("x", "y"):
        if s.has(slot) and s.dtype(slot).kind != "b":
            s.fail(f"{slot} wants dtype bool and has {s.dtype(slot)}")
    out = s.broadcast(s["x"], s["y"]) if s.has("y") else s["x"]
    s.set("out", (out, bool))


def _float_test(s: ShapeArgs) -> None:
    s.floats("x")
    s.set("out", (s["x"], bool))


# operator type (which is also NumPy's function): scalar expression.
_COMPARISONS = {
    "equal": "x == y",
    "not_equal": "x != y",
    "less": "x < y",
    "less_equal": "x <= y",
    "greater": "x > y",
    "greater_equal": "x >= y",
}
# The same: expression, doc.
# Their inputs are bool alone, so `!=` is the exclusive or.
_CONNECTIVES = {
    "logical_and": ("x && y", "out = x and y"),
    "logical_or": ("x || y", "out = x or y"),
    "logical_xor": ("x != y", "out = x or y, but not both"),
}


def _truth(
    op_type: str,
    doc: str,
    scalar: str,
    shape: Any,
    *,
    slots: tuple[str, ...] = ("x",),
    inplace: str = "",
) -> None:
    """Register an operator that one ufunc of its own name computes."""
    entry = operator(
        op_type,
        doc=doc,
        scalar=scalar,
        inputs=[Slot(slot, "any shape; two of them broadcast as in NumPy") for slot in slots],
        outputs=[Slot("out", "bool, the shape of the inputs together", inplace=inplace)],
        shape=shape,
        no_gradient=_NO_GRADIENT,
    )

    @entry.kernel
    def kernel(k: KernelArgs) -> Call:
        return partial(getattr(k.xp, op_type), *(k[slot] for slot in slots), k["out"])


for _type, _scalar in _COMPARISONS.items():
    _doc = f"Comparison of elements: out = {_scalar}."
    _truth(_type, _doc, _scalar, _compared, slots=("x", "y"))
for _type, (_scalar, _doc) in _CONNECTIVES.items():
    _doc = f"Logic of elements: {_doc}."
    _truth(_type, _doc, _scalar, _logical, slots=("x", "y"), inplace="x")
_truth("logical_not", "Logic of elements: out = not x.", "!x", _logical, inplace="x")
for _type, _doc in {
    "isfinite": "Whether an element is neither NaN nor infinite.",
    "isinf": "Whether an element is infinite, of either sign.",
    "isnan": "Whether an element is NaN.",
}.items():
    _truth(_type, _doc, f"{_type}(x)", _float_test)

where = operator(
    "where",
    doc="Selection: out = x where condition holds, else y. Shapes broadcast as in NumPy.",
    inputs=[
        Slot("condition", "bool"),
        Slot("x", "taken where condition holds", not_in_gradient=True),
        Slot("y", "taken elsewhere; dtype of x", not_in_gradient=True),
    ],
    outputs=[
        Slot("out", "the shape that all three broadcast to", inplace="x", not_in_gradient=True),
    ],
    scalar="condition ? x : y",
)


@where.shape_rule
def where_shape(s: ShapeArgs) -> None:
    if s.dtype("condition").kind != "b":
        s.fail(f"condition wants dtype bool and has {s.dtype('condition')}")
    if s.dtype("x") != s.dtype("y"):
        s.fail("x and y want one dtype")
    s.set("out", (s.broadcast(s["condition"], s["x"], s["y"]), s.dtype("x")))


@where.kernel
def where_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    condition = k["condition"]
    out = k["out"]
    # In the condition's own shape: `where` of copyto broadcasts.
    other = k.scratch(condition.shape, bool)
    return in_order(
        # First x everywhere, then y through the mask: NumPy's `where` has no `out`.
        copying(xp, k["x"], out),
        partial(xp.logical_not, condition, other),
        partial(xp.copyto, out, k["y"], where=other),
    )


@where.backward("x", "y")
def where_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    condition = k["condition"]
    out_grad = k["out_grad"]
    calls = []
    other = k.scratch(condition.shape, bool)
    for slot, mask in (("x_grad", condition), ("y_grad", other)):
        target = k.get(slot)
        if target is None:
            continue
        whole = target
        if target.shape != out_grad.shape:
            whole = k.scratch(out_grad.shape, target.dtype)
        if mask is other:
            calls += [partial(xp.logical_not, condition, other)]
        # Not a product with the mask: 0 * NaN would let a bad gradient through.
        calls += [
            partial(whole.fill, 0),
            partial(xp.copyto, whole, out_grad, where=mask),
            reducing(xp, whole, target),
        ]
    return in_order(*calls)
