"""Several optimizers in one net: each keeps its rate, by values, also saved, loaded and resumed."""

from __future__ import annotations

import math

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.bridges.model.opening import open_model
from opscope.framework.base.errors import AttributeTypeError, GradientError, VariableError

STEP_DECAY = {"schedule": "step_decay", "schedule_attrs": {"step_size": 2, "gamma": 0.5}}
COSINE = {"schedule": "cosine", "schedule_attrs": {"total_steps": 8}}
FEED = {"x": np.array([[1.0, 2.0]], "float32")}


def halving(step):
    return 0.5 ** ((step - 1) // 2)


def cosine(step):
    return (1 + math.cos(math.pi * min((step - 1) / 8, 1))) / 2


def constant(step):
    return 1.0


def linear():
    """cost = sum(x u) + sum(x v): the gradient of u and of v is always x."""
    b = NetBuilder("linear")
    x = b.input("x", [1, 2])
    u, v = b.parameter("u", [1, 2], 0.0), b.parameter("v", [1, 2], 0.0)
    cost = b.add_op("reduce_sum", b.add_op("add", x * u, x * v), name="cost")
    b.backward_from(cost)
    return b


def two_groups(first, second, types=("sgd", "sgd"), rates=(0.1, 0.01)):
    b = linear()
    b.add_optimization(rates[0], types[0], parameters=["u"], **first)
    b.add_optimization(rates[1], types[1], parameters="rest", **second)
    return b


def moved(rate, share, first, last):
    """Where SGD takes a parameter that starts at 0, by updates first .. last."""
    return -rate * sum(share(step) for step in range(first, last + 1)) * FEED["x"]


CASES = [
    ({}, constant, {}, constant),
    ({}, constant, STEP_DECAY, halving),
    (STEP_DECAY, halving, {}, constant),
    (STEP_DECAY, halving, COSINE, cosine),
    (COSINE, cosine, COSINE, cosine),
]


@pytest.mark.parametrize(("first", "first_share", "second", "second_share"), CASES)
def test_each_optimizer_trains_with_its_own_rate(first, first_share, second, second_share):
    b, scope = two_groups(first, second), Scope()
    for _ in range(6):
        b.run(scope, feed=FEED)
    np.testing.assert_allclose(scope.numpy("u"), moved(0.1, first_share, 1, 6), rtol=1e-5)
    np.testing.assert_allclose(scope.numpy("v"), moved(0.01, second_share, 1, 6), rtol=1e-5)


@pytest.mark.parametrize(("first", "first_share", "second", "second_share"), CASES)
def test_saved_and_loaded_nets_go_on_with_their_rates(
    first, first_share, second, second_share, tmp_path
):
    b, scope = two_groups(first, second), Scope()
    for _ in range(3):
        b.run(scope, feed=FEED)
    opscope.save(b, scope, tmp_path / "n")
    net, loaded = opscope.load(tmp_path / "n", train=True)
    for _ in range(3):
        loaded.feed(FEED)
        net.run(loaded)
    np.testing.assert_allclose(loaded.numpy("u"), moved(0.1, first_share, 1, 6), rtol=1e-5)
    np.testing.assert_allclose(loaded.numpy("v"), moved(0.01, second_share, 1, 6), rtol=1e-5)


@pytest.mark.parametrize(("first", "first_share", "second", "second_share"), CASES)
def test_checkpoints_hold_the_rates(first, first_share, second, second_share, tmp_path):
    def trained(epochs, resume=False):
        scope = Scope()
        opscope.train(
            two_groups(first, second),
            [FEED] * 3,
            epochs=epochs,
            scope=scope,
            loss="cost",
            checkpoint=tmp_path / "run",
            resume=resume,
            progress=False,
        )
        return scope

    trained(1)
    loaded = open_model(tmp_path / "run.checkpoint").load().scope
    for name, share, rate in (
        ("optimizer@LEARNING_RATE", first, 0.1),
        ("optimizer@LEARNING_RATE@2", second, 0.01),
    ):
        assert (name in loaded.names()) == (not share)  # what is computed anew is not kept
        if not share:
            assert loaded.numpy(name) == np.float32(rate)
    scope = trained(2, resume=True)
    np.testing.assert_allclose(scope.numpy("u"), moved(0.1, first_share, 1, 6), rtol=1e-5)
    np.testing.assert_allclose(scope.numpy("v"), moved(0.01, second_share, 1, 6), rtol=1e-5)


def test_a_rate_changed_by_hand_goes_through_a_checkpoint(tmp_path):
    scope, again = Scope(), Scope()
    options = {"loss": "cost", "checkpoint": tmp_path / "run", "progress": False}
    b = two_groups({}, {})
    b.initialize(scope)
    scope.feed({"optimizer@LEARNING_RATE@2": np.float32(0.5)})
    opscope.train(b, [FEED], epochs=1, scope=scope, **options)
    opscope.train(two_groups({}, {}), [FEED], epochs=2, scope=again, resume=True, **options)
    np.testing.assert_allclose(again.numpy("u"), -0.2 * FEED["x"], rtol=1e-6)
    np.testing.assert_allclose(again.numpy("v"), -1.0 * FEED["x"], rtol=1e-6)


def test_optimizers_of_different_types_equal_each_alone():
    both, scope = two_groups({}, STEP_DECAY, ("adam", "momentum")), Scope()
    alone, peer = linear(), Scope()
    alone.add_optimization(0.1, "adam", parameters="u")
    only_v, other = linear(), Scope()
    only_v.add_optimization(0.01, "momentum", parameters="v", **STEP_DECAY)
    for _ in range(5):
        both.run(scope, feed=FEED)
        alone.run(peer, feed=FEED)
        only_v.run(other, feed=FEED)
    np.testing.assert_array_equal(scope.numpy("u"), peer.numpy("u"))
    np.testing.assert_array_equal(scope.numpy("v"), other.numpy("v"))
    assert scope.numpy("optimizer@STEP") == scope.numpy("optimizer@STEP@2") == 5


def test_an_optimizer_that_is_added_later_counts_from_its_own_first_step():
    """With the count of the first one, Adam's correction would be missing from the first steps."""
    b, scope = linear(), Scope()
    b.add_optimization(0.1, "adam", parameters="u")
    for _ in range(20):
        b.run(scope, feed=FEED)
    b.add_optimization(0.1, "adam", parameters="rest", **COSINE)
    b.run(scope, feed=FEED)
    np.testing.assert_allclose(scope.numpy("v"), [[-0.1, -0.1]], rtol=1e-5)
    assert scope.numpy("optimizer@STEP") == 21 and scope.numpy("optimizer@STEP@2") == 1


def test_clipping_reaches_its_own_parameters_only():
    b, scope = two_groups({"clip_norm": 0.5}, {}), Scope()
    b.run(scope, feed=FEED)
    clipped = 0.5 * FEED["x"] / np.linalg.norm(FEED["x"])
    np.testing.assert_allclose(scope.numpy("u"), -0.1 * clipped, rtol=1e-6)
    np.testing.assert_allclose(scope.numpy("v"), -0.01 * FEED["x"], rtol=1e-6)
    b, scope = two_groups({"clip_norm": 0.5}, {"clip_norm": 0.25}), Scope()
    b.run(scope, feed=FEED)
    np.testing.assert_allclose(scope.numpy("u"), -0.1 * clipped, rtol=1e-6)
    np.testing.assert_allclose(scope.numpy("v"), -0.005 * clipped, rtol=1e-6)


# -- a builder over a saved net --------------------------------------------------------------------


def test_from_desc_trains_with_the_rates_that_are_asked_for_now():
    b, scope = two_groups({}, {}), Scope()
    b.run(scope, feed=FEED)
    again = NetBuilder.from_desc(b.desc)
    again.backward_from("cost")
    again.add_optimization(1.0, parameters="v")
    again.add_optimization(2.0, parameters="u")
    u, v = scope.numpy("u"), scope.numpy("v")
    again.run(scope, feed=FEED)
    np.testing.assert_allclose(scope.numpy("u"), u - 2 * FEED["x"], rtol=1e-6)
    np.testing.assert_allclose(scope.numpy("v"), v - FEED["x"], rtol=1e-6)


@pytest.mark.parametrize("by", ["run", "train"])
def test_a_rate_written_after_the_first_run_holds(by):
    b, scope = two_groups({}, {}), Scope()

    def once():
        if by == "run":
            b.run(scope, feed=FEED)
        else:
            opscope.train(b, [FEED], epochs=1, scope=scope, loss="cost", progress=False)

    once()
    scope.feed({"optimizer@LEARNING_RATE": np.float32(1.0)})
    b.reduce_sum("u")  # the net changes, and is made anew
    before = scope.numpy("u")
    once()
    np.testing.assert_allclose(scope.numpy("u"), before - FEED["x"], rtol=1e-6)


def test_train_of_a_builder_over_a_saved_net_takes_its_own_rate(tmp_path):
    b, scope = two_groups({}, {}), Scope()
    b.run(scope, feed=FEED)
    opscope.save(b, scope, tmp_path / "n")
    net, loaded = opscope.load(tmp_path / "n", train=True)
    again = NetBuilder.from_desc(net.desc)
    again.backward_from("cost")
    again.add_optimization(1.0)
    before = loaded.numpy("u")
    opscope.train(again, [FEED], epochs=1, scope=loaded, loss="cost", progress=False)
    np.testing.assert_allclose(loaded.numpy("u"), before - FEED["x"], rtol=1e-6)


def test_a_rate_that_is_fed_to_the_first_run_holds():
    b, scope = two_groups({}, {}), Scope()
    b.run(scope, feed=FEED | {"optimizer@LEARNING_RATE@2": np.float32(1.0)})
    np.testing.assert_allclose(scope.numpy("v"), -FEED["x"], rtol=1e-6)


def test_a_refused_run_leaves_the_rates_alone():
    b, scope = two_groups({}, {}), Scope()
    b.run(scope, feed=FEED)
    again = NetBuilder.from_desc(b.desc)
    again.backward_from("cost")
    again.add_optimization(1.0)
    with pytest.raises(VariableError):
        again.run(scope, feed={})
    assert scope.numpy("optimizer@LEARNING_RATE") == np.float32(0.1)
    again.run(scope, feed=FEED)
    assert scope.numpy("optimizer@LEARNING_RATE") == 1


# -- what is refused -------------------------------------------------------------------------------


def test_overlap_names_the_parameter_and_both_optimizers():
    b = linear()
    b.add_optimization(0.1, "adam", parameters=["v"])
    for wanted in (None, ["u", "v"], "v"):
        with pytest.raises(VariableError, match=r"'v' would be updated.*adam and momentum: name"):
            b.add_optimization(0.1, "momentum", parameters=wanted)
    with pytest.raises(VariableError, match="momentum: parameter 'u' is named twice"):
        b.add_optimization(0.1, "momentum", parameters=["u", "u"])
    b.add_optimization(0.1, "momentum", parameters="rest")  # the refused ones have left nothing
    assert len([op for op in b.op_list.ops if op.type == "momentum"]) == 1
    with pytest.raises(GradientError, match="no parameter is left for sgd"):
        b.add_optimization(0.1, parameters="rest")


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        (("adam", 0.1), {}, r'first.*: add_optimization\(0.1, "adam"\), not add_optimization\(\'a'),
        (("adam",), {}, r'add_optimization\(0.01, "adam"\), not'),
        ((0.1, 0.2), {}, r'add_optimization\(0.2, "adam"\), not add_optimization\(0.1, 0.2\)'),
        (("u", "adam"), {}, "the learning rate comes first"),
        ((None, "adam"), {}, "learning_rate must be a number, not None"),
        ((True, "adam"), {}, "learning_rate must be a number, not True"),
        ((0.1,), {"lr": 0.2}, "no attribute 'lr' .here it is the first argument, learning_rate"),
        ((0.1, "adam"), {"eps": 1e-3}, "'eps' .here it is epsilon"),
        ((0.1, "adamm"), {}, "'adamm' is no optimizer .did you mean adam"),
    ],
)
def test_calls_that_show_the_right_one(args, options, message):
    b = linear()
    with pytest.raises(AttributeTypeError, match=message):
        b.add_optimization(*args, **options)
    assert b.objective.optimizers == ()


def test_a_variable_is_no_rate():
    b = linear()
    with pytest.raises(AttributeTypeError, match="not the variable 'u'; for a rate that changes"):
        b.add_optimization(b.var("u"))


def test_parameters_as_handles_and_names():
    for given in ("u", ["u"], lambda b: b.var("u"), lambda b: [b.var("u")]):
        b = linear()
        b.add_optimization(0.1, parameters=given(b) if callable(given) else given)
        assert [op.inputs["param"] for op in b.op_list.ops if op.type == "sgd"] == [("u",)]
    b = linear()
    b.backward_from("cost", wrt=b.var("x"))
    assert "x" in b.gradients


@pytest.mark.parametrize(("shape", "shown"), [([-1, 3], r"\[\?, 3\]"), ([2], r"\[2\]")])
def test_a_cost_is_a_single_number(shape, shown):
    b = NetBuilder()
    x = b.input("x", shape)
    y = b.add_op("mul", x, b.parameter("w", [1], 1.0), name="y")
    with pytest.raises(GradientError, match=rf"'y' has the shape {shown}; .*b.mean\(y\) or b.red"):
        b.backward_from(y)
    assert b.objective.costs == ()
    b.backward_from(b.mean(y))


def test_a_cost_of_one_element_is_a_single_number():
    b = NetBuilder()
    cost = b.add_op("mul", b.input("x", [1, 1]), b.parameter("w", [1], 1.0))
    b.backward_from(cost)
    assert "w" in b.gradients


def test_wrt():
    b = linear()
    with pytest.raises(VariableError, match="no variable 'xx' .did you mean x"):
        b.backward_from("cost", wrt=["xx"])
    with pytest.raises(GradientError, match="wrt names no variable"):
        b.backward_from("cost", wrt=[])
    only = NetBuilder.from_desc(b.desc)
    only.backward_from("cost", wrt="x")  # a string is one name
    with pytest.raises(GradientError, match="the gradients of x and of no parameter; leave wrt ou"):
        only.add_optimization(0.1)
    only.backward_from("cost")
    assert set(only.gradients) == {"x", "u", "v"}  # what was asked for adds up
    only.add_optimization(0.1)
