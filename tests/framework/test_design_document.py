"""The network design document, line by line: what it promises of Net, PlainNet and their use."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import opscope
from doc_blocks import blocks
from opscope.framework.base.backend import CPUPlace
from opscope.framework.base.context import OpContext, default_context
from opscope.framework.base.errors import (
    FormatError,
    OpscopeError,
    ShapeError,
    SlotError,
    VariableError,
)
from opscope.framework.base.scope import Scope, default_scope
from opscope.framework.ir.desc import (
    FORWARD,
    INPUT,
    PARAMETER,
    RECURRENT,
    RECURSIVE,
    make_op,
    make_var,
)
from opscope.framework.ir.op_list import OpList
from opscope.framework.passes.optimizer import OptimizerAttrs
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.plain_net import PlainNet
from package_copy import ROOT


def tiny(name="tiny"):
    """h = relu(x * w), y = h + w."""
    desc = OpList(name=name)
    desc.vars.extend([make_var("x", (-1, 2), kind=INPUT), make_var("w", (-1, 2), kind=PARAMETER)])
    desc.ops.append(make_op("toy_mul", {"x": "x", "y": "w"}, {"out": "m"}))
    desc.ops.append(make_op("toy_relu", {"x": "m"}, {"out": "h"}))
    desc.ops.append(make_op("toy_add", {"x": "h", "y": "w"}, {"out": "y"}))
    return desc


def f32(*rows):
    return np.array(rows, np.float32)


def test_network_is_built_from_a_protobuf_message_and_knows_its_operators():
    net = Net.create(tiny())
    assert [op.type for op in net.operators] == ["toy_mul", "toy_relu", "toy_add"]


def test_variables_live_in_scopes_and_the_net_owns_no_data():
    net = Net.create(tiny())
    one, two = Scope(), Scope()
    for scope, value in ((one, 1.0), (two, 2.0)):
        scope.feed({"x": f32([value, value]), "w": f32([3, -3])})
        net.run(scope)
    assert one.numpy("y").tolist() == [[6, -3]]
    assert two.numpy("y").tolist() == [[9, -3]]


def test_create_is_a_factory_by_type():
    """`Net::Create(const OpList &def = OpList())` dispatches on the net's type."""
    assert isinstance(Net.create(), PlainNet)
    assert isinstance(Net.create(tiny()), PlainNet)
    for net_type in (RECURRENT, RECURSIVE):
        try:
            made = Net.create(OpList(type=net_type))
        except OpscopeError:
            continue  # without a step net, or not registered: refused, not taken for a plain net
        assert not isinstance(made, PlainNet)
    with pytest.raises((FormatError, ValueError)):
        Net.create(OpList(type=7))


def test_run_takes_scope_context_begin_and_end():
    signature = inspect.signature(Net.run)
    assert list(signature.parameters) == ["self", "scope", "context", "begin", "end"]
    assert [p.default for p in list(signature.parameters.values())[1:]] == [None, None, -1, -1]


def test_all_operators_run_without_positive_indexes_and_a_range_with_them():
    net = Net.create(tiny())
    scope = Scope()
    scope.feed({"x": f32([1, 1]), "w": f32([2, -2])})
    net.run(scope, None, 0, 2)
    assert scope.numpy("h").tolist() == [[2, 0]] and "y" not in scope
    scope.get("h").set(f32([5, 5]))
    net.run(scope, None, 2, 3)
    assert scope.numpy("y").tolist() == [[7, 3]], "only the last operator ran"
    net.run(scope, begin=-1, end=-1)
    assert scope.numpy("y").tolist() == [[4, -2]]
    net.run(scope, None, 1, 1)  # an empty range is fine
    for begin, end in ((0, 4), (3, 2), (5, -1)):
        with pytest.raises(OpscopeError, match="do not lie within 0:3"):
            net.run(scope, None, begin, end)


def test_default_scope_and_default_context():
    """`Run(Scope *scope = nullptr, OpContext *context = nullptr)`."""
    scope = default_scope()
    try:
        scope.feed({"dd_x": f32([1, 2]), "dd_w": f32([3, 4])})
        net = Net.create()
        net.add_op("toy_mul", {"x": "dd_x", "y": "dd_w"}, {"out": "dd_y"})
        net.run()
        assert scope.numpy("dd_y").tolist() == [[3, 8]]
    finally:
        for name in ("dd_x", "dd_w", "dd_y"):
            scope.erase(name)
    assert default_context() is default_context()


def test_add_op_by_description_returns_the_index():
    """`OpIndex AddOp(const proto::OpDef &def)`."""
    net = Net.create(tiny())
    assert net.add_op(make_op("toy_relu", {"x": "y"}, {"out": "z"})) == 3
    assert net.add_op(make_op("toy_relu", {"x": "z"}, {"out": "zz"})) == 4
    assert net.operators[3].index == 3


def test_add_op_by_type_inputs_outputs_attrs():
    """`OpIndex AddOp(type, inputs, outputs, attrs)`; the index is the offset in `ops_`."""
    net = Net.create()
    first = net.add_op("toy_square", {"x": "a"}, {"out": "b"}, {"bias": 1.0})
    second = net.add_op("toy_square", {"x": "b"}, {"out": "c"})
    assert (first, second) == (0, 1)
    scope = Scope(CPUPlace())
    scope.feed({"a": f32([2, 3])})
    net.run(scope, None, first, second)
    assert scope.numpy("b").tolist() == [[5, 10]] and "c" not in scope


def test_add_op_takes_plain_lists_in_the_order_of_the_slots():
    """`AddOp(const std::string &type, const std::vector<string> &inputs, ...outputs, attrs)`."""
    net = PlainNet()
    net.add_op("toy_mul", ["x", "w"], ["m"])
    net.add_op("toy_square", ["m"], ["s"], {"bias": 1.0})
    net.add_op("concat", [["m", "s"]], ["both"], {"axis": 1})
    net.add_op("toy_relu", "both", "y")
    assert net.operators[0].inputs == {"x": ("x",), "y": ("w",)}
    scope = Scope()
    scope.feed({"x": f32([1, 2]), "w": f32([3, -4])})
    net.run(scope)
    assert scope.numpy("y").tolist() == [[3, 0, 10, 65]]
    inner = Net.create(tiny())
    assert inner.add_op("toy_add", ("y", "h"), ("z",)) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("toy_mul", ["x"], ["m"]), r"1 inputs are listed, 'x'; its input slots are.*: x, y"),
        (("toy_mul", ["x", "w", "v"], ["m"]), "3 inputs are listed"),
        (("toy_mul", ["x", "w"], []), "0 outputs are listed.*: out"),
        (("toy_mul", ["x", "w"], ["m", "n"]), "2 outputs are listed"),
        (("toy_mul", [["x", "w"], "v"], ["m"]), r"slot 'x' takes one variable, not \['x', 'w'\]"),
        (("concat", ["m", "s"], ["y"]), r"2 inputs are listed.*in this order: \[x, \.\.\.\]"),
        (("concat", ["m"], ["y"]), "slot 'x' takes a list of variables, not 'm'"),
        (("toy_mull", ["x", "w"], ["m"]), "did you mean toy_mul"),
    ],
)
def test_lists_that_do_not_fit_the_slots_are_refused(arguments, message):
    net = Net.create(tiny())
    with pytest.raises(OpscopeError, match=message) as error:
        net.add_op(*arguments)
    assert isinstance(error.value, SlotError) or "mean" in message
    assert len(net.operators) == 3


def test_the_last_outputs_are_readable_and_of_others_the_message_says_how():
    net, scope = Net.create(tiny()), Scope()
    scope.feed({"x": f32([1, 1]), "w": f32([2, -2])})
    net.run(scope)
    assert scope.numpy("y").tolist() == [[4, -2]], "which nobody reads later"
    for read in (scope.numpy, scope.get, scope.new_scope().numpy):
        with pytest.raises(VariableError, match=r"'h' is a temporary.*live_out=\['h'\]"):
            read("h")
    net.run(scope, OpContext(live_out=["h"]))
    assert scope.numpy("h").tolist() == [[2, 0]]
    net.run(scope)
    with pytest.raises(VariableError, match=r"fetch=\['h'\] of NetBuilder.run"):
        scope.numpy("h")
    with pytest.raises(VariableError, match="no variable 'hh' in the scope"):
        scope.numpy("hh")


def test_add_backward_and_optimizer_ops_go_into_the_same_list():
    """`AddBackwardOps()` and `AddOptimizerOps(attrs)`."""
    desc = tiny()
    desc.vars = [var.changed(shape=(1, 2)) for var in desc.vars]
    net = Net.create(desc)
    forward = net.last_forward_op
    assert net.add_backward_ops() == {"w": "w@GRAD"}
    names = net.add_optimizer_ops(OptimizerAttrs("toy_sgd", 0.5))
    assert names == ["optimizer@LEARNING_RATE"]
    roles = [op.role for op in net.operators]
    assert roles == sorted(roles) and roles[: forward + 1] == [FORWARD] * 3
    scope = Scope()
    scope.feed({"x": f32([1, 1]), "w": f32([2, -2]), "optimizer@LEARNING_RATE": np.float32(0.5)})
    net.run(scope, OpContext(live_out=["w@GRAD"]))  # dy/dw = relu'(xw) x + 1
    assert scope.numpy("w@GRAD").tolist() == [[2, 1]]
    assert scope.numpy("w").tolist() == [[1, -2.5]]


def test_a_cost_is_readable_though_its_gradient_looks_at_its_shape():
    """`fill_like` begins the gradient and reads no value of the cost."""
    net = PlainNet()
    net.add_op("scale", ["x"], ["h"], {"scale": 2.0})
    net.add_op("mean", ["h"], ["cost"])
    net.add_backward_ops("cost", wrt=["x"])
    scope = Scope()
    scope.feed({"x": f32([1, 2])})
    net.run(scope)
    assert scope.numpy("cost") == 3 and scope.numpy("x@GRAD").tolist() == [[1, 1]]
    scope.erase("cost")
    net.run(scope, OpContext(live_out=()))
    assert "cost" not in scope, "who says what is wanted gets no more"


def test_run_forward_only_stops_at_the_last_forward_op():
    """NetBuilder's `net_->Run(scope, context, 0, last_forward_op_)`; `end` is exclusive here."""
    net = Net.create(tiny())
    net.add_backward_ops()
    scope = Scope()
    scope.feed({"x": f32([1, 1]), "w": f32([2, -2])})
    net.run(scope, None, 0, net.last_forward_op + 1)
    assert "w@GRAD" not in scope and scope.numpy("y").tolist() == [[4, -2]]


def test_infer_shape_mutates_the_scope():
    """`InferShape(Scope *scope)`: shapes of all variables the operators require."""
    net = Net.create(tiny())
    scope = Scope()
    scope.feed({"x": np.zeros((4, 2), np.float32), "w": np.zeros((4, 2), np.float32)})
    net.infer_shape(scope)
    assert {name: scope.get(name).shape for name in ("m", "h", "y")} == dict.fromkeys(
        ("m", "h", "y"), (4, 2)
    )


def test_infer_shape_that_fails_leaves_the_scope():
    net = Net.create(tiny())
    scope = Scope()
    scope.feed({"x": np.zeros((4, 2), np.float32), "w": np.zeros((3, 2), np.float32)})
    with pytest.raises(ShapeError, match=r"op 0 \(toy_mul\)"):
        net.infer_shape(scope)
    assert scope.names() == ["x", "w"]


def test_shapes_are_inferred_before_every_minibatch():
    net = Net.create(tiny())
    scope = Scope()
    for rows in (3, 1, 5, 3):
        x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
        scope.feed({"x": x, "w": np.ones((rows, 2), np.float32)})
        net.run(scope)
        assert np.array_equal(scope.numpy("y"), x + 1)


def test_running_is_const():
    """`Run(...) const`: neither description nor operators change."""
    net = Net.create(tiny())
    before = net.desc.SerializeToString(deterministic=True)
    scope = Scope()
    scope.feed({"x": f32([1, 1]), "w": f32([2, -2])})
    net.run(scope, OpContext(train=False))
    assert net.desc.SerializeToString(deterministic=True) == before


def test_copy_takes_all_variables_or_none():
    """`Copy(const Scope &source, Scope &target, const std::vector<std::string> &vars)`."""
    source, target = Scope(), Scope()
    source.feed({"a": f32([1, 2]), "b": f32([3, 4])})
    source.var("s").set(np.ones((3, 1)), [[0, 1, 3]])
    opscope.copy(source.new_scope(), target, ["a", "s"])
    assert target.numpy("a").tolist() == [[1, 2]]
    assert [len(item) for item in target.sequences("s")] == [1, 2]
    source.get("a").array[...] = 7
    assert target.numpy("a").tolist() == [[1, 2]], "a copy, not the array itself"
    opscope.copy(source, target, {"b": "previous_b"})
    assert target.numpy("previous_b").tolist() == [[3, 4]] and "b" not in target
    opscope.copy(source, source, {"a": "b", "b": "a"})
    assert source.numpy("a").tolist() == [[3, 4]] and source.numpy("b").tolist() == [[7, 7]]
    source.var("empty")
    for names, message in ((["b", "c"], "no variable 'c'"), (["b", "empty"], "holds no value")):
        with pytest.raises(VariableError, match=message):
            opscope.copy(source, target, names)
    assert target.names() == ["a", "s", "previous_b"]
    opscope.copy(source, target, "b")
    assert target.numpy("b").tolist() == [[7, 7]]


def test_the_rnn_sketch_over_scopes():
    """A recurrent net from a PlainNet and one scope a state, with copies between them."""
    step = Net.create()
    step.add_op("toy_mul", {"x": "previous_state", "y": "u"}, {"out": "carried"})
    step.add_op("toy_add", {"x": "carried", "y": "inlink"}, {"out": "state"})

    default = Scope()
    sequence = np.random.default_rng(0).normal(size=(4, 1, 3)).astype(np.float32)
    default.feed({"u": f32([0.5, 1, 2]), "inlinks": sequence})
    count = len(sequence)
    states = [default.new_scope() for _ in range(count + 1)]
    for scope in states:
        opscope.copy(default, scope, ["u"])
    states[0].var("previous_state").set(np.zeros((1, 3), np.float32))
    for number in range(count):
        states[number].var("inlink").set(sequence[number])
        step.run(states[number])
        opscope.copy(states[number], states[number + 1], {"state": "previous_state"})
    opscope.copy(states[count], default, {"previous_state": "outlink"})

    expected = np.zeros((1, 3), np.float32)
    for row in sequence:
        expected = expected * f32([0.5, 1, 2]) + row
    np.testing.assert_allclose(default.numpy("outlink"), expected, rtol=1e-6)


def test_the_rnn_sketch_with_parameters_found_in_the_parent():
    """Kids see the parent's parameters, so `rnn_related_vars` need no copy."""
    step = Net.create()
    step.add_op("toy_mul", {"x": "previous", "y": "u"}, {"out": "state"})
    default = Scope()
    default.feed({"u": f32([2, 3])})
    value = f32([1, 1])
    for _ in range(3):
        kid = default.new_scope()
        kid.var("previous").set(value)
        step.run(kid)
        value = kid.numpy("state")
    assert value.tolist() == [[8, 27]]
    default.drop_kids()
    assert default.names() == ["u"]


def test_the_face_exports_the_nets_and_every_error():
    from opscope.framework.base import errors

    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.OpscopeError)
    }
    assert len(kinds) > 10 and kinds <= set(opscope.__all__)
    assert opscope.VariableError is VariableError and opscope.PlainNet is PlainNet
    assert opscope.OptimizerAttrs is OptimizerAttrs
    assert issubclass(opscope.RecurrentNet, Net) and issubclass(opscope.RecursiveNet, Net)


# -- its programs ----------------------------------------------------------------------------------

BUILDER_PROGRAM = """\
Variable* fc_out = builder.AddOp("fc", input=image, size=100, activation="Sigmoid");
Variable* prediction = builder.AddOp("fc", input=fc_out, size=10, activation="Sigmoid");
Variable* loss = builder.AddOp("cross_entropy", input=prediction, label=label);
Variable* avg_loss = builder.AddOp("mean", loss);

builder.AddOptimization(1e-4, "adam");
"""
PLAIN_PROGRAM = """\
// create an empty scope located on CPU device.
Scope scope(CPUPlace());

// create and init variables described in `net_desc`.

// create a network according to `net_desc`
auto net = Net::CreateNet(net_desc);
// Add more operators if needed.

// run the network providing the `scope`.
"""
RECURRENT_PROGRAM = """\
Scope default_scope;
// some initial mutations on `default_scope` here.

auto rnn_step_net = PlainNet(rnn_step_net_def);

// Create rnn's states, the last scope is used to store rnn outputs.
Scope *rnn_states = new Scope[num_states + 1];

for (int i = 0; i < num_states + 1; i++) {
  // Initialize all rnn state scopes, copy parameters and so on.
  Copy(default_scope, rnn_states[i], rnn_related_vars);
  // Prepare rnn's inlinks, just copy inlink variables to each state.
  Copy(default_scope, rnn_states[i], inlink_vars);

// Run the rnn.
for (int i = 0; i < num_states; i++) {
  // Copy current state's state variables to next state, the related variables
  // are named like "previous_state_xxx".
  Copy(rnn_states[i], rnn_states[i + 1], pre_state_vars)

// Copy rnn's final outputs to `default_scope`.
Copy(rnn_states[num_states], default_scope, outlink_vars);
"""
SPELLING = (
    (r";$", ""),
    (r"^Scope \*(\w+) = new Scope\[(.*)\]$", r"\1 = [Scope() for _ in range(\2)]"),
    (r"^Scope (\w+)(\(.*\))?$", lambda found: f"{found[1]} = Scope{found[2] or '()'}"),
    (r"^(auto|Variable\*) ", ""),
    (r"^for \(int i = 0; i < (.*); i\+\+\) {$", r"for i in range(\1):"),
    (r"^  ", "    "),
    (r"// ", "# "),
    (r"::CreateNet", ".create"),
    (r"\b(Copy|AddOp|AddOptimization)\(", lambda found: _snake(found[1]) + "("),
)
"""C++ -> Python."""


def _snake(name):
    return re.sub(r"\B([A-Z])", r"_\1", name).lower()


def in_python(program):
    lines = []
    for line in program.splitlines():
        for pattern, replacement in SPELLING:
            line = re.sub(pattern, replacement, line)
        lines.append(line)
    return lines


def page_programs():
    return [
        block.text.splitlines()
        for block in blocks(ROOT / "docs/design_by_example.md")
        if block.language == "python"
    ]


def test_the_page_has_the_builders_program_with_no_line_of_its_own():
    assert in_python(BUILDER_PROGRAM) in page_programs()


@pytest.mark.parametrize("program", [PLAIN_PROGRAM, RECURRENT_PROGRAM])
def test_the_page_has_a_program_with_code_where_the_document_has_a_comment(program):
    """Every line, in order; what stands between them follows a comment."""
    lines = in_python(program)
    [page] = [page for page in page_programs() if lines[0] in page]
    rest = iter(page)
    assert all(line in rest for line in lines)
