"""Integers that stand for reals: quantizing, and arithmetic on such integers.

What is computed of dequantized integers and then quantized is computed of the integers themselves:
by the functions that serve the operators QLinear*, which say the same in one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .....framework.base.dtypes import DOUBLE, DTYPES, SINGLE
from .....operators.backends.integer import integer_gemm
from .....operators.base.integers import BYTES
from .....operators.base.nbits import BITS, middle, packed
from ...files.tensors import dtype_of
from ..calls import Call, NotHere, Value, kind_of, lowers, of_integers
from .linear import gemm_of, matmul
from .windows import convolved, pool

MICROSOFT = "com.microsoft"


class End(NamedTuple):
    """The scale and the zero point of a result."""

    scale: Value
    zero: Value


@dataclass(frozen=True)
class Integers:
    """8-bit integers q that stand for the reals scale * (q - zero).

    Attributes:
        scale, zero: one each, or one for each place along the axis of results of a product.
    """

    value: Value
    scale: Value
    zero: Value | None

    @property
    def is_plain(self) -> bool:
        """Whether one scale and one zero point are for all of them."""
        return self.scale.is_one and (self.zero is None or self.zero.is_one)


def integers_of(x: Value | None, axis: int | None = None) -> Integers | None:
    """The 8-bit integers that a value stands for; None where it stands for none, or for such whose
    scales are not one, nor along an axis."""
    call = None if x is None else x.dequantized
    if x is None or call is None or call[0].dtype not in BYTES or x.dtype != SINGLE:
        return None
    found = Integers(call[0], call[1], call.get(2))
    if call[1].dtype != SINGLE:
        return None
    if found.is_plain:
        return found
    along = axis is not None and call.axis(call.attr("axis", 1), x.ndim) == axis % x.ndim
    flat = found.scale.ndim < 2 and (found.zero is None or found.zero.ndim < 2)
    return found if along and flat and not call.attr("block_size", 0) else None


def _spread(n: Call, values: Value, shape: tuple[int, ...]) -> Value:
    """Scales or zero points as they meet the elements: one, one along an axis, or one a block."""
    if values.shape in ((), (1,)):
        return n.reshape(values, [1] * len(shape))
    axis = n.axis(n.attr("axis", 1), len(shape))
    block = n.attr("block_size", 0)
    if block or values.ndim > 1:
        block = block or -(-shape[axis] // values.shape[axis])
        whole = n.op("repeat_interleave", values, repeats=block, axis=axis)
        return n.op("slice", whole, axes=[axis], starts=[0], ends=[shape[axis]])
    return n.reshape(values, [-1, *(1,) * (len(shape) - 1 - axis)])


@lowers("QuantizeLinear")
@lowers("QuantizeLinear", domain=MICROSOFT)
def _quantize(n: Call) -> Value:
    x = n[0]
    scale = n[1]
    zero = n.get(2)
    dtype = dtype_of(n.attr("output_dtype", 0) or 2, n.node.title())
    if zero is not None:
        dtype = np.dtype("uint16") if zero.dtype == np.int64 else zero.dtype  # see `foreign`
    elif dtype not in DTYPES:
        raise NotHere
    if x.dtype == scale.dtype == SINGLE and dtype in BYTES and scale.is_one:
        end = End(scale, n.const(0, dtype) if zero is None else zero)
        computed = _of_integers(n, x, end)
        return computed or n.op("quantize_linear", x, *end)
    scaled = n.op("div", n.cast(x, SINGLE), n.cast(_spread(n, scale, x.shape), SINGLE))
    scaled = n.op("round", scaled)
    if zero is not None:
        scaled = n.op("add", scaled, n.cast(_spread(n, zero, x.shape), SINGLE))
    return _limited(n, scaled, dtype, dtype if zero is None else zero.dtype)


def _limited(n: Call, x: Value, dtype: np.dtype, held: np.dtype | None = None) -> Value:
    """Whole numbers cut to what a type has, in that type or another one."""
    if dtype.kind not in "iu":
        raise NotHere
    info = np.iinfo(dtype)
    limited = n.op("clip", x, minimum=float(info.min), maximum=float(info.max))
    return n.cast(limited, held or dtype)


@lowers("DequantizeLinear")
@lowers("DequantizeLinear", domain=MICROSOFT)
def _dequantize(n: Call) -> Value:
    x = n[0]
    scale = n[1]
    zero = n.get(2)
    if x.dtype in BYTES and scale.dtype == SINGLE and scale.is_one:
        return n.op("dequantize_linear", x, scale, zero)
    wide = DOUBLE if x.dtype.itemsize > 2 or scale.dtype == DOUBLE else SINGLE
    values = n.cast(x, wide)
    if zero is not None:
        values = n.op("sub", values, n.cast(_spread(n, zero, x.shape), wide))
    return n.cast(n.op("mul", values, n.cast(_spread(n, scale, x.shape), wide)), scale.dtype)


@lowers("DynamicQuantizeLinear")
def _dynamic(n: Call) -> list[Value]:
    if n[0].dtype != SINGLE:
        raise NotHere
    return n.op("dynamic_quantize_linear", n[0], outs=("out", "scale", "zero"))


# -- products --------------------------------------------------------------------------------------


def _factor(n: Call, x: Value, y: Value, out: Value | None = None) -> Value:
    """The scale of a product, in units of that of its result, as ONNX Runtime rounds it."""
    if x.array is None or y.array is None or (out is not None and out.array is None):
        product = n.op("mul", x, y)
        return product if out is None else n.op("div", product, out)
    factor = x.array * y.array
    return n.const(factor if out is None else factor / out.array, SINGLE)


def _multiply(
    n: Call,
    a: Integers,
    b: Integers,
    bias: Value | None = None,
    factor: Value | None = None,
    zero: Value | None = None,
) -> Value:
    """The product of integers without their zero points: int32, floats by a factor, or, with a
    zero point too, integers."""
    for one in (a, b):
        if one.value.dtype not in BYTES:
            raise NotHere
    row_zeros = a.zero is not None and not a.zero.is_one
    if not row_zeros and (b.zero is None or b.zero.ndim < 2):
        last = factor, bias, zero
        return matmul(
            n,
            *(a.value, b.value),
            lambda x, y: n.op("integer_matmul", x, y, a.zero, b.zero, *last),
        )
    # Zero points of rows: numbers of float64, whose product is exact.
    left = _shifted_here(n, a.value, a.zero, a.value.ndim - 2)
    right = _shifted_here(n, b.value, b.zero, b.value.ndim - 1)
    product = n.op("cast", matmul(n, left, right), dtype=np.dtype("int32"))
    if factor is None:
        return product
    scaled = n.op("mul", n.cast(product, SINGLE), factor)
    return scaled if zero is None else n.op("quantize_linear", scaled, n.const(1, SINGLE), zero)


def _shifted_here(n: Call, x: Value, zero: Value | None, axis: int) -> Value:
    wide = n.cast(x, np.float64)
    if zero is None:
        return wide
    shift = n.cast(zero, np.float64)
    if zero.ndim == 1 and zero.shape[0] > 1:
        dims = [1] * x.ndim
        dims[axis] = zero.shape[0]
        shift = n.reshape(shift, dims)
    elif zero.ndim == 1:
        shift = n.reshape(shift, [])
    return n.op("sub", wide, shift)


def real_product(n: Call, a: Integers, b: Integers) -> Value:
    """The product of the reals that integers stand for."""
    return _multiply(n, a, b, None, _factor(n, a.scale, b.scale))


def _convolve(
    n: Call,
    x: Integers,
    w: Integers,
    bias: Value | None = None,
    factor: Value | None = None,
    zero: Value | None = None,
) -> Value:
    """As `_multiply`, the convolution by the attributes of a node."""
    if w.value.dtype not in BYTES or x.value.dtype not in BYTES:
        raise NotHere
    last = x.zero, w.zero, factor, bias, zero
    return convolved(
        n,
        *(x.value, w.value),
        convolve=lambda image, filters, **how: n.op("integer_conv", image, filters, *last, **how),
    )


def _bare(n: Call, value: int, zero: int) -> Integers:
    return Integers(n[value], n[value], n.get(zero))


@lowers("MatMulInteger")
def _matmul_integer(n: Call, factor: Value | None = None) -> Value:
    return _multiply(n, _bare(n, 0, 2), _bare(n, 1, 3), factor=factor)


@lowers("ConvInteger")
def _conv_integer(n: Call, factor: Value | None = None) -> Value:
    return _convolve(n, _bare(n, 0, 2), _bare(n, 1, 3), factor=factor)


@of_integers("Mul")
def _scaled(n: Call) -> Value | None:
    """A product of integers with its scale: what dynamic quantization writes."""
    for one, scale in ((n[0], n[1]), (n[1], n[0])):
        cast = one.made_by
        if cast is None or cast.node.op != "Cast" or not one.dtype == scale.dtype == SINGLE:
            continue
        product = cast[0].made_by
        rules = {"MatMulInteger": _matmul_integer, "ConvInteger": _conv_integer}
        if product is None or product.node.op not in rules or scale.ndim > one.ndim:
            continue
        of_conv = product.node.op == "ConvInteger"
        wanted = (one.shape[1], *(1,) * (one.ndim - 2)) if of_conv else one.shape[-1:]
        if scale.is_one or scale.shape == wanted:
            return rules[product.node.op](
                product, scale if scale.is_one else n.reshape(scale, [-1])
            )
    return None


@of_integers("Conv")
def _convolution(n: Call) -> Value | None:
    return integer_product(n)


@of_integers("MatMul")
def _product(n: Call) -> Value | None:
    return _block_product(n) or integer_product(n)


@of_integers("Gemm")
def _gemm(n: Call) -> Value | None:
    product = integer_product(n)
    return None if product is None else gemm_of(n, product)


@lowers("QLinearMatMul")
def _matmul_quantized(n: Call) -> Value:
    a, b = Integers(n[0], n[1], n[2]), Integers(n[3], n[4], n[5])
    return _multiply(n, a, b, None, _factor(n, a.scale, b.scale, n[6]), n[7])


@lowers("QLinearConv")
def _conv_quantized(n: Call) -> Value:
    x, w = Integers(n[0], n[1], n[2]), Integers(n[3], n[4], n[5])
    return _convolve(n, x, w, n.get(8), _factor(n, x.scale, w.scale, n[6]), n[7])


@lowers("QGemm", domain=MICROSOFT)
def _gemm_quantized(n: Call) -> Value:
    a, b = Integers(n[0], n[1], n[2]), Integers(n[3], n[4], n[5])
    if n.attr("transA", 0) or n.attr("alpha", 1.0) != 1:
        raise NotHere
    if n.attr("transB", 0):
        b = _turned(n, b)
    if n.get(7) is None:
        return _multiply(n, a, b, n.get(6), _factor(n, a.scale, b.scale))
    return _multiply(n, a, b, n.get(6), _factor(n, a.scale, b.scale, n[7]), n[8])


def _turned(n: Call, b: Integers) -> Integers:
    """A matrix the other way round."""
    array = b.value.array
    if array is not None:
        return Integers(n.const(np.ascontiguousarray(array.T)), b.scale, b.zero)
    return Integers(n.op("transpose", b.value, perm=[1, 0]), b.scale, b.zero)


# -- weights in blocks -----------------------------------------------------------------------------

_HALF_FLOAT = 4
"""From this `accuracy_level` on the first factor may become integers."""


@lowers("MatMulNBits", domain=MICROSOFT)
def _matmul_nbits(n: Call) -> Value:
    bits, zero = n.attr("bits", 4), n.get(3)
    scale = n[2]
    if bits not in BITS or n.get(4) is not None or n[0].dtype != scale.dtype:
        raise NotHere
    if zero is not None and zero.dtype != np.uint8:
        raise NotHere
    rows = n[1].shape[0]
    scale, zero = (
        one if one is None or one.ndim == 2 else n.reshape(one, [rows, -1]) for one in (scale, zero)
    )
    rounds = n.attr("accuracy_level", 0) >= _HALF_FLOAT
    return n.op("matmul_nbits", n[0], n[1], scale, zero, n.get(5), bits=bits, int8_x=rounds)


def _block_product(n: Call) -> Value | None:
    """The product with a matrix of constant integers, each column in blocks with a scale each; None
    for others."""
    call = n[1].dequantized
    if call is None or n[0].dtype != SINGLE or call[1].dtype != SINGLE or call[0].ndim != 2:
        return None
    whole, scale, last = call[0].array, call[1].array, call.get(2)
    zero = None if last is None else last.array
    if whole is None or scale is None or (last is not None and zero is None):
        return None
    block = call.attr("block_size", 0)
    if not block or call.axis(call.attr("axis", 1), 2) or whole.dtype not in BYTES:
        return None
    depth, columns = whole.shape
    blocks = len(scale)
    zeros = np.zeros((blocks, columns), whole.dtype) if zero is None else zero
    is_signed = whole.dtype == np.int8
    # Arrays of 4 bits are read as bytes.
    few = (
        block % 2 == 0 and whole.size and all(map(partial(_has_4_bits, is_signed), (whole, zeros)))
    )
    bits = 4 if few else 8
    shift = middle(bits) if is_signed else 0
    made = np.full((blocks * block, columns), shift, np.uint8)
    made[:depth] = whole.astype(np.int16) + shift
    shifted = (zeros.astype(np.int16) + shift).astype(np.uint8)
    arrays = packed(made.T.reshape(columns, blocks, block), bits), scale.T, packed(shifted.T, bits)
    given = (n.const(np.ascontiguousarray(one)) for one in arrays)
    return n.op("matmul_nbits", n[0], *given, bits=bits)


def _has_4_bits(is_signed: bool, whole: np.ndarray) -> bool:
    low, high = (-8, 7) if is_signed else (0, 15)
    return bool(whole.min() >= low and whole.max() <= high)


# -- arithmetic ------------------------------------------------------------------------------------


@lowers("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def _combined(n: Call) -> Value:
    x, y = Integers(n[0], n[1], n[2]), Integers(n[3], n[4], n.get(5))
    return _combine(n, n.node.op, x, y, End(n[6], n.get(7) or n.const(0, n[0].dtype)))


def _combine(n: Call, op: str, x: Integers, y: Integers, end: End) -> Value:
    scales = (one for pair in (x, y) for one in (pair.scale, pair.zero))
    return n.op(_COMBINED[op], x.value, y.value, *scales, *end)


_COMBINED = {"QLinearAdd": "quantized_add", "QLinearMul": "quantized_mul",
             "Add": "quantized_add", "Mul": "quantized_mul"}  # fmt: skip


def _table(n: Call, x: Integers, end: End, function: Callable[[np.ndarray], Any]) -> Value | None:
    """A function of single numbers, of all that 8-bit integers can stand for; None where a scale
    is not known."""
    zero = n.const(0, x.value.dtype) if x.zero is None else x.zero
    numbers = [one.array for one in (x.scale, zero, *end) if one.array is not None]
    if len(numbers) < 4:
        return None
    scale, shift, out_scale, out_shift = (one.reshape(()) for one in numbers)
    bits = np.arange(256, dtype=np.uint8).view(x.value.dtype)
    with np.errstate(all="ignore"):
        reals = (bits.astype(np.float32) - shift.astype(np.float32)) * scale
        wanted = np.asarray(function(reals), np.float32) / out_scale
    info, last = np.iinfo(out_shift.dtype), np.float32(out_shift)
    whole = np.rint(np.clip(np.nan_to_num(wanted), info.min - last, info.max - last)) + last
    table = whole.astype(out_shift.dtype)
    if table.dtype == bits.dtype and np.array_equal(table, bits):
        return x.value
    return n.op("byte_table", x.value, n.const(table))


@lowers("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def _by_table(n: Call) -> Value:
    alpha = np.float32(n.attr("alpha", 0.01))
    functions = {
        "QLinearSigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "QLinearLeakyRelu": lambda x: np.where(x >= 0, x, alpha * x),
    }
    x = Integers(n[0], n[1], n.get(2))
    end = End(n[3], n.get(4) or n.const(0, n[0].dtype))
    return _table(n, x, end, functions[n.node.op]) or _refused(n)


def _refused(n: Call) -> Value:
    raise NotHere


@lowers("QLinearWhere", domain=MICROSOFT)
def _where_quantized(n: Call) -> Value:
    end = End(n[7], n[8])
    both = [_table(n, Integers(n[k], n[k + 1], n[k + 2]), end, lambda x: x) for k in (1, 4)]
    if any(value is None for value in both):
        raise NotHere
    return n.op("where", n[0], *both)


@lowers("QLinearConcat", domain=MICROSOFT)
def _concat_quantized(n: Call) -> Value:
    parts = [Integers(n[k], n[k + 1], n.get(k + 2)) for k in range(2, len(n.inputs), 3)]
    return _join(n, parts, End(n[0], n[1])) or _refused(n)


def _join(n: Call, parts: Sequence[Integers], end: End) -> Value | None:
    values = [_table(n, part, end, lambda x: x) for part in parts]
    if any(value is None for value in values):
        return None
    return n.op("concat", values, axis=n.axis(n.attr("axis", 1), parts[0].value.ndim))


@lowers("QLinearGlobalAveragePool", domain=MICROSOFT)
def _global_mean(n: Call) -> Value:
    if n.attr("channels_last", 0):
        raise NotHere
    end = End(n[3], n.get(4) or n.const(0, n[0].dtype))
    return _mean(n, Integers(n[0], n[1], n.get(2)), end)


def _mean(n: Call, x: Integers, end: End) -> Value:
    return n.op("quantized_global_avg_pool", x.value, x.scale, x.zero, *end)


@lowers("QLinearAveragePool", "QLinearSoftmax", domain=MICROSOFT)
def _by_floats(n: Call) -> Value:
    x = n.op("dequantize_linear", n[0], n[1], n.get(2))
    if n.node.op == "QLinearSoftmax":
        result = n.op("softmax", x, axis=n.axis(n.attr("axis", -1), x.ndim))
    else:
        if n.attr("channels_last", 0):
            raise NotHere
        result = pool(n.with_first(x))
    return n.op("quantize_linear", result, n[3], n.get(4) or n.const(0, n[0].dtype))


# -- pairs of QuantizeLinear and DequantizeLinear --------------------------------------------------


def _of_integers(n: Call, x: Value, end: End) -> Value | None:
    """What a value becomes in integers, by operators on integers; None where there are none.

    Args:
        n: what adds operators. x: reals, computed of dequantized integers perhaps.
    """
    made = x.made_by
    last: list[Call] = []  # done with the integers of a result, from the last to the first
    while made is not None and made.node.op in _LAST and integers_of(made[0]) is None:
        last.append(made)
        made = made[0].made_by
    value = None if made is None else _of_call(n, made, end)
    for call in reversed(last):
        if value is not None and call.node.op in _MOVES:
            value = _moved(call, value)
        elif value is not None:
            value = _of_node(n, call, Integers(value, *end), end)
    return value


def _of_call(n: Call, made: Call, end: End) -> Value | None:
    """As `_of_integers`, of the result of a node."""
    op = made.node.op
    if made.node.domain:
        return None
    if op in ("Conv", "MatMul", "Gemm"):
        return integer_product(made, end)
    if op == "Concat":
        given = [integers_of(value) for value in made.inputs]
        parts = [one for one in given if one is not None and one.is_plain]
        return _join(made, parts, end) if len(parts) == len(given) else None
    first = integers_of(made[0])
    if first is None or first.value.dtype != end.zero.dtype:
        return None
    if op in _COMBINED:
        second = integers_of(made[1])
        if second is None or second.value.dtype != first.value.dtype:
            return None
        return _combine(made, op, first, second, end)
    if op == "GlobalAveragePool":
        return _mean(made, first, end)
    if op in _OF_ONE:
        return _of_node(n, made, first, end)
    if op in _MOVES or (op == "MaxPool" and not made.wants(1)):
        value = _moved(made, first.value)
        return _table(n, Integers(value, first.scale, first.zero), end, lambda reals: reals)
    return None


_OF_ONE = frozenset(
    "Relu Clip Sigmoid Tanh LeakyRelu Elu Celu Selu HardSigmoid HardSwish Swish Mish Gelu Erf Exp"
    " Softplus Softsign Abs Neg Sqrt".split()
)
"""Functions of single numbers."""
_MOVES = frozenset("Reshape Flatten Squeeze Unsqueeze Transpose Slice Expand Identity".split())
"""Operators that only move numbers."""
_LAST = frozenset(("Relu", "Clip", *_MOVES))


def _moved(made: Call, value: Value) -> Value:
    """A node that moves numbers, of another value."""
    kind = kind_of(made.node)
    assert kind is not None and kind.lower is not None
    moved = kind.lower(made.with_first(value))
    return moved[0] if isinstance(moved, list) else moved


def _of_node(n: Call, made: Call, x: Integers, end: End) -> Value | None:
    """A node that computes a function of single numbers, as a table."""
    known = {
        name: value.array
        for name, value in zip(made.node.inputs[1:], made.inputs[1:], strict=True)
        if name and value is not None
    }
    if any(array is None for array in known.values()):
        return None
    first = made.node.inputs[0]
    return _table(n, x, end, lambda reals: made.evaluate({first: reals, **known})[0])


def integer_product(n: Call, end: End | None = None) -> Value | None:
    """The product of a node, MatMul, Gemm or Conv, of the 8-bit integers that its inputs stand for.

    Args:
        end: what it becomes; None: float32, to which a Gemm's third input is still to be added.

    Returns:
        None for other inputs, and where the processor multiplies floats as fast.
    """
    of_conv = n.node.op == "Conv"
    turned = bool(n.attr("transB", 0)) and n.node.op == "Gemm"
    first = integers_of(n[0])
    second = integers_of(n[1], 0 if of_conv or turned else -1)
    if first is None or second is None or not integer_gemm.is_fast():
        return None
    bias = n.get(2)
    added = None
    if bias is not None and (end is not None or of_conv):
        added = _whole_bias(bias, first, second)
        if added is None:
            return None
    last = None if end is None else end.scale
    factor = _factor(n, first.scale, second.scale, last)
    zero = None if end is None else end.zero
    if of_conv:
        return _convolve(n, first, second, added, factor, zero)
    plain = not n.attr("transA", 0) and n.attr("alpha", 1.0) == n.attr("beta", 1.0) == 1
    if n.node.op == "Gemm" and not plain:
        return None
    if turned:
        second = _turned(n, second)
    if first.value.ndim < 2 or second.value.ndim < 2:
        return None
    if second.value.ndim > 2 and not second.is_plain:
        return None
    return _multiply(n, first, second, added, factor, zero)


def _whole_bias(bias: Value, first: Integers, second: Integers) -> Value | None:
    """The integers of a bias in the scale of a product, one for each result; None for others."""
    call = bias.dequantized
    if call is None or call[0].dtype != np.int32:
        return None
    zero = call.get(2)
    if zero is not None and (zero.array is None or zero.array.any()):
        return None
    own, left, right = (one.array for one in (call[1], first.scale, second.scale))
    if own is None or left is None or right is None:
        return None
    same = np.allclose(own, left * right, rtol=1e-3, atol=0)
    return call[0] if same and call[0].ndim == 1 else None
