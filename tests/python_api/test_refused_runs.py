"""A run that is refused changes nothing; what a run may be fed and asked for."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base.errors import OpscopeError, ShapeError, VariableError
from opscope.framework.base.scope import default_scope

X = np.ones((2, 3), "float32")
Y = np.zeros((2, 1), "float32")


def regression() -> NetBuilder:
    b = NetBuilder("regression")
    x, y = b.input("x", [-1, 3]), b.input("y", [-1, 1])
    hidden = b.relu(x, name="hidden")
    out = b.fc(hidden, size=1, name="out")
    cost = b.mean(b.square(out - y), name="cost")
    b.backward_from(cost)
    b.add_optimization(0.1, "sgd")
    return b


def state_of(scope: Scope) -> dict:
    return {
        name: None if scope.get(name).array is None else scope.numpy(name).tolist()
        for name in scope.names()
    }


REFUSED = {
    "unknown fetch": ({"fetch": ["cots"]}, r"no variable 'cots' \(did you mean cost"),
    "misspelt string": ({"fetch": "cots"}, r"no variable 'cots' \(did you mean cost"),
    "no variable to fetch": ({"fetch": [3]}, "want a variable or its name, not 3"),
    "nothing to fetch from": ({"fetch": 3}, "not a int"),
    "gradient of a forward run": (
        {"fetch": ["out.w@GRAD"], "need_backward": False},
        "need_backward=False leaves out",
    ),
    "unknown feed": (
        {"feed": {"x": X + 1, "yy": Y}},
        r"feed: the net has no variable 'yy' .*inputs are x, y",
    ),
    "computed feed": (
        {"feed": {"x": X + 1, "y": Y, "hidden": X}},
        "'hidden' is computed by an operator, whose gradient the run wants",
    ),
    "computed gradient": ({"feed": {"x": X + 1, "y": Y, "out.w@GRAD": X}}, "is computed by op"),
    "second of two feeds": ({"feed": {"x": X + 1, "y": Y[:, :0]}}, r"'y' wants \[-1, 1\]"),
    "rows that do not fit": ({"feed": {"x": X + 1, "y": np.zeros((3, 1))}}, "out|sub"),
    "no array": ({"feed": {"x": X + 1, "y": "text"}}, "'y' wants float32"),
    "missing input": ({"feed": {"x": X + 1}}, "input 'y' is not in the feed.*earlier run"),
    "no mapping": ({"feed": [X, Y]}, "maps names of inputs to arrays.*a list"),
    "feed as scope": ({"scope": {"x": X}}, r"run\(scope, feed=\{'x': array\}"),
    "feed as context": ({"context": {"x": X}}, r"run\(scope, feed=\{'x': array\}"),
    "array as scope": ({"scope": X}, "scope must be an opscope.Scope, not a ndarray"),
    "fetch as need_backward": ({"need_backward": ["cost"]}, "True or False, not \\['cost'\\]"),
}


@pytest.mark.parametrize("first_run", [True, False])
@pytest.mark.parametrize("case", list(REFUSED))
def test_a_refused_run_leaves_the_scope_as_it_was(case: str, first_run: bool) -> None:
    b, scope = regression(), Scope()
    options, message = REFUSED[case]
    if not first_run:
        b.run(scope, feed={"x": X, "y": Y}, fetch=["cost"])
    elif case == "missing input":
        message = r"input 'y' is missing \(float32\[\?, 1\]\): put it into the feed"
    before, names = state_of(scope), scope.names()
    arrays = {name: scope.get(name).array for name in names}
    with pytest.raises(OpscopeError, match=message):
        b.run(**{"scope": scope, **options})
    assert state_of(scope) == before and scope.names() == names
    if not first_run:
        assert b.run(scope, feed={"x": X, "y": Y}, fetch="cost")["cost"].shape == ()
        kept = [name for name in names if scope.get(name).array is arrays[name]]
        assert set(kept) >= {"out.w", "out.b", "optimizer@LEARNING_RATE"}
    else:
        assert scope not in b.run_cache.initialized


def test_a_refused_feed_takes_back_arrays_that_fitted_in_place() -> None:
    b, scope = regression(), Scope()
    b.run(scope, feed={"x": X, "y": Y}, fetch=["cost"])
    with pytest.raises(ShapeError):
        b.run(scope, feed={"x": X * 7, "y": np.zeros((5, 1))})
    assert scope.numpy("x").tolist() == X.tolist() and scope.numpy("y").shape == (2, 1)


def test_one_name_and_one_variable_are_one_to_fetch() -> None:
    b, scope = regression(), Scope()
    feed = {"x": X, "y": Y}
    for fetch in ("cost", b.var("cost"), ["cost"], (b.var("cost"),), {"cost"}):
        assert list(b.run(scope, feed=feed, fetch=fetch)) == ["cost"]
    assert b.run(scope, feed=feed, fetch=iter(["cost", "out"])).keys() == {"cost", "out"}


def test_arguments_may_stand_in_the_order_of_the_design() -> None:
    """`Run(Scope* scope, OpContext* context, bool need_backward = true)`."""
    b, scope = regression(), Scope()
    b.initialize(scope)
    b.feed(scope, {"x": X, "y": Y})
    weights = scope.numpy("out.w")
    b.run(scope, OpContext(seed=1), False)
    assert np.array_equal(scope.numpy("out.w"), weights)
    b.run(scope, OpContext(seed=1), True)
    assert not np.array_equal(scope.numpy("out.w"), weights)


def test_states_and_inputs_can_be_fetched_without_gradients() -> None:
    b, scope = regression(), Scope()
    feed = {"x": X, "y": Y}
    fetch = ["optimizer@LEARNING_RATE", "out.w", "y"]
    found = b.run(scope, feed=feed, fetch=fetch, need_backward=False)
    assert found["optimizer@LEARNING_RATE"] == np.float32(0.1) and found["y"].shape == (2, 1)
    with pytest.raises(VariableError, match="input 'y' is not in the feed"):
        b.run(scope, feed={}, fetch=["y"], need_backward=False)


def test_a_feed_says_all_inputs_or_the_user_set_them() -> None:
    b, scope = regression(), Scope()
    b.run(scope, feed={"x": X, "y": Y})
    with pytest.raises(VariableError, match="left from the feed of an earlier run"):
        b.run(scope, feed={"x": X})
    b.run(scope)  # without a feed it reads what there is
    scope.var("y").set(Y + 1)
    b.run(scope, feed={"x": X})
    b.run(scope, feed={"x": X, "y": Y})
    with pytest.raises(VariableError, match="left from the feed"):
        b.run(scope, feed={"x": X})
    b.feed(scope, {"y": Y})
    b.run(scope, feed={"x": X})
    assert b.run(scope, feed={"x": X}, fetch=["out"], need_backward=False)["out"].shape == (2, 1)


def test_what_a_feed_set_for_an_unread_input_is_not_used_later() -> None:
    b, scope = regression(), Scope()
    b.run(scope, feed={"x": X, "y": Y}, fetch=["out"], need_backward=False)
    with pytest.raises(VariableError, match="input 'y' is not in the feed"):
        b.run(scope, feed={"x": X}, fetch=["cost"], need_backward=False)


def test_a_minibatch_of_training_is_a_feed_too() -> None:
    import opscope

    b, scope = regression(), Scope()
    opscope.train(b, [{"x": X, "y": Y}], epochs=1, scope=scope, loss="cost", progress=False)
    with pytest.raises(VariableError, match="input 'y' is not in the feed"):
        b.run(scope, feed={"x": X})
    with pytest.raises(VariableError, match="'hidden' is computed by op 0"):
        opscope.train(
            b, [{"x": X, "hidden": X}], epochs=1, scope=scope, loss="cost", progress=False
        )


def test_parameters_can_be_fed() -> None:
    b, scope = regression(), Scope()
    weights = np.full((3, 1), 2, "float32")
    feed = {"x": X, "out.w": weights, "out.b": [0]}
    out = b.run(scope, feed=feed, fetch="out", need_backward=False)["out"]
    assert out.tolist() == [[6], [6]]


def test_a_feed_of_a_kid_leaves_the_inputs_of_its_parent() -> None:
    b, scope = regression(), Scope()
    b.run(scope, feed={"x": X, "y": Y})
    kid = scope.new_scope()
    b.run(kid, feed={"x": X + 1, "y": Y + 1}, fetch=["out"], need_backward=False)
    assert scope.numpy("x").tolist() == X.tolist()
    assert kid.numpy("x").tolist() == (X + 1).tolist()


def test_feed_sets_all_or_nothing() -> None:
    b, scope = regression(), Scope()
    with pytest.raises(ShapeError, match="'y' wants"):
        b.feed(scope, {"x": X, "y": X})
    with pytest.raises(VariableError, match="computed"):
        b.feed(scope, {"x": X, "out": Y})
    with pytest.raises(VariableError, match=r"feed\(scope, \{'x': array\}\)"):
        b.feed({"x": X}, {"x": X})  # pyright: ignore[reportArgumentType]
    assert scope.names() == []


def test_variables_of_another_builder_are_refused() -> None:
    b, other, scope = regression(), regression(), Scope()
    with pytest.raises(VariableError, match="'cost' belongs to another NetBuilder"):
        b.run(scope, feed={"x": X, "y": Y}, fetch=[other.var("cost")])
    with pytest.raises(VariableError, match="'x' belongs to another NetBuilder"):
        b.run(scope, feed={other.var("x"): X, "y": Y})
    assert scope.names() == []


def test_a_run_without_a_scope_uses_the_default_one() -> None:
    b = NetBuilder("default scope of a run")
    x = b.input("refused_runs_x", [2])
    out = b.run(feed={x: [1, 2]}, fetch=b.scale(x, scale=3.0, name="refused_runs_out"))
    assert out["refused_runs_out"].tolist() == [3, 6]
    for name in ("refused_runs_x", "refused_runs_out"):
        default_scope().erase(name)
