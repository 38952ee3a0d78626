"""Initial values of parameters, as CNTK's CPU code draws them.

A parameter's attributes tell the kind of values, the scale and the seed; the languages count seeds.
Source: InputAndParamNodes.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.untrusted.values import Fills, check_fill
from .network import Network
from .nodes import rules
from .nodes.attributes import Dims
from .nodes.initial_values import kind_of_values, load_initial_value
from .nodes.node import Node
from .ziggurat import normal, uniform

# Name -> (uniform, range or deviation from fan-in and fan-out).
_RANDOM: dict[str, tuple[bool, Callable[[int, int], float]]] = {
    "uniform": (True, lambda fan_in, fan_out: float(np.float32(0.05))),
    "uniform1": (True, lambda fan_in, fan_out: 1.0),
    "gaussian": (False, lambda fan_in, fan_out: 0.2 / math.sqrt(fan_in)),
    "normal": (False, lambda fan_in, fan_out: 1.0),
    "xavier": (True, lambda fan_in, fan_out: math.sqrt(3.0 / fan_in)),
    "glorotUniform": (True, lambda fan_in, fan_out: math.sqrt(6.0 / (fan_in + fan_out))),
    "glorotNormal": (False, lambda fan_in, fan_out: math.sqrt(2.0 / (fan_in + fan_out))),
    "heUniform": (True, lambda fan_in, fan_out: math.sqrt(6.0 / fan_in)),
    "heNormal": (False, lambda fan_in, fan_out: math.sqrt(2.0 / fan_in)),
}


def fans(shape: Dims, filter_rank: int, output_rank: int) -> tuple[int, int]:
    """Fan-in and fan-out of a parameter: [filter x output x input], or with a negative output rank
    [filter x input x output].

    Raises:
        ValueError: the ranks are more than the shape has.
    """
    if filter_rank + abs(output_rank) > len(shape):
        raise ValueError(
            f"filter rank {filter_rank} and output rank {output_rank} are more than"
            f" [{rules.text(shape)}] has"
        )
    area = math.prod(shape[:filter_rank])
    begin = filter_rank + max(output_rank, 0)
    end = len(shape) if output_rank >= 0 else len(shape) + output_rank
    fan_in = area * math.prod(shape[begin:end])
    return fan_in, math.prod(shape) * area // fan_in


def _bilinear(node: Node, dtype: np.dtype) -> np.ndarray:
    """Weights that interpolate between pixels, one output channel for each input channel."""
    shape = node.shape or ()
    width, height = node.attributes["kernelWidth"], node.attributes["kernelHeight"]
    if width != height or width <= 0:
        raise node.error(f"a bilinear kernel is square, not {width} x {height}")
    if len(shape) != 2 or shape[1] != shape[0] * width * height:
        raise node.error(
            f"[{rules.text(shape)}] cannot hold bilinear kernels of {width} x {height}"
        )
    factor = (width + 1) // 2
    center = (width - 1) / 2
    line = 1 - np.abs(np.arange(width) - center) / factor
    kernels = np.zeros((shape[0], shape[0], height, width), dtype)
    channel = np.arange(shape[0])
    kernels[channel, channel] = np.outer(line, line)
    return kernels.reshape(-1).reshape(shape, order="F")


def is_random(node: Node) -> bool:
    """Whether a parameter starts from random numbers."""
    return kind_of_values(node) in _RANDOM


def spread(node: Node, dtype: np.dtype) -> tuple[bool, float]:
    """Whether the random numbers of a parameter are uniform, and their range to both sides of 0 or
    else their standard deviation.

    Raises:
        ShapeError: filter and output ranks do not fit its shape.
    """
    values = node.attributes
    shape = node.shape or ()
    is_uniform, scale = _RANDOM[kind_of_values(node)]
    try:
        fan_in, fan_out = fans(shape, values["initFilterRank"], values["initOutputRank"])
    except ValueError as error:
        raise node.error(str(error), ShapeError) from None
    scalar = np.dtype(dtype).type
    return is_uniform, scalar(scale(fan_in, fan_out)) * scalar(values["initValueScale"])


def initial_value(node: Node, dtype: np.dtype) -> np.ndarray:
    """The initial value of a parameter whose shape is known.

    Raises:
        ShapeError, FormatError: it cannot be made from the node's attributes.
    """
    kind = kind_of_values(node)
    values = node.attributes
    shape = node.shape or ()
    if rules.size(shape) == 0:
        raise node.error(f"dimensions of [{rules.text(shape)}] are not known")
    try:
        check_fill(shape, np.dtype(dtype).itemsize, "its value")
    except FormatError as error:
        raise node.error(str(error), FormatError) from None
    if kind in ("fromFile", "fromLiteral"):
        load_initial_value(node, dtype)
        assert node.value is not None
        return node.value
    if kind == "bilinear":
        return _bilinear(node, dtype)
    if kind in ("zero", "fromValue", "fixedValue"):
        constant = {"zero": 0.0, "fromValue": values["initValue"], "fixedValue": values["value"]}
        try:
            return np.full(shape, float(constant[kind]), dtype, order="F")
        except (TypeError, ValueError):
            raise node.error(f"initValue {constant[kind]!r} is no number", FormatError) from None
    is_uniform, width = spread(node, dtype)
    seed = max(values["randomSeed"], 0)
    count = math.prod(shape)
    if width < 0 or (width == 0 and not is_uniform):
        raise node.error(f"initValueScale must be positive, not {values['initValueScale']}")
    if width == 0:
        return np.zeros(shape, dtype, order="F")
    if is_uniform:
        flat = uniform(seed, count, -width, width, np.dtype(dtype))
    else:
        flat = normal(seed, count, 0.0, width, np.dtype(dtype))
    return flat.reshape(shape, order="F")


def initialize(network: Network) -> None:
    """Give all parameters of a validated network that have no value yet their initial values.

    Raises:
        ShapeError, FormatError: a parameter's values cannot be made.
    """
    dtype = np.dtype(np.float64 if network.precision == "double" else np.float32)
    with Fills():
        for node in network.nodes.values():
            if node.is_parameter and node.value is None:
                node.value = initial_value(node, dtype)
