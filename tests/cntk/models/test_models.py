"""Model files, checkpoints and dumps that need no reference results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from damage import check_damaged
from opscope.cntk.models.checkpoint import (
    Checkpoint,
    RateControl,
    format_checkpoint,
    parse_checkpoint,
)
from opscope.cntk.models.dump import dump
from opscope.cntk.models.file_fields import CURRENT_VERSION
from opscope.cntk.models.stream import BinaryReader, BinaryWriter
from opscope.cntk.models.v1 import format_model, parse_model, read_model, write_model
from opscope.cntk.network.dialect import from_desc, parameter_arrays, to_desc
from opscope.cntk.network.initialize import initialize
from opscope.cntk.network.network import Network
from opscope.framework.base.errors import FormatError, SaveError, ShapeError, VariableError


def all_kinds():
    """A network with every kind that keeps something of its own in a file."""
    net = Network("all")
    image = net.add("InputValue", "image", shape=(8, 8, 2))
    x = net.add("SparseInputValue", "x", shape=6)
    y = net.add("InputValue", "y", shape=4, tags=["label"])
    net.add("DynamicAxis", "axis")
    net.add("InputValue", "z", shape=1, attributes={"dynamicAxis": "axis"})

    def param(name, *shape, **attributes):
        return net.add("LearnableParameter", name, shape=shape, attributes=attributes)

    def op(operation, name, *inputs, **attributes):
        return net.add(operation, name, inputs, attributes)

    convolution = {"kernelShape": (3, 3), "mapCount": (4,), "strideShape": (2, 2)}
    weight = param("cw", 0, init="glorotUniform", initFilterRank=2, initOutputRank=-1)
    conv = op("Convolution", "conv", weight, image, **convolution)
    pool = {"kernelShape": (2, 2), "strideShape": (2,), "dimPadding": (False,)}
    pooled = op("Pooling", "pooled", conv, pool="average", **pool)
    op("MaxUnpooling", "unpooled", pooled, conv, **pool)
    window = {"windowWidth": 2, "windowHeight": 2}
    op("MaxPooling", "old", conv, **window, horizontalSubsample=2, verticalSubsample=1)
    op("Crop", "crop", conv, pooled, xOffset=1, yOffset=2)
    norms = [param(f"n{i}", 0, 1, initValue=1.0) for i in range(4)]
    op("BatchNormalization", "norm", conv, *norms, spatial=True, blendTimeConstant=5)
    op("Dropout", "drop", x, rngSeed=7, rngOffset=9)
    times = op("Times", "times", param("w", 4, 0), x)
    op("TransposeTimes", "tt", y, times)
    op("QuantizedTimes", "qt", param("q", 4, 0), x, bitShiftA=2)
    op("TransposeDimensions", "td", x, axis1=1, axis2=3)
    op("Reshape", "reshape", image, shape=(0,), beginAxis=1, endAxis=3)
    op("LegacyReshape", "legacy", x, numRows=6, imageWidth=3, imageHeight=2)
    op("Slice", "slice", x, beginIndex=1, endIndex=-1)
    op("ReduceElements", "reduce", x, reductionOp="LogSum", axis=1)
    op("RowRepeat", "repeat", x, numRepeats=3)
    op("RowStack", "stack", x, y)
    op("Mean", "mean", x)
    where = op("Where", "where", op("ReduceElements", "any", x, reductionOp="Max"))
    op("GatherPacked", "gather", op("PackedIndex", "index", x, where), x)
    past = op("PastValue", "past", timeStep=2, defaultHiddenActivation=0.25)
    plus = op("Plus", "plus", times, past)
    net.connect(past, [plus])
    op("FutureValue", "future", y, shape=(4,), defaultHiddenActivation=0.5)
    op("EnvironmentInput", "training", propertyName="isTraining")
    op("RandomSample", "sample", norms[0], sizeOfSampledSet=2, allowDuplicates=True)
    op("OptimizedRNNStack", "rnn", param("rw", 0, 0), y, hiddenDims=3, recurrentOp="gru")
    op("Trace", "trace", x, say="look", format={"isSparse": True, "elementSeparator": ";"})
    op(
        "ROIPooling",
        "roi",
        conv,
        net.add("InputValue", "rois", shape=(4, 2)),
        roiOutputShape=(2, 2),
    )
    ce = op("CrossEntropyWithSoftmax", "ce", y, plus)
    bias = op("Times", "nb", param("nbw", 1, 0), x)
    op("NCEBasedCrossEntropyWithSoftmax", "nce", y, x, param("nw", 6, 9), bias, evalMode=1)
    net.add_to_group("criterion", ce)
    net.validate()
    initialize(net)
    return net


def test_every_kind_comes_back():
    net = all_kinds()
    data = format_model(net)
    copy = parse_model(data)
    copy.validate()
    assert format_model(copy) == data
    for name, node in net.nodes.items():
        other = copy.find(name)
        assert other.operation == node.operation and other.shape == node.shape
        given = {k: v for k, v in node.attributes.items() if not k.startswith("init")}
        for key in ("value", "randomSeed", "kernelWidth", "kernelHeight", "dynamicAxis"):
            given.pop(key, None)
        if node.kind.delay:
            given["shape"] = node.shape
        if node.operation == "Trace":
            given["format"] = given["format"] | other.attributes["format"]
        if node.is_parameter:
            given["shape"] = node.shape
        assert {k: other.attributes[k] for k in given} == given, name


def test_every_kind_through_a_netdesc():
    net = all_kinds()
    copy = from_desc(to_desc(net), parameter_arrays(net))
    copy.validate()
    assert format_model(copy) == format_model(net)
    assert copy.find("ce").location is None


def test_dump_of_every_kind():
    net = all_kinds()
    text = dump(net)
    assert text.count("#" * 68) == text.count("HasComputed") + text.count("NeedsGradient")
    assert "Geometry:  Input: 8 x 8 x 2, Output: 4 x 4 x 4, Kernel: 3 x 3 x 2" in text
    assert "0.5" not in dump(net, [net.find("x")])
    only_values = dump(net, [net.find("n0")], metadata=False)
    assert only_values == "".join(" 1 \n" for _ in range(4)) or only_values.split() == ["1"] * 4


def test_older_versions():
    net = all_kinds()
    for version in range(14, CURRENT_VERSION):
        data = format_model(net, version)
        if version != 16:  # the seed of version 16 had the width of the machine
            copy = parse_model(data)
            copy.validate()
            assert format_model(copy, version) == data
    with pytest.raises(FormatError, match="13"):
        format_model(net, 13)


def old_model(version, body):
    writer = BinaryWriter()
    writer.marker("BCN")
    if version > 1:
        writer.marker("BVersion")
        writer.number("uint64", version)
        writer.marker("EVersion")
    body(writer)
    writer.marker("ECN")
    return writer.bytes()


def test_version_1():
    def body(writer):
        writer.number("uint64", 3)
        writer.marker("BNodeList")
        writer.wide("InputValue")
        writer.wide("features")
        for size in (12, 0, 2, 3, 2):  # rows, columns; width, height, channels
            writer.number("uint64", size)
        writer.wide("LearnableParameter")
        writer.wide("W")
        writer.number("bool", False)
        for size in (2, 12):
            writer.number("uint64", size)
        writer.matrix(np.arange(24, dtype=np.float32).reshape(2, 12))
        writer.wide("Times")
        writer.wide("z")
        writer.marker("ENodeList")
        writer.marker("BRelation")
        for name, inputs in (("features", []), ("W", []), ("z", ["W", "features"])):
            writer.wide(name)
            writer.number("uint64", len(inputs))
            for child in inputs:
                writer.wide(child)
        writer.marker("ERelation")
        writer.marker("BRootNodes")
        for section, names in (("FeatureNodes", ["features"]), ("LabelNodes", [])):
            writer.marker(f"B{section}")
            writer.number("uint64", len(names))
            for name in names:
                writer.wide(name)
            writer.marker(f"E{section}")
        writer.marker("BCriteriaNodes")
        writer.number("uint64", 1)
        writer.wide("z")
        writer.marker("ECriteriaNodes")
        writer.marker("BNodesReqMultiSeqHandling")
        writer.number("uint64", 1)
        writer.wide("z")
        writer.marker("ENodesReqMultiSeqHandling")
        writer.marker("BPairNodes")
        writer.number("uint64", 0)
        writer.marker("EPairNodes")
        writer.marker("ERootNodes")

    net = parse_model(old_model(1, body))
    net.validate()
    assert net.find("features").shape == (2, 2, 3)
    # The columns of the matrix are split up as the features are.
    assert net.find("W").shape == (2, 2, 2, 3) and net.find("W").learning_rate == 0
    assert net.find("z").shape == (2,) and net.groups["criterion"] == [net.find("z")]


def test_sparse_matrix():
    writer = BinaryWriter()
    writer.number("char", b"s")
    writer.marker("BMAT")
    writer.number("uint64", 8)
    writer.wide("nnmatrix")
    writer.number("int32", 5)
    for number in (2, 3, 2):  # elements, columns, rows
        writer.number("uint64", number)
    for value in (1.5, -2.0):
        writer.number("double", value)
    for number in (1, 0, 0, 1, 1, 2):  # rows, then where columns begin
        writer.number("uint64", number)
    writer.marker("EMAT")
    wanted = [[0, 0, -2.0], [1.5, 0, 0]]
    np.testing.assert_array_equal(BinaryReader(writer.bytes()).matrix(), wanted)
    check_damaged(writer.bytes(), lambda data: BinaryReader(data).matrix())


def test_damaged_model_of_every_kind():
    data = format_model(all_kinds())
    end = data.index("ENodeList".encode("utf-16-le"))
    for cut in (*range(0, end, 61), *range(end, len(data), 17)):
        with pytest.raises(FormatError, match="byte"):
            parse_model(data[:cut])


BEGIN = (
    "BCN\0BVersion\0".encode("utf-16-le") + b"\x12" + bytes(7) + "EVersion\0".encode("utf-16-le")
)


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=200, deadline=None)
def test_random_bytes(data, begun):
    with pytest.raises(FormatError):
        parse_model(BEGIN + data if begun else data)


OPERATIONS = {"Plus": 2, "Times": 2, "Tanh": 1, "RowStack": 3, "PastValue": 1, "Minus": 2}


@given(st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.tuples(*[st.integers(0)] * 3))))
@settings(max_examples=60, deadline=None)
def test_random_networks_come_back(steps):
    net = Network()
    nodes = [net.add("InputValue", "x", shape=3)]
    for number, (operation, choice) in enumerate(steps):
        children = [nodes[c % len(nodes)] for c in choice[: OPERATIONS[operation]]]
        if operation == "Times":  # any number of rows fits
            children[0] = net.add("LearnableParameter", f"w{number}", shape=(2 + number % 2, 0))
        nodes.append(net.add(operation, f"n{number}", children))
    try:
        net.validate()
    except ShapeError:
        return  # sums of unequal shapes are refused
    initialize(net)
    data = format_model(net)
    copy = parse_model(data)
    copy.validate()
    again = from_desc(to_desc(copy), parameter_arrays(copy))
    again.validate()
    assert format_model(copy) == format_model(again) == data
    assert {n.name: n.shape for n in again.nodes.values()} == {
        n.name: n.shape for n in net.nodes.values()
    }


def test_error_names_file_and_offset(tmp_path):
    path = tmp_path / "cut.model"
    path.write_bytes(format_model(all_kinds())[:5000])
    with pytest.raises(FormatError, match=r"cut\.model: byte \d+: "):
        read_model(path)
    path.write_bytes(old_model(99, lambda writer: None))
    with pytest.raises(FormatError, match="version 99"):
        read_model(path)


def test_files_are_written_whole(tmp_path):
    net = all_kinds()
    write_model(net, tmp_path / "a.model")
    assert format_model(read_model(tmp_path / "a.model")) == format_model(net)
    with pytest.raises(SaveError):
        write_model(net, tmp_path / "nowhere" / "a.model")
    net.find("w").value = None
    with pytest.raises(VariableError, match="w"):
        write_model(net, tmp_path / "a.model")


def test_checkpoint():
    gradients = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((4, 1), np.float32)]
    kept = Checkpoint(1234, 0.01, 0.75, 32, gradients, [1.0, 2.5])
    plain = format_checkpoint(kept)
    assert parse_checkpoint(plain).control is None
    kept.control = RateControl(0.5, True, (-1.0, 0.25))
    data = format_checkpoint(kept)
    assert data.startswith(plain)  # CNTK does not look behind the end
    copy = parse_checkpoint(data)
    assert copy.control == kept.control
    assert (copy.samples, copy.rate, copy.criterion, copy.minibatch) == (1234, 0.01, 0.75, 32)
    assert copy.counts == [1.0, 2.5]
    for one, other in zip(copy.gradients, gradients, strict=True):
        np.testing.assert_array_equal(one, other)
    old = format_checkpoint(Checkpoint(1, 1.0, 0.0, None))
    assert parse_checkpoint(old).minibatch is None
    check_damaged(plain, parse_checkpoint)
    check_damaged(data, parse_checkpoint, whole=False)
