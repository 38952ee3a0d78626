"""The verifier: one broken net for each rule, and the exception that it gives."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import (
    AttributeTypeError,
    CycleError,
    DeviceError,
    FormatError,
    GradientError,
    OpscopeError,
    ShapeError,
    SlotError,
    UnknownOperatorError,
    VariableError,
)
from opscope.framework.ir.desc import (
    BACKWARD,
    INPUT,
    OPTIMIZE,
    OUTPUT,
    PARAMETER,
    RECURRENT,
    STATE,
    make_op,
    make_var,
)
from opscope.framework.ir.messages import to_message
from opscope.framework.ir.op_list import (
    Link,
    MemoryDecl,
    OpList,
    SourceLocation,
    StepDecl,
    View,
)
from opscope.framework.passes.verify.net_check import KINDS
from opscope.framework.passes.verify.verifier import problems, verify
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.plain_net import PlainNet
from opscope.proto import net_pb2 as pb

SHAPE = (2, 3)


def net(*ops, variables=(), name="n"):
    """A net over the input x and parameter w, both float32[2, 3]."""
    desc = OpList(name=name)
    desc.vars.extend([make_var("x", SHAPE, kind=INPUT), make_var("w", SHAPE, kind=PARAMETER)])
    desc.vars.extend(variables)
    desc.ops.extend(ops)
    return desc


def relu(x, out, **fields):
    return make_op("toy_relu", {"x": x}, {"out": out}, **fields)


def add(x, y, out, **fields):
    return make_op("toy_add", {"x": x, "y": y}, {"out": out}, **fields)


def square(x, out, **attrs):
    return make_op("toy_square", {"x": x}, {"out": out}, attrs)


def only_error(desc):
    errors = [problem for problem in problems(desc) if problem.severity == "error"]
    assert len(errors) == 1, errors
    return errors[0]


def refused(desc, kind, op, *parts):
    """Exactly one error, of this kind, at this operator, naming all of `parts`."""
    error = only_error(desc)
    assert (error.kind, error.op) == (kind, op), error
    for part in parts:
        assert part in error.message, error.message
    with pytest.raises(KINDS[kind]) as caught:
        verify(desc, "as read")
    assert str(caught.value) == f"net 'n' as read: {error.message}"


def test_a_sound_net_has_no_problems():
    good = net(add("x", "w", "h"), relu("h", "y"), variables=[make_var("y", kind=OUTPUT)])
    assert problems(good) == []
    verify(good)


def test_every_kind_has_an_exception_of_the_package():
    assert all(issubclass(error, OpscopeError) for error in KINDS.values())


def test_unknown_type_with_the_nearest_names():
    bad = net(make_op("toy_rleu", {"x": "x"}, {"out": "y"}))
    refused(bad, "unknown-operator", 0, "op 0 (toy_rleu)", "did you mean toy_relu")


@pytest.mark.parametrize(
    ("op", "parts"),
    [
        (make_op("toy_add", {"x": "x"}, {"out": "h"}), ["input slot 'y' is missing"]),
        (make_op("toy_relu", {"x": "x"}, {}), ["output slot 'out' is missing"]),
        (make_op("toy_relu", {"x": "x", "z": "w"}, {"out": "h"}), ["no input slot 'z'", "has x"]),
        (make_op("toy_relu", {"x": ["x", "w"]}, {"out": "h"}), ["takes one variable, not 2"]),
    ],
)
def test_slots(op, parts):
    refused(net(op), "slot", 0, *parts)


def test_a_slot_given_twice():
    desc = to_message(net(relu("x", "h")))
    desc.ops[0].inputs.add(name="x", vars=["w"])
    refused(desc, "slot", 0, "input slot 'x' comes twice")


@pytest.mark.parametrize(
    ("attrs", "part"),
    [
        ({"bias": "text"}, "bias='text' is string, want float"),
        ({"bias": 11.0}, "bias=11.0 is above 10"),
        ({"bias": float("nan")}, "bias=nan is below -10"),
        ({"bais": 1.0}, "no attribute 'bais' (did you mean bias?)"),
    ],
)
def test_attributes(attrs, part):
    refused(net(square("x", "h", **attrs)), "attribute", 0, part)


def test_an_attribute_without_a_value():
    desc = to_message(net(square("x", "h")))
    desc.ops[0].attrs["bias"].SetInParent()
    error = only_error(desc)
    assert error.kind == "attribute" and "holds no value" in error.message


def test_device():
    refused(net(relu("x", "h", device="tpu")), "device", 0, "'tpu' is no device")


def test_undefined_with_the_nearest_names():
    bad = net(relu("x", "hidden"), relu("hiden", "y"))
    refused(bad, "undefined", 1, "op 1 (toy_relu) reads 'hiden'", "did you mean hidden")


def test_a_temporary_that_nobody_writes():
    bad = net(relu("h", "y"), variables=[make_var("h", SHAPE)])
    refused(bad, "undefined", 0, "'h', a temporary that no operator writes")


def test_an_output_that_nobody_writes_is_a_warning():
    """Operators may be added still."""
    bad = net(relu("x", "h"), variables=[make_var("y", SHAPE, kind=OUTPUT)])
    found = problems(bad)
    assert {one.severity for one in found} == {"warning"}
    assert "no operator writes the output 'y'" in [one.message for one in found]


def test_use_before_definition():
    bad = net(relu("h", "y"), relu("x", "h"))
    refused(bad, "order", 0, "op 0 (toy_relu) reads 'h' before op 1 (toy_relu) writes it")


def test_a_cycle_prints_its_chain():
    bad = net(add("x", "b", "a"), relu("a", "m"), relu("m", "b"))
    chain = "op 0 (toy_add) -> op 2 (toy_relu) -> op 1 (toy_relu) -> op 0 (toy_add)"
    refused(bad, "cycle", 0, chain)
    with pytest.raises(CycleError):
        verify(bad)


def test_an_operator_that_waits_for_itself():
    refused(net(add("x", "a", "a")), "cycle", 0, "op 0 (toy_add) -> op 0 (toy_add)")


def test_a_cycle_is_told_once():
    bad = net(add("b", "c", "a"), relu("a", "b"), relu("a", "c"))
    kinds = [problem.kind for problem in problems(bad) if problem.severity == "error"]
    assert kinds == ["cycle", "cycle"], "two loops, each of its own operators"


def test_two_declarations():
    bad = net(relu("x", "h"), variables=[make_var("h", SHAPE), make_var("h", SHAPE)])
    refused(bad, "doubly-defined", -1, "variable 'h' is declared twice")


def test_two_writers():
    bad = net(relu("x", "h"), relu("w", "h"))
    refused(bad, "doubly-defined", 1, "op 1 (toy_relu) writes 'h', which op 0 (toy_relu) defined")


def test_one_operator_that_writes_a_variable_twice():
    fork = make_op("toy_fork", {"x": "x"}, {"out": ["a", "a"]})
    refused(net(fork), "doubly-defined", 0, "op 0 (toy_fork) writes 'a' twice")


def test_a_variable_may_be_changed_in_place_in_several_steps():
    y = [make_var("y", kind=OUTPUT)]
    steps = relu("x", "h"), square("h", "t"), relu("t", "h"), square("h", "y")
    assert problems(net(*steps, variables=y)) == []
    other = net(*steps[:2], relu("x", "u"), relu("u", "h"), add("h", "t", "y"))
    refused(other, "doubly-defined", 3, "writes 'h', which op 0 (toy_relu) defined, without")
    before = net(square("x", "t"), relu("x", "h"), relu("t", "h"), square("h", "y"))
    refused(before, "doubly-defined", 2, "writes 'h', which op 1 (toy_relu) defined, without")


def test_a_list_that_runs_again_hands_values_back():
    """Behind its last boundary but one; see `nnet3.mark`."""
    mark = make_op("nnet3.mark", {}, {}, {"kind": "segment"})
    ops = (relu("x", "h"), square("h", "g"), mark, relu("g", "h"), square("g", "x"))
    verify(net(*ops, mark), "looped")
    refused(net(*ops), "doubly-defined", 4, "writes 'x', an input")
    early = net(relu("x", "h"), relu("x", "h"), mark, relu("h", "y"), mark)
    refused(early, "doubly-defined", 1, "writes 'h', which op 0 (toy_relu) defined")


def test_an_input_that_is_overwritten():
    refused(net(relu("w", "x")), "doubly-defined", 0, "writes 'x', an input")


def test_in_place_parameters_and_state_may_be_written_again():
    step = make_var("n", SHAPE, kind=STATE)
    good = net(
        relu("x", "h"),
        relu("h", "h"),
        relu("h", "w"),
        relu("x", "n"),
        relu("h", "n"),
        relu("n", "y"),
        variables=[step, make_var("y", kind=OUTPUT)],
    )
    assert problems(good) == []


def test_unused_temporaries_are_warnings():
    found = problems(net(relu("x", "h"), variables=[make_var("lost", SHAPE)]))
    assert [(one.severity, one.kind, one.op) for one in found] == [
        ("warning", "unused", -1),
        ("warning", "unused", 0),
    ]
    assert "'lost' is declared and not used" in found[0].message
    assert "nothing reads out=h" in found[1].message
    verify(net(relu("x", "h")))


def test_intermediate_outputs_may_be_unused():
    mean = make_op("toy_mean", {"x": "x"}, {"out": "m", "size": "s"})
    assert problems(net(mean, variables=[make_var("m", kind=OUTPUT)])) == []


def test_shapes_that_contradict():
    bad = net(add("x", "v", "h"), variables=[make_var("v", (2, 4), kind=INPUT)])
    refused(bad, "shape", 0, "op 0 (toy_add)", "x=x float32[2, 3]", "y=v float32[2, 4]")


def test_dtypes_that_contradict():
    bad = net(add("x", "v", "h"), variables=[make_var("v", SHAPE, "float64", INPUT)])
    refused(bad, "shape", 0, "y: float64", "y=v float64[2, 3]")


def test_a_declaration_that_contradicts_the_operator():
    for shape, dtype in (((2, 4), "float32"), (SHAPE, "float64")):
        bad = net(relu("x", "h"), relu("h", "y"), variables=[make_var("h", shape, dtype)])
        refused(bad, "shape", 0, "op 0 (toy_relu) writes float32[2, 3] to 'h'", "is declared")


def test_unknown_shapes_are_passed_over():
    loose = make_var("v", None, None, INPUT)
    assert [one.kind for one in problems(net(add("x", "v", "h"), variables=[loose]))] == ["unused"]


def test_dims_below_minus_one():
    refused(net(variables=[make_var("v", (-2,), kind=INPUT)]), "shape", -1, "the dims [-2]")


def test_composites_are_checked_as_what_they_stand_for():
    pair = make_op("toy_pair", {"x": "x", "y": "v"}, {"out": "h"})
    bad = net(pair, variables=[make_var("v", (2, 4), kind=INPUT)])
    refused(bad, "shape", 0, "op 0 (toy_mul)", "x and y must have one shape")


def view(name, base, rows=(0, -1), cols=(0, -1), shape=None, dtype="float32"):
    return make_var(name, shape, dtype, view=View(base, *rows, *cols))


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        (view("v", "x", rows=(0, 3)), "rows 0:3 do not lie within 'x' [2, 3]"),
        (view("v", "x", cols=(2, 1)), "columns 2:1 do not lie within"),
        (view("v", "x", cols=(-1, 1)), "columns -1:1 do not lie within"),
        (view("v", "x", rows=(3, -1)), "rows 3: do not lie within"),
        (view("v", "nix"), "its base 'nix' is not declared"),
        (view("v", "x", dtype="float64"), "it is float64 and its base 'x' float32"),
        (view("v", "x", cols=(0, 2), shape=(2, 3)), "declared [2, 3] and its ranges make [2, 2]"),
        (view("v", "flat"), "'flat' [6] is no matrix"),
        (view("v", "other"), "its base 'other' is itself a view; take a rectangle of 'x'"),
    ],
)
def test_views(bad, part):
    more = [make_var("flat", (6,), kind=INPUT), view("other", "x"), bad]
    refused(net(variables=more), "view", -1, part)


def test_views_of_unknown_batch_and_pieces_of_one_matrix():
    whole = make_var("m", (-1, 4), kind=INPUT)
    target = make_var("t", (-1, 4), kind=OUTPUT)
    good = net(
        relu("left", "to_left"),
        relu("right", "to_right"),
        variables=[
            whole,
            target,
            view("left", "m", cols=(0, 2)),
            view("right", "m", cols=(2, -1)),
            view("to_left", "t", cols=(0, 2)),
            view("to_right", "t", cols=(2, 4)),
        ],
    )
    assert problems(good) == []


def test_roles_stand_in_order():
    bad = net(relu("x", "a", role=BACKWARD), relu("x", "b"))
    refused(bad, "role", 1, "op 1 (toy_relu) is FORWARD", "op 0 (toy_relu), which is BACKWARD")
    bad = net(relu("x", "a", role=OPTIMIZE), relu("x", "b", role=BACKWARD))
    refused(bad, "role", 1, "is BACKWARD", "which is OPTIMIZE")


def test_an_initializer_must_be_an_operator_that_writes_its_variable():
    init = make_op("toy_rleu", {"x": "x"}, {"out": "v"})
    refused(
        net(variables=[make_var("v", SHAPE, kind=STATE, initializer=init)]),
        "unknown-operator",
        -1,
        "the initializer of 'v'",
        "did you mean toy_relu",
    )
    init = relu("x", "other")
    refused(
        net(variables=[make_var("v", SHAPE, kind=STATE, initializer=init)]),
        "slot",
        -1,
        "writes other, not v",
    )


def test_nested_nets_see_the_variables_around_them():
    body = OpList(name="body")
    body.ops.append(add("x", "w", "out"))
    holder = make_op("toy_holder", {"x": "x"}, {"out": "h"}, {"body": body})
    good = net(holder, variables=[make_var("h", kind=OUTPUT)])
    assert [one for one in problems(good) if one.severity == "error"] == []
    body.ops.append(relu("nowhere", "z"))
    bad = net(make_op("toy_holder", {"x": "x"}, {"out": "h"}, {"body": body}))
    refused(bad, "undefined", 0, "op 0 (toy_holder): net 'body': op 1 (toy_relu) reads 'nowhere'")


def recurrent():
    desc = OpList(name="n", type=RECURRENT)
    desc.vars.extend([make_var("seq", (-1, 3), kind=INPUT), make_var("all", kind=OUTPUT)])
    step = StepDecl()
    desc.steps.append(step)
    step.net.name = "cell"
    step.net.ops.append(add("row", "before", "now"))
    step.in_links.append(Link("seq", "row"))
    step.out_links.append(Link("all", "now"))
    step.memories.append(MemoryDecl(state="now", previous="before"))
    return desc


def test_step_nets_get_their_variables_by_links():
    assert problems(recurrent()) == []


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda s: s.in_links.append(Link("sq", "r")), "reads 'sq', which is not there (did"),
        (lambda s: s.out_links.append(Link("all", "nix")), "takes 'nix', which no operator"),
        (
            lambda s: s.memories.append(MemoryDecl(state="s", previous="p")),
            "nothing writes its memory 's'",
        ),
        (lambda s: s.static_links.append(Link("seq", "row")), "'row' is linked twice"),
        (
            lambda s: s.memories.append(MemoryDecl(state="now", previous="p", boot="boots")),
            "boots from 'boots', which is not there",
        ),
        (lambda s: s.net.ops.append(relu("lost", "y")), "op 1 (toy_relu) reads 'lost'"),
    ],
)
def test_faults_of_step_nets(change, part):
    desc = recurrent()
    change(desc.steps[0])
    error = only_error(desc)
    assert error.message.startswith("step net 'cell': ") and part in error.message
    with pytest.raises(VariableError):
        verify(desc)


def test_net_type_and_step_nets_agree():
    refused(OpList(name="n", type=RECURRENT), "steps", -1, "a RECURRENT net has no step net")
    desc = net()
    desc.steps.append(StepDecl())
    refused(desc, "steps", -1, "a PLAIN net has no step net")


def test_source_lines_are_named():
    op = relu("nix", "y")
    op.source = SourceLocation("model.py", 12)
    refused(net(op), "undefined", 0, "op 0 (toy_relu) at model.py:12 reads 'nix'")


def test_several_errors_come_in_the_order_of_operators():
    bad = net(relu("a", "b"), make_op("nope", {}, {}), relu("c", "d"))
    with pytest.raises(VariableError) as caught:
        verify(bad)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3 and "op 0" in lines[0]
    assert lines[1].startswith("  also: op 1 (nope)") and "op 2" in lines[2]


@pytest.mark.parametrize("seed", range(20))
def test_random_messages_give_problems_and_nothing_else(seed):
    """Whatever parses as a NetDesc is judged without an exception of Python's own."""
    rng = np.random.default_rng(seed)
    words = ["x", "w", "h", "@EMPTY@", "", "toy_relu", "toy_add", "toy_square", "ü", "a b"]

    def word():
        return words[rng.integers(len(words))]

    desc = pb.NetDesc(name=word(), type=int(rng.integers(0, 3)))
    for _ in range(rng.integers(0, 6)):
        var = desc.vars.add(name=word(), dtype=int(rng.integers(0, 10)), kind=int(rng.integers(5)))
        var.has_dims = bool(rng.integers(2))
        var.dims.extend(rng.integers(-3, 4, size=rng.integers(0, 4)).tolist())
        if rng.integers(3) == 0:
            var.view.base = word()
            var.view.row_end, var.view.col_begin = rng.integers(-2, 5, size=2).tolist()
        var.initializer.type = word()
    for _ in range(rng.integers(0, 8)):
        op = pb.OpDesc(type=word(), role=int(rng.integers(3)), device=word())
        for slots in (op.inputs, op.outputs):
            for _ in range(rng.integers(0, 3)):
                slot = ["x", "y", "out"][rng.integers(3)]
                slots.add(name=slot, vars=[word() for _ in range(rng.integers(0, 3))])
        op.attrs[word()].f = 1.0
        desc.ops.append(op)
    found = problems(desc)
    if any(one.severity == "error" for one in found):
        with pytest.raises(OpscopeError):
            verify(desc)


def test_what_the_passes_make_is_sound():
    made = Net.create(net(variables=[make_var("g", SHAPE, kind=INPUT)]))
    made.add_op("toy_mul", {"x": "x", "y": "w"}, {"out": "h"})
    made.add_op("toy_relu", {"x": "h"}, {"out": "h"})
    made.add_backward_ops({"h": "g"})
    assert [one for one in problems(made.desc) if one.severity == "error"] == []


def test_exceptions_by_kind():
    """The table in one place, so that a change of it is seen."""
    assert KINDS["unknown-operator"] is UnknownOperatorError and KINDS["slot"] is SlotError
    assert KINDS["attribute"] is AttributeTypeError and KINDS["device"] is DeviceError
    assert KINDS["cycle"] is CycleError and KINDS["steps"] is FormatError
    assert KINDS["role"] is GradientError
    assert KINDS["shape"] is KINDS["view"] is ShapeError


def test_a_plain_net_checks_what_create_checks() -> None:
    wrong = [
        OpList("n", ops=[make_op("relu", {"x": "a"}, {"out": "b"})] * 2),
        OpList(
            "n",
            vars=[make_var("x", (2, 3), "float32", INPUT)],
            ops=[make_op("matmul", {"x": "x", "y": "x"}, {"out": "y"})],
        ),
        OpList("n", type=RECURRENT),
    ]
    for net in wrong:
        for make in (Net.create, PlainNet):
            with pytest.raises(OpscopeError):
                make(net)
