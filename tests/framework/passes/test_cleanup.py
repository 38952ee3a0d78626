"""Clean-up passes and the pass runner: exact net text, what must stay, and equal numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import OpscopeError, VariableError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, OUTPUT, PARAMETER, STATE, make_op, make_var
from opscope.framework.ir.messages import serialize_net, to_message
from opscope.framework.ir.op_list import OpList, SourceLocation, View
from opscope.framework.ir.printer import op_text
from opscope.framework.passes.cleanup import (
    MergeCommon,
    RemoveDead,
    RemoveIdentities,
    clean_up,
    cleanup_passes,
)
from opscope.framework.passes.lowering import LOWERING, lower
from opscope.framework.passes.pipeline import run_passes
from opscope.framework.runtime.net import Net


def net(*ops, variables=()):
    desc = OpList(name="n")
    desc.vars.append(make_var("x", (2, 3), kind=INPUT))
    desc.vars.extend(variables)
    desc.ops.extend(ops)
    return desc


def op(op_type, x, out, y=None, **attrs):
    inputs = {"x": x} if y is None else {"x": x, "y": y}
    return make_op(op_type, inputs, {"out": out}, attrs)


def output(name):
    return make_var(name, None, None, OUTPUT)


def text(desc):
    return [op_text(one).removesuffix("  #forward") for one in desc.ops]


def apply(one, desc):
    """The rewritten net as text; the net given stays as it was."""
    before = serialize_net(desc)
    made = run_passes(desc, [one])
    assert serialize_net(desc) == before
    return text(made)


# -- identities --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("same", "train"),
    [
        (op("assign", "x", "h"), None),
        (op("scale", "x", "h"), None),
        (op("scale", "x", "h", scale=1.0, bias=0.0), None),
        (op("dropout", "x", "h", p=0.0), None),
        (op("dropout", "x", "h", p=0.5), False),
    ],
)
def test_identities_go(same, train):
    desc = net(same, op("toy_relu", "h", "y"))
    assert apply(RemoveIdentities(train), desc) == ["toy_relu(x=x) -> out=y"]


@pytest.mark.parametrize(
    ("other", "train"),
    [
        (op("scale", "x", "h", scale=2.0), None),
        (op("scale", "x", "h", bias=1.0), None),
        (op("dropout", "x", "h", p=0.5), None),
        (op("dropout", "x", "h", p=0.5), True),
        (op("toy_relu", "x", "h"), None),
    ],
)
def test_others_stay(other, train):
    desc = net(other, op("toy_relu", "h", "y"))
    assert apply(RemoveIdentities(train), desc) == text(desc)


def test_chains_of_identities():
    desc = net(op("assign", "x", "a"), op("assign", "a", "b"), op("toy_add", "b", "y", "a"))
    assert apply(RemoveIdentities(), desc) == ["toy_add(x=x, y=x) -> out=y"]


def test_identities_that_somebody_may_look_at_stay():
    kept = net(op("assign", "x", "y"), op("toy_relu", "y", "z"), variables=[output("y")])
    assert apply(RemoveIdentities(), kept) == text(kept)
    named = net(op("assign", "x", "y"), op("toy_relu", "y", "z"))
    assert apply(RemoveIdentities(live_out=("y",)), named) == text(named)
    result = net(op("assign", "x", "y"))
    assert apply(RemoveIdentities(), result) == text(result)
    stopped = net(
        op("assign", "x", "y"),
        op("toy_relu", "y", "z"),
        variables=[make_var("y", stop_gradient=True)],
    )
    assert apply(RemoveIdentities(), stopped) == text(stopped)


def test_a_copy_of_what_is_overwritten_later_stays():
    state = make_var("s", (2, 3), kind=STATE)
    desc = net(
        op("assign", "s", "old"),
        op("toy_add", "s", "s", "x"),
        op("toy_add", "old", "y", "x"),
        variables=[state],
    )
    assert apply(RemoveIdentities(), desc) == text(desc)


def test_a_copy_that_is_overwritten_itself_stays():
    desc = net(op("assign", "x", "h"), op("toy_relu", "h", "h"), op("toy_relu", "h", "y"))
    assert apply(RemoveIdentities(), desc) == text(desc)


def test_a_dropout_whose_mask_is_read_stays():
    drop = make_op("dropout", {"x": "x"}, {"out": "h", "mask": "m"}, {"p": 0.0})
    desc = net(drop, op("toy_add", "h", "y", "m"))
    assert apply(RemoveIdentities(), desc) == text(desc)


# -- common subexpressions ---------------------------------------------------------------------


def test_equal_operators_are_merged_all_the_way_down():
    desc = net(
        op("toy_square", "x", "a", bias=1.0),
        op("toy_square", "x", "b", bias=1.0),
        op("toy_relu", "a", "c"),
        op("toy_relu", "b", "d"),
        op("toy_add", "c", "y", "d"),
    )
    assert apply(MergeCommon(), desc) == [
        "toy_square(x=x) -> out=a  {bias=1.0}",
        "toy_relu(x=a) -> out=c",
        "toy_add(x=c, y=c) -> out=y",
    ]


@pytest.mark.parametrize(
    "ops",
    [
        [op("toy_square", "x", "a"), op("toy_square", "x", "b", bias=1.0)],
        [op("toy_noise", "x", "a"), op("toy_noise", "x", "b")],
        [op("toy_relu", "x", "a"), op("toy_square", "x", "b")],
        [op("toy_relu", "x", "a"), op("toy_relu", "a", "a"), op("toy_relu", "x", "b")],
    ],
)
def test_different_random_and_overwritten_ones_stay(ops):
    desc = net(*ops, op("toy_add", "a", "y", "b"))
    assert apply(MergeCommon(), desc) == text(desc)


def test_inputs_count_by_version():
    state = make_var("s", (2, 3), kind=STATE)
    desc = net(
        op("toy_relu", "s", "a"),
        op("toy_add", "s", "s", "x"),
        op("toy_relu", "s", "b"),
        op("toy_add", "a", "y", "b"),
        variables=[state],
    )
    assert apply(MergeCommon(), desc) == text(desc)


def test_results_are_not_merged_away():
    both = net(op("toy_relu", "x", "a"), op("toy_relu", "x", "b"))
    assert apply(MergeCommon(), both) == text(both), "two results that nobody reads"
    declared = net(
        op("toy_relu", "x", "a"),
        op("toy_relu", "x", "b"),
        op("toy_add", "a", "y", "b"),
        variables=[output("b"), output("y")],
    )
    assert apply(MergeCommon(), declared) == text(declared)


def test_operators_that_hold_nets_stay():
    body = OpList(name="body")
    attrs = {"body": body}
    desc = net(
        make_op("toy_holder", {"x": "x"}, {"out": "a"}, attrs),
        make_op("toy_holder", {"x": "x"}, {"out": "b"}, attrs),
        op("toy_add", "a", "y", "b"),
    )
    assert apply(MergeCommon(), desc) == text(desc)


# -- dead code ---------------------------------------------------------------------------------


def test_what_no_output_needs_goes_with_its_variables():
    desc = net(
        op("toy_relu", "x", "h"),
        op("toy_square", "h", "lost"),
        op("toy_square", "lost", "more"),
        op("toy_relu", "h", "y"),
        variables=[output("y"), make_var("lost"), make_var("more"), make_var("h")],
    )
    made = run_passes(desc, [RemoveDead()])
    assert text(made) == ["toy_relu(x=x) -> out=h", "toy_relu(x=h) -> out=y"]
    assert [var.name for var in made.vars] == ["x", "y", "h"]


def test_kept_names_are_results():
    desc = net(op("toy_relu", "x", "a"), op("toy_square", "x", "b"), variables=[output("b")])
    assert apply(RemoveDead(), desc) == ["toy_square(x=x) -> out=b"]
    assert apply(RemoveDead(live_out=("a",)), desc) == text(desc)


def test_without_outputs_unread_temporaries_are_results():
    desc = net(op("toy_relu", "x", "a"), op("toy_square", "x", "b"))
    assert apply(RemoveDead(), desc) == text(desc)
    assert apply(RemoveDead(live_out=("a",)), desc) == ["toy_relu(x=x) -> out=a"]


def test_updates_of_parameters_and_state_stay():
    desc = net(
        op("toy_square", "w", "g"),
        op("toy_add", "w", "w", "g"),
        op("toy_add", "s", "s", "x"),
        op("toy_relu", "x", "lost"),
        op("toy_relu", "x", "y"),
        variables=[
            make_var("w", (2, 3), kind=PARAMETER),
            make_var("s", (2, 3), kind=STATE),
            output("y"),
        ],
    )
    assert [line.split(" -> ")[1] for line in apply(RemoveDead(), desc)] == [
        "out=g",
        "out=w",
        "out=s",
        "out=y",
    ]


def test_a_view_of_a_needed_matrix_is_needed():
    view = make_var("v", view=View("m", 0, -1, 0, 2))
    desc = net(op("toy_relu", "x", "v"), op("toy_relu", "x", "lost"), variables=[output("m"), view])
    assert apply(RemoveDead(), desc) == ["toy_relu(x=x) -> out=v"]


def test_names_that_nested_nets_use_stay():
    body = OpList(name="body", ops=[op("toy_relu", "inside", "q")])
    desc = net(
        op("toy_relu", "x", "inside"),
        make_op("toy_holder", {"x": "x"}, {"out": "y"}, {"body": body}),
        variables=[output("y")],
    )
    assert apply(RemoveDead(), desc) == text(desc)


def test_a_dead_random_operator_goes_only_where_no_other_one_follows():
    desc = net(
        op("toy_noise", "x", "lost"),
        op("toy_noise", "x", "y"),
        op("toy_noise", "x", "gone"),
        variables=[output("y")],
    )
    assert apply(RemoveDead(), desc) == text(desc)[:2]


# -- the pipeline ------------------------------------------------------------------------------


def busy_net():
    return net(
        op("assign", "x", "copy"),
        op("toy_square", "copy", "a"),
        op("toy_square", "x", "b"),
        op("toy_mul", "a", "y", "b"),
        op("toy_relu", "y", "lost"),
        variables=[output("y")],
    )


def test_the_pipeline_as_a_whole():
    assert text(clean_up(busy_net())) == ["toy_square(x=x) -> out=a", "toy_mul(x=a, y=a) -> out=y"]


@pytest.mark.parametrize(
    ("skipped", "left"),
    [
        ((), 2),
        (("remove-identities",), 4),
        (("merge-common",), 3),
        (("remove-dead",), 3),
        (("remove-identities", "merge-common", "remove-dead"), 5),
    ],
)
def test_every_pass_can_be_left_out(skipped, left):
    assert len(clean_up(busy_net(), skip=skipped).ops) == left


def test_passes_are_frozen_and_named():
    for one in (*cleanup_passes(), *LOWERING):
        assert dataclasses.is_dataclass(one) and one.name
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.name = "other"
    assert len({one.name for one in cleanup_passes()}) == len(cleanup_passes())


def test_the_runner_reports_every_pass():
    seen = []
    clean_up_passes = [RemoveIdentities(), MergeCommon(), RemoveDead()]
    run_passes(
        busy_net(),
        clean_up_passes,
        skip=["merge-common"],
        after_each=lambda name, desc: seen.append((name, len(desc.ops))),
    )
    assert seen == [("remove-identities", 4), ("remove-dead", 3)]


@dataclasses.dataclass(frozen=True)
class Breaker:
    name: str = "breaker"

    def apply(self, desc):
        made = desc.copy()
        del made.ops[0]
        return made


def test_the_verifier_names_the_guilty_pass(monkeypatch):
    desc = net(op("toy_relu", "x", "h"), op("toy_relu", "h", "y"), variables=[output("y")])
    monkeypatch.setenv("OPSCOPE_VERIFY", "0")
    run_passes(desc, [Breaker()])
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    with pytest.raises(VariableError, match="net 'n' after pass breaker: op 0 .* reads 'h'"):
        run_passes(desc, [RemoveDead(), Breaker()])


def test_wrong_operators_are_refused_by_every_pass():
    desc = net(op("toy_rleu", "x", "y"))
    for one in (MergeCommon(), RemoveDead()):
        with pytest.raises(OpscopeError, match=r"op 0 \(toy_rleu\)"):
            one.apply(desc)


def test_cleaning_twice_changes_nothing_more():
    once = clean_up(busy_net())
    assert to_message(clean_up(once)) == to_message(once)


def test_a_cleaned_net_computes_the_same():
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    values = []
    for desc in (busy_net(), clean_up(busy_net())):
        scope = Scope()
        scope.feed({"x": x})
        Net.create(desc).run(scope, OpContext(train=False))
        values.append(scope.numpy("y"))
    assert np.array_equal(*values)


def test_lowering_expands_composites_and_keeps_role_and_source():
    pair = make_op("toy_pair", {"x": "x", "y": "x"}, {"out": "y"}, role=1)
    pair.source = SourceLocation("model.py", 5)
    made = lower(net(pair))
    assert [op_text(one, locations=True) for one in made.ops] == [
        "toy_mul(x=x, y=x) -> out=y@PRODUCT  #backward @model.py:5",
        "toy_square(x=y@PRODUCT) -> out=y  #backward @model.py:5",
    ]
