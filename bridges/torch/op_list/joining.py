"""Operators that layers take in: other shapes and parts of parameters, biases after products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from ....framework.ir.desc import make_op
from ....framework.ir.operation import Operator
from .emission import Values

_SHAPES: Final = ("flatten", "reshape", "squeeze", "unsqueeze")
_CONVOLUTIONS: Final = ("conv1d", "conv2d", "conv3d")


def without_shapes(
    values: Values, operators: Sequence[Operator], outputs: Iterable[str]
) -> list[Operator]:
    """The operators except for those that only give a parameter another shape, or take a part of it
    that no other one takes: then that is the module's own. What PyTorch trains is still the
    parameter, element by element."""
    left: list[Operator] = []
    kept = set(outputs)
    parts: dict[str, list[Operator]] = {}
    for op in operators:
        if op.type == "slice":
            parts.setdefault(op.inputs["x"][0], []).append(op)
    divided: dict[str, bool] = {}
    for op in operators:
        view = None
        if op.type == "slice":
            name = op.inputs["x"][0]
            if name not in divided:
                divided[name] = _is_divided(values, name, parts[name])
            whole = values.array(name)
            if divided[name] and whole is not None:
                view = whole[_part(op, whole.ndim)]
        else:
            view = _view(values, op)
        if view is None or kept.intersection(op.output_vars()):
            left.append(op)
        else:
            values.hold(op.outputs["out"][0], op.inputs["x"][0], view)
    return left


def _is_divided(values: Values, name: str, parts: Sequence[Operator]) -> bool:
    """Whether a variable is a parameter that is only read in parts of which no two overlap."""
    array = values.array(name)
    if array is None or values.module.uses[values.parameters[name]] != len(parts):
        return False
    taken = np.zeros(array.shape, np.int32)
    for op in parts:
        taken[_part(op, array.ndim)] += 1
    return taken.max(initial=0) == 1


def _part(op: Operator, rank: int) -> tuple[slice, ...]:
    """The elements that a slice takes, as an index."""
    axes, starts = op.attrs["axes"], op.attrs["starts"]
    ends = op.attrs["ends"] or [None] * len(axes)
    steps = op.attrs["steps"] or [1] * len(axes)
    slices = [slice(None)] * rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        slices[axis] = slice(start, end, step)
    return tuple(slices)


def _view(values: Values, op: Operator) -> np.ndarray | None:
    """A parameter, which nothing else reads, in the shape that an operator gives it."""
    array = values.owned(op.inputs["x"][0]) if op.type in (*_SHAPES, "transpose") else None
    if array is None:
        return None
    if op.type == "transpose":
        view = array.transpose(list(op.attrs["perm"]) or None)
    else:
        spec = values.specs.get(op.outputs["out"][0])
        view = None if spec is None or min(spec[0], default=0) < 0 else array.reshape(spec[0])
    return view if view is not None and np.shares_memory(view, array) else None


def without_sums(
    values: Values, operators: Iterable[Operator], outputs: Iterable[str]
) -> list[Operator]:
    """The operators except for sums of two vectors of parameters, which are noted: PyTorch's
    recurrent layers have two biases, of which ours have the sum."""
    left: list[Operator] = []
    kept = set(outputs)
    for op in operators:
        out = next(iter(op.output_vars()), "")
        terms = op.inputs.get("x", ()) + op.inputs.get("y", ())
        arrays = [values.owned(name) for name in terms] if op.type == "add" else []
        vectors = arrays and all(one is not None and one.ndim == 1 for one in arrays)
        if vectors and values.module.uses[out] == 1 and out not in kept:
            values.sums[out] = (terms[0], terms[1])
        else:
            left.append(op)
    return left


def with_biases(
    values: Values, operators: Sequence[Operator], wanted: Iterable[str]
) -> list[Operator]:
    """The operators with sums of a product and a parameter as one layer with a bias.

    Args:
        wanted: variables that are read after the operators.
    """
    reads = Counter(wanted)
    for op in operators:
        reads.update(op.input_vars())
    products = {
        op.outputs["out"][0]: op for op in operators if op.type in ("matmul", *_CONVOLUTIONS)
    }
    taken: dict[str, Operator] = {}  # by the variable of the sum
    gone: set[int] = set()
    for op in operators:
        if op.type != "add":
            continue
        for first, second in (("x", "y"), ("y", "x")):
            product = products.get(op.inputs[first][0])
            if product is None or reads[op.inputs[first][0]] != 1:
                continue
            joined = _with_bias(values, product, op, op.inputs[second][0])
            if joined is not None:
                taken[op.outputs["out"][0]] = joined
                gone.add(id(product))
                break
    left = (op for op in operators if id(op) not in gone)
    return [taken.get(op.outputs["out"][0], op) if op.type == "add" else op for op in left]


def _with_bias(values: Values, product: Operator, total: Operator, bias: str) -> Operator | None:
    """A product and a sum as one operator; None where the other term is no bias of a layer."""
    slot = "y" if product.type == "matmul" else "w"
    weight = product.inputs[slot][0]
    w, b = values.owned(weight), values.owned(bias)
    if w is None or b is None or w.dtype != b.dtype or product.inputs.get("b"):
        return None
    slots = {"x": product.inputs["x"], "w": (weight,), "b": (bias,)}
    if product.type == "matmul":
        if product.attrs["transpose_x"] or product.attrs["alpha"] != 1 or w.ndim != 2:
            return None
        turned = product.attrs["transpose_y"]
        if b.shape != (w.shape[0 if turned else 1],):
            return None
        if turned:
            slots["w"] = (values.hold(f"{weight}@TURNED", weight, w.T),)
        node = make_op("affine", slots, total.outputs, source=total.node.source)
    else:
        if b.shape != (w.shape[0], *[1] * (w.ndim - 2)):
            return None
        if b.ndim > 1:
            slots["b"] = (values.hold(f"{bias}@FLAT", bias, b.reshape(-1)),)
        node = make_op(product.type, slots, total.outputs, product.attrs, source=total.node.source)
    return Operator(node, total.index)
