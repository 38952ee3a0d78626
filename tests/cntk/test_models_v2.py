"""Models of CNTK 2.0: dictionaries as its library writes them, made here by hand."""

import numpy as np
import pytest

from opscope.cntk.models.open_model import format_of, open_model
from opscope.cntk.models.v1 import format_model
from opscope.cntk.models.v2 import parse_v2_model
from opscope.cntk.network.network import Network
from opscope.framework.base.errors import FormatError
from opscope.proto import cntk_v2_pb2 as pb

OPS = {
    name: number
    for number, name in enumerate(
        "Negate Sigmoid Tanh ReLU Exp Log Sqrt Floor Abs Reciprocal Softmax Hardmax TransposeAxes"
        " Where Slice Dropout Reshape Pooling SumAll Plus Minus ElementTimes Equal NotEqual Less"
        " LessEqual Greater GreaterEqual PackedIndex GatherPacked ScatterPacked Times"
        " TransposeTimes Convolution SquaredError CrossEntropyWithSoftmax ClassificationError"
        " PastValue FutureValue ReduceElements BatchNormalization Clip Select Splice Combine"
        " RandomSample RandomSampleInclusionFrequency ROIPooling Logistic OptimizedRNNStack"
        " ReconcileDynamicAxis LogSoftmax LogPlus CosDistance Sin Cos Pass Block".split()
    )
}


class Size(int):
    """A size_t of the file."""


class Shape(tuple):
    """A shape of the file."""


def value(thing):
    kinds = pb.DictionaryValue
    if isinstance(thing, bool):
        return kinds(value_type=kinds.Bool, bool_value=thing)
    if isinstance(thing, Size):
        return kinds(value_type=kinds.SizeT, size_t_value=thing)
    if isinstance(thing, int):
        return kinds(value_type=kinds.Int, int_value=thing)
    if isinstance(thing, float):
        return kinds(value_type=kinds.Double, double_value=thing)
    if isinstance(thing, str):
        return kinds(value_type=kinds.String, string_value=thing)
    if isinstance(thing, Shape):
        return kinds(value_type=kinds.NDShape, nd_shape_value=pb.NDShape(shape_dim=thing))
    if isinstance(thing, list):
        items = pb.Vector(value=[value(item) for item in thing])
        return kinds(value_type=kinds.Vector, vector_value=items)
    if isinstance(thing, dict):
        return kinds(value_type=kinds.Dictionary, dictionary_value=dictionary(thing))
    if isinstance(thing, pb.Axis):
        return kinds(value_type=kinds.Axis, axis_value=thing)
    shape = pb.NDShape(shape_dim=thing.shape)
    view = pb.NDArrayView(shape=shape, data_type=pb.NDArrayView.Float)
    view.float_values.value.extend(thing.reshape(-1, order="F").tolist())
    return kinds(value_type=kinds.NDArrayView, nd_array_view_value=view)


def dictionary(entries):
    message = pb.Dictionary(version=1)
    for key, thing in entries.items():
        message.data[key].CopyFrom(value(thing))
    return message


class Model:
    """Collects what a file lists."""

    def __init__(self):
        self.inputs, self.functions, self.state = [], [], {}

    def variable(self, kind, uid, shape, name="", **fields):
        entry = {"uid": uid, "kind": Size(kind), "shape": Shape(shape), "is_sparse": False}
        entry |= {"data_type": Size(1), "needs_gradient": kind == 2, "dynamic_axis": [], **fields}
        if name:
            entry["name"] = name
        self.inputs.append(entry)
        return uid

    def input(self, uid, *shape, name="", axes=("defaultDynamicAxis", "defaultBatchAxis"), **more):
        listed = [pb.Axis(static_axis_idx=2**31 - 1, name=axis) for axis in axes]
        return self.variable(0, uid, shape, name, dynamic_axis=listed, **more)

    def parameter(self, uid, array, name="", kind=2):
        return self.variable(kind, uid, array.shape, name, value=array)

    def function(self, op, uid, *inputs, name="", more=None, **attributes):
        entry = {"uid": uid, "op": Size(OPS[op]), "attributes": attributes, "inputs": [*inputs]}
        entry |= more or {}
        if name:
            entry["name"] = name
        self.functions.append(entry)
        return f"{uid}_Output_0"

    def bytes(self, root):
        entries = {"type": "CompositeFunction", "root": root, "uid": "Composite1"}
        entries |= {"inputs": self.inputs, "primitive_functions": self.functions}
        return dictionary(entries | {"state": self.state}).SerializeToString()


def axis(number):
    return pb.Axis(static_axis_idx=number, name=f"staticAxis_{number}")


def recurrent():
    """A recurrence inside a block, a criterion, and both in a Combine."""
    model = Model()
    x = model.input("Input1", 3, name="features", is_sparse=True)
    y = model.input("Input2", 4, name="labels")
    w = model.parameter("Parameter3", np.arange(12, dtype=np.float32).reshape(4, 3), "W")
    r = model.parameter("Parameter4", np.eye(4, dtype=np.float32), "twice")
    zero = model.parameter("Constant5", np.zeros((), np.float32), kind=3)
    model.variable(4, "Tanh9_Output_0", (4,))  # breaks the cycle
    model.variable(4, "Placeholder1", (3,))  # the block's argument
    product = {"outputRank": Size(1), "inferInputRankToMap": -1}
    a = model.function("Times", "Times6", w, "Placeholder1", **product)
    p = model.function("PastValue", "PastValue7", "Tanh9_Output_0", zero, offset=Size(2))
    b = model.function("Times", "Times8", r, p, name="twice", **product)
    s = model.function("Plus", "Plus8", a, b)
    model.function("Tanh", "Tanh9", s, name="h")
    block = {
        "block_function_composite": {"root": "Tanh9", "uid": "C2"},
        "block_function_op_name": "Recurrence",
        "block_function_composite_arguments_map_keys": ["Placeholder1"],
        "block_function_composite_arguments_map_values": [x],
    }
    h = model.function("Block", "Block10", x, more=block)
    d = model.function("Dropout", "Dropout11", h, dropoutRate=0.5)
    model.state["Dropout11"] = {"rng_seed": Size(77), "rng_offset": Size(5)}
    ce = model.function("CrossEntropyWithSoftmax", "CE12", d, y, name="ce")
    model.function("Combine", "Combine13", d, ce)
    return model.bytes("Combine13")


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
