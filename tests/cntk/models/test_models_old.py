"""What older versions of model files hold, and kinds of a user's own."""

import numpy as np
import pytest

from opscope.cntk.models.file_fields import read_attributes
from opscope.cntk.models.stream import BinaryReader, BinaryWriter
from opscope.cntk.models.v1 import format_model, parse_model
from opscope.cntk.network.catalog import kind, ndl_function
from opscope.cntk.network.network import Network
from opscope.cntk.network.nodes import rules
from opscope.cntk.network.nodes.attributes import AttributeSpec, FileField
from opscope.cntk.network.nodes.kind import KINDS, NDL, register, unregister
from opscope.cntk.network.nodes.node import Kind, NdlFunction
from opscope.framework.base.errors import FormatError, OpscopeError


def stored(*fields):
    """Bytes of (type, value) pairs; a shape is a tuple, a list truth values."""
    writer = BinaryWriter()
    for type_name, value in fields:
        if type_name == "wide":
            writer.wide(value)
        elif type_name == "shape":
            writer.shape(value)
        elif type_name == "bools":
            writer.bools(value)
        else:
            writer.number(type_name, value)
    return writer.bytes()


SIZES = ("uint64", "uint64", "uint64", "uint64")


@pytest.mark.parametrize(
    ("operation", "version", "fields", "wanted"),
    [
        ("Times", 2, [], {"outputRank": 1, "inferInputRankToMap": -1}),
        ("Times", 11, [("uint64", 2)], {"outputRank": 2, "inferInputRankToMap": -1}),
        ("TransposeDimensions", 2, [], {"axis1": 1, "axis2": 2}),
        ("RowStack", 2, [], {"axis": 1}),
        ("Where", 10, [], {"dynamicAxisName": "WhereNodeAxis"}),
        (
            "Slice",
            2,
            [("int64", 3), ("int64", 4)],
            {"beginIndex": 3, "endIndex": 7, "axis": 1},
        ),
        (
            "PastValue",
            1,
            [("int32", 2), ("uint64", 5), ("uint64", 0)],
            {"timeStep": 2, "shape": (5,)},
        ),
        (
            "FutureValue",
            3,
            [("int32", 1), ("uint64", 5), ("uint64", 0), ("float", 0.5)],
            {"timeStep": 1, "shape": (5,), "defaultHiddenActivation": 0.5},
        ),
        ("Dropout", 15, [], {}),
        ("Dropout", 17, [("uint64", 7), ("uint64", 8)], {"rngSeed": 7, "rngOffset": 8}),
        (
            "Convolution",
            4,
            [*zip(SIZES, (5, 3, 2, 1), strict=True), ("uint32", 16), ("uint32", 1)]
            + [("bool", True), ("uint64", 0)],
            {
                "kernelShape": (5, 3, 1),
                "mapCount": (16,),
                "strideShape": (2, 1, 1),
                "imageLayout": "CHW",
                "dimPadding": (True,),
                "convolution2D": True,
            },
        ),
        (
            "Pooling",
            5,
            [("shape", (2, 2)), ("shape", (1,)), ("shape", (2, 2)), ("bools", [True])]
            + [("bools", [False]), ("shape", (0,)), ("shape", (0,)), ("int32", 2)]
            + [("int32", 1), ("uint64", 0)],
            {"pool": "average", "kernelShape": (2, 2), "dimPadding": (False,)},
        ),
        (
            "BatchNormalization",
            5,
            [("int32", 0x10001), ("int32", 0x10001), ("bool", True), ("bool", True)]
            + [("double", 0.1)],
            {"spatial": True, "samplesSeen": 0},
        ),
        (
            "BatchNormalization",
            5,
            [("int32", 0x10004), ("int32", 0x10004), ("bool", True), ("bool", False)]
            + [("double", 9.0), ("int32", 1), ("uint64", 3), ("double", 1e-3), ("bool", False)],
            {
                "spatial": False,
                "normalizationTimeConstant": 9.0,
                "samplesSeen": 48,
                "epsilon": 1e-3,
                "useCntkEngine": False,
            },
        ),
        (
            "BatchNormalization",
            12,
            [("bool", True), ("double", 1.0), ("double", 2.0), ("int32", 0), ("uint64", 2)]
            + [("double", 1e-5), ("bool", True)],
            {"imageLayout": "HWC", "blendTimeConstant": 2.0, "samplesSeen": 32},
        ),
        (
            "OptimizedRNNStack",
            13,
            [("uint64", 1), ("uint64", 2), ("uint64", 30), ("wide", "RNN_TANH")],
            {"bidirectional": True, "hiddenDims": 30, "recurrentOp": "rnnTanh", "axis": -1},
        ),
        ("NCEBasedCrossEntropyWithSoftmax", 9, [("int32", 500)], {"evalMode": 2}),
        (
            "LegacyReshape",
            1,
            [("uint64", 12), *zip(SIZES, (2, 3, 2), strict=False)],
            {"numRows": 12, "imageChannels": 2, "imageWidth": 2, "imageHeight": 3},
        ),
    ],
)
def test_attributes_of_older_versions(operation, version, fields, wanted):
    data = stored(*fields)
    reader = BinaryReader(data)
    found = read_attributes(reader, kind(operation), version, "float")
    assert {key: found[key] for key in wanted} == wanted
    unread = 4 if operation == "NCEBasedCrossEntropyWithSoftmax" else 0  # not a mode: not taken
    assert reader.left == unread
    for end in range(len(data) - unread):
        with pytest.raises(FormatError):
            read_attributes(BinaryReader(data[:end]), kind(operation), version, "float")


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("BatchNormalization", [("int32", 0x10005), ("int32", 0x10005)]),
        ("BatchNormalization", [("int32", 1), ("int32", 2)]),
    ],
)
def test_versions_of_nobody(operation, fields):
    with pytest.raises(FormatError, match="version"):
        read_attributes(BinaryReader(stored(*fields)), kind(operation), 5, "float")


@pytest.fixture
def scale_by():
    """A node type of a user's own: names, inputs, attributes, shapes, what a file keeps of it."""
    function = NdlFunction(("ScaleBy", "SB"), "ScaleBy", (1,))
    attributes = {"factor": AttributeSpec("float", 2.0)}
    fields = (FileField("factor", "double"),)
    register(Kind("ScaleBy", (1, 1), rules.unary, attributes, ndl=(function,), file_fields=fields))
    yield "ScaleBy"
    unregister("ScaleBy")
    assert "ScaleBy" not in KINDS and "sb" not in NDL


def test_kind_of_a_user(scale_by):
    assert ndl_function("sb").operation == scale_by
    net = Network()
    net.add(scale_by, "z", [net.add("InputValue", "x", shape=(3, 2))], {"factor": 5})
    net.validate()
    copy = parse_model(format_model(net))
    copy.validate()
    assert copy.find("z").attributes == {"factor": 5.0} and copy.find("z").shape == (3, 2)
    with pytest.raises(OpscopeError, match="is there already"):
        register(KINDS[scale_by])
    with pytest.raises(OpscopeError, match="is there already"):
        register(Kind("Times", (1, 1), rules.unary))


def test_double_precision():
    net = Network()
    net.precision = "double"
    w = net.add("LearnableParameter", "w", shape=(2, 3))
    x = net.add("InputValue", "x", shape=3)
    net.add("PastValue", "p", [net.add("Times", "z", [w, x])])
    net.validate()
    w.value = np.full((2, 3), 1 / 3, order="F")
    copy = parse_model(format_model(net))
    assert copy.precision == "double" and copy.find("w").value.dtype == np.float64
    assert copy.find("w").value[0, 0] == 1 / 3
    assert copy.find("p").attributes["defaultHiddenActivation"] == 0.1
