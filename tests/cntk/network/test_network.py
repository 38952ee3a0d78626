"""Networks: what may be added, validation, loops, inference of dimensions, shape rules."""

import pytest

from opscope.cntk.base.text import Source
from opscope.cntk.network.catalog import kind, ndl_function, operations
from opscope.cntk.network.describe import describe, prototype
from opscope.cntk.network.network import Network
from opscope.framework.base.errors import (
    AttributeTypeError,
    CycleError,
    OpscopeError,
    ShapeError,
    SlotError,
    UnknownOperatorError,
    VariableError,
)


class Net(Network):
    """A network with short ways to write tests."""

    def param(self, name, *shape, **attributes):
        return self.add("LearnableParameter", name, shape=shape, attributes=attributes)

    def input(self, name, *shape, **attributes):
        return self.add("InputValue", name, shape=shape, attributes=attributes)

    def op(self, operation, name, *inputs, **attributes):
        return self.add(operation, name, inputs, attributes)


def two_layers():
    net = Net()
    node = net.input("x", 3)
    for layer in range(2):
        node = net.op(
            "Tanh", f"h{layer}", net.op("Times", f"t{layer}", net.param(f"w{layer}", 3, 0), node)
        )
    return net


def shape_of(operation, *inputs, **attributes):
    """Shape of an operation's result; inputs with a leading '*' are samples, others parameters."""
    net = Net()
    nodes = []
    for number, given in enumerate(inputs):
        if given[0] == "*":
            nodes.append(net.input(f"i{number}", *given[1:]))
        else:
            nodes.append(net.param(f"i{number}", *given))
    node = net.op(operation, "z", *nodes, **attributes)
    net.validate()
    return ("*", *node.shape) if node.axis is not None else node.shape


class TestCatalog:
    def test_every_operation_is_known(self):
        assert len(operations()) == 96
        assert kind("ErrorPrediction").operation == "ClassificationError"
        assert kind("Delay").delay == 1 and kind("FutureValue").delay == -1

    def test_ndl_names_in_any_case(self):
        assert ndl_function("relu").operation == "RectifiedLinear"
        assert ndl_function("ImageInput").operation == "InputValue"
        assert ndl_function("ReduceSum") is None

    def test_ndl_attributes(self):
        values = ndl_function("PastValue").attributes([5], {"delayTime": 3})
        assert values == {"shape": (5,), "timeStep": 3, "defaultHiddenActivation": 0.1}
        assert ndl_function("RowSlice").attributes([2, 3], {})["endIndex"] == 5
        image = ndl_function("ImageInput").attributes([8, 6, 3], {"imageLayout": "cudnn"})
        assert image["shape"] == (8, 6, 3)
        assert ndl_function("ImageInput").attributes([8, 6, 3], {})["shape"] == (3, 8, 6)
        frozen = ndl_function("Parameter").attributes([2, 3], {"needsGradient": False})
        assert frozen["learningRateMultiplier"] == 0

    def test_ndl_parameter_counts(self):
        function = ndl_function("Convolution")
        assert function.count_error(7) is None and function.count_error(3) is None
        assert "3 or 7" in function.count_error(4)
        assert ndl_function("Times").count_error(1) is not None
        assert list(ndl_function("Crop").nodes([False, False, True, True])) == [0, 1]
        assert list(ndl_function("Crop").nodes([False] * 4)) == [0, 1, 2, 3]


class TestAdding:
    def test_unknown_operation_points_at_its_place(self):
        place = Source("net.ndl", "z = Sigmiod(x)").locate(4)
        with pytest.raises(UnknownOperatorError) as caught:
            Network().add("Sigmiod", "z", location=place)
        assert "net.ndl:1:5" in str(caught.value) and "Sigmoid" in str(caught.value)

    def test_names_differ_by_more_than_case(self):
        net = Net()
        net.input("E", 3)
        with pytest.raises(VariableError, match="case"):
            net.input("e", 3)

    def test_attributes(self):
        net = Net()
        with pytest.raises(AttributeTypeError, match="outputRank"):
            net.op("Times", "z", outputrnk=1)
        with pytest.raises(AttributeTypeError, match="type int"):
            net.op("RowStack", "s", axis="first")
        with pytest.raises(AttributeTypeError, match="missing"):
            net.op("Slice", "s")
        with pytest.raises(AttributeTypeError, match="negative"):
            net.param("w", -1)

    def test_number_of_inputs(self):
        net = Net()
        x = net.input("x", 3)
        with pytest.raises(SlotError, match="takes 2 inputs, not 1"):
            net.op("Times", "z", x)
        z = net.op("Times", "z")
        with pytest.raises(SlotError):
            net.connect(z, [x, x, x])

    def test_tags_make_groups(self):
        net = Net()
        ce = net.add("SquareError", "ce", tags=["evalFoo"])
        assert net.groups["evaluation"] == [ce]


class TestValidation:
    def test_dimensions_of_parameters_are_inferred(self):
        net = Net()
        x = net.input("x", 3, 4)
        w, b = net.param("w", 5, 0), net.param("b", 0)
        times = net.op("Times", "t", w, x, inferInputRankToMap=0)
        net.op("Plus", "z", times, b)
        net.validate()
        assert w.shape == (5, 3, 4) and b.shape == (5,)
        assert net.parameter_count() == 65

    def test_loop_through_a_delay(self):
        net = Net()
        x, w, r = net.input("x", 3), net.param("w", 4, 0), net.param("r", 4, 4)
        past = net.op("PastValue", "p", shape=0)
        sum_ = net.op("Plus", "s", net.op("Times", "a", w, x), net.op("Times", "b", r, past))
        h = net.op("Tanh", "h", sum_)
        net.connect(past, [h])
        net.validate()
        assert past.shape == (4,) and past.axis is x.axis
        (loop,) = net.loops
        assert loop.direction == 1 and loop.nodes[0] is past and loop.nodes[-1] is h
        assert prototype(h) == "h = Tanh (s) : [4 x *] -> [4 x *]"
        assert describe(net).endswith("8 nodes, 28 parameters\n")

    def test_loop_without_delay_names_the_chain(self):
        net = Net()
        x = net.input("x", 3)
        a = net.op("Plus", "a")
        b = net.op("Sigmoid", "b", a)
        net.connect(a, [x, b])
        with pytest.raises(CycleError) as caught:
            net.validate()
        assert "a = Plus" in str(caught.value) and "b = Sigmoid" in str(caught.value)

    def test_inner_loop_without_delay_beside_a_delay(self):
        net = Net()
        x = net.input("x", 3)
        a, p = net.op("Plus", "a"), net.op("PastValue", "p")
        b = net.op("Plus", "b", a, p)
        net.connect(a, [x, b])
        net.connect(p, [b])
        with pytest.raises(CycleError):
            net.validate()

    def test_loop_in_both_directions(self):
        net = Net()
        p, f = net.op("PastValue", "p"), net.op("FutureValue", "f")
        h = net.op("Plus", "h", p, f)
        net.connect(p, [h])
        net.connect(f, [h])
        message = (
            r"runs both to the past and to the future, through . \(.*Value\) and . \(.*Value\)"
        )
        with pytest.raises(CycleError, match=message):
            net.validate()

    def test_error_points_at_the_node(self):
        source = Source("net.bs", "z = w * x")
        net = Net()
        w, x = net.param("w", 2, 4), net.input("x", 5)
        net.add("Times", "z", [w, x], location=source.locate(6))
        lines = []
        with pytest.raises(ShapeError) as caught:
            net.validate(lines.append)
        assert "net.bs:1:7" in str(caught.value) and "[2 x 4]" in str(caught.value)
        assert lines[-1] == "Validating --> z = Times (w, x) : [2 x 4], [5 x *] -> [2 x *] FAILED"

    def test_unconnected_input(self):
        net = Net()
        net.op("PastValue", "p")
        with pytest.raises(OpscopeError, match="p"):
            net.validate()

    def test_every_error(self):
        net = Net()
        x, y = net.input("x", 3), net.input("y", 4)
        bad = net.op("Plus", "bad", x, y)
        net.op("Tanh", "follows", bad)
        net.op("Times", "wrong", net.param("w", 2, 5), x)
        a = net.op("Plus", "a")
        net.connect(a, [a, x])
        net.op("PastValue", "open")
        net.input("z", 3, dynamicAxis="nowhere")
        good = net.op("Sigmoid", "good", x)
        errors = net.problems()
        texts = sorted(str(e).split(" ")[0].rstrip(":") for e in errors)
        assert texts == ["PastValue", "a", "bad", "wrong", "z"] and good.shape == (3,)
        with pytest.raises(OpscopeError):
            net.validate()
        assert two_layers().problems() == []

    def test_dynamic_axes(self):
        net = Net()
        axis = net.op("DynamicAxis", "t")
        x, y = net.input("x", 1), net.input("y", 1, dynamicAxis="T")
        where = net.op("Where", "w", x)
        index = net.op("PackedIndex", "i", x, where)
        gathered = net.op("GatherPacked", "g", index, x)
        back = net.op("ScatterPacked", "s", x, index, gathered)
        joined = net.op("ReconcileDynamicAxis", "r", x, y)
        net.validate()
        assert y.axis is axis.axis is joined.axis and x.axis is not y.axis
        assert where.axis is gathered.axis and where.axis.name == "WhereNodeAxis"
        assert back.axis is x.axis
        net.op("Abs", "bad", axis)
        with pytest.raises(ShapeError, match="dynamicAxis"):
            net.validate()

    def test_deep_network(self):
        net = Net()
        node = net.input("x", 2)
        for number in range(20_000):
            node = net.op("Sigmoid", f"s{number}", node)
        net.validate()
        assert node.shape == (2,)


class TestShapes:
    @pytest.mark.parametrize(
        ("operation", "inputs", "attributes", "wanted"),
        [
            ("Plus", [("*", 3, 1), (1, 4)], {}, ("*", 3, 4)),
            ("If", [("*", 1), ("*", 2, 3), (2,)], {}, ("*", 2, 3)),
            ("Times", [(2, 3, 4), ("*", 3, 4, 5)], {}, ("*", 2, 5)),
            ("Times", [(2, 3, 4), ("*", 4)], {"outputRank": 2}, ("*", 2, 3)),
            ("Times", [(5, 12), ("*", 3, 4)], {}, ("*", 5)),
            ("TransposeTimes", [(3, 2), ("*", 3)], {}, ("*", 2)),
            ("TransposeTimes", [("*", 3), ("*", 3)], {}, ("*", 1)),
            ("DiagTimes", [(3, 1), ("*", 3)], {}, ("*", 3)),
            ("KhatriRaoProduct", [("*", 3), ("*", 4)], {}, ("*", 12)),
            ("CosDistance", [("*", 3), ("*", 3)], {}, ("*", 1)),
            ("SumElements", [("*", 3)], {}, (1,)),
            ("TransposeDimensions", [("*", 3)], {}, ("*", 1, 3)),
            ("TransposeDimensions", [(2, 3, 4)], {"axis1": 3, "axis2": 1}, (4, 3, 2)),
            ("Diagonal", [(3, 3)], {}, (1, 3)),
            ("LookupTable", [(5, 10), ("*", 30)], {}, ("*", 15)),
            ("Reshape", [("*", 3, 4, 5)], {"shape": (0,), "beginAxis": 2}, ("*", 3, 20)),
            ("Reshape", [("*", 6, 5)], {"shape": (2, 0), "endAxis": 2}, ("*", 2, 3, 5)),
            ("LegacyReshape", [("*", 12)], {"numRows": 12}, ("*", 1, 12, 1)),
            ("Slice", [("*", 5, 6)], {"beginIndex": -2, "endIndex": 0, "axis": 2}, ("*", 5, 2)),
            ("RowStack", [("*", 3), ("*", 4)], {}, ("*", 7)),
            ("RowStack", [("*", 3), ("*", 3)], {"axis": 2}, ("*", 3, 2)),
            ("RowRepeat", [("*", 3)], {"numRepeats": 4}, ("*", 12)),
            ("ReduceElements", [("*", 3, 4)], {"axis": 1, "reductionOp": "max"}, ("*", 1, 4)),
            ("ReduceElements", [("*", 3, 4)], {"reductionOp": "Sum"}, ("*", 1)),
            (
                "Crop",
                [("*", 8, 8, 3), ("*", 4, 5, 2)],
                {"xOffset": 1, "yOffset": 0},
                ("*", 4, 5, 3),
            ),
            ("PastValue", [("*", 3), (1,)], {}, ("*", 3)),
            ("GatherPacked", [("*", 1), (5, 7)], {}, ("*", 5)),
            (
                "OptimizedRNNStack",
                [(0, 0), ("*", 3)],
                {"hiddenDims": 4, "bidirectional": True},
                ("*", 8),
            ),
            ("Mean", [("*", 3)], {}, (3,)),
            ("SquareError", [("*", 3), ("*", 3, 1)], {}, (1,)),
            ("ClassBasedCrossEntropyWithSoftmax", [("*", 4), ("*", 5), (5, 9), ("*", 3)], {}, (1,)),
            (
                "RandomSample",
                [(9,)],
                {"sizeOfSampledSet": 4, "allowDuplicates": False},
                (9, 4),
            ),
            ("EnvironmentInput", [], {"propertyName": "isTraining"}, (1,)),
            (
                "ROIPooling",
                [("*", 9, 9, 3), ("*", 4, 2)],
                {"roiOutputShape": (3, 3)},
                ("*", 3, 3, 3, 2),
            ),
        ],
    )
    def test_shape(self, operation, inputs, attributes, wanted):
        assert shape_of(operation, *inputs, **attributes) == wanted

    @pytest.mark.parametrize(
        ("operation", "inputs", "attributes"),
        [
            ("Plus", [("*", 3), ("*", 4)], {}),
            ("Times", [(2, 3), ("*", 4)], {}),
            ("Times", [(2,), ("*", 4)], {"outputRank": 2}),
            ("TransposeTimes", [(2, 3, 4), ("*", 2)], {}),
            ("DiagTimes", [(4, 1), ("*", 3)], {}),
            ("TransposeDimensions", [("*", 3)], {"axis1": 4, "axis2": 5}),
            ("Reshape", [("*", 7)], {"shape": (2, 0)}),
            ("Reshape", [("*", 7)], {"shape": (0, 0)}),
            ("Slice", [("*", 3)], {"beginIndex": 1, "endIndex": 5}),
            ("ReduceElements", [("*", 3)], {"axis": 2, "reductionOp": "Sum"}),
            ("RowStack", [("*", 3, 2), ("*", 3, 4)], {}),
            ("CrossEntropyWithSoftmax", [("*", 3), ("*", 4)], {}),
            ("CrossEntropyWithSoftmax", [("*", 3), (3,)], {}),
            ("PastValue", [(3,)], {}),
            ("PastValue", [("*", 3), ("*", 1)], {}),
            ("Where", [("*", 2)], {}),
            ("Mean", [(3,)], {}),
            ("LookupTable", [(5, 4), ("*", 30)], {}),
            ("Diagonal", [(2, 3)], {}),
            ("RandomSample", [(4,)], {"sizeOfSampledSet": 4, "allowDuplicates": False}),
            ("EnvironmentInput", [], {"propertyName": "isTesting"}),
        ],
    )
    def test_refused(self, operation, inputs, attributes):
        with pytest.raises(ShapeError):
            shape_of(operation, *inputs, **attributes)


CONVOLUTION = {"kernelShape": (3, 3), "mapCount": (8,)}


class TestImages:
    @pytest.mark.parametrize(
        ("attributes", "wanted"),
        [
            (CONVOLUTION, ("*", 10, 8, 8)),
            ({**CONVOLUTION, "strideShape": (2,)}, ("*", 5, 4, 8)),
            ({**CONVOLUTION, "dimPadding": (False,)}, ("*", 8, 6, 8)),
            (
                {
                    **CONVOLUTION,
                    "dimPadding": (False,),
                    "dimPadLower": (1, 1, 0),
                    "dimPadUpper": (1, 1, 0),
                },
                ("*", 10, 8, 8),
            ),
        ],
    )
    def test_convolution(self, attributes, wanted):
        net = Net()
        weight = net.param("w", 0)
        node = net.op("Convolution", "c", weight, net.input("x", 10, 8, 3), **attributes)
        net.validate()
        assert ("*", *node.shape) == wanted and weight.shape == (3, 3, 3, 8)
        assert node.attributes["kernelShape"] == (3, 3, 3)

    def test_convolution_of_ndl(self):
        values = ndl_function("Convolve").attributes([5, 5, 16, 2, 2], {"zeroPadding": True})
        net = Net()
        weight = net.param("w", 0, 0)
        node = net.op("Convolution", "c", weight, net.input("x", 3, 28, 28), **values)
        net.validate()
        assert node.shape == (16, 14, 14) and weight.shape == (16, 75)

    def test_transposed_convolution(self):
        attributes = {**CONVOLUTION, "strideShape": (2,), "transpose": True}
        node = Net()
        weight = node.param("w", 3, 3, 4, 8)
        data = node.input("x", 5, 4, 8)
        attributes["kernelShape"], attributes["mapCount"] = (3, 3, 4), (8,)
        result = node.op("Convolution", "c", weight, data, **attributes)
        with pytest.raises(ShapeError):  # 8 maps of 8 channels leave 1, the kernel has 4
            node.validate()
        assert result.kind.operation == "Convolution"

    def test_poolings(self):
        window = {"windowWidth": 2, "windowHeight": 3}
        steps = {"horizontalSubsample": 2, "verticalSubsample": 1}
        assert shape_of("MaxPooling", ("*", 8, 6, 3), **window, **steps) == ("*", 4, 4, 3)
        legacy = shape_of("MaxPooling", ("*", 3, 8, 6), **window, **steps, imageLayout="HWC")
        assert legacy == ("*", 3, 4, 4)
        pooled = {"kernelShape": (2, 2), "strideShape": (2, 2), "dimPadding": (False,)}
        assert shape_of("Pooling", ("*", 8, 6, 3), pool="max", **pooled) == ("*", 4, 3, 3)
        whole = ("*", 8, 6, 3)
        assert shape_of("MaxUnpooling", ("*", 4, 3, 3), whole, **pooled) == whole
        with pytest.raises(ShapeError):
            shape_of("MaxUnpooling", ("*", 4, 4, 3), whole, **pooled)
        with pytest.raises(ShapeError, match="kernel"):
            shape_of("Pooling", ("*", 1, 6, 3), pool="max", **pooled)

    def test_batch_normalization(self):
        net = Net()
        parameters = [net.param(name, 0, 1) for name in "abcd"]
        data = net.input("x", 5, 4, 3)
        node = net.op("BatchNormalization", "n", data, *parameters, spatial=True)
        net.validate()
        assert node.shape == (5, 4, 3) and parameters[0].shape == (3, 1)

    def test_crop_finds_its_offsets(self):
        net = Net()
        data = net.input("x", 16, 16, 3)
        geometry = {"kernelShape": (3, 3), "mapCount": (2,), "dimPadding": (False,)}
        small = net.op("Convolution", "c", net.param("w", 0), data, **geometry)
        crop = net.op("Crop", "z", data, small)
        net.validate()
        assert crop.shape == (14, 14, 3)
        assert (crop.attributes["xOffset"], crop.attributes["yOffset"]) == (1.0, 1.0)
