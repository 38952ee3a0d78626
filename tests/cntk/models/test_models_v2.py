"""Models of CNTK 2.0: dictionaries as its library writes them, made here by hand."""

import numpy as np
import pytest

from opscope.cntk.models.open_model import format_of, open_model
from opscope.cntk.models.v1 import format_model
from opscope.cntk.models.v2 import parse_v2_model
from opscope.cntk.network.network import Network
from opscope.framework.base.errors import FormatError
from opscope.proto import cntk_v2_pb2 as pb
from v2_models import Model, Shape, Size, axis, recurrent


def test_recurrence_in_a_block(tmp_path):
    path = tmp_path / "net.model"
    path.write_bytes(recurrent())
    opened = open_model(path)
    network = opened.network
    assert opened.format == "CNTK 2.0 protobuf model, float"
    h, past = network.find("h"), network.find("PastValue7")
    assert past.inputs == [h, network.find("Constant5")] and past.shape == (4,)
    assert past.attributes["timeStep"] == 2
    assert network.find("Times6").inputs[1] is network.find("features")
    assert network.find("features").operation == "SparseInputValue"
    # Both `twice` would be ambiguous, so they are known by their ids.
    assert "twice" not in network and network.find("Times8").inputs[0].name == "Parameter4"
    assert [i.name for i in network.find("ce").inputs] == ["labels", "Dropout11"]
    dropout = network.find("Dropout11")
    assert dropout.attributes == {"dropoutRate": 0.5, "rngSeed": 77, "rngOffset": 5}
    assert [n.name for n in network.groups["output"]] == ["Dropout11", "ce"]
    assert network.find("W").value[1].tolist() == [3, 4, 5]
    assert network.find("Constant5").learning_rate == 0 and network.parameter_count() == 28
    assert len(network.loops) == 1


def test_attributes():
    model = Model()
    image = model.input("Input1", 8, 6, 2, axes=("defaultBatchAxis",))
    x = model.input("Input2", 4, axes=("words", "defaultBatchAxis"))
    pads = {"lowerPad": Shape((0,)), "upperPad": Shape((0,)), "strides": Shape((2,))}
    weight = model.parameter("W", np.zeros((3, 3, 2, 5), np.float32))
    conv = model.function(
        "Convolution", "C", weight, image, sharing=[True], autoPadding=[True], transpose=False,
        maxTempMemSizeInSamples=Size(0), **pads,
    )  # fmt: skip
    pooled = model.function(
        "Pooling", "P", conv, poolingType=Size(1), poolingWindowShape=Shape((2, 2)),
        autoPadding=[False], **pads,
    )  # fmt: skip
    inferred = Shape((2**64 - 1,))
    flat = model.function(
        "Reshape", "R", pooled, newShape=inferred, beginAxis=axis(0), endAxis=axis(3)
    )
    normals = [model.parameter(f"B{i}", np.ones(10, np.float32)) for i in range(4)]
    model.function(
        "BatchNormalization", "N", flat, *normals, spatial=False, epsilon=1e-5,
        normalizationTimeConstant=0.0, blendTimeConstant=0.0, useCuDNNEngine=True,
    )  # fmt: skip
    cut = model.function("Slice", "S", x, axis=axis(0), beginIndex=1, endIndex=3)
    every = pb.Axis(static_axis_idx=2**31 - 2)
    model.function("ReduceElements", "A", cut, axis=every, reductionOpName="Sum")
    model.function("Splice", "J", x, cut, axis=axis(0))
    model.function("TransposeAxes", "T", x, axis1=axis(0), axis2=axis(1))
    low, high = (model.parameter(n, np.ones((1,), np.float32), kind=3) for n in ("low", "high"))
    model.function("Clip", "K", x, low, high)
    network = parse_v2_model(model.bytes("N"))
    network.validate()
    shapes = {"C": (4, 3, 5), "P": (2, 1, 5), "R": (10,), "N": (10,), "S": (2,), "A": (1,)}
    shapes |= {"J": (6,), "T": (1, 4), "K": (4,)}
    assert {name: network.find(name).shape for name in shapes} == shapes
    assert network.find("P").attributes["pool"] == "average"
    assert [i.name for i in network.find("K").inputs] == ["low", "high", "Input2"]
    assert not network.find("N").attributes["useCntkEngine"]
    assert network.find("Input2").axis is network.find("words").axis
    assert network.find("Input1").axis is network.find("noSequenceAxis").axis


def test_damaged():
    data = recurrent()
    for end in range(0, len(data), 7):
        try:
            parse_v2_model(data[:end])
        except FormatError:
            continue
    rng = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(data)
        for place in rng.integers(0, len(data), 3):
            changed[place] = rng.integers(0, 256)
        try:
            parse_v2_model(bytes(changed)).validate()
        except FormatError:
            continue
        except Exception as error:
            assert type(error).__module__.startswith("opscope"), error


def test_what_a_file_is(tmp_path):
    assert format_of(recurrent()) == "v2 model"
    assert format_of(format_model(Network())) == "model"
    assert format_of("BVersion".encode("utf-16-le")) == "checkpoint"
    assert format_of(b"\x08\x01 something else") is None
    path = tmp_path / "x.model"
    path.write_bytes("BCKP".encode("utf-16-le"))
    with pytest.raises(FormatError, match="checkpoint"):
        open_model(path)
    path.write_bytes(b"hello")
    with pytest.raises(FormatError, match="no model"):
        open_model(path)
    with pytest.raises(FormatError):
        open_model(tmp_path / "missing.model")
