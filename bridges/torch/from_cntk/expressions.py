"""Nodes without parameters of their own as expressions of PyTorch.

Values are arrays whose last dimensions are CNTK's in the opposite order; samples come before them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ....cntk.lower.emitter import dims, size
from ....cntk.network.nodes.node import Node
from ..folder import NotInTorchError


class Values(Protocol):
    """What expressions are made of."""

    def text(self, node: Node) -> str:
        """The expression of a node's value."""
        ...

    def like(self, node: Node) -> str:
        """The dimensions of samples at a node, as arguments: `n, t`."""
        ...


Rule = Callable[[Values, Node], str]

_UNARY: Final = {
    "Abs": "torch.abs({x})",
    "Cosine": "torch.cos({x})",
    "Exp": "torch.exp({x})",
    "Floor": "torch.floor({x})",
    "Log": "torch.log({x}.clamp(min=1e-37))",
    "Negate": "-{x}",
    "Reciprocal": "torch.where({x} == 0, 0.0, 1 / {x})",
    "RectifiedLinear": "F.relu({x})",
    "Sigmoid": "torch.sigmoid({x})",
    "Sin": "torch.sin({x})",
    "Sqrt": "torch.sqrt({x}.clamp(min=0))",
    "Tanh": "torch.tanh({x})",
    "Pass": "{x}",
    "Trace": "{x}",
}
_BINARY: Final = {
    "Plus": "{x} + {y}",
    "Minus": "{x} - {y}",
    "ElementTimes": "{x} * {y}",
    "LogPlus": "torch.logaddexp({x}, {y})",
    "Equal": "({x} == {y}).float()",
    "NotEqual": "({x} != {y}).float()",
    "Less": "({x} < {y}).float()",
    "LessEqual": "({x} <= {y}).float()",
    "Greater": "({x} > {y}).float()",
    "GreaterEqual": "({x} >= {y}).float()",
}


def shaped(text: str, have: Sequence[int], wanted: Sequence[int]) -> str:
    """A value's last dimensions in another shape."""
    have, wanted = list(have), list(wanted)
    if have == wanted:
        return text
    if len(have) > 1:
        text = f"{text}.flatten(-{len(have)})"
    return text if len(wanted) == 1 else f"{text}.unflatten(-1, {tuple(wanted)})"


def aligned(v: Values, *nodes: Node) -> list[str]:
    """Values that broadcast: CNTK's dimensions are counted from the last one here."""
    rank = max(len(dims(node)) for node in nodes)
    found = []
    for node in nodes:
        text, own = v.text(node), len(dims(node))
        if own < rank and node.axis is not None:
            text += "".join(f".unsqueeze(-{own + 1})" for _ in range(rank - own))
        found.append(text)
    return found


def _unary(v: Values, node: Node) -> str:
    return _UNARY[node.operation].format(x=v.text(node.inputs[0]))


def _binary(v: Values, node: Node) -> str:
    x, y = aligned(v, *node.inputs)
    return _BINARY[node.operation].format(x=x, y=y)


def _if(v: Values, node: Node) -> str:
    condition, yes, no = aligned(v, *node.inputs)
    return f"torch.where({condition} != 0, {yes}, {no})"


def _clip(v: Values, node: Node) -> str:
    low, high, x = aligned(v, *node.inputs)
    return f"torch.maximum(torch.minimum({x}, {high}), {low})"


def _softmax(v: Values, node: Node) -> str:
    (child,) = node.inputs
    count = size(child)
    x = shaped(v.text(child), dims(child), (count,))
    made = {
        "Softmax": f"torch.softmax({x}, -1)",
        "LogSoftmax": f"torch.log_softmax({x}, -1)",
        "Hardmax": f"F.one_hot({x}.argmax(-1), {count}).float()",
    }[node.operation]
    return shaped(made, (count,), dims(node))


def _reshape(v: Values, node: Node) -> str:
    (child,) = node.inputs
    if node.operation == "LegacyReshape" and size(child) != size(node):
        raise NotInTorchError(f"{node.name}: LegacyReshape changes the number of samples")
    return shaped(v.text(child), dims(child), dims(node))


def _slice(v: Values, node: Node) -> str:
    (child,), axis = node.inputs, node.attributes["axis"]
    begin = node.attributes["beginIndex"]
    begin += child.shape[axis - 1] if begin < 0 else 0
    end = begin + node.shape[axis - 1]
    return f"{v.text(child)}[..., {begin}:{end}{', :' * (axis - 1)}]"


def _row_stack(v: Values, node: Node) -> str:
    axis, shape = node.attributes["axis"], dims(node)
    pieces = []
    for child in node.inputs:
        own = (1,) * (len(shape) - len(dims(child))) + dims(child)
        piece = shaped(v.text(child), dims(child), own)
        wanted = (*shape[:-axis], own[-axis], *shape[len(shape) - axis + 1 :])
        if node.axis is not None and child.axis is None:
            piece = f"{piece}.expand({v.like(node)}, {', '.join(map(str, wanted))})"
        elif own != wanted:
            front = v.like(node) + ", " if node.axis is not None else ""
            piece = f"{piece}.expand({front}{', '.join(map(str, wanted))})"
        pieces.append(piece)
    return f"torch.cat([{', '.join(pieces)}], -{axis})"


def _row_repeat(v: Values, node: Node) -> str:
    (child,) = node.inputs
    repeats = (node.attributes["numRepeats"], *(1,) * (len(dims(child)) - 1))
    return f"{v.text(child)}.tile({repeats})"


def _transpose(v: Values, node: Node) -> str:
    (child,), rank = node.inputs, len(dims(node))
    x = shaped(v.text(child), dims(child), (1,) * (rank - len(dims(child))) + dims(child))
    first, second = (node.attributes[key] for key in ("axis1", "axis2"))
    return f"{x}.transpose(-{first}, -{second})"


_REDUCE: Final = {
    "Sum": "{x}.sum(-{axis}, keepdim=True)",
    "Mean": "{x}.mean(-{axis}, keepdim=True)",
    "LogSum": "{x}.logsumexp(-{axis}, keepdim=True)",
    "Max": "{x}.amax(-{axis}, keepdim=True)",
    "Min": "{x}.amin(-{axis}, keepdim=True)",
    "Argmax": "{x}.argmax(-{axis}, keepdim=True).float()",
    "Argmin": "{x}.argmin(-{axis}, keepdim=True).float()",
}


def _reduce(v: Values, node: Node) -> str:
    (child,), axis = node.inputs, node.attributes["axis"]
    x, shape = v.text(child), dims(child)
    if axis == 0:
        x, shape, axis = shaped(x, shape, (math.prod(shape),)), (math.prod(shape),), 1
    made = _REDUCE[node.attributes["reductionOp"]].format(x=x, axis=axis)
    return shaped(
        made, [1 if k == len(shape) - axis else d for k, d in enumerate(shape)], dims(node)
    )


def _diag_times(v: Values, node: Node) -> str:
    diagonal, right = node.inputs
    count = size(right)
    x = shaped(v.text(right), dims(right), (count,))
    return shaped(f"({x} * {v.text(diagonal)}.flatten())", (count,), dims(node))


def _normalise(v: Values, node: Node) -> str:
    x, mean, scale = aligned(v, *node.inputs)
    if node.operation == "PerDimMeanVarNormalization":
        return f"({x} - {mean}) * {scale}"
    return f"{x} / {scale} + {mean}"


def _khatri_rao(v: Values, node: Node) -> str:
    first, second = (shaped(v.text(one), dims(one), (size(one),)) for one in node.inputs)
    made = f"({second}.unsqueeze(-1) * {first}.unsqueeze(-2))"
    shape = [size(one) for one in reversed(node.inputs)]
    return shaped(made, shape, dims(node))


def _column_sums(v: Values, node: Node) -> str:
    (child,) = node.inputs
    return f"{shaped(v.text(child), dims(child), (size(child),))}.sum(-1, keepdim=True)"


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BINARY, _binary),
    "If": _if,
    "Clip": _clip,
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("Reshape", "LegacyReshape"), _reshape),
    "Slice": _slice,
    "RowStack": _row_stack,
    "RowRepeat": _row_repeat,
    "TransposeDimensions": _transpose,
    "ReduceElements": _reduce,
    "DiagTimes": _diag_times,
    "KhatriRaoProduct": _khatri_rao,
    "SumColumnElements": _column_sums,
    **dict.fromkeys(("PerDimMeanVarNormalization", "PerDimMeanVarDeNormalization"), _normalise),
}
"""Operation -> the expression of a node."""
