"""The standard library of BrainScript against CNTK's own, CNTK.core.bs.

OPSCOPE_CNTK_SOURCE names a checkout of CNTK; without one these tests are skipped. Each function is
called with both libraries: the networks must be the same to the last name, input and attribute.
"""

import os
from pathlib import Path

import pytest

from opscope.cntk.base.text import Source
from opscope.cntk.brainscript import library
from opscope.cntk.brainscript.build import build_network
from opscope.cntk.brainscript.compiler import compile_expression
from opscope.cntk.brainscript.language.depth import deep_calls
from opscope.cntk.brainscript.language.parser import parse_members

CORE = "Source/CNTK/BrainScript/CNTKCoreLib/CNTK.core.bs"
STATE = "[ h = x ; c = x ; dim = 6 ]"
CALLS = f"""
LinearLayer {{4}} (x)
LinearLayer {{(3:2), inputRank = 1, bias = false}} (x)
LinearLayer {{4, mapRank = 1, initBias = 1}} (x)
DenseLayer {{4, activation = Tanh, init = 'heNormal', initValueScale = 2}} (x)
EmbeddingLayer {{4}} (x)
EmbeddingLayer {{4, transpose = true}} (x)
ConvolutionalLayer {{4, (3:3), pad = true, activation = ReLU}} (Input {{(7:5:2)}})
ConvolutionalLayer {{4, (3:2), stride = (2:1), bias = false}} (Input {{(7:5:2)}})
DeconvLayer {{2, (3:3), 4}} (Input {{(5:5:4)}})
MaxPoolingLayer {{(2:2), stride = 2}} (Input {{(8:6:2)}})
AveragePoolingLayer {{(2:2), pad = true}} (Input {{(8:6:2)}})
MaxUnpoolingLayer {{(2:2)}} (x, x)
BatchNormalizationLayer {{spatialRank = 2, initialScale = 3}} (x)
LayerNormalizationLayer {{}} (x)
StabilizerLayer {{steepness = 2}} (x)
DelayLayer {{T = 3}} (x)
DelayLayer {{T = -1}} (x)
FeatureMVNLayer {{}} (x)
LogPriorLayer {{}} (x)
RecurrentLSTMLayer {{5}} (x)
RecurrentLSTMLayer {{5, trainInitialState = true}} (x)
RecurrentLSTMLayer {{5, trainInitialState = true, goBackwards = true}} (x)
RecurrentLSTMLayer {{5, cellShape = 7, usePeepholes = true, enableSelfStabilization = true}} (x)
RecurrentLSTMLayer {{5, allowOptimizedEngine = true}} (x)
RecurrentLSTMLayerStack {{(5:4), cellShapes = (6:7)}} (x)
RecurrentLSTMLayerStack {{(5:5), allowOptimizedEngine = true}} (x)
Parallel ((DenseLayer {{4}} : DenseLayer {{4}}), a => a[0] + a[1]) (x)
LayerStack {{3, i => DenseLayer {{(4:3:2)[i]}}}} (x)
MergeBinary ((Tanh : Sigmoid), Plus) (x, x)
Softmax (x, axis = 1)
CrossEntropyWithSoftmax (x, x, axis = 1)
ClassificationError (x, x, axis = 1)
ClassificationError (x, x, topN = 3)
Slice (1, 2, x)
Slice (-2, -1, x, axis = -1)
Slice (1, 0, x, axis = -1)
RowSlice (0, 2, x)
Splice (x : x, axis = 2)
SplitDimension (x, 1, 2)
FlattenDimensions (x, 1, 1)
Transpose (x)
Ceil (x)
Round (x)
ElementDivide (x, 2)
Plus (x, 1)
Clip (0, 1, x)
ImageInput (3, 4, 5, imageLayout = 'HWC')
SparseInput (5)
ConstantFromString ('1 2')
BatchNormalization (x, x, x, x, x, true)
Convolution (x, x, (2:2), sharing = false)
Pooling (x, 'max', (2:2))
MaxPooling (x, 2, 2, 2, 2)
ROIPooling (x, x, (2:2))
OptimizedRNNStack (x, x, 5, recurrentOp = 'gru')
RNNStack (x, Parameter (3, 3))
WeightedLogistic (x, x, x)
CosDistanceWithNegativeSamples (x, x, 1, 2)
PastValue (3, x, initialState = x)
FutureValue (3, x, timeStep = 2)
CastAs (x, x)
BFF (x, 3, 6).z
SBFF (x, 3, 6).Eh
Embedding (4, x, inputDim = 6)
CNTK2.Slice (x, 0, 2)
CNTK2.Round (x)
CNTK2.Square (x)
CNTK2.GetInclusionFrequency (x, 3, true)
BS.Boolean.Xor (x, BS.Boolean.Not (x))
BS.Boolean.Toggle (x)
BS.Constants.OnesLike (x)
BS.Sequences.First (x)
BS.Sequences.Scatter (x, x)
BS.Sequences.BroadcastSequenceAs (x, x)
BS.Sequences.PastValueWindow (3, x).value
BS.Sequences.PastValueWindow (3, x, axis = 3).valid
BS.Loop.IsLastN (2, x)
BS.Loop.PreviousOrDefault (x)
BS.Loop.NextOrDefault (x)
BS.Parameters.StabilizeElements (x, inputDim = 6)
BS.RNNs.LSTMP (5, cellDim = 7, x, {STATE}).h
BS.RNNs.RecurrentLSTMP (5, x, previousHook = BS.RNNs.NextHC).h
BS.RNNs.RecurrentLSTMPStack ((5:4), cellDims = (6:7), x, enableSelfStabilization = true)[1].h
BS.RNNs.RecurrentBidirectionalLSTMPStack ((5:4), cellDims = (5:4), x, inputDim = 6)[1].h
BS.RNNs.GRU (5, cellDim = 5, x, inputDim = 6, {STATE}).h
BS.RNNs.RecurrentGRUStack ((5:4), cellDims = (5:4), x, inputDim = 6)[1].h
BS.RNNs.RecurrentBidirectionalGRUStack ((5:4), cellDims = (5:4), x, inputDim = 6)[1].h
BS.Seq2Seq.GetTopNTensor (3, x)
BS.Seq2Seq.CreateAugmentWithFixedWindowAttentionHook (4, 3, x, {STATE}) (x, {STATE})
""".strip().splitlines()


@pytest.fixture(scope="module")
def core():
    folder = os.environ.get("OPSCOPE_CNTK_SOURCE")
    if not folder or not (Path(folder) / CORE).exists():
        pytest.skip("no checkout of CNTK (see OPSCOPE_CNTK_SOURCE)")
    members = parse_members(Source(CORE, (Path(folder) / CORE).read_text())).members
    with deep_calls():
        return tuple((member, compile_expression(member.value)) for member in members)


def facts(call):
    network = build_network(f"{{ x = Input {{6}}\nz = {call}\n}}")
    return {
        node.name: (
            node.operation,
            [i.name for i in node.inputs],
            node.attributes,
            node.tags,
            node.learning_rate,
        )
        for node in network.nodes.values()
    }


@pytest.mark.parametrize("call", CALLS)
def test_a_function_makes_the_same_nodes(call, core, monkeypatch):
    ours = facts(call)
    monkeypatch.setattr(library, "compiled_library", lambda names: core)
    theirs = facts(call)
    assert "z" in ours and ours == theirs
