"""nnet3 to ONNX: layers of Kaldi's recipes, random networks, descriptors, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from nnet3_onnx import LAYERS_OF_FRAMES, OnnxNet, assert_exports, ours, with_statistics
from nnet3_runs import random_net
from opscope.bridges.nnet3_rows.loops import loop_in
from opscope.bridges.nnet3_rows.reads import NotExportedError
from opscope.bridges.onnx.from_nnet3.export import nnet3_graph
from opscope.bridges.onnx.from_nnet3.streams import Stream
from opscope.framework.base.errors import OpscopeError
from opscope.nnet3.graph.loops import IrregularError
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.xconfig.configs import xconfig_to_config

LAYERS = {
    **LAYERS_OF_FRAMES,
    "conv": "conv-relu-batchnorm-layer name=a height-in=6 height-out=3 height-subsample-out=2"
    " time-offsets=-1,0,1 height-offsets=-1,0,1 num-filters-out=4",
    "conv_edges": "conv-relu-batchnorm-layer name=a height-in=6 height-out=6 num-filters-out=4"
    " time-offsets=-1,0,1 height-offsets=-1,0,1 required-time-offsets=0",
    "conv_dropout": "conv-relu-batchnorm-dropout-layer name=a height-in=6 height-out=6"
    " num-filters-out=4 time-offsets=-3,0 height-offsets=0,1",
    "attention": "attention-relu-renorm-layer name=a num-heads=2 value-dim=3 key-dim=2"
    " num-left-inputs=2 num-right-inputs=1 time-stride=2 num-left-inputs-required=1"
    " num-right-inputs-required=1",
    "stats": "stats-layer name=a config=mean+stddev+count(-6:1:2:8)",
    "lstm": "lstm-layer name=a cell-dim=5",
    "lstmp": "lstmp-layer name=a cell-dim=5 recurrent-projection-dim=3 delay=-2"
    " non-recurrent-projection-dim=2",
    "lstm_decay": "lstm-layer name=a cell-dim=5 decay-time=20 delay=-2",
    "lstm_back": "lstm-layer name=a cell-dim=5 delay=3",
    "gru_back": "gru-layer name=a cell-dim=5 delay=2",
    "lstmb": "lstmb-layer name=a cell-dim=5 bottleneck-dim=3",
    "fast_lstm": "fast-lstm-layer name=a cell-dim=5 decay-time=20 delay=-3",
    "fast_lstm_plain": "fast-lstm-layer name=a cell-dim=5 delay=-1",
    "fast_lstmp": "fast-lstmp-layer name=a cell-dim=6 recurrent-projection-dim=3 delay=-3"
    " non-recurrent-projection-dim=2 dropout-proportion=0.1",
    "gru": "gru-layer name=a cell-dim=5",
    "pgru": "pgru-layer name=a cell-dim=6 recurrent-projection-dim=2",
    "norm_pgru": "norm-pgru-layer name=a cell-dim=6 recurrent-projection-dim=2 delay=-2",
    "opgru": "opgru-layer name=a cell-dim=6 recurrent-projection-dim=2",
    "norm_opgru": "norm-opgru-layer name=a cell-dim=6 recurrent-projection-dim=2 delay=-3",
    "fast_gru": "fast-gru-layer name=a cell-dim=5",
    "fast_pgru": "fast-pgru-layer name=a cell-dim=6 recurrent-projection-dim=2",
    "fast_norm_opgru": "fast-norm-opgru-layer name=a cell-dim=6 recurrent-projection-dim=2",
    "spec_augment": "spec-augment-layer name=a",
}
NO_STREAM = {"conv_edges", "attention", "stats", "lstm_back", "gru_back"}


def layer_net(layer, seed=1):
    output = "output-layer name=output dim=5 max-change=1.5 param-stddev=0.5"  # not zeros
    text = f"input dim=6 name=input\n{layer}\n{output}\n"
    return with_statistics(Nnet.from_config_text(xconfig_to_config(text), seed), seed)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("subsampling", [1, 3])
def test_layers(name, subsampling):
    bound = 2e-3 if name == "stats" else 1e-5  # ours computes deviations in float32
    assert_exports(layer_net(LAYERS[name]), (1, 4, 11), subsampling, name not in NO_STREAM, bound)


@pytest.mark.parametrize("name", ["renorm", "stats", "attention", "conv", "fast_lstmp", "fast_gru"])
@pytest.mark.parametrize("opset", [13, 18, 21])
def test_opsets(name, opset):
    nnet = layer_net(LAYERS[name])
    x = np.random.default_rng(3).normal(size=(9, 6)).astype(np.float32)
    wanted = OnnxNet(nnet3_graph(nnet)).whole(x)
    np.testing.assert_allclose(OnnxNet(nnet3_graph(nnet, opset=opset)).whole(x), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("fast_lstm_plain", "LSTM"),
        ("fast_gru", "GRU"),
        ("lstm", "LSTM"),
        ("gru", "GRU"),
        ("lstm_decay", "Scan"),
        ("lstmp", "Scan"),
        ("lstmb", "Scan"),
        ("pgru", "Scan"),
    ],
)
def test_operators_of_recurrent_layers(name, operator):
    found = {node.op_type for node in nnet3_graph(layer_net(LAYERS[name])).message.node}
    assert found & {"LSTM", "GRU", "Scan"} == {operator}


IRREGULAR = {
    "several_offsets": "Append(x, IfDefined(Offset(r, -1)), IfDefined(Offset(r, -3)))",
    "offsets_apart": "Append(x, IfDefined(Offset(r, -4)), IfDefined(Scale(0.5, Offset(r, -6))))",
    "backwards": "Append(x, IfDefined(Offset(r, 1)), IfDefined(Offset(r, 2)))",
    "failover": "Append(x, Failover(Offset(r, -2), x), IfDefined(Offset(r, -1)))",
    "failover_to_constant": "Append(x, Failover(Offset(r, -1), c), Failover(Offset(r, -2), c))",
    "failover_to_both": "Append(x, Failover(Offset(r, -1), Sum(c, Offset(x, -1))), Const(0.5, 4))",
    "late_member": "Append(x, IfDefined(late), IfDefined(Offset(r, -1)))",
    "later_member": "Append(x, Failover(Offset(late, -1), c), Sum(x, IfDefined(Offset(late, -2))))",
}
"""What layers read that are no plain recurrent ones: several rows of their own, or others."""


def irregular_net(read):
    lines = f"""
        input-node name=input dim=6
        component name=x type=AffineComponent input-dim=12 output-dim=4 param-stddev=0.4
        component-node name=x component=x input=Append(Offset(input, -1), Offset(input, 1))
        component name=c type=ConstantComponent output-dim=4 output-mean=0.5 output-stddev=1
        component-node name=c component=c input=c
        component name=late type=AffineComponent input-dim=4 output-dim=4 param-stddev=0.7
        component-node name=late component=late input=Offset(r, -2)
        component name=a type=AffineComponent input-dim=12 output-dim=4 param-stddev=0.6
        component-node name=a component=a input={read}
        component name=r type=TanhComponent dim=4
        component-node name=r component=r input=a
        component name=b type=AffineComponent input-dim=4 output-dim=3
        component-node name=b component=b input=r
        output-node name=output input=b
    """
    return Nnet.from_config_text(lines, 2)


@pytest.mark.parametrize("name", IRREGULAR)
@pytest.mark.parametrize("subsampling", [1, 3])
def test_irregular_loops(name, subsampling):
    nnet = irregular_net(IRREGULAR[name])
    assert_exports(nnet, (1, 2, 5, 13), subsampling, streams=False)
    with pytest.raises(NotExportedError, match="streams|streamed"):
        nnet3_graph(nnet, True)


def test_a_loop_that_never_begins():
    topology = irregular_net("Append(x, Offset(r, -1), x)").topology()
    (members,) = (m for m, _ in topology.stages if topology.number("r") in m)
    with pytest.raises(IrregularError, match="reads rows of its own that are never there"):
        loop_in(topology, members)


@pytest.mark.parametrize("seed", range(16))
def test_random_networks(seed):
    nnet = with_statistics(random_net(seed), seed)
    backward = "IfDefined(Offset(" in "".join(nnet.config_lines()) and any(
        f", {offset}))" in line for line in nnet.config_lines() for offset in (1, 2)
    )
    assert_exports(nnet, (1, 6), 1 + 2 * (seed % 2), not backward, 2e-5)


def descriptor_net(descriptor, width, before=""):
    """An affine component that reads a descriptor over `input` [3], `b` [3] and `ivector` [2]."""
    lines = [
        "input-node name=input dim=3",
        "input-node name=ivector dim=2" if "ivector" in descriptor else "",
        "component name=b type=AffineComponent input-dim=6 output-dim=3",
        "component-node name=b component=b input=Append(input, Offset(input, 1))",
        f"component name=a type=AffineComponent input-dim={width} output-dim=4",
        f"component-node name=a component=a input={descriptor}",
        "component name=t type=TanhComponent dim=4",
        "component-node name=t component=t input=a",
        "output-node name=output input=t",
    ]
    return Nnet.from_config_text("\n".join(lines) + "\n", 3)


DESCRIPTORS = {
    "Append(Offset(b, -2), Scale(0.5, b), ReplaceIndex(ivector, t, 0))": 8,
    "Sum(Scale(2, b), Const(0.25, 3))": 3,
    "Sum(Scale(2, b), Sum(Offset(Scale(2, b), 1), Offset(input, -1)))": 3,
    "IfDefined(Offset(b, 3))": 3,
    "Sum(b, IfDefined(Offset(input, -4)))": 3,
    "Append(b, IfDefined(Sum(Offset(input, -2), Offset(b, 2))))": 6,
    "Failover(Offset(b, -3), b)": 3,
    "Append(input, Failover(Offset(b, -3), Offset(input, -1)))": 6,
    "Round(b, 3)": 3,
    "Append(b, Offset(Round(Offset(b, 1), 2), -3))": 6,
    "Switch(b, Offset(b, -1))": 3,
    "Switch(b, Offset(Scale(0.5, input), -1), Scale(0.5, input))": 3,
    "Append(input, ReplaceIndex(ivector, t, 0))": 5,
    "Append(Offset(b, -3), Offset(b, 1), b)": 9,
}


@pytest.mark.parametrize("descriptor", DESCRIPTORS)
@pytest.mark.parametrize("subsampling", [1, 2])
def test_descriptors(descriptor, subsampling):
    nnet = descriptor_net(descriptor, DESCRIPTORS[descriptor])
    later = ("Round", "Switch", "Failover", "Offset(b, 3)", "Offset(b, 2)")
    streams = not any(word in descriptor for word in later)
    lengths = (7, 12) if "Failover(Offset(b, -3), b)" in descriptor else (1, 2, 5, 12)
    assert_exports(nnet, lengths, subsampling, streams)


COMPONENTS = {
    "SoftmaxComponent dim=6": 6,
    "LogSoftmaxComponent dim=6": 6,
    "NormalizeComponent dim=6 target-rms=0.5": 6,
    "NormalizeComponent dim=6 block-dim=3 add-log-stddev=true": 8,
    "PnormComponent input-dim=6 output-dim=3": 3,
    "ElementwiseProductComponent input-dim=6 output-dim=2": 2,
    "SumBlockComponent input-dim=6 output-dim=3 scale=0.5": 3,
    "SumGroupComponent sizes=1,2,3": 3,
    "SumGroupComponent input-dim=6 output-dim=3": 3,
    "PermuteComponent column-map=5,0,3,1,2,4": 6,
    "FixedScaleComponent dim=6": 6,
    "FixedBiasComponent dim=6": 6,
    "FixedAffineComponent input-dim=6 output-dim=4": 4,
    "LinearComponent input-dim=6 output-dim=4": 4,
    "PerElementScaleComponent dim=6 param-stddev=1": 6,
    "PerElementOffsetComponent dim=6 param-stddev=1 block-dim=3": 6,
    "ScaleAndOffsetComponent dim=6 block-dim=2": 6,
    "BatchNormComponent dim=6 block-dim=3": 6,
    "DropoutComponent dim=6 dropout-proportion=0.3": 6,
    "GeneralDropoutComponent dim=6 dropout-proportion=0.3": 6,
    "SpecAugmentTimeMaskComponent dim=6": 6,
    "NoOpComponent dim=6": 6,
    "ClipGradientComponent dim=6": 6,
    "BackpropTruncationComponent dim=6 scale=0.75": 6,
    "BlockAffineComponent input-dim=6 output-dim=4 num-blocks=2": 4,
    "RepeatedAffineComponent input-dim=6 output-dim=4 num-repeats=2": 4,
    "ConstantFunctionComponent input-dim=6 output-dim=4 output-stddev=1": 4,
    "LstmNonlinearityComponent cell-dim=3": 6,
    "GruNonlinearityComponent cell-dim=3 recurrent-dim=3": 6,
    "OutputGruNonlinearityComponent cell-dim=4": 8,
    "ConvolutionComponent input-x-dim=3 input-y-dim=2 input-z-dim=2 filt-x-dim=2 filt-y-dim=1"
    " filt-x-step=1 filt-y-step=1 num-filters=3": 12,
    "ConvolutionComponent input-x-dim=3 input-y-dim=2 input-z-dim=2 filt-x-dim=2 filt-y-dim=2"
    " filt-x-step=1 filt-y-step=1 num-filters=3 input-vectorization-order=yzx": 6,
    "MaxpoolingComponent input-x-dim=3 input-y-dim=2 input-z-dim=2 pool-x-size=2 pool-y-size=1"
    " pool-z-size=2 pool-x-step=1 pool-y-step=1 pool-z-step=2": 4,
    "CompositeComponent num-components=2 component1='type=RectifiedLinearComponent dim=6'"
    " component2='type=AffineComponent input-dim=6 output-dim=4'": 4,
    "TdnnComponent input-dim=6 output-dim=4 time-offsets=-3,0,1": 4,
    "TdnnComponent input-dim=6 output-dim=4 time-offsets=2 use-bias=false": 4,
}


@pytest.mark.parametrize("line", COMPONENTS)
@pytest.mark.parametrize("subsampling", [1, 3])
def test_components(line, subsampling):
    wide = {"LstmN": 15, "GruNo": 12, "Outpu": 12, "Convo": 12, "Maxpo": 12}.get(line[:5], 6)
    text = [
        "input-node name=input dim=4",
        f"component name=in type=AffineComponent input-dim=8 output-dim={wide}",
        "component-node name=in component=in input=Append(input, Offset(input, 2))",
        f"component name=c type={line}",
        "component-node name=c component=c input=in",
        f"component name=out type=AffineComponent input-dim={COMPONENTS[line]} output-dim=3",
        "component-node name=out component=out input=Append(c)",
        "output-node name=output input=out",
    ]
    nnet = with_statistics(Nnet.from_config_text("\n".join(text) + "\n", 5))
    assert_exports(nnet, (1, 4, 9), subsampling)


def test_batch_norm_behind_relu_costs_nothing():
    net = layer_net("relu-batchnorm-layer name=a dim=8")
    found = [node.op_type for node in nnet3_graph(net).message.node]
    assert found == ["Transpose", "Conv", "Relu", "Conv", "LogSoftmax", "Transpose"]


def test_several_sequences_and_outputs():
    text = """
        input-node name=input dim=3
        component name=a type=AffineComponent input-dim=9 output-dim=4
        component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
        output-node name=output input=a
        output-node name=output-xent input=Scale(2, a)
    """
    net = OnnxNet(nnet3_graph(Nnet.from_config_text(text, 1), outputs=["output", "output-xent"]))
    x = np.random.default_rng(1).normal(size=(3, 5, 3)).astype(np.float32)
    found = net.run(input=x)
    assert found["output"].shape == (3, 5, 4)
    np.testing.assert_allclose(found["output-xent"], 2 * found["output"], rtol=1e-6)
    for one, wanted in zip(x, found["output"], strict=True):
        np.testing.assert_allclose(net.whole(one), wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["tdnnf", "conv", "attention", "stats", "fast_lstmp", "fast_gru"])
def test_several_sequences_are_computed_side_by_side(name):
    nnet = layer_net(LAYERS[name])
    net = OnnxNet(nnet3_graph(nnet))
    x = np.random.default_rng(1).normal(size=(3, 8, 6)).astype(np.float32)
    single = np.stack([net.whole(one) for one in x])
    np.testing.assert_allclose(net.run(input=x)["output"], single, atol=1e-5)
    if name in NO_STREAM:
        return
    chunked = OnnxNet(nnet3_graph(nnet, True))
    stream = Stream.of(chunked.graph.metadata)
    caches, found = stream.initial_caches(x), []
    for chunk in stream.chunks(x, 3):
        results = chunked.run(input=chunk, **caches)
        found.append(results["output"])
        caches = {cache: results[f"new_{cache}"] for cache in caches}
    np.testing.assert_allclose(np.concatenate(found, 1), single, atol=1e-5)


def test_streams_refuse_odd_chunks_and_other_models():
    graph = nnet3_graph(layer_net(LAYERS["tdnnf"]), True, frame_subsampling_factor=3)
    with pytest.raises(OpscopeError, match="chunks of 4 frames; a multiple of 3"):
        next(Stream.of(graph.metadata).chunks(np.zeros((9, 6), np.float32), 4))
    with pytest.raises(OpscopeError, match="not exported for streams"):
        Stream.of(nnet3_graph(layer_net(LAYERS["tdnnf"])).metadata)
    with pytest.raises(OpscopeError, match="wants a first frame"):
        Stream.of(graph.metadata).initial_caches(np.zeros((0, 6), np.float32))


def test_networks_for_whole_utterances_say_so():
    text = """
        input-node name=input dim=3
        component name=a type=AffineComponent input-dim=3 output-dim=3
        component-node name=a component=a input=input
        output-node name=x input=a
    """
    with pytest.raises(OpscopeError, match="output"):
        nnet3_graph(Nnet.from_config_text(text, 1))
    later = descriptor_net("Offset(b, 900)", 3)
    with pytest.raises(OpscopeError, match="wants whole=True"):
        nnet3_graph(later)


def test_refusals_name_the_node():
    loop = """
        input-node name=input dim=3
        component name=a type=AffineComponent input-dim=9 output-dim=3
        component-node name=a component=a input=Append(input, IfDefined(Offset(a, -1)), \
            IfDefined(Offset(a, 2)))
        output-node name=output input=a
    """.replace("\\\n            ", "")
    with pytest.raises(NotExportedError, match="no recurrent layer: .* earlier and later"):
        nnet3_graph(Nnet.from_config_text(loop, 1))
    with pytest.raises(NotExportedError, match=r"'a.*': .*statistics take the future"):
        nnet3_graph(layer_net(LAYERS["stats"]), True)


def test_priors_and_metadata():
    nnet = layer_net("relu-layer name=a dim=8 input=Append(-1,0,2)")
    priors = np.array([0.1, 0.2, 0.3, 0.15, 0.25])
    x = np.random.default_rng(2).normal(size=(7, 6)).astype(np.float32)
    plain = OnnxNet(nnet3_graph(nnet)).whole(x)
    net = OnnxNet(nnet3_graph(nnet, priors=priors, acoustic_scale=0.5))
    np.testing.assert_allclose(net.whole(x), (plain - np.log(priors)) * 0.5, atol=1e-5)
    told = net.session.get_modelmeta().custom_metadata_map
    wanted = dict(left_context="1", right_context="2", subsampling_factor="1", vocab_size="5")
    assert wanted.items() <= told.items()


def test_one_row_for_all_frames():
    layers = (
        "relu-batchnorm-layer name=t dim=7 input=Append(-1,0,1)\n"
        "stats-layer name=s config=mean+stddev(0:1:1:80)\n"
        "relu-batchnorm-layer name=a dim=6 input=s"
    )
    from opscope.nnet3.cache.computers import ComputerCache
    from opscope.nnet3.inference.xvector import xvector
    from opscope.nnet3.network.for_inference import for_inference

    nnet = layer_net(layers)
    net = OnnxNet(nnet3_graph(nnet, whole=True))
    cache = ComputerCache(for_inference(nnet))
    for frames in (3, 10, 57):
        x = np.random.default_rng(frames).normal(size=(frames, 6)).astype(np.float32)
        wanted = xvector(cache, x, min_chunk_size=1)
        np.testing.assert_allclose(net.whole(x), wanted[None], atol=1e-3)


def test_refusals_name_everything_at_once():
    text = """
        input-node name=input dim=3
        component name=d type=DistributeComponent input-dim=3 output-dim=1
        component-node name=d component=d input=input
        component name=e type=DistributeComponent input-dim=3 output-dim=1
        component-node name=e component=e input=input
        output-node name=output input=Append(d, e)
    """
    with pytest.raises(NotExportedError, match=r"'d': Distribute.*; 'e': Distribute"):
        nnet3_graph(Nnet.from_config_text(text, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(outputs=["out"]), "no output 'out'; there are output"),
        (dict(outputs=[]), "at least one name"),
        (dict(frame_subsampling_factor=0), "is 0, not positive"),
        (dict(opset=9), "at least 13"),
        (dict(whole=True, streaming=True), "neither streaming"),
        (dict(priors=np.ones(3)), "3 priors"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(OpscopeError, match=message):
        nnet3_graph(layer_net("relu-layer name=a dim=8"), **options)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (LAYERS["stats"], "statistics take the future"),
        ("lstm-layer name=a cell-dim=5 delay=1", "backwards"),
    ],
)
def test_what_cannot_be_streamed(layer, message):
    with pytest.raises(NotExportedError, match=message):
        nnet3_graph(layer_net(layer), streaming=True)


def test_backward_layers():
    layers = (
        "lstm-layer name=f cell-dim=5 input=Append(-1,0,1)\n"
        "lstmp-layer name=b cell-dim=5 recurrent-projection-dim=2 delay=2"
        " non-recurrent-projection-dim=2 input=Append(input@0)\n"
        "relu-layer name=a dim=5 input=Append(f, b)"
    )
    layers = layers.replace("input=Append(input@0)", "input=input")
    assert_exports(layer_net(layers), (1, 2, 9), streams=False)
    assert ours(layer_net(layers), np.zeros((3, 6), np.float32)).shape == (3, 5)
