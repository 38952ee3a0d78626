"""How each component of nnet3 is done in operations of CNTK."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...cntk.network.nodes.node import Node
from ...operators.names import both
from .cntk_rules import NORM_FLOOR
from .nnet3_walk import RULES, Place, Unrolling, converts, refuse

_NONLINEAR = {"SoftmaxComponent": "Softmax", **both("nnet3", "cntk")}


def _rate(c: Any) -> float:
    return c.learning_rate_factor if c.is_updatable else 0.0


# Products


def _affine(
    u: Unrolling, c: Any, place: Place, x: Node, matrix: np.ndarray, bias: np.ndarray | None
) -> Node:
    weights = u.parameter(f"{place.owner}.W", matrix, _rate(c))
    if bias is None or not bias.size:
        return u.add("Times", place.name, [weights, x])
    offset = u.parameter(f"{place.owner}.b", bias, _rate(c))
    product = u.add("Times", f"{place.name}.times", [weights, x])
    return u.add("Plus", place.name, [product, offset])


@converts(
    "AffineComponent",
    "NaturalGradientAffineComponent",
    "FixedAffineComponent",
    "TdnnComponent",
)
def convert_affine_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    return _affine(u, c, place, x, c.linear_params, c.bias_params)


@converts("LinearComponent")
def convert_linear_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    return _affine(u, c, place, x, c.params, None)


@converts("RepeatedAffineComponent", "NaturalGradientRepeatedAffineComponent")
def convert_repeated_affine_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    """As the product of a matrix with a matrix of a column for each block."""
    shape = (c.linear_params.shape[1], c.num_repeats)
    blocks = u.add("Reshape", f"{place.name}.blocks", [x], shape=shape)
    inner = Place(place.node, place.owner, f"{place.name}.affine")
    out = _affine(u, c, inner, blocks, c.linear_params, c.bias_params)
    return u.add("Reshape", place.name, [out], shape=(c.output_dim,))


@converts("BlockAffineComponent")
def convert_block_affine_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    rows = c.output_dim // c.num_blocks
    columns = c.linear_params.shape[1]
    products = []
    for k in range(c.num_blocks):
        part = u.rows(x, k * columns, columns, f"{place.name}.in{k}")
        block = c.linear_params[k * rows : (k + 1) * rows]
        weights = u.parameter(f"{place.owner}.W{k}", block, _rate(c))
        products.append(u.add("Times", f"{place.name}.times{k}", [weights, part]))
    out = u.add("RowStack", f"{place.name}.times", products)
    bias = u.parameter(f"{place.owner}.b", c.bias_params, _rate(c))
    return u.add("Plus", place.name, [out, bias])


@converts("TimeHeightConvolutionComponent")
def convert_time_height_convolution_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    """Frames become an image [time x height x filters], for which CNTK has its fast engines; the
    kernel covers all times. Offsets between the least and the greatest height that the component
    does not have are zeros in the kernel."""
    if c.required_time_offsets != c.all_time_offsets:
        refuse(place.node, "frames of its convolution may be missing at the edges")
    times = c.all_time_offsets
    step = c.height_subsample_out
    name = place.name
    least = min(0, *(height for _, height in c.offsets))
    tall = max(height for _, height in c.offsets) - least + 1
    above = (c.height_out - 1) * step + tall + least - c.height_in
    if above <= -step:  # heights that nothing reads
        tall = tall - above
        above = 0
    filters, maps = c.num_filters_in, c.num_filters_out
    kernel = np.zeros((len(times), tall, filters, maps), np.float32)
    taps = c.linear_params.reshape(maps, len(c.offsets), filters)
    for number, (time, height) in enumerate(c.offsets):
        kernel[times.index(time), height - least] = taps[:, number].T
    image = u.add("Reshape", f"{name}.frames", [x], shape=(filters, c.height_in, len(times)))
    image = u.add("TransposeDimensions", f"{name}.image", [image], axis1=1, axis2=3)
    image = u.add(
        "Convolution",
        f"{name}.maps",
        [u.parameter(f"{place.owner}.W", kernel, _rate(c)), image],
        kernelShape=kernel.shape[:3],
        mapCount=(maps,),
        strideShape=(1, step, filters),
        dimPadding=(False,) * 3,
        dimPadLower=(0, -least, 0),
        dimPadUpper=(0, max(above, 0), 0),
    )
    image = u.add("TransposeDimensions", f"{name}.rows", [image], axis1=1, axis2=3)
    out = u.add("Reshape", f"{name}.blocks", [image], shape=(maps, c.height_out))
    bias = u.parameter(f"{place.owner}.b", c.bias_params, _rate(c))
    out = u.add("Plus", f"{name}.biased", [out, bias])
    return u.add("Reshape", name, [out], shape=(c.output_dim,))


def _fixed_product(u: Unrolling, place: Place, name: str, matrix: np.ndarray, x: Node) -> Node:
    return u.add("Times", name, [u.constant(f"{place.owner}.M", matrix), x])


@converts("SumBlockComponent")
def convert_sum_block_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    blocks = np.tile(np.eye(c.output_dim) * c.scale, c.input_dim // c.output_dim)
    return _fixed_product(u, place, place.name, blocks, x)


@converts("SumGroupComponent")
def convert_sum_group_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    groups = np.repeat(np.eye(c.output_dim), c.sizes, axis=1)
    return _fixed_product(u, place, place.name, groups, x)


@converts("PermuteComponent")
def convert_permute_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    return _fixed_product(u, place, place.name, np.eye(c.dim)[c.column_map], x)


@converts("PnormComponent")
def convert_pnorm_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    squares = u.add("ElementTimes", f"{place.name}.squares", [x, x])
    groups = np.repeat(np.eye(c.output_dim), c.input_dim // c.output_dim, axis=1)
    sums = _fixed_product(u, place, f"{place.name}.sums", groups, squares)
    return u.add("Sqrt", place.name, [sums])


@converts("ElementwiseProductComponent")
def convert_elementwise_product_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    dim = c.output_dim
    blocks = range(0, c.input_dim, dim)
    out, *others = [u.rows(x, k, dim, f"{place.name}.block{k // dim}") for k in blocks]
    for number, other in enumerate(others[:-1], start=1):
        out = u.add("ElementTimes", f"{place.name}.product{number}", [out, other])
    return u.add("ElementTimes", place.name, [out, others[-1]])


# Scales and offsets


def _each(values: np.ndarray, dim: int) -> np.ndarray:
    """Numbers that repeat, for every column."""
    return np.tile(values, dim // values.size)


def _scaled(u: Unrolling, c: Any, place: Place, name: str, scales: np.ndarray, x: Node) -> Node:
    factors = u.parameter(f"{place.owner}.scale", _each(scales, c.output_dim), _rate(c))
    return u.add("ElementTimes", name, [factors, x])


def _offset(u: Unrolling, c: Any, place: Place, offsets: np.ndarray, x: Node) -> Node:
    bias = u.parameter(f"{place.owner}.bias", _each(offsets, c.output_dim), _rate(c))
    return u.add("Plus", place.name, [x, bias])


@converts(
    "PerElementScaleComponent", "NaturalGradientPerElementScaleComponent", "FixedScaleComponent"
)
def convert_per_element_scale_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    return _scaled(u, c, place, place.name, c.scales, x)


@converts("PerElementOffsetComponent")
def convert_per_element_offset_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    return _offset(u, c, place, c.offsets, x)


@converts("FixedBiasComponent")
def convert_fixed_bias_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    return _offset(u, c, place, c.bias, x)


@converts("ScaleAndOffsetComponent")
def convert_scale_and_offset_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    out = _scaled(u, c, place, f"{place.name}.scaled", c.scales, x)
    return _offset(u, c, place, c.offsets, out)


# Nonlinearities and normalization


@converts(*_NONLINEAR)
def convert_nonlinear(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    return u.add(_NONLINEAR[c.type], place.name, [x])


@converts("BatchNormComponent")
def convert_batch_norm_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    """In test mode, whatever mode it is in: by the statistics of training."""
    if not c.count:
        refuse(place.node, "its BatchNormComponent has no statistics")
    mean = c.stats_sum / c.count
    variance = np.maximum(c.stats_sumsq / c.count - mean * mean, 0)
    values = {
        "scale": np.full(c.block_dim, c.target_rms),
        "bias": np.zeros(c.block_dim),
        "mean": mean,
        "variance": variance,
    }
    inputs = [u.constant(f"{place.owner}.{k}", _each(v, c.dim)) for k, v in values.items()]
    return u.add(
        "BatchNormalization",
        place.name,
        [x, *inputs],
        spatial=False,
        normalizationTimeConstant=np.inf,
        blendTimeConstant=np.inf,
        epsilon=c.epsilon,
        samplesSeen=round(c.count),
    )


@converts("NormalizeComponent")
def convert_normalize_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    """x / sqrt(max(mean square / target^2, 2^-66)); the mean as a product with a row of 1/dim."""
    if c.add_log_stddev or c.block_dim != c.input_dim:
        refuse(place.node, "its NormalizeComponent appends a deviation or works in blocks")
    name = place.name
    dim = c.input_dim
    mean = np.full((1, dim), 1 / (dim * c.target_rms**2))
    squares = u.add("ElementTimes", f"{name}.squares", [x, x])
    power = _fixed_product(u, place, f"{name}.power", mean, squares)
    bounds = [u.constant("least_power", [NORM_FLOOR]), u.constant("any_power", [3e38])]
    power = u.add("Clip", f"{name}.floored", [*bounds, power])
    rms = u.add("Sqrt", f"{name}.rms", [power])
    inverse = u.add("Reciprocal", f"{name}.inverse", [rms])
    return u.add("ElementTimes", name, [inverse, x])


@converts("GeneralDropoutComponent")
def convert_general_dropout_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    return u.add("Dropout", place.name, [x])


@converts("DropoutComponent")
def convert_dropout_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    """Kaldi's training does not scale what stays, so its test mode scales all by 1 - p."""
    if c.dropout_proportion:
        kept = np.full(c.dim, 1.0 - c.dropout_proportion, np.float32)
        factors = u.parameter(f"{place.owner}.kept", kept, 0.0)
        x = u.add("ElementTimes", f"{place.name}.kept", [factors, x])
    return u.add("Dropout", place.name, [x])


@converts(
    "NoOpComponent",
    "ClipGradientComponent",
    "BackpropTruncationComponent",
    "SpecAugmentTimeMaskComponent",
)
def convert_no_op_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    """The identity, except in training."""
    return x


@converts("CompositeComponent")
def convert_composite_component(u: Unrolling, c: Any, place: Place, x: Node) -> Node:
    for number, part in enumerate(c.components, start=1):
        if part.type not in RULES:
            refuse(place.node, f"there is no operation for the {part.type} in its component")
        end = number == len(c.components)
        name = place.name if end else f"{place.name}.part{number}"
        x = RULES[part.type](u, part, Place(place.node, f"{place.owner}.part{number}", name), x)
    return x
