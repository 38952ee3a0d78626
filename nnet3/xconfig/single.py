"""Layers of a single component, and layers that only rearrange columns."""

from __future__ import annotations

from .basic import MOST_NUMBERS, initial
from .layer import NEEDED, NUMBER, OF_INPUT, Layer, layer_type

# By layer type: component, the fields of its dimensions, the options that are written.
_OF_ITS_OWN_DIM = "input-dim={i} output-dim={o}"
_SINGLE = {
    "renorm-component": ("NormalizeComponent", "dim={i}", {"target-rms": 1.0}),
    "batchnorm-component": ("BatchNormComponent", "dim={i}", {"target-rms": 1.0}),
    "no-op-component": ("NoOpComponent", "dim={i}", {}),
    "linear-component": (
        "LinearComponent",
        _OF_ITS_OWN_DIM,
        {
            "orthonormal-constraint": NUMBER,
            "max-change": 0.75,
            "l2-regularize": NUMBER,
            "param-stddev": NUMBER,
            "learning-rate-factor": NUMBER,
        },
    ),
    "affine-component": (
        "NaturalGradientAffineComponent",
        _OF_ITS_OWN_DIM,
        {
            "orthonormal-constraint": NUMBER,
            "max-change": 0.75,
            "l2-regularize": NUMBER,
            "param-stddev": NUMBER,
            "bias-stddev": NUMBER,
        },
    ),
    "scale-component": ("NaturalGradientPerElementScaleComponent", "dim={i}", None),
    "offset-component": ("PerElementOffsetComponent", "dim={i}", None),
}
_PER_ELEMENT = {
    "learning-rate-factor": NUMBER,
    "max-change": 0.75,
    "l2-regularize": NUMBER,
    "param-mean": NUMBER,
    "param-stddev": NUMBER,
}


def _register(name: str) -> None:
    kind, dims, written = _SINGLE[name]
    written = _PER_ELEMENT if written is None else written
    options = {"input": "[-1]", **written}
    if dims == _OF_ITS_OWN_DIM:
        options["dim"] = OF_INPUT
    if name == "batchnorm-component":
        options["include-in-init"] = False

    @layer_type(name, options=options, doc=f"A {kind} NAME alone.")
    def build(layer: Layer) -> None:
        if "target-rms" in written:
            layer.positive("target-rms")
        dim = layer.default_dim() if "dim" in options else layer.input_dim
        fields = f"{dims.format(i=layer.input_dim, o=dim)} {layer.written(*written)}"
        more = {"configs": initial(layer)} if "include-in-init" in options else {}
        layer.component("", kind, fields, layer.input, **more)
        layer.output(layer.name, dim)


for _name in _SINGLE:
    _register(_name)


@layer_type("dim-range-component", options={"input": "[-1]", "dim": OF_INPUT, "dim-offset": 0})
def _dim_range(layer: Layer) -> None:
    """Some neighboring columns of a layer: a dim-range-node NAME."""
    dim = layer.default_dim()
    offset = layer["dim-offset"]
    layer.between("dim-offset", 0)
    if offset + dim > layer.input_dim:
        layer.fail(f"columns {offset} to {offset + dim - 1} of an input of {layer.input_dim}")
    source = layer.node_input()
    layer.line(
        f"dim-range-node name={layer.name} input-node={source} dim={dim} dim-offset={offset}"
    )
    layer.output(layer.name, dim)


@layer_type("channel-average-layer", options={"input": "[-1]", "dim": NEEDED})
def _channel_average(layer: Layer) -> None:
    """The mean of blocks of dim columns, of which the input has a whole number."""
    dim = layer.positive("dim")
    if layer.input_dim % dim:
        layer.fail(f"the dimension {layer.input_dim} of the input is no multiple of dim={dim}")
    fields = f"input-dim={layer.input_dim} output-dim={dim} scale={dim * 1.0 / layer.input_dim}"
    layer.component("", "SumBlockComponent", fields, layer.input)
    layer.output(layer.name, dim)


@layer_type(
    "combine-feature-maps-layer",
    options={
        "input": "[-1]",
        "num-filters1": NEEDED,
        "num-filters2": NEEDED,
        "num-filters3": 0,
        "height": NEEDED,
    },
    meanings={"height": "heights of each part"},
)
def _combine_feature_maps(layer: Layer) -> None:
    """Two or three parts of the input, each of filters by height, become one: a permutation of
    columns, after which the filters of all parts stand together at each height."""
    layer.between("num-filters3", 0)
    height = layer.positive("height")
    filters = [layer.positive("num-filters1"), layer.positive("num-filters2")]
    filters.append(layer["num-filters3"])
    if sum(filters) * height != layer.input_dim:
        layer.fail(
            f"{' + '.join(map(str, filters))} filters of height {height} need an input of "
            f"{sum(filters) * height}, not {layer.input_dim}"
        )
    if layer.input_dim > MOST_NUMBERS:
        layer.fail(f"a map of {layer.input_dim} columns: at most {MOST_NUMBERS} columns")
    starts = [height * sum(filters[:n]) for n in range(len(filters))]
    columns = [
        start + row * count + column
        for row in range(height)
        for start, count in zip(starts, filters, strict=True)
        for column in range(count)
    ]
    fields = f"column-map={','.join(map(str, columns))}"
    layer.component("", "PermuteComponent", fields, layer.input)
    layer.output(layer.name, layer.input_dim)


@layer_type("delta-layer", options={"input": "[-1]"})
def _delta(layer: Layer) -> None:
    """The input, its first and its second differences over time, normalized."""
    source = layer.node_input()
    dim = layer.input_dim
    for copy in (1, 2):  # nnet3 scales a node only where it has another name
        layer.line(
            f"dim-range-node name={source}_copy{copy} input-node={source} dim={dim} dim-offset=0"
        )
    spliced = f"{source}_2"
    layer.line(f"component name={spliced} type=NoOpComponent dim={3 * dim}")
    layer.line(
        f"component-node name={spliced} component={spliced} input=Append(Offset({source},0), "
        f"Sum(Offset(Scale(-1.0,{source}_copy1),-1), Offset({source},1)), "
        f"Sum(Offset({source},-2), Offset({source},2), Offset(Scale(-2.0,{source}_copy2),0)))"
    )
    layer.component("", "BatchNormComponent", f"dim={3 * dim}", spliced)
    layer.output(layer.name, 3 * dim)
