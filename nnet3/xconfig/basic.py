"""Layers of one affine transform and what follows it, the ends of a network, fixed transforms."""

from __future__ import annotations

import math

import numpy as np

from ..language.config import Computed
from .layer import (
    ALL_CONFIGS,
    NEEDED,
    NEEDED_TEXT,
    NUMBER,
    OF_INPUT,
    REFERENCE_AND_FINAL,
    Layer,
    layer_type,
)

# A part of a layer type's name: its component type, and the options that are written.
_PARTS = {
    "relu": ("RectifiedLinearComponent", ("self-repair-scale",)),
    "sigmoid": ("SigmoidComponent", ("self-repair-scale",)),
    "tanh": ("TanhComponent", ("self-repair-scale",)),
    "renorm": ("NormalizeComponent", ("target-rms",)),
    "batchnorm": ("BatchNormComponent", ("target-rms",)),
    "so": ("ScaleAndOffsetComponent", ()),
    "dropout": ("DropoutComponent", ("dropout-proportion",)),
}
# What is computed here and written out number by number stays below this.
MOST_NUMBERS = 1 << 24
_LEAST_LIFTERING = 1e-6


NO_BOTTLENECK = Computed("no such component", -1)


@layer_type("input", options={"dim": NEEDED}, meanings={"dim": "columns of the input"})
def _input(layer: Layer) -> None:
    """An input of the network: an input-node NAME."""
    dim = layer.positive("dim")
    layer.line(f"input-node name={layer.name} dim={dim}", ALL_CONFIGS)
    layer.output(layer.name, dim)


def _output_node(layer: Layer, source: str) -> None:
    layer.choice("objective-type", "linear", "quadratic")
    delay = layer["output-delay"]
    source = f"Offset({source}, {delay})" if delay else source
    layer.line(f"output-node name={layer.name} input={source} objective={layer['objective-type']}")


@layer_type(
    "output",
    options={"input": "[-1]", "dim": OF_INPUT, "objective-type": "linear", "output-delay": 0},
)
def _output(layer: Layer) -> None:
    """An output of the network without parameters of its own: an output-node NAME."""
    if layer.default_dim() != layer.input_dim:
        layer.fail(f"dim={layer['dim']}, but the input has {layer.input_dim}")
    _output_node(layer, layer.input)


@layer_type(
    "output-layer",
    options={
        "input": "[-1]",
        "dim": OF_INPUT,
        "bottleneck-dim": NO_BOTTLENECK,
        "orthonormal-constraint": 1.0,
        "include-log-softmax": True,
        "objective-type": "linear",
        "output-delay": 0,
        "ng-affine-options": "",
        "ng-linear-options": "",
        "learning-rate-factor": NUMBER,
        "l2-regularize": NUMBER,
        "max-change": 1.5,
        "param-stddev": 0.0,
        "bias-stddev": 0.0,
    },
    meanings={
        "bottleneck-dim": "columns of a LinearComponent in front of the affine one; below dim and"
        " the columns of the input",
        "orthonormal-constraint": "the scale that W W^T of the bottleneck is drawn to; above 0",
    },
)
def _output_layer(layer: Layer) -> None:
    """An affine transform, its log-softmax, and the output-node NAME that reads it."""
    dim = layer.default_dim()
    layer.positive("orthonormal-constraint")
    node, node_dim = layer.input, layer.input_dim
    if layer["bottleneck-dim"] >= 0:
        bottleneck = layer.positive("bottleneck-dim")
        if bottleneck >= min(dim, node_dim):
            layer.fail(
                f"bottleneck-dim={bottleneck} must be below dim={dim} and {node_dim}, the "
                "dimension of the input"
            )
        constraint = layer["orthonormal-constraint"]
        options = layer.written("learning-rate-factor", "l2-regularize", "max-change")
        node = layer.component(
            ".linear",
            "LinearComponent",
            f"orthonormal-constraint={constraint} param-stddev={constraint / math.sqrt(node_dim)} "
            f"input-dim={node_dim} output-dim={bottleneck} max-change=0.75 "
            f"{layer['ng-linear-options']} {options}",
            node,
        )
        node_dim = bottleneck
    options = layer.written(
        "learning-rate-factor", "l2-regularize", "max-change", "param-stddev", "bias-stddev"
    )
    node = layer.component(
        ".affine",
        "NaturalGradientAffineComponent",
        f"input-dim={node_dim} output-dim={dim} {layer['ng-affine-options']} {options}",
        node,
    )
    layer.output(node, dim, "affine")
    if layer["include-log-softmax"]:
        node = layer.component(".log-softmax", "LogSoftmaxComponent", f"dim={dim}", node)
        layer.output(node, dim, "log-softmax")
    _output_node(layer, node)


def add_part(layer: Layer, part: str, dim: int, node: str, fields: str = "") -> str:
    """Add the component of `part` of a layer type's name; returns its node."""
    kind, keys = _PARTS[part]
    return layer.component(f".{part}", kind, f"dim={dim} {layer.written(*keys)} {fields}", node)


def check_nonlinearity_options(layer: Layer) -> None:
    """Bounds of the options that nonlinearities share."""
    layer.between("self-repair-scale", 0, 1)
    layer.between("target-rms", 0)
    factor = layer["learning-rate-factor"]
    if factor != "" and not float(factor) > 0:
        layer.fail(f"learning-rate-factor={factor} must be above zero")


@layer_type(
    "relu-layer",
    "relu-renorm-layer",
    "relu-batchnorm-dropout-layer",
    "relu-dropout-layer",
    "relu-batchnorm-layer",
    "relu-batchnorm-so-layer",
    "batchnorm-so-relu-layer",
    "batchnorm-layer",
    "sigmoid-layer",
    "tanh-layer",
    options={
        "input": "[-1]",
        "dim": OF_INPUT,
        "bottleneck-dim": NO_BOTTLENECK,
        "self-repair-scale": 1.0e-05,
        "target-rms": 1.0,
        "ng-affine-options": "",
        "ng-linear-options": "",
        "dropout-proportion": 0.5,
        "dropout-per-dim": False,
        "dropout-per-dim-continuous": False,
        "add-log-stddev": False,
        "bias-stddev": NUMBER,
        "l2-regularize": NUMBER,
        "learning-rate-factor": NUMBER,
        "max-change": 0.75,
    },
    meanings={
        "dropout-proportion": "the share p that is dropped, 0 to 1; where the type's name has"
        " dropout",
    },
)
def _basic(layer: Layer) -> None:
    """An affine transform, then what the type's name lists, in its order: relu, sigmoid, tanh,
    renorm (normalization of each row), batchnorm, so (scale and offset), dropout."""
    parts = layer.type.split("-")[:-1]
    whole = dim = layer.default_dim()
    bottleneck = layer["bottleneck-dim"]
    check_nonlinearity_options(layer)
    if "dropout" in layer.type:
        layer.between("dropout-proportion", 0, 1)
    if bottleneck == 0 or bottleneck >= dim:
        layer.fail(f"bottleneck-dim={bottleneck} must be above zero and below dim={dim}")
    if layer["add-log-stddev"]:
        dim -= 1  # the last component appends one column
        if parts[-1] != "renorm" or dim == 0:
            layer.fail("add-log-stddev=true needs a layer type that ends in renorm, and dim > 1")
    node, node_dim = layer.input, layer.input_dim
    if bottleneck > 0:
        node = layer.component(
            ".linear",
            "LinearComponent",
            f"input-dim={node_dim} orthonormal-constraint=1.0 output-dim={bottleneck} "
            f"{layer['ng-linear-options']} {layer.written('max-change', 'learning-rate-factor')}",
            node,
        )
        node_dim = bottleneck
    options = layer.written("max-change", "learning-rate-factor", "bias-stddev", "l2-regularize")
    node = layer.component(
        ".affine",
        "NaturalGradientAffineComponent",
        f"input-dim={node_dim} output-dim={dim} {layer['ng-affine-options']} {options}",
        node,
    )
    for part in parts:
        node = _add_basic_part(layer, part, dim, node)
    layer.output(node, whole)


def _add_basic_part(layer: Layer, part: str, dim: int, node: str) -> str:
    if part == "dropout" and (layer["dropout-per-dim"] or layer["dropout-per-dim-continuous"]):
        continuous = "continuous=true" if layer["dropout-per-dim-continuous"] else ""
        fields = f"dim={dim} {layer.written('dropout-proportion')} {continuous}"
        return layer.component(".dropout", "GeneralDropoutComponent", fields, node)
    extra = {
        "renorm": f"add-log-stddev={str(layer['add-log-stddev']).lower()}",
        "so": "max-change=0.5",
    }
    return add_part(layer, part, dim, node, extra.get(part, ""))


@layer_type(
    "fixed-affine-layer",
    options={
        "input": "[-1]",
        "dim": OF_INPUT,
        "affine-transform-file": NEEDED_TEXT,
        "delay": 0,
        "write-init-config": True,
    },
    meanings={
        "delay": "frames by which the rows that the transform is estimated from are shifted",
    },
)
def _fixed_affine(layer: Layer) -> None:
    """An affine transform that is read from a file and not trained, such as LDA; ref.config has
    random numbers in its place."""
    dim = layer.default_dim()
    path = _transform_file(layer)
    name = layer.name
    source = layer.input
    delay = layer["delay"]
    if layer["write-init-config"]:
        if delay:
            delayed = layer.component(
                ".delayed", "NoOpComponent", f"dim={layer.input_dim}", source, configs=("init",)
            )
            source = f"Offset({delayed}, {delay})"
        layer.line(f"output-node name=output input={source}", ("init",))
    kind = f"component name={name} type=FixedAffineComponent"
    layer.line(f"{kind} matrix={path}", ("final",))
    layer.line(f"{kind} input-dim={layer.input_dim} output-dim={dim}", ("ref",))
    layer.line(f"component-node name={name} component={name} input={layer.input}")
    layer.output(name, dim)


def _transform_file(layer: Layer) -> str:
    if not layer["affine-transform-file"]:
        layer.fail("affine-transform-file= is missing")
    return layer["affine-transform-file"]


@layer_type(
    "idct-layer",
    options={
        "input": "[-1]",
        "dim": OF_INPUT,
        "cepstral-lifter": 22.0,
        "affine-transform-file": NEEDED_TEXT,
        "include-in-init": False,
    },
    meanings={"affine-transform-file": "the file that the transform is written to and read from"},
)
def _idct(layer: Layer) -> None:
    """From cepstra to filterbank values, by the inverse cosine transform: a fixed transform that
    is written beside the configs."""
    dim = layer.default_dim()
    if dim * layer.input_dim > MOST_NUMBERS:
        layer.fail(f"a matrix of {dim} times {layer.input_dim}: at most {MOST_NUMBERS} numbers")
    if np.abs(_liftering(layer.input_dim, layer["cepstral-lifter"])).min() < _LEAST_LIFTERING:
        layer.fail(
            f"cepstral-lifter={layer['cepstral-lifter']} removes one of {layer.input_dim} "
            "cepstra, which nothing can undo"
        )
    fields = f"matrix={_transform_file(layer)}"
    layer.component("", "FixedAffineComponent", fields, layer.input, configs=initial(layer))
    layer.output(layer.name, dim)


def initial(layer: Layer) -> tuple[str, ...]:
    """The configs of a layer with the option `include-in-init`."""
    return (*REFERENCE_AND_FINAL, "init") if layer["include-in-init"] else REFERENCE_AND_FINAL


def idct_matrix(inputs: int, outputs: int, lifter: float) -> np.ndarray:
    """The transform from `inputs` cepstra to `outputs` filterbank values.

    Each value is sum_k c_k * w_k * cos(pi / outputs * (n + 1/2) * k) with w_0 = sqrt(1 / outputs)
    and w_k = sqrt(2 / outputs), where the liftering 1 + lifter / 2 * sin(pi * k / lifter) of the
    cepstra is undone unless `lifter` is 0.

    Returns:
        float64 [outputs, inputs + 1]; the last column, the bias, is zero.
    """
    order = np.arange(inputs)
    frequency = np.arange(outputs) + 0.5
    matrix = np.cos(math.pi / outputs * frequency[:, None] * order) * math.sqrt(2 / outputs)
    matrix[:, 0] = math.sqrt(1 / outputs)
    matrix /= _liftering(inputs, lifter)
    return np.hstack([matrix, np.zeros((outputs, 1))])


def _liftering(inputs: int, lifter: float) -> np.ndarray:
    """The factors of cepstral liftering, one for each of `inputs` cepstra."""
    if not lifter:
        return np.ones(inputs)
    return 1 + 0.5 * lifter * np.sin(math.pi * np.arange(inputs) / lifter)


@layer_type(
    "affine-layer",
    options={
        "input": "[-1]",
        "dim": OF_INPUT,
        "param-stddev": Computed("1 / sqrt(columns of the input)", -1.0),
        "bias-stddev": 1.0,
        "bias-mean": 0.0,
        "max-change": 0.75,
        "l2-regularize": 0.0,
        "learning-rate-factor": 1.0,
        "ng-affine-options": "",
    },
)
def _affine(layer: Layer) -> None:
    """An affine transform: a NaturalGradientAffineComponent NAME."""
    dim = layer.default_dim()
    if layer["param-stddev"] < 0:
        layer.options["param-stddev"] = 1.0 / math.sqrt(layer.input_dim)
    options = layer.written(
        "param-stddev", "bias-stddev", "bias-mean", "max-change", "l2-regularize"
    )
    fields = f"input-dim={layer.input_dim} output-dim={dim} {options} {layer['ng-affine-options']}"
    layer.component("", "NaturalGradientAffineComponent", fields, layer.input)
    layer.output(layer.name, dim)
