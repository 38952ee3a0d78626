"""Networks: configs, files, info, parameters, descriptions, and what is refused."""

import numpy as np
import pytest

from component_lines import LINES, from_config
from damage import check_damaged
from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError
from opscope.framework.ir.messages import parse_net, serialize_net
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.nnet3.components import Component
from opscope.nnet3.language.config import split_lines
from opscope.nnet3.network.nnet import Nnet

CONFIG = """
# a recurrent network with every kind of node
input-node name=input dim=4
input-node name=ivector dim=2
component name=a type=NaturalGradientAffineComponent input-dim=15 output-dim=6
component name=relu type=RectifiedLinearComponent dim=6
component name=b type=LinearComponent input-dim=3 output-dim=5
component-node name=a component=a input=Append(Offset(input,-1), input, \
ReplaceIndex(ivector, t, 0), IfDefined(Scale(0.5, Offset(out5, -3))))
component-node name=relu component=relu input=a
dim-range-node name=part input-node=relu dim-offset=2 dim=3
component-node name=out5 component=b input=part
output-node name=output input=Sum(out5, Const(1.0, 5)) objective=quadratic
"""


def network(text=CONFIG, seed=0):
    return Nnet.from_config_text(text, seed)


def as_bytes(nnet, binary=True):
    writer = Writer(binary)
    nnet.write_to(writer)
    return writer.getvalue()


def from_bytes(data):
    return Nnet.read_from(Reader(data))


def test_nodes_and_components_in_order():
    nnet = network()
    assert [node.name for node in nnet.nodes] == [
        "input",
        "ivector",
        "a_input",
        "a",
        "relu_input",
        "relu",
        "part",
        "out5_input",
        "out5",
        "output",
    ]
    assert list(nnet.components) == ["a", "relu", "b"]
    assert nnet.node_dims() == dict(
        zip([node.name for node in nnet.nodes], [4, 2, 15, 6, 6, 6, 3, 3, 5, 5], strict=True)
    )
    assert [node.name for node in nnet.inputs()] == ["input", "ivector"]
    assert [node.name for node in nnet.outputs()] == ["output"]
    assert (nnet.input_dim("ivector"), nnet.input_dim("a")) == (2, -1)
    assert (nnet.output_dim("output"), nnet.output_dim("a")) == (5, -1)
    assert nnet.node("part").source == "relu"
    assert nnet.has_node("part") and not nnet.has_node("parts")


def test_config_lines_are_kaldis():
    assert network().config_lines(dims=True) == [
        "input-node name=input dim=4",
        "input-node name=ivector dim=2",
        "component-node name=a component=a input=Append(Offset(input, -1), input, "
        "ReplaceIndex(ivector, t, 0), IfDefined(Offset(Scale(0.5, out5), -3))) "
        "input-dim=15 output-dim=6",
        "component-node name=relu component=relu input=a input-dim=6 output-dim=6",
        "dim-range-node name=part input-node=relu dim-offset=2 dim=3",
        "component-node name=out5 component=b input=part input-dim=3 output-dim=5",
        "output-node name=output input=Sum(out5, Const(1, 5)) dim=5 objective=quadratic",
    ]


@pytest.mark.parametrize("binary", [True, False])
def test_files(tmp_path, binary):
    nnet, path = network(), tmp_path / "net.raw"
    nnet.write(path, binary)
    back = Nnet.read(path)
    assert as_bytes(back, binary) == path.read_bytes()
    assert back.config_lines() == nnet.config_lines()
    assert as_bytes(back.copy(), binary) == path.read_bytes()
    if binary:
        np.testing.assert_array_equal(back.vectorize(), nnet.vectorize())
        assert back.info() == nnet.info()


def test_the_text_of_nodes_is_kept_until_they_are_edited():
    data = as_bytes(network(), False)
    odd = data.replace(
        b"Append(Offset(input, -1), input", b"Append(Offset(input,-1),input"
    ).replace(
        b"component-node name=relu component=relu", b"component-node  component=relu  name=relu"
    )
    nnet = from_bytes(odd)
    assert as_bytes(nnet, False) == odd
    nnet.components["b"].params *= 2
    assert b"Append(Offset(input,-1),input" in as_bytes(nnet, False)
    nnet.node("output").objective = "linear"
    assert b"Append(Offset(input, -1), input" in as_bytes(nnet, False)


def test_configs_one_after_the_other(tmp_path):
    (tmp_path / "a").write_text(CONFIG)
    (tmp_path / "b").write_text(
        "component name=b type=AffineComponent input-dim=3 output-dim=7\n"
        "component name=c type=NoOpComponent dim=7\n"
        "component-node name=out7 component=b input=part\n"
        "output-node name=output input=out7\n"
    )
    (tmp_path / "c").write_text("component-node name=relu component=relu input=Sum(a, a)\n")
    with pytest.raises(ShapeError, match="out5|'a'"):
        Nnet.from_configs([tmp_path / "a", tmp_path / "b"])
    text = CONFIG.replace("input-dim=15", "input-dim=10").replace(
        ", IfDefined(Scale(0.5, Offset(out5, -3))))", ")"
    )
    (tmp_path / "a").write_text(text)
    nnet = Nnet.from_configs([tmp_path / "a", tmp_path / "b", tmp_path / "c"], rng=0)
    assert list(nnet.components) == ["a", "relu", "b", "c"]
    assert nnet.components["b"].type == "AffineComponent"
    assert repr(nnet) == f"<Nnet: {len(nnet.nodes)} nodes, 4 components, 94 parameters>"
    (tmp_path / "a").write_text(CONFIG)
    one = Nnet.from_configs(str(tmp_path / "a"), rng=0)
    assert as_bytes(one, False) == as_bytes(Nnet.from_config_text(CONFIG, 0), False)
    assert [n.name for n in nnet.nodes][-4:] == ["out7", "output", "relu_input", "relu"]
    assert nnet.output_dim("output") == 7


def test_an_error_changes_nothing():
    nnet = network()
    before = as_bytes(nnet)
    lines = split_lines("component name=b type=NoOpComponent dim=9\noutput-node name=x input=b")
    with pytest.raises(OpscopeError):
        nnet.add_config(lines, np.random.default_rng(0))
    assert as_bytes(nnet) == before


def test_seeds():
    assert as_bytes(network(seed=1)) == as_bytes(network(seed=1))
    assert as_bytes(network(seed=1)) != as_bytes(network(seed=2))
    assert as_bytes(network(seed=None)) != as_bytes(network(seed=None))


def test_vectorize():
    nnet = network()
    a, b = nnet.components["a"], nnet.components["b"]
    expected = np.concatenate([a.linear_params.ravel(), a.bias_params, b.params.ravel()])
    np.testing.assert_array_equal(nnet.vectorize(), expected)
    assert nnet.num_parameters == expected.size == 15 * 6 + 6 + 15
    nnet.unvectorize(np.arange(expected.size, dtype=np.float32))
    np.testing.assert_array_equal(nnet.vectorize(), np.arange(expected.size))
    with pytest.raises(ShapeError, match="111 parameters"):
        nnet.unvectorize(expected[1:])


def test_info():
    nnet = network()
    lines = nnet.info().split("\n")
    assert lines[:4] == [
        "left-context: 1",
        "right-context: 0",
        "num-parameters: 111",
        "modulus: 1",
    ]
    assert "component name=relu type=RectifiedLinearComponent, dim=6" in lines
    assert nnet.is_simple()
    assert nnet.context() == (1, 0)


def test_contexts():
    text = """
    input-node name=input dim=3
    component name=n type=NoOpComponent dim=3
    component-node name=n component=n input=Sum(Offset(input, -{left}), Offset(input, {right}))
    output-node name=output input={output}
    """
    assert network(text.format(left=3, right=70, output="n")).context() == (3, 70)
    rounded = network(text.format(left=3, right=2, output="Round(n, 3)"))
    assert rounded.modulus() == 3
    assert rounded.context() == (5, 2)
    with pytest.raises(ShapeError, match="context"):
        network(text.format(left=3, right=700, output="n")).context()
    other = network(text.format(left=0, right=1, output="n").replace("name=output", "name=o"))
    assert not other.is_simple()
    assert "context" not in other.info()
    with pytest.raises(ShapeError, match="'input'"):
        other.context()


def test_description():
    nnet = network()
    desc = parse_net(serialize_net(nnet.to_desc()))
    assert desc.metadata["dialect"] == "nnet3"
    assert [op.type for op in desc.ops][:4] == ["nnet3.component"] * 3 + ["nnet3.input"]
    back = Nnet.from_desc(desc, nnet.arrays())
    assert as_bytes(back) == as_bytes(nnet)
    assert set(nnet.arrays()) == {
        "a/linear_params",
        "a/bias_params",
        "b/params",
        *(f"relu/{name}" for name in ("value_avg", "deriv_avg", "oderiv_rms")),
    }


@pytest.mark.parametrize("type", LINES)
def test_descriptions_of_all_components(type):
    nnet = network()
    nnet.components["more"] = from_config(type, LINES[type][0])
    back = Nnet.from_desc(parse_net(serialize_net(nnet.to_desc())), nnet.arrays())
    assert as_bytes(back) == as_bytes(nnet)


def test_descriptions_that_are_none():
    nnet = network()
    values = nnet.arrays()
    del values["b/params"]
    with pytest.raises(FormatError, match="operator 2 .nnet3.component.*'params' is missing"):
        Nnet.from_desc(nnet.to_desc(), values)
    for change, what in (
        (lambda ops: ops[0].attrs.update(type="X"), "unknown component type"),
        (lambda ops: ops[0].attrs.pop("rank_in"), "rank_in"),
        (lambda ops: setattr(ops[1], "type", "relu"), "not of the nnet3 dialect"),
        (lambda ops: setattr(ops[1], "type", "nnet3.output"), "'descriptor' is missing"),
        (lambda ops: ops[3].outputs.pop("out"), "'out' must hold"),
        (lambda ops: ops.insert(0, ops[0]), "two components"),
        (lambda ops: ops[1].attrs.update(block_dim=5), "block-dim=5"),
    ):
        desc = nnet.to_desc()
        change(desc.ops)
        with pytest.raises(FormatError, match=what):
            Nnet.from_desc(desc, nnet.arrays())


@pytest.mark.parametrize(
    ("old", "new", "error", "what"),
    [
        (
            "component=relu input=a",
            "component=rel input=a",
            FormatError,
            "no component 'rel'.*relu",
        ),
        ("input=part", "input=prat", FormatError, "prat.*part"),
        ("input-node=relu", "input-node=rleu", FormatError, "input-node=rleu.*relu"),
        ("input-node=relu", "input-node=part", FormatError, "input-node=part is no input"),
        ("dim-offset=2", "dim-offset=4", ShapeError, "'part' takes columns 4 to 7 of 'relu'.* 6"),
        ("dim-offset=2", "", FormatError, "dim-offset="),
        ("offset=2 dim=3", "offset=2 dim=0", FormatError, "dim="),
        (
            "input=part",
            "input=relu",
            ShapeError,
            "reads relu of dimension 6, .*'b'.* wants 3",
        ),
        ("objective=quadratic", "objective=cubic", FormatError, "linear or quadratic"),
        ("objective=quadratic", "objetive=linear", FormatError, "objetive=linear is not used"),
        ("type=LinearComponent", "type=LinaerComponent", FormatError, "LinaerCom.*LinearCom"),
        ("Const(1.0, 5)", "Const(1.0, 6)", ShapeError, "output"),
        ("input-node name=ivector dim=2", "input-node name=ivector", FormatError, "dim="),
        ("name=relu type", "name=a type", FormatError, "defined twice"),
        ("input-node name=ivector", "input-node name=a", FormatError, "defined twice"),
        ("input-node name=ivector", "input-node name=a_input", FormatError, "a_input"),
        ("input-node name=ivector", "input-nod name=ivector", FormatError, "input-node"),
        ("input-node name=ivector", "name=ivector", FormatError, "ivector"),
        ("input-node name=ivector", "input-node name=4", FormatError, "not a valid name"),
        ("input-node name=ivector", "input-node", FormatError, "name= is missing"),
        ("input-node name=ivector dim=2", "", FormatError, "ivector"),
        ("output-node name=output", "component-node component=b name=output", OpscopeError, "Sum"),
        ("Append(", "Append((", FormatError, "line 8"),
    ],
)
def test_refused_networks(old, new, error, what):
    assert old in CONFIG
    with pytest.raises(error, match=what):
        network(CONFIG.replace(old, new))


def test_networks_need_an_input_and_an_output():
    with pytest.raises(FormatError, match="input node and an output node"):
        network("input-node name=input dim=3")
    with pytest.raises(FormatError, match="input node and an output node"):
        network("")


def test_damaged_files():
    check_damaged(as_bytes(network()), lambda data: as_bytes(from_bytes(data)))


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b"<Nnet3> ", b"<Nnet2> ", "<Nnet3> was expected"),
        (b"<Nnet3> \n", b"<Nnet3> x\n", "line end"),
        (b"<NumComponents> 3", b"<NumComponents> -3", "no number of components"),
        (b"<NumComponents> 3", b"<NumComponents> 4", "<ComponentName> was expected"),
        (b"<ComponentName> relu", b"<ComponentName> a", "two components are called 'a'"),
        (b"<RectifiedLinearComponent> ", b"<RectifiedLinear> ", "unknown component"),
        (b"name=part input-node", b"name=part inputnode", "input-node= is missing"),
        (b"input-node name=input dim=4", b"component name=x type=NoOpComponent", "after"),
        (b"input-node name=input dim=4", b"input-node name", "key=value"),
        (b"input-node name=input dim=4", b"input-node name=input dim=5", "dimension 17"),
    ],
)
def test_files_that_contradict_themselves(old, new, what):
    data = as_bytes(network(), False)
    assert old in data
    with pytest.raises(FormatError, match=what) as caught:
        from_bytes(data.replace(old, new, 1))
    assert "byte" in str(caught.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(FormatError, match="absent"):
        Nnet.read(tmp_path / "absent")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(FormatError, match="the end of the file"):
        Nnet.read(tmp_path / "empty")


def test_topology():
    topology = network().topology()
    assert topology.is_recurrent
    assert [node.dim for node in topology.nodes] == [4, 2, 15, 6, 6, 6, 3, 3, 5, 5]
    assert topology.nodes[6].source == 5
    assert isinstance(topology.nodes[3].component, Component)


def test_what_the_compiler_sees_is_kept_until_something_changes():
    config = "component name=tdnn type=TdnnComponent input-dim=4 output-dim=4 time-offsets=-1,0"
    config += "\ncomponent name=norm type=BatchNormComponent dim=4\ninput-node name=input dim=4"
    config += "\ncomponent-node name=tdnn component=tdnn input=input"
    config += "\ncomponent-node name=norm component=norm input=tdnn"
    nnet = network(config + "\noutput-node name=output input=norm\n")
    first = nnet.topology()
    assert nnet.topology() is first
    nnet.components["norm"].test_mode = True
    second = nnet.topology()
    assert second is not first
    number = second.number("norm")
    assert second.nodes[number].properties == int(nnet.components["norm"].properties)
    assert second.nodes[number].properties != first.nodes[number].properties
    nnet.components["tdnn"].time_offsets = (-2, 0)
    assert nnet.topology().steps != second.steps
    third = nnet.topology()
    nnet.nodes[-1].descriptor = nnet.node("norm_input").descriptor
    assert nnet.topology() is not third and nnet.copy().topology() is not nnet.topology()
