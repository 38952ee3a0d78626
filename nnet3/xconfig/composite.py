"""Layers of several components: factorized TDNN, prefinal, statistics, attention, SpecAugment."""

from __future__ import annotations

import math
import re

from ..language.config import Computed
from .basic import add_part, check_nonlinearity_options, initial
from .layer import NEEDED, NEEDED_TEXT, Layer, layer_type
from .recurrent import NO_DROPOUT

_NUMBER = r"(-?\d{1,20})"
_STATISTICS = re.compile(
    rf"(mean(?:\+stddev)?(?:\+count)?)\({_NUMBER}:{_NUMBER}:{_NUMBER}:{_NUMBER}\)\Z"
)


@layer_type(
    "tdnnf-layer",
    options={
        "input": "[-1]",
        "dim": NEEDED,
        "bottleneck-dim": NEEDED,
        "bypass-scale": 0.66,
        "dropout-proportion": NO_DROPOUT,
        "time-stride": 1,
        "l2-regularize": 0.0,
        "max-change": 0.75,
        "self-repair-scale": 1.0e-05,
        "context": "default",
    },
    meanings={
        "bottleneck-dim": "columns between the two matrices; below dim",
        "dropout-proportion": "the share p that is dropped, from 0 to below 1; whole columns, with"
        " masks uniform in (1 - 2p, 1 + 2p)",
        "time-stride": "frames between the two that a matrix joins; 0: both see one frame",
    },
)
def _tdnnf(layer: Layer) -> None:
    """A factorized TDNN: a matrix to a bottleneck that is kept orthonormal, an affine matrix back,
    relu, batchnorm, dropout, and the sum with the scaled input."""
    dim, bottleneck = layer.positive("dim"), layer.positive("bottleneck-dim")
    bypass, dropout = layer["bypass-scale"], layer["dropout-proportion"]
    layer.between("bypass-scale", -1, 1)
    layer.between("self-repair-scale", 0, 1)
    layer.between("dropout-proportion", 0, 1, unset=-1.0)
    if dim <= bottleneck:
        layer.fail(f"dim={dim} must be above bottleneck-dim={bottleneck}")
    if dropout == 1:
        layer.fail("dropout-proportion=1.0 would leave nothing")
    if bypass and dim != layer.input_dim:
        layer.fail(
            f"a bypass-scale other than 0 needs dim={dim} to equal the input's, {layer.input_dim}"
        )
    before, after = _tdnnf_offsets(layer)
    trained = layer.written("l2-regularize", "max-change")
    node = layer.component(
        ".linear",
        "TdnnComponent",
        f"input-dim={layer.input_dim} output-dim={bottleneck} {trained} use-bias=false "
        f"time-offsets={before} orthonormal-constraint=-1.0",
        layer.input,
    )
    node = layer.component(
        ".affine",
        "TdnnComponent",
        f"input-dim={bottleneck} output-dim={dim} {trained} time-offsets={after}",
        node,
    )
    node = add_part(layer, "relu", dim, node)
    node = layer.component(".batchnorm", "BatchNormComponent", f"dim={dim}", node)
    if dropout != -1:
        fields = f"dim={dim} dropout-proportion={dropout} continuous=true"
        node = layer.component(".dropout", "GeneralDropoutComponent", fields, node)
    if bypass:
        source = f"Sum(Scale({bypass}, {layer.input}), {node})"
        node = layer.component(".noop", "NoOpComponent", f"dim={dim}", source)
    layer.output(node, dim)


def _tdnnf_offsets(layer: Layer) -> tuple[str, str]:
    """Time offsets of the first and of the second matrix."""
    context = layer.choice("context", "default", "left-only", "shift-left", "none")
    stride = layer["time-stride"]
    if stride == 0 or context == "none":
        return "0", "0"
    second = {"default": f"0,{stride}", "shift-left": f"{-stride},0", "left-only": "0"}
    return f"{-stride},0", second[context]


@layer_type(
    "prefinal-layer",
    options={
        "input": "[-1]",
        "big-dim": NEEDED,
        "small-dim": NEEDED,
        "l2-regularize": 0.0,
        "max-change": 0.75,
        "self-repair-scale": 1.0e-05,
    },
)
def _prefinal(layer: Layer) -> None:
    """Affine transform, relu, batchnorm, an orthonormal matrix to fewer columns, batchnorm."""
    big, small = layer.positive("big-dim"), layer.positive("small-dim")
    layer.between("self-repair-scale", 0, 1)
    if big <= small:
        layer.fail(f"big-dim={big} must be above small-dim={small}")
    trained = layer.written("l2-regularize", "max-change")
    fields = f"input-dim={layer.input_dim} output-dim={big} {trained}"
    node = layer.component(".affine", "NaturalGradientAffineComponent", fields, layer.input)
    node = add_part(layer, "relu", big, node)
    node = layer.component(".batchnorm1", "BatchNormComponent", f"dim={big}", node)
    fields = f"input-dim={big} output-dim={small} {trained} orthonormal-constraint=-1"
    node = layer.component(".linear", "LinearComponent", fields, node)
    node = layer.component(".batchnorm2", "BatchNormComponent", f"dim={small}", node)
    layer.output(node, small)


@layer_type(
    "stats-layer",
    options={"input": "[-1]", "dim": Computed("the statistics'", -1), "config": NEEDED_TEXT},
)
def _statistics(layer: Layer) -> None:
    """Moving mean, standard deviation and log count over frames around, as in
    `config=mean+stddev(-99:3:9:99)`: of every third frame, once every nine frames."""
    match = _STATISTICS.match(layer["config"])
    if match is None:
        layer.fail(f"config={layer['config']} is not like mean+stddev+count(-99:3:9:99)")
    left, step, period, right = (int(number) for number in match.groups()[1:])
    left = -left
    if min(left, right) < 0 or min(step, period) < 1 or max(left, right, step, period) >= 1 << 31:
        layer.fail(f"config={layer['config']}: a context or a period of the wrong sign, or too far")
    if left % period or right % period or period % step:
        layer.fail(
            f"config={layer['config']}: both contexts must be multiples of the period {period}, "
            f"and the period of {step}"
        )
    deviation, count = "stddev" in match[1], "count" in match[1]
    moments = layer.input_dim * (2 if deviation else 1)
    dim = moments + count
    if "dim" in layer.explicit and layer["dim"] not in (dim, -1):
        layer.fail(f"dim={layer['dim']}, but these statistics have {dim}")
    with_deviation = str(deviation).lower()
    node = layer.component(
        f"-extraction-{left}-{right}",
        "StatisticsExtractionComponent",
        f"input-dim={layer.input_dim} input-period={step} output-period={period} "
        f"include-variance={with_deviation}",
        layer.input,
    )
    node = layer.component(
        f"-pooling-{left}-{right}",
        "StatisticsPoolingComponent",
        f"input-dim={1 + moments} input-period={period} left-context={left} right-context={right} "
        f"num-log-count-features={int(count)} output-stddevs={with_deviation}",
        node,
    )
    layer.output(f"Round({node}, {period})", dim)


@layer_type(
    "attention-renorm-layer",
    "attention-relu-renorm-layer",
    "attention-relu-batchnorm-layer",
    "relu-renorm-attention-layer",
    options={
        "input": "[-1]",
        "dim": Computed("the attention's", -1),
        "max-change": 0.75,
        "self-repair-scale": 1.0e-05,
        "target-rms": 1.0,
        "learning-rate-factor": 1.0,
        "ng-affine-options": "",
        "l2-regularize": 0.0,
        "num-left-inputs-required": Computed("num-left-inputs", -1),
        "num-right-inputs-required": Computed("num-right-inputs", -1),
        "output-context": True,
        "time-stride": 1,
        "num-heads": 1,
        "key-dim": NEEDED,
        "key-scale": Computed("1 / sqrt(key-dim)", 0.0),
        "value-dim": NEEDED,
        "num-left-inputs": NEEDED,
        "num-right-inputs": NEEDED,
        "dropout-proportion": 0.5,
    },
    meanings={"dropout-proportion": "without effect, as in Kaldi"},
)
def _attention(layer: Layer) -> None:
    """An affine transform to queries, keys and values, and attention over the frames around; the
    type's name says what stands before and after."""
    check_nonlinearity_options(layer)
    heads, key, value = (layer.positive(k) for k in ("num-heads", "key-dim", "value-dim"))
    layer.positive("time-stride")
    for side in ("num-left-inputs", "num-right-inputs"):
        if side not in layer.explicit:
            layer.fail(f"{side}= is missing")
        layer.between(side, 0)
    if layer["key-scale"] == 0.0:
        layer.options["key-scale"] = 1.0 / math.sqrt(key)
    context = layer["num-left-inputs"] + layer["num-right-inputs"] + 1
    before = heads * (key + value + key + context)  # keys, values, queries with their context part
    after = heads * (value + (context if layer["output-context"] else 0))
    if "dim" in layer.explicit and layer["dim"] not in (after, -1):
        layer.fail(f"dim={layer['dim']}, but this attention has {after}")
    factor = layer.written("learning-rate-factor") if layer["learning-rate-factor"] != 1.0 else ""
    dim = before
    node = layer.component(
        ".affine",
        "NaturalGradientAffineComponent",
        f"input-dim={layer.input_dim} output-dim={dim} {layer.written('max-change')} "
        f"{layer['ng-affine-options']} {factor} {layer.l2()}",
        layer.input,
    )
    for part in layer.type.split("-")[:-1]:
        if part != "attention":
            node = add_part(layer, part, dim, node)
            continue
        fields = layer.written(
            "value-dim",
            "key-dim",
            "num-left-inputs",
            "num-right-inputs",
            "num-left-inputs-required",
            "num-right-inputs-required",
            "output-context",
            "time-stride",
            "num-heads",
            "key-scale",
        )
        node = layer.component(".attention", "RestrictedAttentionComponent", fields, node)
        dim = after
    layer.output(node, after)


@layer_type(
    "spec-augment-layer",
    options={
        "input": "[-1]",
        "freq-max-proportion": 0.5,
        "time-zeroed-proportion": 0.2,
        "time-mask-max-frames": 20,
        "include-in-init": False,
    },
)
def _spec_augment(layer: Layer) -> None:
    """Zeroes stretches of columns and of frames at random, in training."""
    for key in ("freq-max-proportion", "time-zeroed-proportion"):
        if not 0 < layer[key] < 1:
            layer.fail(f"{key}={layer[key]} must be above 0 and below 1")
    layer.positive("time-mask-max-frames")
    dim = layer.input_dim
    configs = initial(layer)
    node = layer.component(
        ".freq-mask",
        "GeneralDropoutComponent",
        f"dim={dim} specaugment-max-proportion={layer['freq-max-proportion']}",
        layer.input,
        configs=configs,
    )
    node = layer.component(
        ".time-mask",
        "SpecAugmentTimeMaskComponent",
        f"dim={dim} zeroed-proportion={layer['time-zeroed-proportion']} "
        f"{layer.written('time-mask-max-frames')}",
        node,
        configs=configs,
    )
    layer.output(node, dim)
