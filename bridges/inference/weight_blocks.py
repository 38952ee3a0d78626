"""Nets for prediction whose matrices stay in few bits: `opscope.quantize_weights`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError
from ...framework.base.scope import Scope
from ...framework.files.saved import Loaded, loaded, op_list_of, persistent_values
from ...framework.ir.desc import OUTPUT, STATE, make_op, make_var
from ...framework.ir.op_list import OpList, OpNode
from ...framework.ir.operation import Operator
from ...framework.runtime.initialize import PERSISTENT
from ...operators.base import nbits
from .form import ExportError, inference_form

FORMS = {"q4": 4, "q8": 8, "bf16": nbits.BFLOAT16}
"""What weights may become -> bits of an element."""
BLOCK = 32
"""Elements of a block."""
FACTORS = {"affine": "w", "matmul": "y"}
"""Operators that read a matrix, and in which slot."""


def quantize_weights(
    net: Any,
    scope: Scope | None = None,
    weights: str = "q4",
    *,
    block: int = BLOCK,
    int8_x: bool = True,
    outputs: Iterable[str] | None = None,
) -> Loaded:
    """A net in inference form whose products with matrices read these in fewer bits.

        small = opscope.quantize_weights(b, scope, "q4")
        print(opscope.Generator(small).greedy([[3]], 6))

    Embeddings, and matrices with fewer rows than a block, stay as they are.

    Args:
        net: a NetBuilder, a Net, its description, or what `opscope.load` returns; it stays as it
            is. scope: holds the values; by default the scope of a loaded net.
        weights: `q4` or `q8`, integers in blocks, or `bf16`, numbers in bfloat16; see
            `opscope.operators.base.nbits.to_blocks` for scales and rounding.
        block: elements of a block, a multiple of 32.
        int8_x: whether what a product with integers reads is rounded as well, each block of a row
            to 127 steps of its largest size; this is faster.
        outputs: names of variables; by default the results of the net.

    Returns:
        The net and a scope of its own, as `opscope.load` does.

    Raises:
        AttributeTypeError: `weights` or `block` is none of these. ExportError: no product has a
            matrix that can be quantized. VariableError: unknown names, missing values. ShapeError:
            `bf16` without the package ml_dtypes.
    """
    held: Any = scope if scope is not None else getattr(net, "scope", None)
    form = inference_form(op_list_of(net), outputs, use="quantize_weights")
    values = persistent_values(form.net, held)
    return in_blocks(form.net, values, weights, block, int8_x).as_loaded(form.outputs)


@dataclass(frozen=True)
class InBlocks:
    """A net with matrices in blocks, its values, and which results are products with them: the type
    of the operator before, by the name of its result."""

    net: OpList
    arrays: dict[str, np.ndarray]
    products: dict[str, str]

    def as_loaded(self, outputs: Collection[str]) -> Loaded:
        """The net and a scope with its values, as `opscope.load` gives them."""
        net = self.net.copy()
        net.vars = [var.changed(kind=OUTPUT) if var.name in outputs else var for var in net.vars]
        return loaded(net, self.arrays, None, train=False)


def in_blocks(
    net: OpList,
    arrays: Mapping[str, np.ndarray],
    weights: str,
    block: int,
    int8_x: bool = True,
) -> InBlocks:
    """See `quantize_weights`; of a net in plain operators, with all its values."""
    if weights not in FORMS:
        raise AttributeTypeError(f"weights are one of {', '.join(FORMS)}, not {weights!r}")
    if not isinstance(block, int) or block < 32 or block % 32:
        raise AttributeTypeError(f"a block has 32, 64, 96, ... elements, not {block!r}")
    writer = _Writer(net, arrays, weights, block, int8_x)
    made = net.copy()
    made.ops = [writer.product(op) or op for op in net.ops]
    if not writer.products:
        raise ExportError(
            f"{net.name!r}: no product reads a float32 matrix of at least {block} rows whose value"
            " is known: there is nothing to quantize"
        )
    read = {name for op in made.ops for name in op.input_names()}
    kept = [var for var in net.vars if var.kind not in PERSISTENT or var.name in read]
    made.vars = kept + writer.vars
    held = {var.name for var in made.vars}
    found = {name: array for name, array in arrays.items() if name in held} | writer.arrays
    return InBlocks(made, found, writer.products)


class _Writer:
    """Puts products with blocks in the place of others.

    Attributes:
        vars, arrays: of the blocks. products: see `InBlocks`.
    """

    def __init__(
        self,
        net: OpList,
        arrays: Mapping[str, np.ndarray],
        weights: str,
        block: int,
        int8_x: bool,
    ) -> None:
        declared = {var.name: var for var in net.vars}
        written = {name for op in net.ops for name in op.output_names()}
        self._given = {
            name: array
            for name, array in arrays.items()
            if name not in written and declared[name].view is None
        }
        self._form, self._block, self._int8_x = weights, block, int8_x
        self._made: dict[tuple[str, bool], dict[str, list[str]]] = {}
        self.vars: list[Any] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.products: dict[str, str] = {}

    def product(self, node: OpNode) -> OpNode | None:
        """The operator that computes the same with blocks; None for others."""
        slot = FACTORS.get(node.type)
        if slot is None:
            return None
        op = Operator(node)
        (name,) = op.inputs[slot]
        matrix = self._given.get(name)
        if matrix is None or matrix.ndim != 2 or matrix.dtype != np.float32:
            return None
        if not self._is_plain(op):
            return None
        turned = bool(op.attrs.get("transpose_y", False))
        if matrix.shape[turned] < self._block:
            return None
        inputs = {"x": op.inputs["x"], **self._blocks(name, turned)}
        if "b" in op.inputs:
            inputs["bias"] = op.inputs["b"]
        (out,) = op.outputs["out"]
        self.products[out] = node.type
        bits = FORMS[self._form]
        attrs = {"bits": bits, "int8_x": self._int8_x and bits in nbits.BITS}
        return make_op("matmul_nbits", inputs, {"out": out}, attrs, source=node.source)

    @staticmethod
    def _is_plain(op: Operator) -> bool:
        """Whether it multiplies the last axis of x as it is."""
        if op.type == "affine":
            return op.attrs["num_flatten_dims"] == -1
        return not op.attrs["transpose_x"] and op.attrs["alpha"] == 1

    def _blocks(self, name: str, turned: bool) -> dict[str, list[str]]:
        """The variables with the blocks and the scales of a matrix, by slot."""
        key = name, turned
        if key not in self._made:
            matrix = self._given[name].T if turned else self._given[name]
            w, scale = nbits.to_blocks(matrix, FORMS[self._form], self._block)
            base = f"{name}.{self._form}" + (".turned" if turned else "")
            made = {"w": (base, w)}
            if scale is not None:
                made["scale"] = f"{base}.scale", scale
            for each, array in made.values():
                self.arrays[each] = array
                self.vars.append(make_var(each, list(array.shape), array.dtype, STATE))
            self._made[key] = {slot: [each] for slot, (each, _) in made.items()}
        return self._made[key]
