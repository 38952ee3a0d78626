"""Editing of networks, initial values, and standard networks."""

import copy

import numpy as np
import pytest

from opscope.cntk.base import mersenne
from opscope.cntk.network.edit import property_name
from opscope.cntk.network.initialize import fans, initial_value, initialize
from opscope.cntk.network.network import Network
from opscope.cntk.network.nodes.node import Node
from opscope.cntk.network.standard.settings import SimpleNetworkSettings
from opscope.cntk.network.standard.simple_builder import build_simple_network
from opscope.cntk.network.ziggurat import normal, uniform
from opscope.framework.base.errors import (
    AttributeTypeError,
    FormatError,
    OpscopeError,
    VariableError,
)


def two_layers():
    net = Network()
    node = net.add("InputValue", "x", shape=3, tags=["feature"])
    for layer in ("L1", "L2"):
        w = net.add("LearnableParameter", f"{layer}.W", shape=(3, 3))
        node = net.add("Times", f"{layer}.t", [w, node])
        node = net.add("Tanh", f"{layer}.act", [node])
    net.add_to_group("output", node)
    net.validate()
    initialize(net)
    return net


def compared(monkeypatch, make, size):
    """How often nodes are compared with one another, or looked for, by their `==` and hash."""
    count = [0]

    def equal(one, other):
        count[0] += 1
        return one is other

    def hashed(node):
        count[0] += 1
        return id(node)

    call = make(size)
    with monkeypatch.context() as patch:
        patch.setattr(Node, "__eq__", equal, raising=False)
        patch.setattr(Node, "__hash__", hashed, raising=False)
        call()
    return count[0]


def test_groups_in_linear_time(monkeypatch):
    """Each node was looked for among all those of its group: 16,000 outputs took seconds."""

    def make(size):
        net = Network()
        nodes = [net.add("InputValue", f"x{i}", shape=3) for i in range(size)]

        def fill():
            for node in (*nodes, *nodes):
                net.add_to_group("output", node)
            assert net.groups["output"] == nodes

        return fill

    one, two = (compared(monkeypatch, make, size) for size in (200, 400))
    assert one and two < 2.2 * one


def test_groups_that_are_changed_by_others():
    net = two_layers()
    x, last = net.find("x"), net.find("L2.act")
    net.add_to_group("output", last)
    assert net.groups["output"] == [last]
    net.groups["output"] = [x]
    net.add_to_group("output", last)
    net.add_to_group("output", x)
    assert net.groups["output"] == [x, last]
    net.groups["output"].remove(x)
    net.add_to_group("output", x)
    net.remove_from_group("output", last)
    net.remove_from_group("output", last)
    assert net.groups["output"] == [x]
    twin = copy.deepcopy(net)
    twin.add_to_group("output", twin.find("x"))
    twin.add_to_group("output", twin.find("L2.act"))
    assert [node.name for node in twin.groups["output"]] == ["x", "L2.act"]
    other = net.add("Tanh", "other", [last])
    net.replace(x, other, keep_inputs=False)
    net.add_to_group("output", other)
    assert net.groups["output"] == [other] and other.name == "x"
    net.delete(other)
    assert net.groups["output"] == []


class TestEditing:
    def test_match(self):
        net = two_layers()
        assert [n.name for n in net.match("L*.W")] == ["L1.W", "L2.W"]
        assert [n.name for n in net.match("l1.w")] == ["L1.W"]
        assert net.match("l*.W") == [] and len(net.match("*")) == 7

    def test_rename_keeps_links(self):
        net = two_layers()
        net.rename(net.find("L1.W"), "V")
        assert net.find("L1.t").inputs[0].name == "V" and "L1.W" not in net
        net.rename(net.find("V"), "v")  # of the same node, case may change
        with pytest.raises(VariableError):
            net.rename(net.find("v"), "l1.T")

    def test_delete_leaves_inputs_unconnected(self):
        net = two_layers()
        net.delete(net.find("L2.act"))
        assert net.groups["output"] == []
        net.delete(net.find("L1.act"))
        assert net.find("L2.t").inputs[1] is None
        with pytest.raises(OpscopeError, match="L2.t"):
            net.validate()

    def test_replace(self):
        net, other = two_layers(), Network()
        new = other.add("Sigmoid", "s")
        net.replace(net.find("L2.act"), new)
        net.validate()
        assert net.groups["output"] == [new] and new.name == "L2.act" and new.shape == (3,)

    def test_copy_of_a_pattern(self):
        net = two_layers()
        pairs = net.copied_names("L2.*", net, "L3.*")
        copies = net.copy_nodes(pairs)
        assert [n.name for n in copies.values()] == ["L3.act", "L3.t", "L3.W"]
        # What is not copied is read as before.
        assert [i.name for i in net.find("L3.t").inputs] == ["L3.W", "L1.act"]
        assert net.find("L3.W").value is not net.find("L2.W").value
        net.validate()
        with pytest.raises(VariableError):
            net.copied_names("L2.*", net, "L3")
        with pytest.raises(VariableError, match="no node"):
            net.copied_names("K*", net, "L*")

    def test_copy_of_values_to_many(self):
        net = two_layers()
        net.find("L1.W").value[:] = 7
        pairs = net.copied_names("L1.W", net, "L2.*W")
        net.copy_nodes(pairs, links=False)
        assert (net.find("L2.W").value == 7).all()
        with pytest.raises(VariableError, match="Times"):
            net.copy_node(net.find("L1.W"), "L2.t")

    def test_copy_to_another_network(self):
        net, other = two_layers(), Network()
        other.copy_subtree(net.find("L1.act"), "copy.")
        assert sorted(other.nodes) == ["copy.L1.W", "copy.L1.act", "copy.L1.t", "copy.x"]
        other.validate()
        assert other.find("copy.L1.act").shape == (3,)

    def test_properties(self):
        net = two_layers()
        act, w = net.find("L1.act"), net.find("L1.W")
        net.set_property(act, "Eval", True)
        net.set_property(act, "criteria", True)
        assert net.groups["evaluation"] == net.groups["criterion"] == [act]
        net.set_property(act, "criterion", False)
        assert net.groups["criterion"] == []
        net.set_property(w, "learningRateMult", 0.5)
        assert w.learning_rate == 0.5
        net.set_property_below(act, "needGradient", False)
        assert w.learning_rate == 0 and net.find("L2.W").learning_rate == 1
        net.set_property_below(None, "learningRateMultiplier", 2)
        assert net.find("L2.W").learning_rate == 2
        net.set_property(w, "freezeParameters", True)
        assert w.learning_rate == 0
        with pytest.raises(AttributeTypeError):
            net.set_property(act, "freezeParameters", True)
        with pytest.raises(AttributeTypeError):
            property_name("lea")

    def test_set_input_and_revise(self):
        net = two_layers()
        net.set_input(net.find("L2.t"), 1, net.find("x"))
        net.validate()
        assert net.find("L2.t").inputs[1].name == "x"
        with pytest.raises(OpscopeError):
            net.set_input(net.find("L2.t"), 2, net.find("x"))
        net.revise(net.find("L1.W"), np.eye(3, dtype=np.float32))
        with pytest.raises(OpscopeError, match="rows"):
            net.revise(net.find("L1.W"), np.eye(2, dtype=np.float32))


class TestInitialValues:
    def test_fans(self):
        assert fans((3, 3, 2, 5), 2, -1) == (18, 45)
        assert fans((4, 6), 0, 1) == (6, 4)
        with pytest.raises(ValueError):
            fans((4,), 2, -1)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_distributions(self, dtype):
        count = 200_000
        low = uniform(5, count, -0.5, 0.25, np.dtype(dtype))
        assert low.dtype == dtype and low.min() >= -0.5 and low.max() < 0.25
        assert abs(low.mean() + 0.125) < 2e-3
        bell = normal(5, count, 1.0, 2.0, np.dtype(dtype))
        z = (bell.astype(np.float64) - 1) / 2
        for moment, wanted in ((1, 0), (2, 1), (3, 0), (4, 3)):
            assert abs((z**moment).mean() - wanted) < 0.05
        assert abs((np.abs(z) > 3.5).mean() - 4.65e-4) < 2e-4  # the tail's own way

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize(
        ("low", "high"),
        [(-0.05, 0.05), (0.0, 3.0), (2.0**24 - 2, 2.0**24 + 1), (1.0, 1 + 2.0**-22)],
    )
    def test_uniform_in_c(self, dtype, low, high, monkeypatch):
        """The same bits, where rounding reaches the upper end, too."""
        counts = (3000, 312 * 9, 10_001)
        found = [uniform(7, count, low, high, np.dtype(dtype)) for count in counts]
        monkeypatch.setattr(mersenne.native, "load", lambda file: None)
        for count, numbers in zip(counts, found, strict=True):
            same = uniform(7, count, low, high, np.dtype(dtype))
            np.testing.assert_array_equal(numbers, same)
            assert numbers.max() < high

    def test_a_part_of_the_stream_is_the_same(self):
        long = normal(3, 100_000, 0, 1, np.dtype(np.float32))
        np.testing.assert_array_equal(normal(3, 77, 0, 1, np.dtype(np.float32)), long[:77])

    def test_bilinear(self):
        net = Network()
        given = {"init": "bilinear", "kernelWidth": 3, "kernelHeight": 3}
        node = net.add("LearnableParameter", "w", shape=(2, 18), attributes=given)
        node.shape = (2, 18)
        value = initial_value(node, np.float32).reshape(-1, order="F").reshape(2, 2, 3, 3)
        wanted = [[0.25, 0.5, 0.25], [0.5, 1, 0.5], [0.25, 0.5, 0.25]]
        np.testing.assert_array_equal(value[1, 1], wanted)
        assert not value[0, 1].any()

    def test_shape_from_a_literal(self):
        net = Network()
        given = {"init": "fromLiteral", "initFromLiteral": "1 2 3\n4 5 6\n"}
        w = net.add("LearnableParameter", "w", shape=0, attributes=given)
        net.add("Times", "z", [w, net.add("InputValue", "x", shape=3)])
        net.validate()
        assert w.shape == (2, 3) and w.value[1, 2] == 6

    @pytest.mark.parametrize(
        "given",
        [
            {"init": "gauss"},
            {"initFromLiteral": "1 2\n3"},
            {"initFromLiteral": "1 a"},
            {"initFromLiteral": "1 2 3"},
            {"initFromFilePath": "no/such/file"},
            {"initValue": "one"},
            {"init": "heNormal", "initFilterRank": 3},
            {"init": "bilinear"},
        ],
    )
    def test_refused(self, given):
        net = Network()
        node = net.add("LearnableParameter", "w", shape=(2, 2), attributes=given)
        net.add("Times", "z", [node, net.add("InputValue", "x", shape=2)])
        with pytest.raises(OpscopeError):
            net.validate()
            initialize(net)


class TestStandardNetworks:
    RECURRENT = {"recurrent_layers": [1], "training_criterion": "crossEntropyWithSoftmax"}
    WORDS = {
        "layer_sizes": [20, 5, 7, 20],
        "lookup_table_order": 1,
        "class_count": 4,
        "vocab_size": 20,
        "training_criterion": "classCrossEntropyWithSoftmax",
        "eval_criterion": "classCrossEntropyWithSoftmax",
    }

    @pytest.mark.parametrize(
        ("kind", "options", "nodes"),
        [
            ("SIMPLENET", {"need_prior": True, "apply_mean_var_norm": True}, 20),
            ("SIMPLENET", {"layer_sizes": [4, 3], "layer_types": ["None"]}, 9),
            ("SIMPLERNN", {"recurrent_layers": [1], "add_dropout_nodes": True}, 15),
            ("LSTM", {"lookup_table_order": 0}, 61),
            ("LSTM", {"layer_sizes": [4, 5, 6, 3], "const_forget_gate": True}, 58),
            ("LBLM", {"ma_order": 3, "layer_sizes": [4, 4, 3], "recurrent_layers": [1]}, 27),
            ("NPLM", {"recurrent_layers": [1]}, 28),
            ("CLASSLM", {**WORDS, "recurrent_layers": [1, 2]}, 20),
            ("CRF", {"training_criterion": "crf", "eval_criterion": "crf"}, 13),
            (
                "CRF",
                {
                    "layer_sizes": [20, 5, 7, 6],
                    "lookup_table_order": 1,
                    "recurrent_layers": [2],
                    "training_criterion": "crf",
                },
                64,
            ),
            ("CLASSLSTM", WORDS, 63),
            ("CLSTM", {**WORDS, "layer_types": ["Sigmoid", "Tanh"]}, 68),
            (
                "NCELSTM",
                {
                    **WORDS,
                    "noise_count": 5,
                    "training_criterion": "noiseContrastiveEstimation",
                    "eval_criterion": "noiseContrastiveEstimation",
                    "direct_connect": [1],
                },
                66,
            ),
        ],
    )
    def test_builds_and_validates(self, kind, options, nodes):
        spec = {
            "layer_sizes": [4, 6, 3],
            "training_criterion": "crossEntropyWithSoftmax",
            "eval_criterion": "errorPrediction",
            **options,
        }
        net = build_simple_network(SimpleNetworkSettings(rnn_type=kind, **spec))
        net.validate()
        initialize(net)
        assert len(net) == nodes
        assert net.groups["criterion"] and net.groups["output"] and net.groups["label"]

    def test_wrong_parameters(self):
        given = {"layer_sizes": [4, 3], "training_criterion": "squareError"}
        with pytest.raises(FormatError, match="evalCriterion"):
            build_simple_network(SimpleNetworkSettings(**given, eval_criterion="perplexity"))
        given["eval_criterion"] = "squareError"
        with pytest.raises(FormatError, match="recurrentLayer"):
            build_simple_network(
                SimpleNetworkSettings(**{**given, "layer_sizes": [4, 5, 3]}, rnn_type="SIMPLERNN")
            )
        with pytest.raises(FormatError, match="layerTypes"):
            build_simple_network(
                SimpleNetworkSettings(
                    **{**given, "layer_sizes": [4, 5, 3]}, layer_types=["Softsign"]
                )
            )
        with pytest.raises(FormatError, match="lookupTableOrder"):
            build_simple_network(SimpleNetworkSettings(**given, rnn_type="CLASSLSTM"))
        with pytest.raises(FormatError, match="rnnType"):
            build_simple_network(SimpleNetworkSettings(**given, rnn_type="HMM"))
        given["training_criterion"] = "crf"
        with pytest.raises(FormatError, match="CRF is no criterion of SIMPLENET"):
            build_simple_network(SimpleNetworkSettings(**given))
