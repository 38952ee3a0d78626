"""Models of CNTK 2.0 for tests: dictionaries as its library writes them, made by hand."""

from __future__ import annotations

import numpy as np

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
