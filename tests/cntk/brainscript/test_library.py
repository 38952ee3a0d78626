"""The standard library: what its layers and functions build."""

import random
import re
import time

import pytest

from opscope.cntk.brainscript.build import build_network, evaluate_text
from opscope.cntk.brainscript.library import compiled_library
from opscope.framework.base.errors import FormatError, OpscopeError


def built(body, **settings):
    network = build_network("{\n" + body + "\n}", "test", **settings)
    network.validate()
    return network


def applied(layer, dims="(6)", more=""):
    return built(f"x = Input {{{dims}}}\nz = {layer} (x)\noutputNodes = (z)\n{more}")


@pytest.mark.parametrize(
    ("layer", "dims", "shape", "parameters"),
    [
        ("DenseLayer {4}", "(6)", (4,), 28),
        ("DenseLayer {4, activation = ReLU, bias = false}", "(6)", (4,), 24),
        ("LinearLayer {(4:2)}", "(6:3)", (4, 2), 152),
        ("LinearLayer {4, mapRank = 1}", "(6:3)", (4, 3), 28),
        ("LinearLayer {4, inputRank = 1}", "(6:3)", (4, 3), 28),
        ("EmbeddingLayer {5}", "(6)", (5,), 30),
        ("EmbeddingLayer {5, transpose = true}", "(6)", (5,), 30),
        ("ConvolutionalLayer {8, (3:3), pad = true}", "(7:5:2)", (7, 5, 8), 152),
        ("ConvolutionalLayer {8, (3:3), stride = 2, bias = false}", "(7:5:2)", (3, 2, 8), 144),
        ("DeconvLayer {2, (3:3), 4, autoPadding = false, bias = false}", "(5:5:4)", (7, 7, 2), 72),
        ("MaxPoolingLayer {(2:2), stride = 2}", "(8:6:2)", (4, 3, 2), 0),
        ("AveragePoolingLayer {(2:2), stride = 2, pad = true}", "(7:5:2)", (4, 3, 2), 0),
        ("BatchNormalizationLayer {}", "(6)", (6,), 12),
        ("BatchNormalizationLayer {spatialRank = 2}", "(6:6:3)", (6, 6, 3), 6),
        ("LayerNormalizationLayer {}", "(6)", (6,), 2),
        ("StabilizerLayer {}", "(6)", (6,), 1),
        ("FeatureMVNLayer {}", "(6)", (6,), 0),
        ("DelayLayer {}", "(6)", (6,), 0),
        ("DelayLayer {T = -2}", "(6)", (6,), 0),
        ("RecurrentLSTMLayer {5}", "(6)", (5,), 4 * 5 * (6 + 5 + 1)),
        ("RecurrentLSTMLayer {5, cellShape = 7}", "(6)", (5,), 4 * 7 * (6 + 5 + 1) + 35),
        ("RecurrentLSTMLayer {5, usePeepholes = true}", "(6)", (5,), 4 * 5 * 12 + 15),
        ("RecurrentLSTMLayer {5, goBackwards = true}", "(6)", (5,), 240),
        ("RecurrentLSTMLayer {5, trainInitialState = true}", "(6)", (5,), 250),
        ("RecurrentLSTMLayer {5, enableSelfStabilization = true}", "(6)", (5,), 241),
        ("RecurrentLSTMLayerStack {(5:4)}", "(6)", (4,), 240 + 4 * 4 * 10),
        ("LayerStack {2, i => DenseLayer {(4:3)[i]}}", "(6)", (3,), 28 + 15),
        ("Sequential (DenseLayer {4} : Tanh : LinearLayer {2})", "(6)", (2,), 38),
        ("Parallel ((DenseLayer {4} : DenseLayer {4}), a => a[0] + a[1])", "(6)", (4,), 56),
        ("(x => BFF (x, 4, 6).z)", "(6)", (4, 1), 28),
        ("(x => SBFF (x, 4, 6).Eh)", "(6)", (4, 1), 28),
        ("(x => Softmax (x, axis = 1))", "(6:2)", (6, 2), 0),
        ("(x => SplitDimension (x, 1, 2))", "(6)", (3, 2), 0),
        ("(x => FlattenDimensions (x, 1, 2))", "(6:2)", (12,), 0),
        ("(x => RowSlice (2, 3, x))", "(6)", (3,), 0),
        ("(x => Splice (x : x, axis = 2))", "(6)", (6, 2), 0),
        ("(x => Transpose (x))", "(6:2)", (2, 6), 0),
        ("(x => BS.Sequences.First (x))", "(6)", (6,), 0),
        ("(x => BS.Sequences.Last (x))", "(6)", (6,), 0),
        ("(x => BS.Loop.Iteration (x))", "(6)", (1,), 0),
        (
            "(x => BS.Loop.PreviousOrDefault (x, defaultValue = BS.Sequences.First (x)))",
            "(2)",
            (2,),
            0,
        ),
        ("(x => BS.Boolean.Or (x, BS.Boolean.Not (x)))", "(1)", (1,), 0),
        ("(x => BS.Sequences.FoldL (Plus, Constant (0), x))", "(1)", (1, 1), 0),
        ("(x => BS.Sequences.PastValueWindow (3, x).value)", "(6)", (6, 3), 0),
        ("(x => BS.RNNs.RecurrentLSTMP (5, x).h)", "(6)", (5,), 4 * 5 * (6 + 5 + 1) + 15),
        ("(x => BS.RNNs.RecurrentLSTMPStack ((5:4), x)[1].h)", "(6)", (4,), None),
        ("(x => BS.RNNs.RecurrentBidirectionalLSTMPStack ((5:4), x)[1].h)", "(6)", (8,), None),
        ("(x => BS.RNNs.RecurrentGRU (5, x).h)", "(6)", (5,), None),
        ("(x => BS.RNNs.RecurrentGRUStack ((5:4), x)[1].h)", "(6)", (4,), None),
        ("(x => BS.RNNs.RecurrentBidirectionalGRUStack ((5:4), x)[1].h)", "(6)", (8,), None),
        ("(x => BS.Parameters.Stabilize (x))", "(6)", (6,), 1),
        ("(x => BS.Seq2Seq.GetTopNTensor (2, x))", "(6:2)", (6, 2, 2), 0),
        ("(x => ClassificationError (x, x, axis = 1))", "(6:2)", (1,), 0),
        ("(x => CrossEntropyWithSoftmax (x, x, axis = 1))", "(6:2)", (1, 2), 0),
    ],
)
def test_layers_give_shapes_and_parameters(layer, dims, shape, parameters):
    network = applied(layer, dims)
    assert network.find("z").shape == shape
    if parameters is not None:
        assert network.parameter_count() == parameters
    assert network.groups["output"] == [network.find("z")]


def test_a_layer_used_twice_shares_its_parameters():
    network = built("f = DenseLayer {4}\nx = Input {4}\ny = f (f (x))\ng = DenseLayer {4} (x)")
    assert network.parameter_count() == 2 * 20


def test_names_follow_the_path():
    network = built(
        "x = Input {3}\nh = Sigmoid (Parameter {2, 3} * x + Parameter {2, 1})\n"
        "r = [ a = [| h ; Tanh (h) |] ; b = a[1] ].b\nk = 2 * h"
    )
    assert sorted(network.nodes) == [
        "_k",  # a number beside a node gets the name that the node has, too
        "h",
        "h._",
        "h._.PlusArgs[0]",
        "h._.PlusArgs[0].TimesArgs[0]",
        "h._.PlusArgs[1]",
        "k",
        "r",
        "x",
    ]


def test_groups_come_from_tags_and_from_special_members():
    network = built(
        "x = Input {3}\ny = Input {2, tag = 'label'}\nz = LinearLayer {2} (x)\n"
        "ce = CrossEntropyWithSoftmax (y, z, tag = 'criterion')\n"
        "err = ClassificationError (y, z)\nevaluationNodes = (err : ce)\noutputNodes = z"
    )
    names = {group: [node.name for node in nodes] for group, nodes in network.groups.items()}
    assert names == {
        "feature": ["x"],
        "label": ["y"],
        "criterion": ["ce"],
        "evaluation": ["err", "ce"],
        "output": ["z"],
    }


def test_random_parameters_are_numbered_in_the_order_of_evaluation():
    network = built("x = Input {2}\nb = Parameter {2, 2} * a\na = Parameter {2, 2} * x")
    seeds = {n.name: n.attributes["randomSeed"] for n in network.nodes.values() if n.is_parameter}
    assert seeds == {"a.TimesArgs[0]": 1, "b.TimesArgs[0]": 2}


def test_numbers_become_constants():
    network = built("x = Input {2}\nz = Plus (x, 3)\nu = 1 / x\nv = x / 4\nw = !(x > 0.5)\nt = -x")
    constant = network.find("z").inputs[1]
    assert constant.attributes["initValue"] == 3 and constant.learning_rate == 0
    assert constant.name == "inputs.arr[1].res"
    operations = {name: network.find(name).operation for name in "zuvwt"}
    assert operations == dict(z="Plus", u="Reciprocal", v="ElementTimes", w="Minus", t="Negate")
    choice = built("x = Input {2}\nz = if x > 0 then x else 0").find("z")
    assert choice.operation == "If" and [i.operation for i in choice.inputs][0] == "Greater"


def test_members_of_nodes():
    network = built(
        "x = Input {(3:2)}\ny = x + x\n"
        "n = if y.name == 'y' && y.operation == 'Plus' then y.PlusArgs[0] else Fail ('no')\n"
        "w = Parameter {x.dim, x.dims[1]}"
    )
    assert network.find("w").shape == (6, 2)
    assert network.find("y").inputs == [network.find("x")] * 2
    assert "n" not in network  # another name for x; the last in the order of names counts


def test_the_older_names():
    network = build_network(
        "[ features = Input (4, 1, tag = 'feature') ; z = RectifiedLinear (features)"
        " ; d = Delay (4, z) ; e = ErrorPrediction (features, z) ; b = Parameter (4) ]"
    )
    network.validate()
    assert network.find("d").operation == "PastValue"
    assert network.find("e").operation == "ClassificationError"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = Input {3}\nz = Plus (x)", "function expects 2 positional parameters"),
        (
            "z = new ComputationNode [ operation = 'Plus' ; inputs = Input {3} ]",
            "expected 2 inputs",
        ),
        ("z = Sigmoid ('x')", "input 0 of a node must be a ComputationNode, not a string"),
        ("w = Parameter {2, 'a'}", "shape: a value of type dims is needed"),
        ("w = Parameter {2, 2, init = 'nonsense'}", "init 'nonsense' is none of"),
        ("x = Input {3}\nX = Input {3}", "names do not differ by case alone"),
        ("featureNodes = (1)", "'featureNodes' must hold nodes, not a number"),
        ("x = Input {3}\ny = x / x", "division with a ComputationNode"),
        ("x = Input {3}\ny = x + true", "operator + is not applicable to booleans"),
        ("y = Tanh (Input {3}).dim", "the node's dimensions are not known yet"),
        ("m = BS.Network.Load ('none.dnn')", "there is no model file 'none.dnn'"),
    ],
)
def test_errors(body, message):
    with pytest.raises(OpscopeError) as caught:
        built(body)
    assert message in str(caught.value)
    assert "test:" in str(caught.value)


def test_all_wrong_members_are_told():
    body = "x = Input {3}\na = Sigmiod (x)\nb = a + x\nc = Tahn (x)\nd = c * b\ne = -'x'"
    with pytest.raises(FormatError) as caught:
        built(body)
    errors = [caught.value, *caught.value.others]
    first_lines = [str(error).split("\n")[0] for error in errors]
    assert [line.split(": ")[0] for line in first_lines] == ["test:3:5", "test:5:5", "test:7:5"]


def test_unknown_attributes_are_told():
    warnings = []
    node = "new ComputationNode [ operation = 'Tanh' ; inputs = x ; tga = 'a' ]"
    build_network(f"{{ x = Input {{3}} ; z = {node} }}", warn=warnings.append)
    assert warnings == ["BrainScript:1:23: Tanh has no attribute 'tga' (did you mean tag?)"]


@pytest.mark.parametrize("text", ["", "x", "1", "new ComputationNetwork {}"])
def test_a_network_description_is_in_brackets(text):
    with pytest.raises(FormatError, match="must be an expression in"):
        build_network(text)


def test_the_expression_must_give_a_network():
    with pytest.raises(FormatError, match="gives a number, not a ComputationNetwork"):
        build_network("(1)")
    assert build_network("(new ComputationNetwork { x = Input {2} })").find("x")


@pytest.mark.parametrize("name", [member.name for member, _ in compiled_library()])
def test_every_definition_evaluates(name):
    evaluate_text(name)


def test_names_of_the_old_core_library():
    names = {member.name for member, _ in compiled_library()}
    wanted = """
    LinearLayer DenseLayer EmbeddingLayer ConvolutionalLayer DeconvLayer MaxPoolingLayer
    AveragePoolingLayer MaxUnpoolingLayer RecurrentLSTMLayer RecurrentLSTMLayerStack DelayLayer
    BatchNormalizationLayer LayerNormalizationLayer StabilizerLayer FeatureMVNLayer LogPriorLayer
    Identity None Inferred Sequential Parallel MergeBinary LayerStack Less Equal Greater
    GreaterEqual NotEqual LessEqual Splice TransposeDimensions Times Abs Ceil
    CrossEntropyWithSoftmax Dropout ElementTimes ElementDivide ClassificationError Exp Floor Log
    Minus Pass Plus RectifiedLinear ReLU ReduceSum ReduceLogSum ReduceMean ReduceMin ReduceMax Round
    Sigmoid CNTK2 Parameter LearnableParameter ParameterTensor ConstantFromString DynamicAxis Input
    SparseInput ImageInput SparseImageInput EnvironmentInput ConstantTensor Constant PastValue
    FutureValue Shift RowSlice RowRepeat RowStack Slice Reshape NewReshape ReshapeDimension
    FlattenDimensions SplitDimension Transpose LambdaRank NDCG1Eval Logistic WeightedLogistic
    ReconcileDynamicAxis ReconcileMBLayout CastAs Convolution Pooling MaxUnpooling MaxPooling
    AveragePooling ROIPooling ColumnwiseCrossProduct ErrorPrediction Delay BatchNormalization
    ClassBasedCrossEntropyWithSoftmax Clip ColumnElementTimes CosDistance
    CosDistanceWithNegativeSamples Cosine CrossEntropy DiagTimes GatherPacked GMMLogLikelihood
    InvStdDev KhatriRaoProduct LogPlus LogSoftmax MatrixL1Reg MatrixL2Reg Mean Negate PackedIndex
    PerDimMeanVarDeNormalization PerDimMeanVarNormalization Reciprocal OptimizedRNNStack RNNStack
    Scale ScatterPacked Sin Softmax Hardmax Sqrt SquareError SumColumnElements SumElements Tanh
    TimeReverse Trace TransposeTimes QuantizedTimes Where Print Fail Format Replace Substr Chr
    Length Repeat Sign Min Max Fac IsSameObject IsArray IsDouble IsBool Mod IntDiv BFF SBFF
    MeanVarNorm LogPrior Embedding BS
    """.split()
    assert not set(wanted) - names


RESIDUAL = """
    Conv {n, size} = Sequential (
        ConvolutionalLayer {n, size, pad = true, bias = false, init = 'heNormal'} :
        BatchNormalizationLayer {spatialRank = 2}
    )
    Block {} = {
        apply (x) = {
            b = Sequential (Conv {8, (1:1)} : ReLU : Conv {8, (3:3)} : ReLU : Conv {32, (1:1)}) (x)
            r = ReLU (b + x)
        }.r
    }.apply
    x = Input {(16:16:3)}
    z = Sequential (Conv {32, (3:3)} : LayerStack {50, i => Block {}} : LinearLayer {10}) (x)
"""


def test_a_residual_network_of_152_layers_takes_seconds_at_most():
    start = time.process_time()
    network = built(RESIDUAL)
    assert time.process_time() - start < 5
    layers = [node for node in network.nodes.values() if node.operation in ("Convolution", "Times")]
    assert len(layers) == 152
    block = 32 * 8 + 8 * 8 * 9 + 8 * 32 + 2 * (8 + 8 + 32)
    first = 27 * 32 + 2 * 32
    assert network.parameter_count() == first + 50 * block + 10 * (16 * 16 * 32 + 1)


def test_a_thousand_layers_nest():
    network = built("x = Input {1}\nz = LayerStack {1000, i => DenseLayer {1}} (x)")
    assert network.parameter_count() == 2000


def test_damaged_networks_end_in_the_packages_errors():
    generator = random.Random(11)
    pieces = re.findall(r"\w+|\s+|[^\w\s]", RESIDUAL.replace("50", "2"))
    for _ in range(150):
        damaged = list(pieces)
        for _ in range(generator.choice((1, 2))):
            damaged[generator.randrange(len(damaged))] = generator.choice(pieces)
        try:
            built("".join(damaged))
        except OpscopeError:
            pass
