"""The backward pass on toy operators: op lists are compared as text, no number is computed."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import GradientError, VariableError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import BACKWARD, INPUT, PARAMETER, make_op, make_var
from opscope.framework.ir.messages import serialize_net
from opscope.framework.ir.op_list import OpList, SourceLocation, View
from opscope.framework.ir.printer import op_text
from opscope.framework.passes.backward import build_backward
from opscope.framework.runtime.net import Net

SHAPE = (2, 3)


def net(*ops, parameters=("w",), **fields):
    desc = OpList(name="n")
    desc.vars.append(make_var("x", SHAPE, kind=INPUT))
    desc.vars.extend(make_var(name, SHAPE, kind=PARAMETER, **fields) for name in parameters)
    desc.ops.extend(ops)
    return desc


def mul(x, y, out):
    return make_op("toy_mul", {"x": x, "y": y}, {"out": out})


def add(x, y, out):
    return make_op("toy_add", {"x": x, "y": y}, {"out": out})


def relu(x, out):
    return make_op("toy_relu", {"x": x}, {"out": out})


def square(x, out):
    return make_op("toy_square", {"x": x}, {"out": out})


def gradients_of(desc, **options):
    """The gradient operators as text, and the names of the gradients asked for."""
    before = serialize_net(desc)
    result = build_backward(desc, **options)
    assert serialize_net(desc) == before, "the net itself stays as it is"
    assert all(op.role == BACKWARD for op in result.ops)
    lines = [op_text(op).removesuffix("  #backward") for op in result.ops]
    return lines, result.gradients


def test_a_chain_runs_backwards():
    lines, gradients = gradients_of(net(mul("x", "w", "h"), relu("h", "y")))
    assert lines == [
        "fill_like(x=y) -> out=y@GRAD  {value=1.0}",
        "toy_relu_grad(x=h, out=y, out_grad=y@GRAD) -> x_grad=h@GRAD",
        "toy_mul_grad(x=x, y=w, out_grad=h@GRAD) -> y_grad=w@GRAD",
    ]
    assert gradients == {"w": "w@GRAD"}


def test_attributes_slots_and_source_are_passed_on():
    op = make_op("toy_square", {"x": "w"}, {"out": "y"}, {"bias": 2.0})
    op.source = SourceLocation("model.py", 7)
    (_, grad) = build_backward(net(op)).ops
    assert op_text(grad, locations=True) == (
        "toy_square_grad(x=w, out_grad=y@GRAD) -> x_grad=w@GRAD  {bias=2.0}  #backward @model.py:7"
    )


def test_fan_out_is_summed():
    lines, _ = gradients_of(
        net(relu("w", "h"), square("h", "a"), relu("h", "b"), add("a", "b", "y"))
    )
    assert lines == [
        "fill_like(x=y) -> out=y@GRAD  {value=1.0}",
        "toy_add_grad(x=a, y=b, out_grad=y@GRAD) -> x_grad=a@GRAD, y_grad=b@GRAD",
        "toy_relu_grad(x=h, out=b, out_grad=b@GRAD) -> x_grad=h@GRAD@RENAME@0",
        "toy_square_grad(x=h, out_grad=a@GRAD) -> x_grad=h@GRAD@RENAME@1",
        "sum(x=[h@GRAD@RENAME@0, h@GRAD@RENAME@1]) -> out=h@GRAD",
        "toy_relu_grad(x=w, out=h, out_grad=h@GRAD) -> x_grad=w@GRAD",
    ]


def test_one_variable_in_both_slots():
    lines, _ = gradients_of(net(mul("w", "w", "y")))
    assert lines[1:] == [
        "toy_mul_grad(x=w, y=w, out_grad=y@GRAD) -> x_grad=w@GRAD@RENAME@0, y_grad=w@GRAD@RENAME@1",
        "sum(x=[w@GRAD@RENAME@0, w@GRAD@RENAME@1]) -> out=w@GRAD",
    ]


def test_in_place_operators_have_a_gradient_for_each_version():
    lines, gradients = gradients_of(net(mul("x", "w", "h"), relu("h", "h"), relu("h", "y")))
    assert lines[1:] == [
        "toy_relu_grad(x=h, out=y, out_grad=y@GRAD) -> x_grad=h@GRAD",
        "toy_relu_grad(x=h, out=h, out_grad=h@GRAD) -> x_grad=h@GRAD@VERSION@1",
        "toy_mul_grad(x=x, y=w, out_grad=h@GRAD@VERSION@1) -> y_grad=w@GRAD",
    ]
    assert gradients == {"w": "w@GRAD"}


def test_an_overwritten_value_is_refused_with_its_history():
    second = relu("h", "h")
    second.source = SourceLocation("model.py", 3)
    desc = net(relu("w", "h"), square("h", "a"), second, add("a", "h", "y"))
    with pytest.raises(GradientError) as caught:
        build_backward(desc)
    assert str(caught.value) == (
        "the gradient of op 1 (toy_square) reads version 1 of 'h', which is overwritten:"
        " version 0 given from outside; version 1 written by op 0 (toy_relu);"
        " version 2 written by op 2 (toy_relu) at model.py:3"
    )


def test_an_overwritten_value_that_is_read_for_its_shape_only_is_no_harm():
    lines, _ = gradients_of(
        net(add("w", "x", "h"), add("h", "x", "a"), mul("x", "x", "h")), targets="a"
    )
    assert lines[1] == "toy_add_grad(x=h, y=x, out_grad=a@GRAD) -> x_grad=h@GRAD@VERSION@1"


def test_stop_gradient_in_the_declaration_and_in_the_call():
    ops = (relu("w", "h"), mul("h", "v", "y"))
    declared = net(*ops, parameters=("w", "v"))
    declared.vars.append(make_var("h", SHAPE, stop_gradient=True))
    called = net(*ops, parameters=("w", "v"))
    for lines, gradients in (gradients_of(declared), gradients_of(called, stop=["h"])):
        assert lines[1:] == ["toy_mul_grad(x=h, y=v, out_grad=y@GRAD) -> y_grad=v@GRAD"]
        assert gradients == {"v": "v@GRAD"}


def test_a_stopped_parameter_gets_none():
    lines, gradients = gradients_of(net(mul("w", "v", "y"), parameters=("w", "v")), stop=["w"])
    assert lines[1:] == ["toy_mul_grad(x=w, y=v, out_grad=y@GRAD) -> y_grad=v@GRAD"]
    assert gradients == {"v": "v@GRAD"}


def test_two_targets_are_summed():
    lines, _ = gradients_of(net(relu("w", "a"), square("w", "b")), targets=["a", "b"])
    assert lines == [
        "fill_like(x=a) -> out=a@GRAD  {value=1.0}",
        "fill_like(x=b) -> out=b@GRAD  {value=1.0}",
        "toy_square_grad(x=w, out_grad=b@GRAD) -> x_grad=w@GRAD@RENAME@0",
        "toy_relu_grad(x=w, out=a, out_grad=a@GRAD) -> x_grad=w@GRAD@RENAME@1",
        "sum(x=[w@GRAD@RENAME@0, w@GRAD@RENAME@1]) -> out=w@GRAD",
    ]


def test_a_target_on_the_way_to_another():
    lines, _ = gradients_of(net(relu("w", "a"), relu("a", "b")), targets=["a", "b"])
    assert lines == [
        "fill_like(x=a) -> out=a@GRAD@RENAME@0  {value=1.0}",
        "fill_like(x=b) -> out=b@GRAD  {value=1.0}",
        "toy_relu_grad(x=a, out=b, out_grad=b@GRAD) -> x_grad=a@GRAD@RENAME@1",
        "sum(x=[a@GRAD@RENAME@0, a@GRAD@RENAME@1]) -> out=a@GRAD",
        "toy_relu_grad(x=w, out=a, out_grad=a@GRAD) -> x_grad=w@GRAD",
    ]


def test_a_given_target_gradient_keeps_its_name():
    desc = net(relu("w", "y"))
    desc.vars.append(make_var("y", SHAPE))
    lines, _ = gradients_of(desc, targets={"y": "seed"})
    assert lines == ["toy_relu_grad(x=w, out=y, out_grad=seed) -> x_grad=w@GRAD"]
    (seed,) = build_backward(desc, targets={"y": "seed"}).vars
    assert (seed.name, seed.shape, seed.kind) == ("seed", SHAPE, INPUT)


def test_the_target_itself_may_be_wanted():
    lines, gradients = gradients_of(net(relu("w", "y")), wrt=["y"])
    assert lines == ["fill_like(x=y) -> out=y@GRAD  {value=1.0}"]
    assert gradients == {"y": "y@GRAD"}


def test_wrt_inputs_and_inner_variables():
    _, gradients = gradients_of(net(mul("x", "w", "h"), relu("h", "y")), wrt=["x", "h"])
    assert gradients == {"x": "x@GRAD", "h": "h@GRAD"}


def test_partial_nets_have_gradients_of_what_they_reach():
    desc = net(relu("w", "a"), square("v", "b"), parameters=("w", "v"))
    lines, gradients = gradients_of(desc, targets="a")
    assert [line.split("(")[0] for line in lines] == ["fill_like", "toy_relu_grad"]
    assert gradients == {"w": "w@GRAD"}


def test_duplicable_slots_keep_their_places():
    total = make_op("toy_total", {"x": ["w", "x", "v"]}, {"out": "y"})
    lines, _ = gradients_of(net(total, parameters=("w", "v")))
    assert lines[1] == (
        "toy_total_grad(x=[w, x, v], out_grad=y@GRAD) -> x_grad=[w@GRAD, @EMPTY@, v@GRAD]"
    )


def test_an_output_without_a_gradient_gets_zeros():
    fork = make_op("toy_fork", {"x": "w"}, {"out": ["a", "b"]})
    lines, _ = gradients_of(net(fork, relu("a", "y")))
    assert lines == [
        "fill_like(x=y) -> out=y@GRAD  {value=1.0}",
        "toy_relu_grad(x=a, out=y, out_grad=y@GRAD) -> x_grad=a@GRAD",
        "fill_like(x=b) -> out=b@GRAD  {value=0.0}",
        "toy_fork_grad(x=w, out_grad=[a@GRAD, b@GRAD]) -> x_grad=w@GRAD",
    ]


def look_up(ids, out, table="w"):
    return make_op("toy_lookup", {"w": table, "ids": ids}, {"out": out})


def test_one_sparse_gradient_has_rows_beside_it():
    lines, gradients = gradients_of(net(look_up("i", "y")))
    assert lines[1:] == ["toy_fork(x=y@GRAD) -> out=w@GRAD", "toy_fork(x=i) -> out=w@GRAD@ROWS"]
    assert gradients == {"w": "w@GRAD"}


def test_sparse_parts_are_put_one_behind_the_other():
    desc = net(look_up("i", "a"), look_up("j", "b"), add("a", "b", "y"))
    assert gradients_of(desc)[0][-2:] == [
        "concat(x=[w@GRAD@RENAME@0, w@GRAD@RENAME@1]) -> out=w@GRAD  {axis=0}",
        "concat(x=[w@GRAD@RENAME@0@ROWS, w@GRAD@RENAME@1@ROWS]) -> out=w@GRAD@ROWS  {axis=0}",
    ]


def test_sparse_and_dense_parts_are_summed_densely():
    desc = net(look_up("i", "a"), relu("w", "b"))
    assert gradients_of(desc, targets=["a", "b"])[0][-2:] == [
        "rows_to_dense(x=w@GRAD@RENAME@1, rows=w@GRAD@RENAME@1@ROWS, like=w)"
        " -> out=w@GRAD@RENAME@1@DENSE",
        "sum(x=[w@GRAD@RENAME@0, w@GRAD@RENAME@1@DENSE]) -> out=w@GRAD",
    ]


def test_integers_get_no_gradient():
    desc = net(look_up("i", "a"))
    desc.vars.append(make_var("i", (4,), "int64", INPUT))
    assert gradients_of(desc, wrt=["w"])[1] == {"w": "w@GRAD"}


def test_an_operator_without_a_maker():
    desc = net(make_op("toy_no_maker", {"x": "w"}, {"out": "y"}))
    with pytest.raises(GradientError, match=r"op 0 \(toy_no_maker\) has no gradient maker"):
        build_backward(desc)


def test_unreachable_says_why():
    blocked = net(relu("w", "h"), make_op("toy_sign", {"x": "h"}, {"out": "y"}))
    why = r"no gradient flows from y to w; on the way op 1 \(toy_sign\) has none: it is constant"
    with pytest.raises(GradientError, match=why):
        build_backward(blocked)
    with pytest.raises(GradientError, match="no gradient flows from a to w"):
        build_backward(net(relu("x", "a"), relu("w", "b")), targets="a")


@pytest.mark.parametrize("base", ["m", "w"])
def test_views_are_refused(base):
    """Written in pieces and read as a whole, or the other way round."""
    desc = net(relu("w", "piece"), square("m", "y")) if base == "m" else net(square("piece", "y"))
    view = make_var("piece", view=View(base, 0, -1, 0, -1))
    desc.vars.extend([make_var("m", SHAPE), view])
    with pytest.raises(GradientError, match=f"op 0 .* uses 'piece', a view of '{base}'; use slice"):
        build_backward(desc)


def test_nothing_to_differentiate():
    with pytest.raises(GradientError, match="no forward operators"):
        build_backward(net())
    with pytest.raises(GradientError, match="no parameter to differentiate with respect to"):
        build_backward(net(relu("x", "y"), parameters=()))


@pytest.mark.parametrize("options", [{"targets": "lsos"}, {"wrt": ["lsos"]}])
def test_unknown_names_with_the_nearest(options):
    with pytest.raises(VariableError, match=r"no variable 'lsos' \(did you mean loss\?\)"):
        build_backward(net(relu("w", "loss")), **options)


def test_composites_are_differentiated_as_what_they_stand_for():
    made = Net.create(net(make_op("toy_pair", {"x": "x", "y": "w"}, {"out": "y"})))
    made.add_backward_ops()
    types = [op.type for op in made.operators]
    assert types == ["toy_mul", "toy_square", "fill_like", "toy_square_grad", "toy_mul_grad"]


def test_a_refused_backward_pass_leaves_the_net_as_it_was():
    made = Net.create(net(make_op("toy_no_maker", {"x": "w"}, {"out": "y"})))
    before = made.desc.SerializeToString(deterministic=True)
    with pytest.raises(GradientError):
        made.add_backward_ops()
    assert made.desc.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("inplace", [False, True])
def test_numbers_against_finite_differences(inplace):
    """One look at numbers: fan-out, two uses of a parameter, and an in-place operator."""
    hidden = "h" if inplace else "r"
    desc = net(
        mul("x", "w", "h"),
        relu("h", hidden),
        add(hidden, "w", "s"),
        square("s", "q"),
        mul("q", hidden, "y"),
    )
    desc.vars = [var.changed(dtype=np.dtype("float64")) for var in desc.vars]
    made = Net.create(desc)
    made.add_backward_ops({"y": "seed"}, wrt=["w", "x"])
    rng = np.random.default_rng(1)
    values = {name: rng.normal(size=SHAPE) for name in ("x", "w", "seed")}

    def loss(**changed):
        scope = Scope()
        scope.feed(values | changed)
        made.run(scope)
        return float((scope.numpy("y") * values["seed"]).sum()), scope

    _, scope = loss()
    for name in ("x", "w"):
        direction = rng.normal(size=SHAPE)
        step = 1e-6
        above, _ = loss(**{name: values[name] + step * direction})
        below, _ = loss(**{name: values[name] - step * direction})
        analytic = float((scope.numpy(f"{name}@GRAD") * direction).sum())
        assert (above - below) / (2 * step) == pytest.approx(analytic, rel=1e-6)


def test_a_second_backward_pass_is_refused() -> None:
    net = Net.create()
    net.add_op("square", {"x": "x"}, {"out": "y"})
    net.add_op("reduce_sum", {"x": "y"}, {"out": "cost"})
    net.add_backward_ops("cost", ["x"])
    before = [str(op) for op in net.op_list.ops]
    told = r"has these gradients: '.*@GRAD' is written by .* already; .*add_backward_ops\(\[cost"
    with pytest.raises(GradientError, match=told):
        net.add_backward_ops("cost", ["x"])
    assert [str(op) for op in net.op_list.ops] == before
