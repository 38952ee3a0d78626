"""Convolutions over time and height, and residual blocks of them."""

from __future__ import annotations

import re

from ..language.config import Computed
from .basic import add_part, check_nonlinearity_options
from .layer import FLAG, NEEDED, NEEDED_TEXT, NUMBER, Layer, layer_type

_OFFSETS = re.compile(r"[+-]?\d{1,9}(,[+-]?\d{1,9})*\Z")

# Options of a convolution's initialization and natural gradient, in the order it is written.
_TRAINED = {
    "param-stddev": NUMBER,
    "bias-stddev": NUMBER,
    "use-natural-gradient": FLAG,
    "max-change": 0.75,
    "rank-in": NUMBER,
    "rank-out": NUMBER,
    "num-minibatches-history": NUMBER,
    "alpha-in": NUMBER,
    "alpha-out": NUMBER,
}
_GEOMETRY = (
    "num-filters-in",
    "num-filters-out",
    "height-in",
    "height-out",
    "height-subsample-out",
    "height-offsets",
    "time-offsets",
    "required-time-offsets",
)


@layer_type(
    "relu-conv-layer",
    "conv-layer",
    "conv-relu-layer",
    "conv-renorm-layer",
    "relu-conv-renorm-layer",
    "batchnorm-conv-layer",
    "conv-relu-renorm-layer",
    "batchnorm-conv-relu-layer",
    "relu-batchnorm-conv-layer",
    "relu-batchnorm-noconv-layer",
    "relu-noconv-layer",
    "conv-relu-batchnorm-layer",
    "conv-relu-batchnorm-so-layer",
    "conv-relu-batchnorm-dropout-layer",
    "conv-relu-dropout-layer",
    options={
        "input": "[-1]",
        "height-in": NEEDED,
        "height-subsample-out": 1,
        "height-out": NEEDED,
        "height-offsets": NEEDED_TEXT,
        "num-filters-out": NEEDED,
        "time-offsets": NEEDED_TEXT,
        "required-time-offsets": Computed("time-offsets", ""),
        "target-rms": 1.0,
        "self-repair-scale": 2.0e-05,
        "self-repair-lower-threshold": 0.05,
        "learning-rate-factor": NUMBER,
        "l2-regularize": NUMBER,
        "dropout-proportion": 0.5,
        **_TRAINED,
    },
    meanings={
        "dropout-proportion": "the share p that is dropped, 0 to 1; where the type's name has"
        " dropout",
        "height-offsets": "input heights that an output height sees, from its own, as -1,0,1; not"
        " required where the type's name has noconv",
        "time-offsets": "input frames that an output frame sees, from its own, as -1,0,1; not"
        " required where the type's name has noconv",
    },
)
def _convolution(layer: Layer) -> None:
    """A convolution over time and height, with what the type's name lists before and after it:
    relu, batchnorm, renorm, so (scale and offset), dropout. With noconv there is none."""
    parts = layer.type.split("-")[:-1]
    _check_convolution(layer, "noconv" in parts)
    filters = layer["num-filters-in"]
    height = layer["height-in"]
    node = layer.input
    for part in parts:
        if part == "noconv":
            continue
        if part == "conv":
            options = layer.written(*_TRAINED, *_GEOMETRY, "learning-rate-factor", "l2-regularize")
            node = layer.component(".conv", "TimeHeightConvolutionComponent", options, node)
            filters, height = layer["num-filters-out"], layer["height-out"]
            continue
        if part == "relu":
            node = _relu(layer, "", filters, height, node)
            continue
        kind = {"batchnorm": "BatchNormComponent", "so": "ScaleAndOffsetComponent"}.get(part)
        if kind is None:
            node = add_part(layer, part, filters * height, node)
            continue
        rms = layer.written("target-rms") if part == "batchnorm" else ""
        fields = f"dim={filters * height} block-dim={filters} {rms}"
        node = layer.component(f".{part}", kind, fields, node)
    layer.output(node, layer["num-filters-out"] * layer["height-out"])


def _check_convolution(layer: Layer, none: bool) -> None:
    """Refuse a geometry that cannot be; adds `num-filters-in` to the options."""
    height_in, height_out = layer.positive("height-in"), layer.positive("height-out")
    step, filters = layer.positive("height-subsample-out"), layer.positive("num-filters-out")
    layer.positive("target-rms")
    if "dropout" in layer.type:
        layer.between("dropout-proportion", 0, 1)
    check_nonlinearity_options(layer)
    layer.options["num-filters-in"] = _filters_of_input(layer, height_in)
    if height_out * step > height_in:
        layer.fail(
            f"height-out={height_out} times height-subsample-out={step} is above "
            f"height-in={height_in}"
        )
    if none:
        if height_out * filters != layer.input_dim:
            layer.fail(
                f"{filters} filters of height {height_out} differ from the input's "
                f"dimension {layer.input_dim}, and nothing changes it"
            )
        return
    for key in ("height-offsets", "time-offsets"):
        if key not in layer.explicit:
            layer.fail(f"{key}= is missing")
        _check_offsets(layer, key)
    if layer["required-time-offsets"]:
        _check_offsets(layer, "required-time-offsets")
    if height_out * step < height_in - len(layer["height-offsets"].split(",")):
        layer.fail(
            f"height-out={height_out} times height-subsample-out={step} is too far below "
            f"height-in={height_in}"
        )


def _check_offsets(layer: Layer, key: str) -> None:
    text = layer[key]
    offsets = [int(part) for part in text.split(",")] if _OFFSETS.match(text) else []
    if not offsets or any(b <= a for a, b in zip(offsets, offsets[1:], strict=False)):
        layer.fail(f"{key}={text} is no list of rising integers, like -1,0,1")


def _filters_of_input(layer: Layer, height: int) -> int:
    if layer.input_dim % height:
        layer.fail(
            f"the dimension {layer.input_dim} of the input is no multiple of its height {height}"
        )
    return layer.input_dim // height


def _relu(layer: Layer, number: str, filters: int, height: int, node: str) -> str:
    threshold = layer[f"self-repair-lower-threshold{number}"]
    fields = (
        f"dim={filters * height} block-dim={filters} {layer.written('self-repair-scale')} "
        f"self-repair-lower-threshold={threshold}"
    )
    return layer.component(f".relu{number}", "RectifiedLinearComponent", fields, node)


_BLOCK = {
    "input": "[-1]",
    "height": NEEDED,
    "num-filters": NEEDED,
    "num-bottleneck-filters": Computed("two convolutions", -1),
    "time-period": 1,
    "self-repair-scale": 2.0e-05,
    "self-repair-lower-threshold1": 0.05,
    "self-repair-lower-threshold2": 0.05,
    "self-repair-lower-threshold3": 0.05,
    "allow-zero-padding": True,
    "l2-regularize": NUMBER,
    **_TRAINED,
}
_FILTERS_OF_INPUT = Computed("columns of the input / height", -1)
_BLOCK_MEANINGS = {"time-period": "frames from one tap of a filter to the next"}


def _sides(period: int) -> str:
    return f"-{period},0,{period}"


def _block(layer: Layer, number: int, kind: str, filters: int, height: int, node: str) -> str:
    """Add a component over `filters` maps of `height`, such as the batchnorm number 2."""
    component = {"batchnorm": "BatchNormComponent", "scaleoffset": "ScaleAndOffsetComponent"}[kind]
    fields = f"dim={filters * height} block-dim={filters}"
    return layer.component(f".{kind}{number}", component, fields, node)


def _bottleneck(layer: Layer) -> int:
    """The filters in the middle of a block of three convolutions; 0 for a block of two."""
    if layer["num-bottleneck-filters"] == -1:
        return 0
    return layer.positive("num-bottleneck-filters")


@layer_type(
    "res-block",
    options={
        **_BLOCK,
        "num-filters": _FILTERS_OF_INPUT,
        "height-period": 1,
        "bypass-source": "noop",
    },
    meanings=_BLOCK_MEANINGS,
)
def _residual(layer: Layer) -> None:
    """Two, or with a bottleneck three, times (relu, batchnorm, convolution), plus a bypass."""
    source = layer.choice("bypass-source", "input", "noop", "relu", "batchnorm")
    height = layer.positive("height")
    time, rows = layer.positive("time-period"), layer.positive("height-period")
    filters = _filters_of_input(layer, height)
    middle = _bottleneck(layer)
    if layer["num-filters"] not in (-1, filters):
        layer.fail(
            f"num-filters={layer['num-filters']} of height {height} differ from the "
            f"dimension {layer.input_dim} of the input"
        )
    padding = "required-time-offsets=0" if layer["allow-zero-padding"] else ""
    current = filters
    node = layer.input
    for number in (1, 2, 3) if middle else (1, 2):
        node = _relu(layer, str(number), current, height, node)
        node = _block(layer, number, "batchnorm", current, height, node)
        wide = number == 2 or not middle
        following = filters if number == 3 or not middle else middle
        node = layer.component(
            f".conv{number}",
            "TimeHeightConvolutionComponent",
            f"height-in={height} height-out={height} "
            f"height-offsets={_sides(rows) if wide else '0'} "
            f"time-offsets={_sides(time) if wide else '0'} "
            f"num-filters-in={current} num-filters-out={following} {padding} "
            f"{layer.written(*_TRAINED, 'l2-regularize')}",
            node,
        )
        current = following
    if source == "noop":
        name = f"{layer.name}.noop"
        layer.line(f"component name={name} dim={layer.input_dim} type=NoOpComponent")
        layer.line(f"component-node name={name} component={name} input=Sum({layer.input}, {node})")
        layer.output(name, layer.input_dim)
    else:
        bypass = layer.input if source == "input" else f"{layer.name}.{source}1"
        layer.output(f"Sum({node}, {bypass})", layer.input_dim)


@layer_type(
    "res2-block",
    options={
        **_BLOCK,
        "height": Computed("height-in and height-out", -1),
        "height-in": Computed("height", -1),
        "height-out": Computed("height", -1),
    },
    meanings={
        **_BLOCK_MEANINGS,
        "height": "heights of input and output, where they are alike",
        "height-out": "heights of an output row: as many as the input's, or about half as many",
    },
)
def _residual2(layer: Layer) -> None:
    """Two, or with a bottleneck three, times (convolution, batchnorm, scale and offset, relu); the
    bypass, a convolution where the shape changes, is added before the last relu."""
    height_in, height_out = _block_heights(layer)
    filters_in = _filters_of_input(layer, height_in)
    filters = layer.positive("num-filters")
    middle = _bottleneck(layer)
    period = layer.positive("time-period")
    step = 1
    if height_out != height_in:
        step = 2
        if not height_in / 2 - 1 <= height_out <= height_in / 2 + 1:
            layer.fail(
                f"height-out={height_out} is neither height-in={height_in} nor about half of it"
            )
        if not middle and period % 2:
            layer.fail(f"time-period={period} must be even where the height is halved")
    bypass = layer.input if step == 1 and filters_in == filters else f"{layer.name}.conv_bypass"
    current = filters_in
    height = height_in
    node = layer.input
    last = 3 if middle else 2
    for number in range(1, last + 1):
        following = middle if middle and number < last else filters
        geometry = _block_geometry(
            layer, number, middle, step, (height, height_out), (current, following)
        )
        node = layer.component(f".conv{number}", "TimeHeightConvolutionComponent", geometry, node)
        current, height = following, height_out
        node = _block(layer, number, "batchnorm", current, height, node)
        node = _block(layer, number, "scaleoffset", current, height, node)
        node = f"Sum({node}, {bypass})" if number == last else node
        node = _relu(layer, str(number), current, height, node)
    if bypass != layer.input:
        layer.component(
            ".conv_bypass",
            "TimeHeightConvolutionComponent",
            f"height-in={height_in} height-out={height_out} height-offsets=0 time-offsets=0 "
            f"height-subsample-out={step} num-filters-in={filters_in} num-filters-out={filters} "
            f"{layer.written(*_TRAINED, 'l2-regularize')}",
            layer.input,
        )
    layer.output(node, height_out * filters)


def _block_heights(layer: Layer) -> tuple[int, int]:
    both = {"height-in", "height-out"} & set(layer.explicit)
    if both and "height" in layer.explicit:
        layer.fail("height= and height-in=, height-out= exclude each other")
    if both:
        return layer.positive("height-in"), layer.positive("height-out")
    return layer.positive("height"), layer["height"]


def _block_geometry(
    layer: Layer,
    number: int,
    middle: int,
    step: int,
    heights: tuple[int, int],
    filters: tuple[int, int],
) -> str:
    """Fields of convolution `number` of a res2-block; the first one takes every `step`-th row."""
    period = layer["time-period"]
    first = step if number == 1 else 1
    padding = "required-time-offsets=0" if layer["allow-zero-padding"] else ""
    ends = f"height-in={heights[0]} height-out={heights[1]}"
    maps = f"num-filters-in={filters[0]} num-filters-out={filters[1]}"
    rest = f"{padding} {layer.written(*_TRAINED, 'l2-regularize')}"
    if middle:
        rows, times = ("-1,0,1", _sides(period)) if number == 2 else ("0", "0")
        return (
            f"{ends} height-offsets={rows} time-offsets={times} {maps} "
            f"height-subsample-out={first} {rest}"
        )
    times = _sides(period // first)
    return (
        f"{ends} height-offsets=-1,0,1 height-subsample-out={first} time-offsets={times} {maps} "
        f"{rest}"
    )
