"""How each operation of CNTK is done in nnet3."""

from __future__ import annotations

import math

import numpy as np

from ...cntk.network.nodes import geometry
from ...cntk.network.nodes.node import Node
from ...framework.base.sequence import repeated
from ...operators.names import both
from .assembly import Value, scaled, width
from .cntk_walk import ABSORBS, Conversion, converts, refuse, size

_PRODUCTS = ("Times", "TransposeTimes")
_NONLINEAR = {"Softmax": "SoftmaxComponent", **both("cntk", "nnet3")}
NORM_FLOOR = 2.0**-66
"""What NormalizeComponent takes at least for the mean square of a row."""
_NO_LIMIT = 1e38


def _rate(node: Node) -> float:
    """The learning rate multiplier of a constant; 0 for what is computed."""
    return node.learning_rate if node.is_parameter else 0.0


def _ends(node: Node, axis: int) -> bool:
    """Whether an axis, counted from 1, is the slowest one of a sample."""
    return math.prod(node.shape[axis:]) == 1


# Products


def _matrix(c: Conversion, node: Node) -> np.ndarray:
    """The matrix [out, in] of a product, whose left operand must be a constant."""
    left = node.inputs[0]
    if left not in c.fixed:
        refuse(node, f"its left operand {left.name} varies from sample to sample")
    array = c.fixed[left]
    if node.operation == "TransposeTimes":
        array = array.reshape(array.shape[0], -1, order="F").T
    rows = math.prod(array.shape[: node.attributes["outputRank"]])
    return array.reshape(rows, -1, order="F").astype(np.float32, copy=False)


def _is_affine(c: Conversion, node: Node, product: Node, bias: Node) -> bool:
    """Whether product and bias make one component, which is learned or not as a whole."""
    if product.operation not in _PRODUCTS or product in c.fixed or bias not in c.fixed:
        return False
    weights, data = product.inputs
    if weights not in c.fixed or data in c.fixed or size(product) != size(node):
        return False
    rows, columns = _matrix(c, product).shape
    once = columns == size(data) or size(bias) == bias.shape[0] == rows
    return once and (_rate(weights) == 0) == (_rate(bias) == 0)


def _absorbed_product(c: Conversion, node: Node) -> tuple[Node, ...]:
    for product, bias in (node.inputs, node.inputs[::-1]):
        if _is_affine(c, node, product, bias):
            return (product,)
    return ()


ABSORBS["Plus"] = _absorbed_product


def _affine(c: Conversion, node: Node, product: Node, bias: Node | None) -> Value:
    """A product, and a bias where there is one; the same for each column of a matrix."""
    weights, data = product.inputs
    matrix = _matrix(c, product)
    value = c.values[data]
    rows, columns = matrix.shape
    key = (product.operation, weights, bias)
    rate = _rate(weights)
    repeats = size(data) // columns
    dims = f"input-dim={repeats * columns} output-dim={repeats * rows}"
    offsets = np.zeros(rows, np.float32) if bias is None else c.spread(bias, node)[:rows]
    arrays = {"linear_params": matrix, "bias_params": offsets}
    learned = f"{dims} param-stddev=0 learning-rate-factor={rate:g}"
    if repeats > 1:
        config = f"{learned} num-repeats={repeats}"
        return c.component(node, key, value, "RepeatedAffineComponent", config, **arrays)
    if not rate:
        return c.component(node, key, value, "FixedAffineComponent", dims, **arrays)
    if bias is None:
        return c.component(node, key, value, "LinearComponent", learned, params=matrix)
    return c.component(node, key, value, "NaturalGradientAffineComponent", learned, **arrays)


@converts(*_PRODUCTS)
def convert_products(c: Conversion, node: Node) -> Value:
    return _affine(c, node, node, None)


# Element by element


def _offset(
    c: Conversion, node: Node, value: Value, child: Node, sign: float, part: str = ""
) -> Value:
    """The value plus or minus a constant, element by element."""
    offsets = sign * c.spread(child, node)
    key = (child, sign)
    rate = _rate(child)
    config = f"dim={offsets.size}"
    if not rate:
        return c.component(node, key, value, "FixedBiasComponent", config, part, bias=offsets)
    if child.shape == node.shape[: len(child.shape)]:  # what repeats stays one parameter
        offsets = offsets[: size(child)]
    config += f" block-dim={offsets.size} learning-rate-factor={rate:g}"
    type = "PerElementOffsetComponent"
    return c.component(node, key, value, type, config, part, offsets=offsets)


def _scale(c: Conversion, node: Node, value: Value, child: Node) -> Value:
    scales = c.spread(child, node)
    rate = _rate(child)
    if not rate:
        if np.all(scales == scales[0]):
            return scaled(value, float(scales[0]))
        config = f"dim={scales.size}"
        return c.component(node, (child,), value, "FixedScaleComponent", config, scales=scales)
    config = f"dim={scales.size} learning-rate-factor={rate:g}"
    return c.component(node, (child,), value, "PerElementScaleComponent", config, scales=scales)


@converts("Plus")
def convert_plus(c: Conversion, node: Node) -> Value:
    first, second = node.inputs
    if node in c.absorbed:
        (product,) = c.absorbed[node]
        return _affine(c, node, product, second if product is first else first)
    if second in c.fixed:
        return _offset(c, node, c.whole(first, node), second, 1.0)
    if first in c.fixed:
        return _offset(c, node, c.whole(second, node), first, 1.0)
    return c.assembly.sum(node.name, [c.whole(first, node), c.whole(second, node)])


@converts("Minus")
def convert_minus(c: Conversion, node: Node) -> Value:
    first, second = node.inputs
    if second in c.fixed:
        return _offset(c, node, c.whole(first, node), second, -1.0)
    negative = scaled(c.whole(second, node), -1.0)
    if first in c.fixed:
        return _offset(c, node, negative, first, 1.0)
    return c.assembly.sum(node.name, [c.whole(first, node), negative])


@converts("Negate")
def convert_negate(c: Conversion, node: Node) -> Value:
    return scaled(c.values[node.inputs[0]], -1.0)


# From x .* Reciprocal (Sqrt (Clip (low, high, m * (x .* x)))) inwards, and where to go on.
_NORM = (("Reciprocal", 0), ("Sqrt", 0), ("Clip", 2), ("Times", 1), ("ElementTimes", 0))


def _absorbed_norm(c: Conversion, node: Node) -> tuple[Node, ...]:
    """What `nnet3_rules` makes of a NormalizeComponent."""
    part, data = node.inputs
    chain = []
    for operation, following in _NORM:
        if part.operation != operation:
            return ()
        chain.append(part)
        part = part.inputs[following]
    _, _, clip, power, squares = chain
    constants = [*clip.inputs[:2], power.inputs[0]]
    if squares.inputs != [data, data] or not all(child in c.fixed for child in constants):
        return ()
    low, high, mean = (c.fixed[child] for child in constants)
    if low.size != 1 or low != NORM_FLOOR or high.size != 1 or high < _NO_LIMIT:
        return ()
    return tuple(chain) if mean.shape == (1, size(node)) and np.ptp(mean) == 0 else ()


ABSORBS["ElementTimes"] = _absorbed_norm


def _norm(c: Conversion, node: Node) -> Value:
    power = c.absorbed[node][3]
    target = (float(c.fixed[power.inputs[0]][0, 0]) * size(node)) ** -0.5
    config = f"dim={size(node)} target-rms={target:.7g}"
    return c.component(node, (), c.values[node.inputs[1]], "NormalizeComponent", config)


@converts("ElementTimes")
def convert_element_times(c: Conversion, node: Node) -> Value:
    if node in c.absorbed:
        return _norm(c, node)
    first, second = node.inputs
    if second in c.fixed:
        return _scale(c, node, c.whole(first, node), second)
    if first in c.fixed:
        return _scale(c, node, c.whole(second, node), first)
    dim = size(node)
    both = (*c.whole(first, node), *c.whole(second, node))
    config = f"input-dim={2 * dim} output-dim={dim}"
    return c.component(node, (), both, "ElementwiseProductComponent", config)


@converts("PerDimMeanVarNormalization")
def convert_per_dim_mean_var_normalization(c: Conversion, node: Node) -> Value:
    data, mean, deviation = node.inputs
    centered = _offset(c, node, c.whole(data, node), mean, -1.0, "centered")
    return _scale(c, node, centered, deviation)


@converts("PerDimMeanVarDeNormalization")
def convert_per_dim_mean_var_de_normalization(c: Conversion, node: Node) -> Value:
    data, mean, deviation = node.inputs
    scales = 1 / c.spread(deviation, node)
    value = c.whole(data, node)
    config = f"dim={scales.size}"
    key = (deviation, "inverse")
    value = c.component(node, key, value, "FixedScaleComponent", config, "spread", scales=scales)
    return _offset(c, node, value, mean, 1.0)


@converts(*_NONLINEAR)
def convert_nonlinear(c: Conversion, node: Node) -> Value:
    value = c.values[node.inputs[0]]
    return c.component(node, (), value, _NONLINEAR[node.operation], f"dim={width(value)}")


def _absorbed_softmax(c: Conversion, node: Node) -> tuple[Node, ...]:
    (child,) = node.inputs
    return (child,) if child.operation == "Softmax" and child not in c.fixed else ()


ABSORBS["Log"] = _absorbed_softmax


@converts("Log")
def convert_log(c: Conversion, node: Node) -> Value:
    if node not in c.absorbed:
        refuse(node, "nnet3 has a logarithm only of softmax, and that must be for it alone")
    value = c.values[c.absorbed[node][0].inputs[0]]
    return c.component(node, (), value, "LogSoftmaxComponent", f"dim={width(value)}")


# Normalization and dropout


@converts("BatchNormalization")
def convert_batch_normalization(c: Conversion, node: Node) -> Value:
    """As it is used after training, with running statistics. Scale and bias are a component of
    their own, unless they are one fixed number and zero."""
    data, *parameters = node.inputs
    scale, bias, mean, variance = (_per_column(c, node, child) for child in parameters)
    learned = any(_rate(child) for child in parameters[:2])
    plain = not learned and not bias.any() and np.ptp(scale) == 0 and scale[0] > 0
    count = max(float(node.attributes["samplesSeen"]), 1.0)
    center = mean.astype(np.float64)
    config = f"dim={scale.size} epsilon={node.attributes['epsilon']:.9g} test-mode=true"
    value = c.component(
        node,
        (*parameters[2:], *(parameters[:1] if plain else ())),
        c.values[data],
        "BatchNormComponent",
        f"{config} target-rms={scale[0]:.9g}" if plain else config,
        "" if plain else "normalized",
        count=count,
        stats_sum=center * count,
        stats_sumsq=(np.maximum(variance, 0) + center * center) * count,
    )
    if plain:
        return value
    config = f"dim={scale.size} learning-rate-factor={_rate(parameters[0]):g}"
    key = tuple(parameters[:2])
    type = "ScaleAndOffsetComponent"
    return c.component(node, key, value, type, config, scales=scale, offsets=bias)


def _per_column(c: Conversion, node: Node, child: Node) -> np.ndarray:
    """A statistic, which a spatial normalization has one of for each map, for every column."""
    if child not in c.fixed:
        refuse(node, f"its parameter {child.name} varies from sample to sample")
    array = c.fixed[child].reshape(-1, order="F").astype(np.float32)
    if node.attributes["spatial"] and array.size != size(node):
        fast = node.attributes["imageLayout"].lower() in ("hwc", "legacy")
        repeats = size(node) // array.size
        return np.tile(array, repeats) if fast else repeated(array, repeats)
    return array


@converts("Dropout")
def convert_dropout(c: Conversion, node: Node) -> Value:
    """Identity after training; a recipe may set the proportion for training on."""
    value = c.values[node.inputs[0]]
    config = f"dim={width(value)} dropout-proportion=0"
    return c.component(node, (), value, "DropoutComponent", config)


# Columns


@converts("Pass", "Trace")
def convert_pass(c: Conversion, node: Node) -> Value:
    return c.values[node.inputs[0]]


@converts("Reshape", "LegacyReshape")
def convert_reshape(c: Conversion, node: Node) -> Value:
    if size(node) != size(node.inputs[0]):
        refuse(node, "it changes the number of samples")
    return c.values[node.inputs[0]]


@converts("TransposeDimensions")
def convert_transpose_dimensions(c: Conversion, node: Node) -> Value:
    """A permutation of columns."""
    (child,) = node.inputs
    first, second = node.attributes["axis1"] - 1, node.attributes["axis2"] - 1
    shape = child.shape + (1,) * (len(node.shape) - len(child.shape))
    numbers = np.arange(size(child)).reshape(shape, order="F").swapaxes(first, second)
    return c.permute(node, "", c.values[child], numbers.reshape(-1, order="F").tolist())


@converts("Convolution")
def convert_convolution(c: Conversion, node: Node) -> Value:
    """Over the height of an image [width x height x channels], which is the one axis that nnet3's
    convolution has besides time; its rows hold for each height the channels."""
    weight, data = node.inputs
    values = node.attributes
    maps = math.prod(node.attributes["mapCount"])
    rank = len(data.shape)
    if weight not in c.fixed:
        refuse(node, f"its kernel {weight.name} varies from sample to sample")
    if values["transpose"] or not all(values["dimSharing"]) or not geometry.is_chw(node):
        refuse(node, "it is transposed, does not share its kernel, or has images in the layout HWC")
    if not 2 <= rank <= 3 or len(values["kernelShape"]) != rank:
        refuse(node, "only images of a height, or of a width and a height, can be convolved")
    counts = (*node.shape[:-1], node.shape[-1] // maps)
    lower = [geometry.lower_padding(node, k, data.shape, counts) for k in range(rank)]
    others = [k for k in range(rank) if k != rank - 2]
    if any(values["kernelShape"][k] != data.shape[k] or lower[k] for k in others):
        refuse(node, "its kernel moves along other axes than the last but one")
    shape = (1,) * (3 - rank) + data.shape
    tall = values["kernelShape"][-2]
    step = values["strideShape"][-2]
    count = counts[-2]
    offsets = {k: k - lower[-2] for k in range(tall)}
    used = [k for k, offset in offsets.items() if _reads(shape[1], offset, step, count)]
    kernel = c.fixed[weight].reshape(-1, order="F")
    kernel = kernel.reshape((shape[0], tall, shape[2], maps), order="F").transpose(3, 1, 2, 0)
    config = (
        f"num-filters-in={shape[0] * shape[2]} num-filters-out={maps} height-in={shape[1]}"
        f" height-out={count} height-subsample-out={step} param-stddev=0"
        f" offsets={';'.join(f'0,{offsets[k]}' for k in used)}"
        f" learning-rate-factor={_rate(weight):g}"
    )
    arrays = {
        "linear_params": kernel[:, used].reshape(maps, -1).astype(np.float32),
        "bias_params": np.zeros(maps, np.float32),
    }
    image = np.arange(size(data)).reshape(shape, order="F").transpose(1, 2, 0)
    value = c.permute(node, "rows", c.values[data], image.reshape(-1).tolist())
    type = "TimeHeightConvolutionComponent"
    value = c.component(node, (weight,), value, type, config, **arrays)
    back = np.arange(count * maps).reshape(count, maps).reshape(-1, order="F").tolist()
    return c.permute(node, "image", value, back)


def _reads(height: int, offset: int, step: int, count: int) -> bool:
    """Whether one of `count` outputs reads within an image at an offset."""
    first = max(0, -(offset // step))
    return first < count and first * step + offset < height


@converts("Slice")
def convert_slice(c: Conversion, node: Node) -> Value:
    (child,) = node.inputs
    axis, begin = node.attributes["axis"], node.attributes["beginIndex"]
    if not _ends(child, axis):
        refuse(node, f"it cuts along axis {axis}, which is not the slowest one")
    step = math.prod(child.shape[: axis - 1])
    begin += child.shape[axis - 1] if begin < 0 else 0
    return c.assembly.columns(c.values[child], begin * step, size(node))


@converts("RowStack")
def convert_row_stack(c: Conversion, node: Node) -> Value:
    axis = node.attributes["axis"]
    fixed = next((child for child in node.inputs if child in c.fixed), None)
    if fixed is not None:
        refuse(node, f"it stacks the constant {fixed.name}")
    if not _ends(node, axis):
        refuse(node, f"it stacks along axis {axis}, which is not the slowest one")
    return tuple(block for child in node.inputs for block in c.values[child])


@converts("RowRepeat")
def convert_row_repeat(c: Conversion, node: Node) -> Value:
    if not _ends(node, 1):
        refuse(node, f"it repeats the rows of a tensor [{' x '.join(map(str, node.shape))}]")
    return c.values[node.inputs[0]] * node.attributes["numRepeats"]


@converts("PastValue", "FutureValue")
def convert_past_value(c: Conversion, node: Node) -> Value:
    initial = (
        f"{node.inputs[1].name}'s"
        if len(node.inputs) > 1
        else f"{node.attributes['defaultHiddenActivation']:g}"
    )
    refuse(node, f"frames beyond the sequence are {initial} here, but copies of the edge in nnet3")
