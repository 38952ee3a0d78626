"""Feed-forward networks in files of DBN.exe, an older program: actions convertdbn and exportdbn.

A file is the string `DBN` and a comment after a line end, if there is one; the tag `BDBN`, a
version and the number of layers (int32); mean and standard deviation of a frame, `gmean` and
`gstddev`; the tag `BNET` and the layers: the string of the kind, the matrices `W` (inputs x
outputs), `a` (the bias) and `b`, which is not used; the tag `ENET`, the prior of the outputs `Pu`,
if there is one, and the tag `EDBN`. Strings end with a zero byte. A matrix is the tag `BMAT`, the
string of its name, rows and columns (int32), float32 column by column, and the tag `EMAT`.
Source: CNTK's `ActionsLib/SimpleNetworkBuilder.cpp` (BuildNetworkFromDbnFile) and
`ComputationNetworkLib/ComputationNetwork.cpp` (SaveToDbnFile).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.files.atomic import PathLike, write_atomically
from ...framework.base.untrusted.opener import read_file
from ..network.network import Network
from ..network.nodes.node import Node
from ..network.standard.node_maker import NodeMaker
from ..network.standard.settings import SimpleNetworkSettings
from .stream import BinaryReader, BinaryWriter

_OUTPUT, _LINEAR = "perceptron", "rbmisalinearbernoulli"
_FIRST, _HIDDEN = "rbmgaussbernoulli", "rbmbernoullibernoulli"
_WIDEST = 25  # frames on each side of a window that repeats a frame's deviations


@dataclass(frozen=True)
class Layer:
    """A layer: its kind as the file names it, W [outputs, inputs] and the bias [outputs]."""

    kind: str
    weight: np.ndarray
    bias: np.ndarray


@dataclass(frozen=True)
class Dbn:
    """What a file holds.

    Attributes:
        mean, deviation: of a frame, [frame]; an input is one frame or a window of several.
        layers: from the input on.
        prior: of the outputs, [outputs]; None: the file has none.
    """

    mean: np.ndarray
    deviation: np.ndarray
    layers: Sequence[Layer]
    prior: np.ndarray | None = None


# -- files ---------------------------------------------------------------------------------------


def read_dbn(path: PathLike) -> Dbn:
    """Read a file.

    Raises:
        FormatError: it is damaged, or its matrices do not fit together; byte offset.
    """
    reader = BinaryReader(read_file(path), str(path))
    if reader.narrow().partition("\n")[0] != "DBN":
        raise reader.error("a file of DBN.exe begins with 'DBN'", 0)
    _tag(reader, "BDBN")
    reader.number("int32")  # a version, which CNTK does not look at
    start = reader.offset
    count = reader.number("int32")
    if not 0 < count <= reader.left:
        raise reader.error(f"{count} layers", start)
    mean, deviation = (_vector(reader, name) for name in ("gmean", "gstddev"))
    if not len(mean) or len(mean) != len(deviation) or not deviation.all():
        raise reader.error("mean and deviation of a frame are of one length, deviations not 0")
    _tag(reader, "BNET")
    layers: list[Layer] = []
    for _ in range(count):
        layers.append(_read_layer(reader, len(layers[-1].bias) if layers else None, len(mean)))
    _tag(reader, "ENET")
    start = reader.offset
    prior = _vector(reader, "Pu") if reader.data[start : start + 4] == b"BMAT" else None
    if prior is not None and len(prior) != len(layers[-1].bias):
        raise reader.error(f"a prior of {len(prior)} for {len(layers[-1].bias)} outputs", start)
    _tag(reader, "EDBN")
    return Dbn(mean, deviation, layers, prior)


def _read_layer(reader: BinaryReader, inputs: int | None, frame: int) -> Layer:
    """`inputs`: outputs of the layer before; None: frames are the input."""
    start = reader.offset
    kind = reader.narrow()
    weight = _matrix(reader, "W")
    bias = _vector(reader, "a")
    _matrix(reader, "b")
    given, outputs = weight.shape
    fits = given == inputs if inputs is not None else given > 0 and given % frame == 0
    if not fits or outputs != len(bias) or not outputs:
        wanted = f"{inputs}" if inputs is not None else f"a multiple of {frame}"
        raise reader.error(
            f"a layer of {given} inputs, {outputs} outputs and a bias of {len(bias)}; inputs are"
            f" {wanted}",
            start,
        )
    return Layer(kind, weight.T, bias)


def _tag(reader: BinaryReader, name: str) -> None:
    start = reader.offset
    found = bytes(reader.take(len(name), f"the tag {name}"))
    if found != name.encode():
        raise reader.error(f"did not find expected tag {name}, but {found!r}", start)


def _matrix(reader: BinaryReader, name: str) -> np.ndarray:
    """A matrix, float32, [rows, columns]."""
    _tag(reader, "BMAT")
    start = reader.offset
    found = reader.narrow()
    if found != name:
        raise reader.error(f"expected name {name}, found name {found}", start)
    start = reader.offset
    rows, columns = reader.number("int32"), reader.number("int32")
    if rows < 0 or columns < 0:
        raise reader.error(f"a matrix of {rows} x {columns}", start)
    data = reader.take(4 * rows * columns, f"the matrix {name} of {rows} x {columns}")
    values = np.frombuffer(data, "<f4").astype(np.float32).reshape((rows, columns), order="F")
    _tag(reader, "EMAT")
    return values


def _vector(reader: BinaryReader, name: str) -> np.ndarray:
    start = reader.offset
    matrix = _matrix(reader, name)
    if matrix.size and matrix.shape[1] != 1:
        raise reader.error(f"{name} is a vector, not {matrix.shape[0]} x {matrix.shape[1]}", start)
    return matrix.reshape(-1)


def write_dbn(path: PathLike, dbn: Dbn) -> None:
    """Write a file.

    Raises:
        SaveError: it cannot be written; an older file is untouched.
    """
    writer = BinaryWriter()
    writer.narrow("DBN")
    writer.parts.append(b"BDBN")
    writer.number("int32", 0)
    writer.number("int32", len(dbn.layers))
    _put(writer, "gmean", dbn.mean[:, None])
    _put(writer, "gstddev", dbn.deviation[:, None])
    writer.parts.append(b"BNET")
    for layer in dbn.layers:
        writer.narrow(layer.kind)
        _put(writer, "W", layer.weight.T)
        _put(writer, "a", layer.bias[:, None])
        _put(writer, "b", np.zeros((0, 0)))
    writer.parts.append(b"ENET")
    if dbn.prior is not None:
        _put(writer, "Pu", dbn.prior[:, None])
    writer.parts.append(b"EDBN")
    write_atomically(path, writer.bytes())


def _put(writer: BinaryWriter, name: str, matrix: np.ndarray) -> None:
    writer.parts.append(b"BMAT")
    writer.narrow(name)
    for size in matrix.shape:
        writer.number("int32", size)
    writer.parts.append(matrix.astype("<f4").tobytes(order="F"))
    writer.parts.append(b"EMAT")


# -- networks ------------------------------------------------------------------------------------


def network_of(dbn: Dbn, settings: SimpleNetworkSettings, outputs: int = -1) -> Network:
    """The network of a file, not validated.

    Args:
        dbn: what the file holds.
        settings: of functions, criteria, first values.
        outputs: of a file that ends without them, as pretraining leaves it; below 0: the last of
            the settings' sizes of layers.

    Raises:
        FormatError: the settings are wrong, or there is no size for that layer.
    """
    need_prior = settings.need_prior or dbn.prior is not None
    make = NodeMaker(replace(settings, need_prior=need_prior))
    layers = dbn.layers
    width = layers[0].weight.shape[1]
    features = make.input("features", width, "feature")
    window = width // len(dbn.mean)
    statistics = {
        "MeanOfFeatures": ("Mean", np.tile(dbn.mean, window)),
        "InvStdOfFeatures": ("InvStdDev", np.tile(1 / dbn.deviation, window)),
    }
    found = [make.op(kind, features, name=name) for name, (kind, _) in statistics.items()]
    for statistic, (_, value) in zip(found, statistics.values(), strict=True):
        _know(statistic, value)
    node = make.op("PerDimMeanVarNormalization", features, *found, name="MVNormalizedFeatures")
    for number, layer in enumerate(layers):
        node = _affine(make, number, node, width, len(layer.bias), layer)
        width = len(layer.bias)
        if layer.kind not in (_OUTPUT, _LINEAR):
            node = make.function(node, number, f"H{number + 1}")
            node = make.dropout(node, f"DropH{number + 1}")
    if layers[-1].kind != _OUTPUT:
        size = _output_size(settings, outputs)
        node = _affine(make, len(layers), node, width, size)
        width = size
    make.network.rename(node, "HLast")
    label = make.input("labels", width, "")
    make.criteria(node, label)
    make.likelihood(node, label)
    if dbn.prior is not None:
        _know(make.network.find("Prior"), dbn.prior)
    return make.network


def _affine(
    make: NodeMaker, number: int, node: Node, width: int, outputs: int, layer: Layer | None = None
) -> Node:
    """W * node + B, with the values of a layer; None: those that training begins with."""
    weight = make.random(f"W{number}", outputs, width)
    bias = make.fixed(f"B{number}", outputs, 0.0)
    if layer is not None:
        weight.value = layer.weight
        bias.value = layer.bias[:, None]
    product = f"W{number}*H{number}"
    times = make.op("Times", weight, node, name=product)
    return make.op("Plus", times, bias, name=f"{product}+B{number}")


def _know(node: Node, value: np.ndarray) -> None:
    """Give a statistic its value, so that training does not compute it."""
    node.value = value
    node.attributes["hasComputed"] = True


def _output_size(settings: SimpleNetworkSettings, size: int) -> int:
    if size < 0 and len(settings.layer_sizes) > 1:
        size = settings.layer_sizes[-1]
    if size < 1:
        raise FormatError(
            "Output layer size must be specified when converting a pre-trained network, use"
            " outputLayerSize="
        )
    return size


def dbn_of(network: Network) -> Dbn:
    """What a file says of a validated network. The network leads to a ClassificationError: layers
    with sigmoids or without, over normalized features.

    Raises:
        FormatError: the network has something else in it; the message names the node.
    """
    node = _output(network)
    layers: list[Layer] = []
    while node.operation != "PerDimMeanVarNormalization":
        node, found = _layers_of(node, last=not layers)
        layers = found + layers
    if not layers:
        raise node.error("there is no layer below the output", FormatError)
    first = layers[0]
    if first.kind == _HIDDEN:
        layers[0] = replace(first, kind=_FIRST)
    mean, inverse = (_values(child).reshape(-1) for child in node.inputs[1:])
    frame = len(inverse) // _window(inverse)
    priors = [
        each
        for each in network.nodes.values()
        if "prior" in each.name.lower() and each.operation in ("LearnableParameter", "Mean")
    ]
    prior = _values(priors[0]).reshape(-1) if len(priors) == 1 else None
    return Dbn(mean[:frame], 1 / inverse[:frame], layers, prior)


def _output(network: Network) -> Node:
    errors = [n for n in network.nodes.values() if n.operation == "ClassificationError"]
    for error in errors:
        for child in error.inputs[:2]:
            if child is not None and not child.is_input:
                return child
    raise FormatError("Cannot find output node: there is no ClassificationError of one")


def _layers_of(node: Node, last: bool) -> tuple[Node, list[Layer]]:
    """The layer that a node is the output of, two where its matrix is a product; its input."""
    while node.operation == "Dropout":
        node = node.inputs[0]
    kind = _OUTPUT if last else _LINEAR
    if node.operation == "Sigmoid" and not last:
        kind = _HIDDEN
        node = node.inputs[0]
    if node.operation != "Plus":
        raise node.error(
            "a layer of DBN.exe is Plus (Times (W, x), b), and a Sigmoid of it in between",
            FormatError,
        )
    product, bias = node.inputs
    if product.is_parameter:
        product, bias = bias, product
    if product.operation != "Times" or not bias.is_parameter:
        raise node.error(
            "Expected a plus node to consume the times node, and a parameter.", FormatError
        )
    matrix, source = product.inputs
    offset = _values(bias).reshape(-1)
    if matrix.operation == "Times":
        outer, inner = (_matrix_of(child) for child in matrix.inputs)
        middle = np.zeros(len(inner), inner.dtype)
        return source, [Layer(_LINEAR, inner, middle), Layer(kind, outer, offset)]
    return source, [Layer(kind, _matrix_of(matrix), offset)]


def _matrix_of(node: Node) -> np.ndarray:
    if not node.is_parameter or len(node.shape or ()) != 2:
        raise node.error("a matrix of a layer of DBN.exe is a parameter", FormatError)
    return _values(node)


def _values(node: Node) -> np.ndarray:
    if node.value is None or not node.attributes.get("hasComputed", True):
        raise node.error(
            f"the value of {node.name} is not known: the network is not trained", FormatError
        )
    return np.asarray(node.value)


def _window(values: np.ndarray) -> int:
    """Frames of the widest window that repeats the values of one frame."""
    for frames in range(2 * _WIDEST + 1, 1, -2):
        if len(values) % frames == 0:
            rows = values.reshape(frames, -1)
            if (rows == rows[0]).all():
                return frames
    return 1
