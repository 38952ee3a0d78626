"""Recurrent layers, windows, images and rows that repeat as PyTorch modules; each kind of xconfig
layer; the networks that Kaldi trained."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kaldi_data import need
from nnet3_onnx import ours, with_statistics
from nnet3_runs import random_net
from nnet3_torch import (
    assert_equals,
    changed,
    layer_net,
    model_of,
    module_of,
    run,
)
from opscope import to_torch, weights_from_torch
from opscope.bridges.nnet3_rows.walk import AT_SEVERAL_TIMES
from opscope.bridges.torch.folder import NotInTorchError
from opscope.bridges.torch.nnet3.layers import why_not
from opscope.nnet3 import Nnet
from opscope.nnet3.components.base.component import COMPONENTS
from opscope.nnet3.xconfig.layer import LAYER_TYPES

CONV = "height-in=6 height-out=6 num-filters-out=4 time-offsets=-1,0 height-offsets=-1,0,1"
NO_CONV = "height-in=6 height-out=6 num-filters-out=1"
ATTENTION = (
    "num-heads=2 value-dim=3 key-dim=2 num-left-inputs=2 num-right-inputs=1 time-stride=2"
    " num-left-inputs-required=1 num-right-inputs-required=1"
)
PROJECTED = "cell-dim=6 recurrent-projection-dim=2 non-recurrent-projection-dim=3"
KINDS = {
    "affine-component": "dim=5",
    "affine-layer": "dim=5",
    "attention-relu-batchnorm-layer": ATTENTION,
    "attention-relu-renorm-layer": ATTENTION,
    "attention-renorm-layer": ATTENTION,
    "batchnorm-component": "",
    "batchnorm-conv-layer": CONV,
    "batchnorm-conv-relu-layer": CONV,
    "batchnorm-layer": "dim=5",
    "batchnorm-so-relu-layer": "dim=5",
    "channel-average-layer": "dim=3",
    "combine-feature-maps-layer": "num-filters1=2 num-filters2=1 height=2",
    "conv-layer": CONV,
    "conv-relu-batchnorm-dropout-layer": CONV,
    "conv-relu-batchnorm-layer": CONV + " required-time-offsets=0",
    "conv-relu-batchnorm-so-layer": CONV,
    "conv-relu-dropout-layer": CONV,
    "conv-relu-layer": "height-in=6 height-out=3 height-subsample-out=2 num-filters-out=2"
    " time-offsets=-2,0,1 height-offsets=0,2",
    "conv-relu-renorm-layer": CONV,
    "conv-renorm-layer": CONV,
    "delta-layer": "",
    "dim-range-component": "dim=3 dim-offset=2",
    "fast-gru-layer": "cell-dim=5 delay=2",
    "fast-lstm-batchnorm-layer": "cell-dim=5 delay=-3",
    "fast-lstm-layer": "cell-dim=5 decay-time=20 delay=2",
    "fast-lstmp-batchnorm-layer": PROJECTED,
    "fast-lstmp-layer": PROJECTED + " delay=-3 dropout-proportion=0.1"
    " input=Append(-1, 0, ReplaceIndex(ivector, t, 0))",
    "fast-norm-opgru-layer": PROJECTED,
    "fast-norm-pgru-layer": PROJECTED + " delay=-2",
    "fast-opgru-layer": PROJECTED,
    "fast-pgru-layer": PROJECTED + " delay=-3",
    "fixed-affine-layer": "dim=6 input=Append(-1,0) affine-transform-file=FOLDER/lda.mat",
    "gru-layer": "cell-dim=5",
    "idct-layer": "dim=6 affine-transform-file=FOLDER/idct.mat",
    "linear-component": "dim=5",
    "lstm-layer": "cell-dim=5 delay=2",
    "lstmb-layer": "cell-dim=5 bottleneck-dim=3",
    "lstmp-batchnorm-layer": PROJECTED,
    "lstmp-layer": PROJECTED + " delay=-2 decay-time=20",
    "no-op-component": "",
    "norm-opgru-layer": PROJECTED + " delay=-3",
    "norm-pgru-layer": PROJECTED,
    "offset-component": "",
    "opgru-layer": PROJECTED,
    "pgru-layer": PROJECTED,
    "prefinal-layer": "small-dim=4 big-dim=8",
    "relu-batchnorm-conv-layer": CONV,
    "relu-batchnorm-dropout-layer": "dim=5 dropout-proportion=0.2",
    "relu-batchnorm-layer": "dim=5",
    "relu-batchnorm-noconv-layer": NO_CONV,
    "relu-batchnorm-so-layer": "dim=5",
    "relu-conv-layer": CONV,
    "relu-conv-renorm-layer": CONV,
    "relu-dropout-layer": "dim=5",
    "relu-layer": "dim=5",
    "relu-noconv-layer": NO_CONV,
    "relu-renorm-attention-layer": ATTENTION,
    "relu-renorm-layer": "dim=5",
    "renorm-component": "",
    "res-block": "num-filters=2 height=3 num-bottleneck-filters=2 time-period=1",
    "res2-block": "num-filters=2 height=3 num-bottleneck-filters=2 time-period=1",
    "scale-component": "",
    "sigmoid-layer": "dim=5 input=Append(-1,0,ReplaceIndex(ivector, t, 0))",
    "spec-augment-layer": "",
    "stats-layer": "config=mean+stddev+count(-6:1:2:8)",
    "tanh-layer": "dim=5 input=Append(0, Round(0, 3))",
    "tdnnf-layer": "dim=6 bottleneck-dim=4 time-stride=3",
}
"""A line for each kind of xconfig layer; `input` and `output` are no layers."""
IN_ALL = {"input", "output", "output-layer"}


def kind_net(kind, folder):
    """A network with a layer of a kind, and its iVector."""
    inputs, ivector = "input dim=6 name=input", None
    if "ivector" in KINDS[kind]:
        inputs, ivector = f"input dim=2 name=ivector\n{inputs}", np.float32([0.5, -1])
    for name, shape in (("lda", (6, 13)), ("idct", (6, 7))):
        matrix = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        (folder / f"{name}.mat").write_text(
            "[\n" + "\n".join(" ".join(map(str, row)) for row in matrix) + " ]\n"
        )
    options = KINDS[kind].replace("FOLDER", str(folder))
    return layer_net(f"{kind} name=a {options}", inputs), ivector


def test_every_kind_of_layer_is_in_the_table():
    assert KINDS.keys() | IN_ALL == LAYER_TYPES.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_layers_and_their_way_back(kind, tmp_path):
    nnet, ivector = kind_net(kind, tmp_path)
    nnet.write(tmp_path / "a.raw")
    made = to_torch(tmp_path / "a.raw", tmp_path / "m")
    module = module_of(tmp_path / "m")
    model = module.load(tmp_path / "m")
    bound = 2e-3 if kind == "stats-layer" else 1e-5  # deviations in float64, and ours in float32
    assert_equals(model, nnet, ivector=ivector, bound=bound)
    if kind in ("tanh-layer", "stats-layer", "lstm-layer"):
        to_torch(nnet, tmp_path / "third", frame_subsampling_factor=3)
        assert_equals(model_of(tmp_path / "third"), nnet, unit=3, ivector=ivector, bound=bound)
    changed(module, model, tmp_path / "m")
    found = weights_from_torch(tmp_path / "m", tmp_path / "a.raw", tmp_path / "b.raw")
    assert {made.config["components"][each.split(".")[0]] for each in model.state_dict()} == set(
        found
    )
    if kind != "stats-layer":  # deviations of few rows are small differences
        assert_equals(
            model, Nnet.read(tmp_path / "b.raw"), ivector=ivector, lengths=(7,), bound=3e-5
        )


@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed, tmp_path):
    nnet, unit = with_statistics(random_net(seed), seed), 1 + 2 * (seed % 2)
    to_torch(nnet, tmp_path, frame_subsampling_factor=unit)
    assert_equals(model_of(tmp_path), nnet, unit=unit, lengths=(1, 6))


OURS = [type for type, kind in COMPONENTS.items() if kind.__module__.startswith("opscope.nnet3.")]
REFUSED_TYPES = ("DistributeComponent",)
REFUSED = "Distribute|is no recurrent layer: a loop reads|with the context found"


def test_random_networks_of_kaldi(tmp_path):
    """They agree, but those that are refused for a known reason."""
    agreed = 0
    for case in sorted(need("random_nets").iterdir())[::6]:
        nnet = with_statistics(Nnet.read(case / "model.raw"))
        columns = nnet.input_dim("ivector")
        ivector = np.linspace(-1, 1, columns, dtype=np.float32) if columns > 0 else None
        try:
            made = to_torch(nnet, tmp_path / case.name)
        except NotInTorchError as error:
            assert re.search(REFUSED, str(error)), (case.name, str(error))
            continue
        given = ivector if made.config["ivector_dim"] else None
        features = np.random.default_rng(1).normal(size=(12, nnet.input_dim("input")))
        features = features.astype(np.float32)
        found = run(
            model_of(tmp_path / case.name), *filter(lambda x: x is not None, (features, given))
        )
        np.testing.assert_allclose(
            found, ours(nnet, features, ivector), atol=2e-5, rtol=2e-5, err_msg=case.name
        )
        agreed += 1
    assert agreed >= 10


@pytest.mark.parametrize("type", OURS)
def test_component_types_are_written_or_refused_by_name(type):
    """Composites are as their parts are."""
    kind = COMPONENTS[type]
    if type in AT_SEVERAL_TIMES or type == "CompositeComponent":
        return
    told = why_not(kind())
    assert bool(told) == (type in REFUSED_TYPES) and (not told or type in told)


REFUSALS = {
    "'a': other nodes use component 'a' in other steps": """
        component name=a type=TimeHeightConvolutionComponent num-filters-in=1 num-filters-out=1 \
            height-in=4 height-out=4 height-offsets=0 time-offsets=0,2
        component-node name=b component=a input=input
        component-node name=a component=a input=Offset(b, 1)
        component-node name=c component=a input=Round(a, 2)
        output-node name=output input=Sum(c, Round(b, 3))""",
    "no recurrent layer: a loop .* its first steps are not like others": """
        component name=b type=AffineComponent input-dim=4 output-dim=4
        component-node name=b component=b input=input
        component name=a type=AffineComponent input-dim=8 output-dim=4
        component-node name=a component=a input=Append(input, Failover(Offset(a, -2), b))
        output-node name=output input=a""",
    "no recurrent layer: a loop reads itself at several offsets": """
        component name=a type=AffineComponent input-dim=12 output-dim=4
        component-node name=a component=a input=Append(input, IfDefined(Offset(a, -1)), \
            IfDefined(Offset(a, -2)))
        output-node name=output input=a""",
    "wants whole=True": """
        component name=a type=TanhComponent dim=4
        component-node name=a component=a input=Offset(input, 900)
        output-node name=output input=a""",
    "where the loop of .* begins follows from the length": """
        component name=a type=AffineComponent input-dim=8 output-dim=4
        component-node name=a component=a input=Append(Round(input, 3), IfDefined(Offset(a, -1)))
        output-node name=output input=a""",
}


@pytest.mark.parametrize("message", REFUSALS)
def test_what_is_refused(message, tmp_path):
    text = "input-node name=input dim=4" + REFUSALS[message].replace("\\\n            ", "")
    with pytest.raises(NotInTorchError, match=message):
        to_torch(Nnet.from_config_text(text + "\n", 0), tmp_path / "m")
    assert not (tmp_path / "m").exists()


DESCRIPTORS = [
    "Append(b, IfDefined(Sum(Offset(input, -2), Offset(b, 2))))",
    "Append(input, Failover(Offset(b, -3), Offset(input, -1)))",
    "Append(b, Offset(Round(Offset(b, 1), 2), -3))",
    "Append(b, Switch(b, Offset(Scale(0.5, input), -1), Scale(0.5, input)))",
    "Append(Sum(b, IfDefined(Offset(input, -4))), b)",
    "Append(Scale(2, b), Sum(Scale(-1, b), Const(0.5, 3)))",
]


@pytest.mark.parametrize("unit", [1, 2])
@pytest.mark.parametrize("kind", ["AffineComponent", "ElementwiseProductComponent"])
@pytest.mark.parametrize("descriptor", DESCRIPTORS)
def test_descriptors(descriptor, kind, unit, tmp_path):
    nnet = Nnet.from_config_text(
        f"""
        input-node name=input dim=3
        component name=b type=AffineComponent input-dim=6 output-dim=3
        component-node name=b component=b input=Append(input, Offset(input, 1))
        component name=a type={kind} input-dim=6 output-dim=3
        component-node name=a component=a input={descriptor}
        output-node name=output input=a
        """,
        3,
    )
    to_torch(nnet, tmp_path, frame_subsampling_factor=unit)
    assert_equals(model_of(tmp_path), nnet, unit=unit, lengths=(1, 2, 5, 12))
