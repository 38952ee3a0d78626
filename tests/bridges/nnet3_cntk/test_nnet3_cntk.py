"""Feed-forward networks from CNTK to nnet3 and back: the same rows come out."""

import numpy as np
import pytest
from click.testing import CliRunner

from conversion_runs import run_cntk, run_nnet3, windows
from opscope.bridges.nnet3_cntk.from_cntk import to_acoustic_model, to_nnet3
from opscope.bridges.nnet3_cntk.from_nnet3 import to_cntk
from opscope.cntk.models.v1 import read_model, write_model
from opscope.cntk.network.network import Network
from opscope.framework.base.errors import ShapeError, UnknownOperatorError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.transition_model import HmmState, TransitionModel
from opscope.nnet3.components.batch_norm import BatchNormComponent
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.python_api.cli.main import main

TOLERANCE = 1e-5


class Layers:
    """A network of CNTK, layer by layer."""

    def __init__(self, seed, dim):
        self.rng = np.random.default_rng(seed)
        self.network = Network("random")
        self.x = self.network.add("InputValue", "features", shape=dim, tags=["feature"])

    def parameter(self, shape, low=-1.0, high=1.0, rate=1.0):
        name = f"p{len(self.network)}"
        given = {"learningRateMultiplier": rate}
        node = self.network.add("LearnableParameter", name, attributes=given, shape=shape)
        node.value = np.asfortranarray(self.rng.uniform(low, high, shape), np.float32)
        return node

    def op(self, operation, *inputs, **attributes):
        name = f"{operation}{len(self.network)}"
        return self.network.add(operation, name, inputs, attributes)

    def affine(self, x, dim, out, rate=1.0):
        product = self.op("Times", self.parameter((out, dim), rate=rate), x)
        return self.op("Plus", product, self.parameter((out, 1), rate=rate))

    def finish(self, x):
        self.network.add_to_group("output", x)
        self.network.validate()
        return self.network


def random_cntk(seed):
    """A DNN of some layers, each of a kind that the seed chooses."""
    net = Layers(seed, 6)
    rng, x, dim = net.rng, net.x, 6
    mean, deviation = net.parameter(6, rate=0), net.parameter(6, 0.5, 2, rate=0)
    x = net.op("PerDimMeanVarNormalization", x, mean, deviation)
    for _ in range(4):
        out = int(rng.integers(3, 9))
        match int(rng.integers(8)):
            case 0:
                x = net.op("Sigmoid", net.affine(x, dim, out))
            case 1:
                x = net.op("RectifiedLinear", net.affine(x, dim, out, rate=0))
            case 2:
                x = net.op("Times", net.parameter((out, dim)), x)
            case 3:
                statistics = [(0.5, 2), (-1, 1), (-1, 1), (0.1, 2)]
                values = [net.parameter(dim, *bounds) for bounds in statistics]
                x, out = net.op("BatchNormalization", x, *values, spatial=False), dim
            case 4:
                other = net.op("ElementTimes", net.parameter(1, rate=0), net.affine(x, dim, dim))
                x, out = net.op("Dropout", net.op("Minus", x, other)), dim
            case 5:
                x, out = net.op("ElementTimes", net.op("Tanh", net.affine(x, dim, dim)), x), dim
            case 6:
                low = net.op("Slice", x, beginIndex=0, endIndex=2)
                x, out = net.op("RowStack", low, net.op("Negate", x), low), dim + 4
            case _:
                weights = net.parameter((dim, out))
                x = net.op("Plus", net.parameter(out, rate=2), net.op("TransposeTimes", weights, x))
        dim = out
    ends = ["LogSoftmax", "Softmax", "Pass"]
    return net.finish(net.op(ends[seed % 3], x))


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_of_cntk(seed, tmp_path):
    network = random_cntk(seed)
    frames = np.random.default_rng(seed).normal(size=(11, 6)).astype(np.float32)
    wanted = run_cntk(network, features=frames)
    to_nnet3(network).write(tmp_path / "a.raw")
    nnet = Nnet.read(tmp_path / "a.raw")
    np.testing.assert_allclose(run_nnet3(nnet, frames), wanted, TOLERANCE, TOLERANCE)
    again, context = to_cntk(nnet)
    assert context == {"features": (0, 0)}
    np.testing.assert_allclose(run_cntk(again, features=frames), wanted, TOLERANCE, TOLERANCE)


TDNN = """
input-node name=input dim=5
component name=a1 type=NaturalGradientAffineComponent input-dim=15 output-dim=8
component name=r1 type=RectifiedLinearComponent dim=8
component name=n1 type=NormalizeComponent dim=8 target-rms=0.7
component name=t2 type=TdnnComponent time-offsets=-2,1 input-dim=8 output-dim=8
component name=b2 type=BatchNormComponent dim=8 block-dim=4 target-rms=1.5
component name=d2 type=GeneralDropoutComponent dim=8 dropout-proportion=0.3
component name=x3 type=ScaleAndOffsetComponent dim=8
component name=noop type=NoOpComponent dim=8
component name=l4 type=LinearComponent input-dim=11 output-dim=6
component name=c4 type=CompositeComponent num-components=2 \
component1='type=SigmoidComponent dim=6' component2='type=PerElementScaleComponent dim=6'
component name=e5 type=ElementwiseProductComponent input-dim=6 output-dim=3
component name=k6 type=RepeatedAffineComponent num-repeats=3 input-dim=9 output-dim=6
component name=o type=LogSoftmaxComponent dim=6
component-node name=a1 component=a1 input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=r1 component=r1 input=a1
component-node name=n1 component=n1 input=r1
component-node name=t2 component=t2 input=n1
component-node name=b2 component=b2 input=t2
component-node name=d2 component=d2 input=b2
component-node name=noop component=noop input=Sum(Scale(0.66, Offset(n1, 2)), d2)
component-node name=x3 component=x3 input=Sum(noop, Const(0.5, 8))
dim-range-node name=part input-node=x3 dim-offset=2 dim=3
component-node name=l4 component=l4 input=Append(Offset(x3, -3), part)
component-node name=c4 component=c4 input=l4
component-node name=e5 component=e5 input=c4
component-node name=k6 component=k6 input=Append(e5, Offset(e5, 1), Sum(Offset(e5, -2), part))
component-node name=o component=o input=k6
output-node name=output input=o
"""


def tdnn(text=TDNN, seed=0):
    nnet = Nnet.from_config_text(text.replace("\\\n", ""), seed)
    rng = np.random.default_rng(seed)
    for component in nnet.components.values():
        if isinstance(component, BatchNormComponent):
            component.test_mode, component.count = True, 50.0
            mean, variance = rng.normal(size=(2, component.block_dim))
            component.stats_sum = 50 * mean
            component.stats_sumsq = 50 * (mean**2 + variance**2 + 0.1)
    return nnet


def test_layers_over_time():
    nnet = tdnn()
    frames = np.random.default_rng(1).normal(size=(17, 5)).astype(np.float32)
    wanted = run_nnet3(nnet, frames)
    network, context = to_cntk(nnet)
    assert context == {"features": nnet.context()} == {"features": (8, 4)}
    assert network.parameter_count() == nnet.num_parameters
    spliced = windows(frames, *context["features"])
    np.testing.assert_allclose(run_cntk(network, features=spliced), wanted, 0, TOLERANCE)


def test_unrolled_layers_are_rolled_up_again(tmp_path):
    nnet = tdnn()
    network, context = to_cntk(nnet)
    write_model(network, tmp_path / "a.dnn")
    again = to_nnet3(read_model(tmp_path / "a.dnn"), context=context)
    assert again.num_parameters == nnet.num_parameters and again.context() == nnet.context()
    types = [c.type for c in again.components.values()]
    assert types.count("NaturalGradientAffineComponent") == 2  # a1 and t2
    assert "NormalizeComponent" in types and len(types) <= len(nnet.components) + 4
    frames = np.random.default_rng(1).normal(size=(17, 5)).astype(np.float32)
    np.testing.assert_allclose(run_nnet3(again, frames), run_nnet3(nnet, frames), 0, TOLERANCE)


@pytest.mark.parametrize(
    "heights",
    [
        "height-in=7 height-out=7 height-offsets=-1,0,1",
        "height-in=7 height-out=4 height-subsample-out=2 height-offsets=-2,0,1",
        "height-in=7 height-out=3 height-subsample-out=2 height-offsets=0,1",
        "height-in=7 height-out=3 height-offsets=1,2",
    ],
)
def test_convolution_over_time_and_height(heights):
    nnet = tdnn(f"""
        input-node name=input dim=14
        component name=c type=TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=3 \\
            time-offsets=-2,0,1 bias-stddev=1 {heights}
        component-node name=c component=c input=input
        output-node name=output input=c
    """)
    frames = np.random.default_rng(3).normal(size=(6, 14)).astype(np.float32)
    network, context = to_cntk(nnet)
    got, wanted = run_cntk(network, features=windows(frames, 2, 1)), run_nnet3(nnet, frames)
    assert context == {"features": (2, 1)}
    np.testing.assert_allclose(got, wanted, TOLERANCE, TOLERANCE)
    again = to_nnet3(network, context=context)
    np.testing.assert_allclose(run_nnet3(again, frames), wanted, TOLERANCE, TOLERANCE)


@pytest.mark.parametrize(
    ("shape", "kernel", "given"),
    [
        ((4, 3), (3, 3), {}),
        ((5, 6, 2), (5, 3, 2), {"strideShape": (1, 2, 1), "dimPadding": (False, True, False)}),
        ((1, 6, 2), (1, 4, 2), {"dimPadding": (False,), "dimPadLower": (0, 2, 0)}),
    ],
)
def test_convolution_of_images(shape, kernel, given):
    size = int(np.prod(shape))
    net = Layers(4, size)
    image = net.op("Reshape", net.x, shape=shape)
    attributes = {"kernelShape": kernel, "mapCount": (4,), "dimPadding": (True, False), **given}
    x = net.op("Convolution", net.parameter((*kernel, 4)), image, **attributes)
    bias = net.parameter((1,) * (len(shape) - 1) + (4,))
    network = net.finish(net.op("RectifiedLinear", net.op("Plus", x, bias)))
    frames = np.random.default_rng(5).normal(size=(3, size)).astype(np.float32)
    got = run_nnet3(to_nnet3(network), frames)
    np.testing.assert_allclose(got, run_cntk(network, features=frames), TOLERANCE, TOLERANCE)


def test_one_vector_for_all_frames():
    text = """
        input-node name=input dim=3
        input-node name=ivector dim=2
        component name=a type=AffineComponent input-dim=8 output-dim=4
        component-node name=a component=a input=Append(Offset(input, -2), input, {vector})
        output-node name=output input=Offset(a, 1)
    """.replace("{vector}", "ReplaceIndex(ivector, t, 0)")
    nnet = tdnn(text)
    rng = np.random.default_rng(2)
    frames, ivector = rng.normal(size=(9, 3)).astype("f"), rng.normal(size=2).astype("f")
    network, context = to_cntk(nnet)
    assert context == {"features": (1, 1), "ivector": (0, 0)}
    spliced, constant = windows(frames, 1, 1), np.tile(ivector, (9, 1))
    got = run_cntk(network, features=spliced, ivector=constant)
    wanted = run_nnet3(nnet, frames, ivector)
    np.testing.assert_allclose(got, wanted, 0, TOLERANCE)
    again = to_nnet3(network, context=context)
    assert "ReplaceIndex(ivector, t, 0)" in again.config_lines()[2]
    np.testing.assert_allclose(run_nnet3(again, frames, ivector), wanted, 0, TOLERANCE)


@pytest.mark.parametrize(
    ("descriptor", "expected"),
    [
        ("Sum(input, IfDefined(Offset(a, -1)))", r"component-node 'a' \(.*from itself"),
        ("IfDefined(Offset(input, -1))", "'a'.*IfDefined.*where an utterance ends"),
        ("Round(input, 3)", r"'a'.*Round\(input, 3\) is not the same distance"),
        ("Failover(input, Offset(input, 1))", "'a'.*Failover"),
    ],
)
def test_descriptors_that_are_refused(descriptor, expected):
    nnet = tdnn(f"""
        input-node name=input dim=3
        component name=a type=AffineComponent input-dim=3 output-dim=3
        component-node name=a component=a input={descriptor}
        output-node name=output input=a
    """)
    with pytest.raises(UnknownOperatorError, match=expected):
        to_cntk(nnet)


def test_components_that_are_refused():
    text = TDNN.replace(
        "type=LogSoftmaxComponent dim=6",
        "type=MaxpoolingComponent "
        + " ".join(f"input-{a}-dim=1 pool-{a}-size=1 pool-{a}-step=1" for a in "yz")
        + " input-x-dim=6 pool-x-size=1 pool-x-step=1",
    )
    with pytest.raises(UnknownOperatorError, match=r"'o' \(MaxpoolingComponent\)"):
        to_cntk(tdnn(text))
    nnet = tdnn()
    nnet.components["b2"].count = 0.0
    with pytest.raises(UnknownOperatorError, match="'b2'.*no statistics"):
        to_cntk(nnet)


def with_priors(net=None):
    """A net of CNTK that ends as SimpleNetworkBuilder's do."""
    net = net or Layers(0, 6)
    top = net.affine(net.op("Sigmoid", net.affine(net.x, 6, 5)), 5, 4)
    prior = net.network.add("LearnableParameter", "prior", shape=4)
    prior.learning_rate, prior.value = 0.0, np.array([0.5, 0.25, 0.25, 0], np.float32)
    return net.finish(net.op("Minus", top, net.op("Log", prior)))


def transitions(pdfs):
    """One phone whose states have these outputs."""
    states = [HmmState(n, n, [(n, 0.5), (n + 1, 0.5)]) for n in range(pdfs)]
    tuples = np.array([(1, n, n) for n in range(pdfs)], np.int32)
    probs = np.full(1 + 2 * pdfs, np.log(0.5), np.float32)
    return TransitionModel([1], [-1, 0], [[*states, HmmState()]], "<Triples>", tuples, probs)


def test_an_acoustic_model_takes_the_priors(tmp_path):
    network = with_priors()
    frames = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    wanted = run_cntk(network, features=frames)
    to_acoustic_model(network, transitions(4)).write(tmp_path / "a.mdl")
    model = AmNnetSimple.read(tmp_path / "a.mdl")
    np.testing.assert_allclose(model.priors, [0.5, 0.25, 0.25, 0], atol=1e-30)
    logs = np.log(np.maximum(model.priors, 1e-37))
    np.testing.assert_allclose(run_nnet3(model.nnet, frames) - logs, wanted, TOLERANCE, TOLERANCE)
    back, _ = to_cntk(model.nnet, model.priors)
    assert [node.name for node in back.groups["output"]][0] == "ScaledLogLikelihood"
    got = run_cntk(back, features=frames)
    np.testing.assert_allclose(got[:, :3], wanted[:, :3], TOLERANCE, TOLERANCE)
    with pytest.raises(ShapeError, match="it has 4 elements, the transition model 3 outputs"):
        to_acoustic_model(network, transitions(3))


@pytest.mark.parametrize(
    ("operation", "attributes", "expected"),
    [
        ("Hardmax", {}, "Hardmax1 Hardmax operation: cannot become nnet3: there is nothing"),
        ("PastValue", {"shape": (6,)}, "frames beyond the sequence are 0.1 here, but copies"),
        ("Log", {}, "a logarithm only of softmax"),
    ],
)
def test_nodes_that_are_refused(operation, attributes, expected):
    net = Layers(0, 6)
    network = net.finish(net.op(operation, net.x, **attributes))
    with pytest.raises(UnknownOperatorError, match=expected):
        to_nnet3(network)


def test_loops_and_products_of_samples_are_refused():
    net = Layers(0, 6)
    past = net.network.add("PastValue", "past", attributes={"shape": (6,)})
    state = net.op("Tanh", net.op("Plus", net.x, past))
    net.network.connect(past, [state])
    with pytest.raises(UnknownOperatorError, match="past PastValue operation.*closes a loop"):
        to_nnet3(net.finish(state))
    net = Layers(0, 6)
    square = net.op("TransposeTimes", net.x, net.x)
    with pytest.raises(UnknownOperatorError, match="left operand features varies"):
        to_nnet3(net.finish(square))


def test_parameters_that_vary_are_refused():
    net = Layers(0, 6)
    one = net.parameter(6)
    network = net.finish(net.op("PerDimMeanVarNormalization", net.x, net.op("Tanh", net.x), one))
    with pytest.raises(UnknownOperatorError, match="parameter Tanh2 varies from sample to sample"):
        to_nnet3(network)
    net = Layers(0, 6)
    network = net.finish(net.op("Plus", net.x, net.op("Slice", net.x, beginIndex=0, endIndex=1)))
    with pytest.raises(UnknownOperatorError, match="Slice1 are repeated to fill"):
        to_nnet3(network)


def test_a_window_must_fit():
    network = random_cntk(0)
    with pytest.raises(ShapeError, match="6 elements are no window of 1 . 1 . 3"):
        to_nnet3(network, context={"features": (1, 3)})


def test_files(tmp_path):
    network = with_priors()
    model, raw, back = (tmp_path / name for name in ("a.dnn", "b.raw", "c.cmf"))
    write_model(network, model)
    runner = CliRunner()

    def run(*arguments):
        result = runner.invoke(main, ["convert", *map(str, arguments)])
        return result.exit_code, result.output

    code, text = run(model, raw, "--context", "3")
    assert code == 0 and "input [2]" in text and "context: 1 before, 1 after" in text
    code, text = run(raw, back)
    assert code == 0 and "contextWindow = 1:1 of 2" in text
    frames = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    spliced = windows(frames, 1, 1)
    wanted = run_cntk(network, features=spliced)
    np.testing.assert_allclose(run_nnet3(Nnet.read(raw), frames), wanted, TOLERANCE, TOLERANCE)
    got = run_cntk(read_model(back), features=spliced)
    np.testing.assert_allclose(got, wanted, TOLERANCE, TOLERANCE)
    assert run(model, tmp_path / "x.raw", "--text")[0] == 0
    assert Reader(tmp_path / "x.raw").binary is False
    writer = Writer(True)
    transitions(4).write_to(writer)
    writer.save(tmp_path / "old.mdl")
    acoustic = tmp_path / "x.mdl"
    code, text = run(model, acoustic, "--transition-model", tmp_path / "old.mdl", "--text")
    assert code == 0 and "priors: 4" in text and AmNnetSimple.read(acoustic).priors.size == 4
    assert run(acoustic, tmp_path / "y.dnn")[0] == 0
    got = run_cntk(read_model(tmp_path / "y.dnn"), features=spliced)
    np.testing.assert_allclose(got[:, :3], wanted[:, :3], TOLERANCE, TOLERANCE)
    wrong = [
        ((model, tmp_path / "d.net"), "the name must tell the form"),
        ((model, tmp_path / "d.mdl"), "an acoustic model begins with a transition model"),
        ((raw, tmp_path / "d.dnn", "--context", "1:1"), "--context has no meaning for"),
        ((model, tmp_path / "d.raw", "--context", "2"), "odd number"),
        ((model, tmp_path / "d.raw", "--output", "no"), "no node is called 'no'"),
    ]
    for arguments, expected in wrong:
        code, text = run(*arguments)
        assert code != 0 and expected in text, text
    assert not list(tmp_path.glob("d.*"))


def test_damaged_files_are_told(tmp_path):
    path = tmp_path / "a.dnn"
    write_model(with_priors(), path)
    data = path.read_bytes()
    for size in (0, 3, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        result = CliRunner().invoke(main, ["convert", str(path), str(tmp_path / "a.raw")])
        assert result.exit_code == 1 and "error: " in result.output and "a.dnn" in result.output
