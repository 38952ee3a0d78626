"""How a recurrent layer becomes config lines: a small table language.

A table has one line per component or node:

    VERB NAME DIM...        a component; the verbs are the keys of `_COMPONENTS`
    node NAME COMPONENT IN  a component-node
    gate NAME COMPONENT DROPOUT BEFORE IN
                            the same, or with dropout a node BEFORE, and NAME that drops of it
    range NAME NODE OFFSET DIM
                            a dim-range-node

`?` or `!` before a line keep it only with, or only without, dropout; `*` only in a layer type with
batchnorm in its name. A DIM is a sum of products of numbers and names: `in` (the input), `cell`,
`rec` (the recurrent projection, or the cell where there is none), `proj` (both projections). In an
IN, `@` is the layer's input, `.x` the layer's node x, `<x` that node `delay` frames away, `{cell}`
the dimension of the cell.
"""

from __future__ import annotations

import math
import re

from ..language.config import Computed
from .layer import NEEDED, OF_INPUT, Default, Layer

# By verb: the component type and its fields, with {0}, {1} for the dimensions.
_COMPONENTS = {
    "affine": ("NaturalGradientAffineComponent", "input-dim={0} output-dim={1} {affine} {l2}"),
    "linear": ("LinearComponent", "input-dim={0} output-dim={1} {affine} {l2}"),
    "bottleneck": (
        "LinearComponent",
        "input-dim={0} orthonormal-constraint={constraint} output-dim={1} {affine}",
    ),
    "peephole": ("NaturalGradientPerElementScaleComponent", "dim={0} {scale} {l2}"),
    "scale": ("NaturalGradientPerElementScaleComponent", "dim={0} {scale}"),
    "scaleoffset": ("ScaleAndOffsetComponent", "dim={0} max-change=0.75"),
    "sigmoid": ("SigmoidComponent", "dim={0} {repair}"),
    "tanh": ("TanhComponent", "dim={0} {repair}"),
    "product": ("ElementwiseProductComponent", "input-dim={0} output-dim={1}"),
    "sum": ("NoOpComponent", "dim={0}"),
    "truncate": ("BackpropTruncationComponent", "dim={0} {truncation}"),
    "batchnorm": ("BatchNormComponent", "dim={0}"),
    "batchnorm1": ("BatchNormComponent", "dim={0} target-rms=1.0"),
    "renorm": ("NormalizeComponent", "dim={0} target-rms=1.0"),
    "dropout": ("DropoutComponent", "dim={0} {dropout} dropout-per-frame={per_frame}"),
    "dropout-mask": ("DropoutMaskComponent", "output-dim={0} {dropout}"),
    "lstm": ("LstmNonlinearityComponent", "cell-dim={0} {lstm} {l2}"),
    "lstm-dropout": ("LstmNonlinearityComponent", "cell-dim={0} {use_dropout} {lstm} {l2}"),
    "gru": ("GruNonlinearityComponent", "cell-dim={0} {gru}"),
    "projected-gru": ("GruNonlinearityComponent", "cell-dim={0} recurrent-dim={1} {gru}"),
    "output-gru": ("OutputGruNonlinearityComponent", "cell-dim={0} {gru}"),
}
_OWN = re.compile(r"(?<![\w)])([.<])([A-Za-z]\w*)")

RECURRENT: dict[str, Default] = {
    "input": "[-1]",
    "cell-dim": OF_INPUT,
    "delay": -1,
    "clipping-threshold": 30.0,
    "zeroing-interval": 20,
    "zeroing-threshold": 15.0,
}
PROJECTED: dict[str, Default] = {
    "cell-dim": NEEDED,
    "recurrent-projection-dim": Computed("cell-dim / 4, rounded down", -1),
    "non-recurrent-projection-dim": Computed("recurrent-projection-dim", -1),
}
NO_DROPOUT = Computed("no dropout component", -1.0)


def write_table(layer: Layer, table: str) -> None:
    """Check the options that recurrent layers share and add the lines of `table`."""
    dims = _dims(layer)
    fields = _fields(layer)
    dropout = layer.options.get("dropout-proportion", -1.0) != -1.0
    kept = {"?": dropout, "!": not dropout, "*": "batchnorm" in layer.type}
    for row in filter(None, table.splitlines()):
        if kept.get(row[0], True):
            _write_row(layer, row.lstrip("?!* "), dims, fields, dropout)


def projected_dim(layer: Layer) -> int:
    """Columns of both projections together, after `write_table`."""
    return layer["recurrent-projection-dim"] + layer["non-recurrent-projection-dim"]


def _write_row(
    layer: Layer, row: str, dims: dict[str, int], fields: dict[str, str], dropout: bool
) -> None:
    verb, name, *rest = row.split()
    name = f"{layer.name}.{name}"
    if verb in ("node", "gate"):
        parts = row.split(None, 3 if verb == "node" else 5)
        source = _source(layer, parts[-1])
        component = f"{layer.name}.{parts[2]}"
        if verb == "gate" and dropout:
            before = f"{layer.name}.{parts[4]}"
            layer.line(f"component-node name={before} component={component} input={source}")
            source = before
            component = f"{layer.name}.{parts[3]}"
        layer.line(f"component-node name={name} component={component} input={source}")
    elif verb == "range":
        node, offset, dim = rest
        layer.line(
            f"dim-range-node name={name} input-node={layer.name}.{node} "
            f"dim-offset={_evaluate(offset, dims)} dim={_evaluate(dim, dims)}"
        )
    else:
        kind, written = _COMPONENTS[verb]
        text = written.format(*(_evaluate(dim, dims) for dim in rest), **fields)
        layer.line(f"component name={name} type={kind} {text}")


def _source(layer: Layer, text: str) -> str:
    def own(match: re.Match[str]) -> str:
        node = f"{layer.name}.{match[2]}"
        return node if match[1] == "." else f"IfDefined(Offset({node}, {layer['delay']}))"

    text = text.replace("{cell}", str(layer["cell-dim"]))
    return _OWN.sub(own, text).replace("@", layer.input)


def _evaluate(text: str, dims: dict[str, int]) -> int:
    return sum(
        math.prod(dims[word] if word in dims else int(word) for word in term.split("*"))
        for term in text.split("+")
    )


def _dims(layer: Layer) -> dict[str, int]:
    """The dimensions a table may name; settles the options that default to others."""
    if "recurrent-projection-dim" not in layer.options:
        cell = layer.default_dim("cell-dim")
        return {"in": layer.input_dim, "cell": cell, "rec": cell}
    cell = layer.positive("cell-dim")
    recurrent, other = "recurrent-projection-dim", "non-recurrent-projection-dim"
    for key, default in ((recurrent, cell // 4), (other, None)):
        if layer[key] == -1:
            layer.options[key] = layer[recurrent] if default is None else default
        if layer[key] <= 0:
            layer.fail(f"{key}={layer[key]} must be above zero")
    if projected_dim(layer) > cell:
        layer.fail(
            f"{recurrent}={layer[recurrent]} and {other}={layer[other]} exceed cell-dim={cell}"
        )
    rec = layer[recurrent]
    return {"in": layer.input_dim, "cell": cell, "rec": rec, "proj": projected_dim(layer)}


def _fields(layer: Layer) -> dict[str, str]:
    """The texts a component's fields are made of."""
    options = layer.options
    fields = {
        "truncation": _truncation(layer),
        "affine": options["ng-affine-options"],
        "l2": layer.l2() if "l2-regularize" in options else "",
        "lstm": options.get("lstm-nonlinearity-options", ""),
        "gru": options.get("gru-nonlinearity-options", ""),
        "constraint": options.get("orthonormal-constraint", ""),
    }
    if "self-repair-scale-nonlinearity" in options:
        layer.between("self-repair-scale-nonlinearity", 0, 1)
        fields["repair"] = f"self-repair-scale={options['self-repair-scale-nonlinearity']:.10f}"
    if "ng-per-element-scale-options" in options:
        scale = str(options["ng-per-element-scale-options"])
        if "param-mean" not in scale and "param-stddev" not in scale:
            scale += " param-mean=0.0 param-stddev=1.0"
        fields["scale"] = scale
    if "dropout-proportion" in options:
        layer.between("dropout-proportion", 0, 1, unset=-1.0)
        used = options["dropout-proportion"] != -1.0
        fields["dropout"] = layer.written("dropout-proportion")
        fields["use_dropout"] = f"use-dropout={str(used).lower()}"
        fields["per_frame"] = str(options.get("dropout-per-frame", False)).lower()
    return fields


def _truncation(layer: Layer) -> str:
    delay = layer["delay"]
    if delay == 0:
        layer.fail("delay=0 would make a cycle within a frame")
    text = layer.written("clipping-threshold", "zeroing-threshold", "zeroing-interval")
    text += f" recurrence-interval={abs(delay)}"
    if "decay-time" in layer.options:
        decay = layer["decay-time"]
        scale = 1.0 if decay < 0 else 1.0 - abs(delay) / decay if decay else 0.0
        if not scale > 0:
            layer.fail(f"decay-time={decay} must be above the delay, {abs(delay)} frames")
        text += f" scale={scale}"
    return text
