"""Models of CNTK 2.0's library (`Function.save_model`): a protobuf dictionary, read as a network.

A file lists the variables that are no results (inputs, parameters, constants, placeholders) and the
primitive functions, inputs first; everything is known by a unique id. Blocks and `Combine` only
group functions, so their contents are read instead. Source: CompositeFunction.cpp,
PrimitiveFunction.cpp, Variable.cpp, Serialization.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.untrusted.values import count_of, shown, stem_of
from ...proto import cntk_v2_pb2 as pb
from ..network.network import Network
from ..network.nodes.node import Node

_INFERRED = (1 << 64) - 1
_ALL_AXES, _END_AXIS = (1 << 31) - 2, (1 << 31) - 4
_INPUT, _PARAMETER, _CONSTANT, _PLACEHOLDER = 0, 2, 3, 4
_DEFAULT_AXES = (["defaultDynamicAxis", "defaultBatchAxis"], [])
_NO_SEQUENCE = "noSequenceAxis"
_DEEPEST = 60  # dictionaries in dictionaries
Values = Mapping[str, Any]

# Operation numbers of the file -> names here; the file may order their inputs otherwise.
_OPERATIONS = dict(
    enumerate(
        "Negate Sigmoid Tanh RectifiedLinear Exp Log Sqrt Floor Abs Reciprocal Softmax Hardmax"
        " TransposeDimensions Where Slice Dropout Reshape Pooling SumElements Plus Minus"
        " ElementTimes Equal NotEqual Less LessEqual Greater GreaterEqual PackedIndex GatherPacked"
        " ScatterPacked Times TransposeTimes Convolution SquareError CrossEntropyWithSoftmax"
        " ClassificationError PastValue FutureValue ReduceElements BatchNormalization Clip If"
        " RowStack Combine RandomSample RandomSampleInclusionFrequency ROIPooling Logistic"
        " OptimizedRNNStack ReconcileDynamicAxis LogSoftmax LogPlus CosDistance Sin Cosine Pass"
        " Block MaxUnpooling LambdaRank NDCG1Eval".split()
    )
)
_SWAPPED = (
    "ClassificationError",
    "Logistic",
    "LambdaRank",
    "NDCG1Eval",
    "CrossEntropyWithSoftmax",
    "GatherPacked",
    "OptimizedRNNStack",
)
_ORDER = {"ScatterPacked": (2, 1, 0), "Clip": (1, 2, 0)}
_POOLINGS = ("max", "average")


def _shape(value: Iterable[int]) -> tuple[int, ...]:
    """A shape as nodes have it: a scalar is one element, unknown dimensions are 0."""
    return tuple(0 if dim == _INFERRED else int(dim) for dim in value) or (1,)


def _axis(axis: pb.Axis) -> int:
    """The number of a static axis, from 1; 0 for all."""
    if axis.static_axis_idx in (_ALL_AXES, _END_AXIS):
        return 0
    if not 0 <= axis.static_axis_idx < 1000:
        raise FormatError(f"axis {axis.static_axis_idx} {axis.name!r} is not a static one")
    return axis.static_axis_idx + 1


def _geometry(values: Values, window: tuple[int, ...]) -> dict[str, Any]:
    return {
        "kernelShape": window,
        "strideShape": _shape(values["strides"]),
        "dimPadding": tuple(values["autoPadding"]),
        "dimPadLower": _shape(values["lowerPad"]),
        "dimPadUpper": _shape(values["upperPad"]),
    }


def _random(values: Values) -> dict[str, Any]:
    return {"rngSeed": values.get("rngSeed", 0), "rngOffset": values.get("rngOffset", 0)}


def _sample(values: Values) -> dict[str, Any]:
    size = {"sizeOfSampledSet": values["numSamples"]}
    return {**size, "allowDuplicates": values["allowDuplicates"], **_random(values)}


_SAME: dict[str, dict[str, str]] = {  # attributes that only have another name
    "Slice": {"beginIndex": "beginIndex", "endIndex": "endIndex"},
    "Times": {"outputRank": "outputRank", "inferInputRankToMap": "inferInputRankToMap"},
    "TransposeTimes": {"outputRank": "outputRank"},
    "PastValue": {"offset": "timeStep"},
    "FutureValue": {"offset": "timeStep"},
    "ReduceElements": {"reductionOpName": "reductionOp"},
    "OptimizedRNNStack": {
        "bidirectional": "bidirectional",
        "numLayers": "numLayers",
        "hiddenSize": "hiddenDims",
        "recurrentOp": "recurrentOp",
    },
    "BatchNormalization": {
        "spatial": "spatial",
        "normalizationTimeConstant": "normalizationTimeConstant",
        "blendTimeConstant": "blendTimeConstant",
        "epsilon": "epsilon",
    },
    "Convolution": {
        "transpose": "transpose",
        "maxTempMemSizeInSamples": "maxTempMemSizeInSamples",
    },
}
_OTHER: dict[str, Callable[[Values], dict[str, Any]]] = {
    "TransposeDimensions": lambda v: {"axis1": _axis(v["axis1"]), "axis2": _axis(v["axis2"])},
    "Slice": lambda v: {"axis": _axis(v["axis"])},
    "RowStack": lambda v: {"axis": _axis(v["axis"])},
    "ReduceElements": lambda v: {"axis": _axis(v["axis"])},
    "Dropout": lambda v: {"dropoutRate": v["dropoutRate"], **_random(v)},
    "RandomSample": _sample,
    "RandomSampleInclusionFrequency": _sample,
    "Reshape": lambda v: {
        "shape": _shape(v["newShape"]),
        "beginAxis": _axis(v["beginAxis"]) if "beginAxis" in v else 1,
        "endAxis": _axis(v["endAxis"]) if "endAxis" in v else 0,
    },
    "ROIPooling": lambda v: {"roiOutputShape": _shape(v["roiOutputShape"])},
    "Pooling": lambda v: {
        "pool": _POOLINGS[v["poolingType"]],
        **_geometry(v, _shape(v["poolingWindowShape"])),
    },
    "MaxUnpooling": lambda v: _geometry(v, _shape(v["unpoolingWindowShape"])),
    # The kernel has the first axes of the weight, as many as the input has.
    "Convolution": lambda v: {**_geometry(v, ()), "dimSharing": tuple(v["sharing"])},
    "BatchNormalization": lambda v: {"useCntkEngine": not v["useCuDNNEngine"]},
}


def _decode(value: pb.DictionaryValue, depth: int = 0) -> Any:
    """The Python value of a dictionary's entry; shapes are tuples, axes and arrays messages."""
    if depth > _DEEPEST:
        raise FormatError("dictionaries are nested too deeply")
    field = value.WhichOneof("value")
    if field is None:
        return None
    content = getattr(value, field)
    if field == "vector_value":
        return [_decode(item, depth + 1) for item in content.value]
    if field == "dictionary_value":
        return _dictionary(content, depth + 1)
    if field == "nd_shape_value":
        return tuple(content.shape_dim)
    return content


def _dictionary(message: pb.Dictionary, depth: int = 0) -> dict[str, Any]:
    return {key: _decode(value, depth) for key, value in message.data.items()}


def _array(view: pb.NDArrayView, uid: str) -> np.ndarray:
    """The values of a constant or parameter, the fastest axis first."""
    if view.storage_format != pb.NDArrayView.Dense:
        raise FormatError(f"{uid}: sparse values")
    field = view.WhichOneof("values")
    if field is None:
        raise FormatError(f"{uid}: no values")
    dtype = np.float64 if field == "double_values" else np.float32
    array = np.array(getattr(view, field).value, dtype)
    shape = _shape(view.shape.shape_dim)
    if array.size != count_of(shape, dtype(0).itemsize, uid):
        raise FormatError(f"{uid}: {array.size} values for a shape of {shape}")
    return np.array(array.reshape(shape, order="F"), order="F")


def parse_v2_model(data: bytes, name: str = "model") -> Network:
    """The network of a model file's bytes, not validated.

    Nodes have the functions' names where these are unique, else their unique ids.

    Raises:
        FormatError: the bytes are damaged, or hold something else.
    """
    message = pb.Dictionary()
    try:
        message.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError differs between its implementations
        raise FormatError(f"{name}: no dictionary of CNTK 2.0: {error}") from None
    try:
        model = _dictionary(message)
        if "primitive_functions" not in model or "inputs" not in model:
            raise FormatError("the dictionary is no model: it has no functions")
        return _Reader(model, stem_of(name)).network
    except OpscopeError as error:
        raise FormatError(f"{name}: {error}") from None
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise FormatError(f"{name}: the dictionary is damaged: {error!r}") from None


class _Reader:
    def __init__(self, model: dict[str, Any], name: str):
        self.network = Network(name)
        self.nodes: dict[str, Node] = {}
        self.alias: dict[str, str] = {}  # of placeholders and outputs of groups
        self.functions = model["primitive_functions"]
        self.state = model.get("state") or {}
        self._count_names(model["inputs"])
        for variable in model["inputs"]:
            self._variable(variable)
        nodes = [(self._function(f), f) for f in self.functions]
        for node, function in nodes:
            if node is not None:
                self._connect(node, function)
        for node in self._outputs(model["root"]):
            self.network.add_to_group("output", node)

    def _count_names(self, variables: list[dict[str, Any]]) -> None:
        """Names that more than one thing has are not used."""
        named = [d.get("name", "").lower() for d in (*variables, *self.functions)]
        seen: set[str] = set()
        self.repeated = {n for n in named if n in seen or seen.add(n)}  # type: ignore[func-returns-value]
        self.repeated |= {d["uid"].lower() for d in (*variables, *self.functions)}

    def _name(self, described: dict[str, Any]) -> str:
        name = described.get("name", "")
        return name if name and name.lower() not in self.repeated else described["uid"]

    def _variable(self, variable: dict[str, Any]) -> None:
        kind, uid = variable["kind"], variable["uid"]
        if kind == _PLACEHOLDER:
            return  # it has the uid of an output or argument
        name = self._name(variable)
        if kind in (_PARAMETER, _CONSTANT):
            value = _array(variable["value"], uid)
            learns = kind == _PARAMETER and variable["needs_gradient"]
            node = self.network.add(
                "LearnableParameter",
                name,
                shape=value.shape,
                attributes={"learningRateMultiplier": float(learns)},
            )
            node.value = value
            if value.dtype == np.float64:
                self.network.precision = "double"
        elif kind == _INPUT:
            operation = "SparseInputValue" if variable["is_sparse"] else "InputValue"
            axis = self._dynamic_axis([axis.name for axis in variable["dynamic_axis"]])
            given = {"shape": _shape(variable["shape"]), "dynamicAxis": axis}
            node = self.network.add(operation, name, attributes=given)
            self.network.add_to_group("feature", node)
        else:
            raise FormatError(f"{uid}: a variable of kind {kind}")
        self.nodes[uid] = node

    def _dynamic_axis(self, names: list[str]) -> str:
        """The name of the node of dynamic axes; empty for the default ones."""
        if names in _DEFAULT_AXES:
            return ""
        name = _NO_SEQUENCE if names == ["defaultBatchAxis"] else names[0]
        if name not in self.network:
            self.network.add("DynamicAxis", name)
        return name

    def _function(self, function: dict[str, Any]) -> Node | None:
        uid = function["uid"]
        operation = _OPERATIONS.get(function["op"])
        if operation is None:
            raise FormatError(f"{uid}: operation {function['op']} is not known")
        if operation == "Combine":
            for number, child in enumerate(function["inputs"]):
                self.alias[f"{uid}_Output_{number}"] = child
            return None
        if operation == "Block":
            root = function["block_function_composite"]["root"]
            self.alias[f"{uid}_Output_0"] = f"{root}_Output_0"
            keys = function["block_function_composite_arguments_map_keys"]
            values = function["block_function_composite_arguments_map_values"]
            self.alias.update(zip(keys, values, strict=True))
            return None
        values = {**(function["attributes"] or {}), **self._random_state(uid)}
        given = {new: values[old] for old, new in _SAME.get(operation, {}).items() if old in values}
        if operation in _OTHER:
            given |= _OTHER[operation](values)
        node = self.network.add(operation, self._name(function), attributes=given)
        self.nodes[f"{uid}_Output_0"] = node
        return node

    def _random_state(self, uid: str) -> dict[str, Any]:
        state = self.state.get(uid) or {}
        names = {"rng_seed": "rngSeed", "rng_offset": "rngOffset"}
        return {names[key]: value for key, value in state.items() if key in names}

    def _resolve(self, uid: str) -> Node:
        passed: dict[str, None] = {}
        while uid in self.alias and uid not in passed:
            passed[uid] = None
            uid = self.alias[uid]
        if uid not in self.nodes:
            raise FormatError(f"nothing has the id {shown(uid)}")
        self.alias.update(dict.fromkeys(passed, uid))  # the next one is there at once
        return self.nodes[uid]

    def _connect(self, node: Node, function: dict[str, Any]) -> None:
        inputs = [self._resolve(uid) for uid in function["inputs"]]
        if node.operation in _SWAPPED:
            inputs[:2] = inputs[1::-1]
        elif node.operation in _ORDER and len(inputs) == 3:
            inputs = [inputs[k] for k in _ORDER[node.operation]]
        self.network.connect(node, inputs)

    def _outputs(self, root: str) -> list[Node]:
        for function in self.functions:
            if function["uid"] == root and _OPERATIONS[function["op"]] == "Combine":
                return [self._resolve(uid) for uid in function["inputs"]]
        return [self._resolve(f"{root}_Output_0")]
