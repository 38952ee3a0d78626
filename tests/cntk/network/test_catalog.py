"""The catalog against CNTK's own factory of nodes, and what its newest kinds do."""

import numpy as np
import pytest

from opscope.cntk.models.v1 import format_model, parse_model
from opscope.cntk.network.catalog import ABSENT, kind, ndl_function, operations
from opscope.cntk.network.initialize import initialize
from opscope.cntk.network.network import Network
from opscope.framework.base.errors import CycleError, ShapeError, UnknownOperatorError

# All names that ComputationNetworkBuilder.cpp makes nodes of, older ones included.
FACTORY = """
    Abs AveragePooling BatchNormalization CRF ClassBasedCrossEntropyWithSoftmax
    ClassificationError Clip ColumnElementTimes Convolution CosDistance
    CosDistanceWithNegativeSamples Cosine Crop CrossEntropy CrossEntropyWithSoftmax Delay
    DiagTimes Diagonal Dropout DummyCriterion DynamicAxis EditDistanceError ElementTimes
    EnvironmentInput EpochAccumulator Equal ErrorPrediction Exp Floor FutureValue
    GMMLogLikelihood GatherPacked Greater GreaterEqual Hardmax If InputValue InvStdDev
    KhatriRaoProduct LambdaRank LearnableParameter LegacyReshape Less LessEqual Log LogPlus
    LogSoftmax Logistic LookupTable MatrixL1Reg MatrixL2Reg MaxPooling MaxUnpooling Mean Minus
    NCEBasedCrossEntropyWithSoftmax NDCG1Eval Negate NotEqual OptimizedRNNStack PackedIndex Pass
    PastValue PerDimMeanVarDeNormalization PerDimMeanVarDeNormalizationNode
    PerDimMeanVarNormalization PerDimMeanVarNormalizationNode Plus Pooling QuantizedTimes RNN
    ROIPooling RandomSample RandomSampleInclusionFrequency Reciprocal ReconcileDynamicAxis
    ReconcileMBLayout RectifiedLinear ReduceElements Reshape RowElementTimes RowRepeat RowSlice
    RowStack Scale ScatterPacked SequenceDecoderNode SequenceWithSoftmax Shift Sigmoid Sin Slice
    Softmax SparseInputValue Sqrt SquareError SumColumnElements SumElements Tanh Times Trace
    Transpose TransposeDimensions TransposeTimes Where
""".split()


def test_every_name_of_the_factory_is_known():
    for name in FACTORY:
        kind(name)
    assert set(operations()) - set(FACTORY) == {"ForwardBackward", "LabelsToGraph"}  # of 2.0


def mixture(components=3, wide=2, means=None):
    network = Network()
    x = network.add("InputValue", "x", shape=wide)
    prior = network.add("LearnableParameter", "p", shape=components)
    mean = network.add("LearnableParameter", "m", shape=means or components * wide)
    deviation = network.add("LearnableParameter", "s", shape=components)
    network.add("GMMLogLikelihood", "z", [prior, mean, deviation, x], tags=["output"])
    return network


def test_a_mixture_gives_one_number_a_sample():
    network = mixture()
    network.validate()
    node = network.find("z")
    assert node.shape == (1,) and node.axis is network.find("x").axis
    assert ndl_function("GMMLL").operation == "GMMLogLikelihood"


def test_means_of_another_size_are_refused():
    with pytest.raises(ShapeError, match=r"m must have 3 x 2 elements.*\[5\]"):
        mixture(means=5).validate()


def shifted(**attributes):
    network = Network()
    x = network.add("InputValue", "x", shape=(4, 2))
    zero = network.add("LearnableParameter", "b", shape=1, attributes={"initValue": 0})
    network.add("Shift", "z", [x, zero], attributes)
    return network


def test_a_shift_keeps_the_shape():
    network = shifted(fromOffset=-2)
    network.validate()
    assert network.find("z").shape == (4, 2) and network.find("z").delay == 1
    assert shifted(fromOffset=1).find("z").delay == -1
    assert shifted(fromOffset=-1, boundaryMode=0).find("z").delay == 0
    with pytest.raises(ShapeError, match="dim 3 is neither -1 nor an axis"):
        shifted(fromOffset=1, dim=3).validate()


def test_a_shift_is_kept_in_model_files():
    network = shifted(fromOffset=-3, boundaryMode=0, dim=2)
    network.validate()
    initialize(network)
    data = format_model(network)
    again = parse_model(data)
    assert again.find("z").attributes == network.find("z").attributes
    again.validate()
    assert format_model(again) == data


def loop(operation, *more, **attributes):
    """h = operation(x + past h), where past is a Shift."""
    network = Network()
    x = network.add("InputValue", "x", shape=3)
    zero = network.add("LearnableParameter", "b", shape=1)
    past = network.add("Shift", "past", attributes={"fromOffset": -1})
    total = network.add("Plus", "sum", [x, past])
    parameters = [network.add("LearnableParameter", name, shape=3) for name in more]
    h = network.add(operation, "h", [total, *parameters], attributes)
    network.connect(past, [h, zero])
    return network


def test_a_loop_runs_through_a_shift():
    network = loop("Tanh")
    network.validate()
    (found,) = network.loops
    assert found.direction == 1 and {n.name for n in found.nodes} == {"h", "sum", "past"}


def test_nodes_that_need_all_steps_are_refused_in_loops():
    statistics = ("scale", "bias", "mean", "variance")
    network = loop("BatchNormalization", *statistics, spatial=False)
    expected = r"h BatchNormalization operation: it needs all time steps.*closed by past \(Shift\)"
    with pytest.raises(CycleError, match=expected):
        network.validate()
    assert len(network.problems()) == 1


def test_a_decoder_gives_labels():
    network = Network()
    label = network.add("InputValue", "label", shape=4)
    scores = network.add("InputValue", "scores", shape=4)
    pairs = network.add("LearnableParameter", "pairs", shape=(4, 4))
    pairs.value = np.zeros((4, 4), np.float32)
    network.add("SequenceDecoder", "best", [label, scores, pairs])
    network.validate()
    assert network.find("best").shape == (4,)
    assert parse_model(format_model(network)).find("best").operation == "SequenceDecoderNode"


def test_operations_that_are_left_out_have_a_reason():
    for name, reason in ABSENT.items():
        with pytest.raises(UnknownOperatorError, match=f"{name}'?: {reason}"):
            kind(name)
