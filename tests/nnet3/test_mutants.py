"""Networks and computations in `.pb` files that a hand or a chance has changed: one clear error."""

import numpy as np
import pytest

from mutants import Mutator, foreign_errors
from opscope.framework.base.errors import FormatError
from opscope.framework.ir.messages import from_message, parse_net, serialize_net, to_message
from opscope.framework.ir.printer import net_text
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.pipeline import compile_request
from opscope.nnet3.inference.saved import load_nnet, save_nnet
from opscope.nnet3.lower import command_dialect
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize import compile_optimized
from opscope.nnet3.optimize.checker import check_computation

# No 'input' and no 'output': the context of a simple network is long to find, for each mutant.
CONFIG = """
input-node name=x dim=4
component name=a type=NaturalGradientAffineComponent input-dim=12 output-dim=6
component-node name=a component=a input=Append(Offset(x, -1), x, Round(x, 2))
component name=b type=BatchNormComponent dim=6 block-dim=3
component-node name=b component=b input=Sum(a, IfDefined(Offset(a, -1)))
component name=c type=CompositeComponent num-components=2 \
    component1='type=AffineComponent input-dim=6 output-dim=3' \
    component2='type=RectifiedLinearComponent dim=3'
component-node name=c component=c input=b
component name=p type=PermuteComponent column-map=1,0,2
component-node name=p component=p input=c
component name=t type=TdnnComponent input-dim=3 output-dim=2 time-offsets=-1,0
component-node name=t component=t input=p
dim-range-node name=d input-node=t dim=1 dim-offset=1
output-node name=y input=Append(t, d) objective=quadratic
"""


@pytest.fixture(scope="module")
def network():
    return Nnet.from_config_text(CONFIG, 0)


def io(name, first, last):
    rows = [f"{n},{t},0" for n in range(2) for t in range(first, last)]
    return f"{name} has_deriv=1 {' '.join(rows)}\n"


REQUEST = ComputationRequest.parse(
    f"input {io('x', -6, 4)}output {io('y', 0, 2)}need_model_derivative=1\n"
)


def use_network(data, values):
    """Load, show and lower it, and write it again."""
    net = from_message(parse_net(data))
    net_text(net)
    nnet = Nnet.from_desc(net, values)
    nnet.info()
    compile_request(nnet, REQUEST, natural_gradient=True)
    serialize_net(nnet.to_desc())


def test_networks(network):
    use_network(serialize_net(network.to_desc()), network.arrays())
    mutator = Mutator(network.to_desc(), network.arrays(), seed=1)
    found = foreign_errors(mutator.mutants(2000), use_network)
    assert not found, [text for text, _ in found]


def test_computations(network):
    topology = network.topology()
    computation = compile_optimized(topology, REQUEST, None)

    def use(data, values):
        net = from_message(parse_net(data))
        net_text(net)
        command_dialect.from_desc(net, None)
        back = command_dialect.from_desc(net, topology)
        check_computation(back)
        back.to_kaldi()

    whole = command_dialect.to_desc(computation)
    use(serialize_net(whole), {})
    found = foreign_errors(Mutator(whole, seed=1).mutants(300), use)
    assert not found, [text for text, _ in found]


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
