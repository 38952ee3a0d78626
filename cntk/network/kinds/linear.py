"""Products of matrices and tensors, distances, sums, and rearrangements of axes."""

from __future__ import annotations

from ..nodes import rules
from ..nodes.attributes import AttributeSpec, FileField
from ..nodes.kind import register, standard
from ..nodes.node import Kind, NdlFunction, Node

OUTPUT_RANK = AttributeSpec(
    "int", 1, doc="axes of the left operand that stay; all others are summed over"
)
INFER_INPUT_RANK = AttributeSpec(
    "int",
    -1,
    doc=(
        "axes of the right operand that are not summed, where the left one is"
        " inferred; -1: as many as the left one says"
    ),
)


def _transposed(node: Node, left: list[int]) -> list[int]:
    if len(left) == 1:
        return [1, left[0]]
    if len(left) != 2:
        raise node.error(
            "only a matrix or a column vector can be transposed, not"
            f" [{rules.text(node.inputs[0].shape)}]"
        )
    return left[::-1]


def _match_legacy(node: Node, left: list[int], right: list[int]) -> list[int]:
    """A matrix whose columns are as many as several dimensions of the right operand together gets
    these dimensions: models of before tensors multiply flattened samples."""
    product = 1
    for count, dim in enumerate(right, start=1):
        product *= dim
        if product == left[1]:
            left = [left[0], *right[:count]]
            node.inputs[0].shape = tuple(left)
            if node.inputs[0].value is not None:
                node.inputs[0].value = node.inputs[0].value.reshape(left, order="F")
            break
    return left


def product(node: Node, final: bool) -> None:
    """Matrix product: the last dimensions of the left operand, all but `outputRank`, are summed
    with the first of the right one."""
    rules.common_axis(node)
    a, b = node.inputs
    left, right = list(a.shape or ()), list(b.shape or ())
    if not final and not (left and right):
        return
    transpose = node.operation == "TransposeTimes"
    output_rank = node.attributes["outputRank"]
    if transpose:
        if output_rank != 1:
            raise node.error(f"outputRank must be 1 with a transposed operand, not {output_rank}")
        left = _transposed(node, left)
    shown = f"left [{rules.text(a.shape)}] and right [{rules.text(b.shape)}] operands"
    if output_rank > len(left):
        raise node.error(
            f"outputRank {output_rank} is more than the rank of the left operand: {shown}"
        )
    reduced = len(left) - output_rank
    if reduced > len(right):
        raise node.error(
            f"the right operand has too few dimensions for outputRank {output_rank}: {shown}"
        )
    if len(left) == 2 and not transpose and output_rank == 1 and right[0] not in (0, left[1]):
        left = _match_legacy(node, left, right)
        reduced = len(left) - 1
    if 0 in left[:output_rank]:
        raise node.error(
            f"the first {output_rank} dimensions of the left operand must be known: {shown}"
        )
    mapped = node.attributes.get("inferInputRankToMap", -1)
    if mapped >= 0 and left[-1] == 0:
        if mapped >= len(right) and final:
            raise node.error(
                f"inferInputRankToMap {mapped} must be less than the rank of the right operand:"
                f" {shown}"
            )
        while reduced + mapped < len(right):
            left.append(0)
            reduced += 1
    for k, dim in enumerate(right[:reduced], start=output_rank):
        if final and dim == 0:
            raise node.error(f"the right operand has a dimension of 0: {shown}")
        if left[k] == 0:
            left[k] = dim
        elif final and left[k] != dim:
            raise node.error(f"shapes of {shown} are not compatible")
    node.shape = tuple(left[:output_rank] + right[reduced:])
    rules.infer(a, left[::-1] if transpose else left)


_TIMES = {"outputRank": OUTPUT_RANK, "inferInputRankToMap": INFER_INPUT_RANK}
_TIMES_FIELDS = (
    FileField("outputRank", "uint64", 3, 1),
    FileField("inferInputRankToMap", "int32", 12, -1),
)
standard(
    "Times",
    2,
    product,
    attributes=_TIMES,
    file_fields=_TIMES_FIELDS,
    reads="left right",
    doc=(
        "The matrix product: the last axes of `left`, all but `outputRank`, are"
        " summed with the first axes of `right`. Unknown dimensions of a parameter"
        " are inferred."
    ),
)
standard(
    "TransposeTimes",
    2,
    product,
    attributes=_TIMES,
    file_fields=_TIMES_FIELDS,
    reads="left right",
    doc="The product of the transposed left matrix and `right`.",
)
standard(
    "QuantizedTimes",
    2,
    product,
    ndl=None,
    attributes={
        "bitShiftA": AttributeSpec("int", 1, doc="of CNTK's quantizer; it changes nothing here"),
        "bitShiftB": AttributeSpec("int", 1, doc="of CNTK's quantizer; it changes nothing here"),
        **_TIMES,
    },
    file_fields=(
        *_TIMES_FIELDS,
        FileField("bitShiftA", "uint64"),
        FileField("bitShiftB", "uint64"),
    ),
    reads="left right",
    doc=(
        "`Times`; here without the quantization to 16 bits that CNTK does on CPUs"
        " when it does not train."
    ),
)


def _diagonal_product(node: Node, final: bool) -> None:
    rules.common_axis(node)
    diagonal, right = node.inputs
    rows, columns = rules.matrix(right)
    if right.axis is not None:
        rows = rules.size(right.shape)
    rules.infer(diagonal, (rows,))
    length, width = rules.matrix(diagonal)
    rules.infer(right, (length,) if right.axis is not None else (length, columns))
    if final and length != rows:
        raise rules.incompatible(node, diagonal, right)
    if final and width != 1:
        raise node.error(f"the diagonal {diagonal.name} must be a column vector")
    node.shape = right.shape


def _column_products(node: Node, final: bool) -> None:
    rules.common_axis(node)
    first, second = node.inputs
    node.shape = (rules.size(first.shape) * rules.size(second.shape),)


def _column_scalar(node: Node, final: bool) -> None:
    """One number for each sample."""
    rules.common_axis(node)
    if len(node.inputs) == 2:
        rules.infer_each_other(node.inputs)
        node.axis = node.inputs[1].axis
    node.shape = (1,)


def _negative_samples(node: Node, final: bool) -> None:
    rules.common_axis(node)
    first, second, _, negatives = node.inputs
    rules.infer_each_other((first, second))
    if final and (
        rules.size(first.shape) != rules.size(second.shape) or first.axis is not second.axis
    ):
        raise rules.incompatible(node, first, second)
    count = rules.constant_value(negatives)
    if count is None:
        raise node.error(f"the number of negative samples, {negatives.name}, must be a constant")
    node.shape = (int(count) + 1,)


def _swap(node: Node, final: bool) -> None:
    rules.common_axis(node)
    first, second = node.attributes["axis1"] - 1, node.attributes["axis2"] - 1
    shape = list(node.inputs[0].shape or ())
    if min(first, second) < 0:
        raise node.error("axes count from 1")
    rules.check_rank(node, max(first, second) + 1)
    if first >= len(shape) and second >= len(shape):
        if not final and not shape:
            return
        raise node.error(
            f"neither axis {first + 1} nor {second + 1} is in [{rules.text(tuple(shape))}]"
        )
    shape += [1] * (max(first, second) + 1 - len(shape))
    shape[first], shape[second] = shape[second], shape[first]
    node.shape = tuple(shape)


def _diagonal(node: Node, final: bool) -> None:
    node.axis = None
    child = node.inputs[0]
    rows, columns = rules.matrix(child)
    if final and child.axis is not None:
        raise node.error("the input must be a matrix, not samples of a minibatch")
    if final and rows != columns:
        raise node.error(f"the input must be a square matrix, not [{rules.text(child.shape)}]")
    node.shape = (1, columns)


def _accumulate(node: Node, final: bool) -> None:
    node.axis = None
    node.shape = node.inputs[0].shape


standard(
    "DiagTimes",
    2,
    _diagonal_product,
    reads="diagonal right",
    doc="The product of the diagonal matrix, given as a column, and `right`.",
)
standard(
    "KhatriRaoProduct",
    2,
    _column_products,
    ndl=("ColumnwiseCrossProduct",),
    reads="left right",
    doc=(
        "The products of each element of `left` with each of `right`, sample by"
        " sample, as one column."
    ),
)
standard(
    "CosDistance",
    2,
    _column_scalar,
    ndl=("CosDist",),
    reads="x y",
    doc="The cosine of the angle between x and y, a number for each sample.",
)
standard(
    "CosDistanceWithNegativeSamples",
    4,
    _negative_samples,
    ndl=("CosWithNegSamples",),
    reads="x y shift negatives",
    doc=(
        "Cosines of each x with its y and with the y of so many samples from"
        " `shift` samples on, [1 + negatives]; `shift` and `negatives` are"
        " constants."
    ),
)
standard(
    "SumElements",
    1,
    rules.scalar,
    whole=True,
    reads="x",
    doc="The sum of all elements of all samples, one number.",
)
standard(
    "SumColumnElements", 1, _column_scalar, reads="x", doc="The sum of the elements of each sample."
)
standard(
    "Diagonal",
    1,
    _diagonal,
    whole=True,
    reads="x",
    doc="The diagonal of a square matrix, as a row.",
)
standard(
    "EpochAccumulator",
    1,
    _accumulate,
    ndl=None,
    whole=True,
    reads="x",
    doc="The mean of all samples since the epoch began.",
)
register(
    Kind(
        "TransposeDimensions",
        (1, 1),
        _swap,
        {
            "axis1": AttributeSpec("int", 1, doc="one axis"),
            "axis2": AttributeSpec("int", 2, doc="the other axis"),
        },
        aliases=("Transpose",),
        ndl=(NdlFunction(("Transpose",), "TransposeDimensions", (1,)),),
        file_fields=(FileField("axis1", "int32", 3, 1), FileField("axis2", "int32", 3, 2)),
        reads=("x",),
        doc="x with two of its axes exchanged; they count from 1.",
    )
)
