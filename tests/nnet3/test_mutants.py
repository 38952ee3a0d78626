"""Networks and computations in `.pb` files that a hand or a chance has changed: one clear error."""

import numpy as np
import pytest

from campaign.__main__ import TARGETS
from campaign.limits import finds
from campaign.readers import network_targets
from opscope.framework.base.errors import FormatError
from opscope.framework.ir.messages import from_message, parse_net, to_message
from opscope.nnet3.inference.saved import load_nnet, save_nnet
from opscope.nnet3.network.nnet import Nnet


@pytest.fixture(scope="module")
def network():
    return network_targets.network()


@pytest.mark.parametrize(
    ("name", "count"), [("network", 200), ("network arrays", 80), ("computation", 80)]
)
def test_mutants(name, count, tmp_path):
    found = finds(TARGETS[name], count, tmp_path)
    assert found.refused and not found.finds, list(found.finds)


def changed(network, change):
    desc = to_message(network.to_desc())
    desc.format_version = 1
    change(desc)
    return from_message(parse_net(desc.SerializeToString()))


def op_of(desc, type, **attrs):
    ops = (op for op in desc.ops if op.type == f"nnet3.{type}")
    return next(op for op in ops if all(op.attrs[n].s == value for n, value in attrs.items()))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: setattr(op_of(d, "input").attrs["dim"], "s", "x"), "'dim' should be a int"),
        (lambda d: setattr(op_of(d, "input").attrs["dim"], "i", 1 << 40), "is not from 1 to"),
        (lambda d: setattr(op_of(d, "descriptor").attrs["descriptor"], "i", 1), "be a string"),
        (lambda d: op_of(d, "component").attrs["type"].ints.SetInParent(), "be a string"),
        (lambda d: op_of(d, "component").inputs[0].vars.pop(), "must hold one variable"),
        (lambda d: setattr(op_of(d, "component_node").attrs["component"], "s", "ä"), "component"),
        (lambda d: d.ops.pop(), "an output node|must stand before|config"),
    ],
)
def test_attributes_that_no_network_has(network, change, told):
    with pytest.raises(FormatError, match=told):
        Nnet.from_desc(changed(network, change), network.arrays())


@pytest.mark.parametrize(
    "array", [np.zeros(()), np.zeros((1,) * 3, "f4"), np.zeros(6, "i4"), np.zeros((6, 6), bool)]
)
def test_arrays_that_no_network_has(network, array):
    values = network.arrays() | {"a/linear_params": array}
    with pytest.raises(FormatError, match="'linear_params' should be float32 or float64 with 2"):
        Nnet.from_desc(network.to_desc(), values)


def test_errors_name_the_file(network, tmp_path):
    save_nnet(network, tmp_path / "net")
    desc = parse_net((tmp_path / "net.pb").read_bytes())
    op_of(desc, "input").attrs["dim"].s = "x"
    (tmp_path / "net.pb").write_bytes(desc.SerializeToString())
    with pytest.raises(FormatError, match=r"net.*operator \d+ \(nnet3.input\): .*'dim'"):
        load_nnet(tmp_path / "net")


def test_tensors_of_a_rank_that_no_array_has(network):
    def rank(count, size):
        def change(desc):
            tensor = op_of(desc, "input").attrs["dim"].tensor
            tensor.dtype = 8
            tensor.dims.extend([size] * count)
            tensor.data = bytes(4)

        return change

    for count, size in ((65, 1), (70, 0), (3, 1 << 62)):
        with pytest.raises(FormatError, match="operator 9.*a tensor attribute|should be a int"):
            Nnet.from_desc(changed(network, rank(count, size)), network.arrays())
