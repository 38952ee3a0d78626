"""Two builders in one scope have no parameters in common unless somebody says so."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, OptimizerAttrs, PlainNet, Scope
from opscope.framework.base.errors import GradientError, OpscopeError, VariableError
from opscope.framework.base.scope import default_scope

X = np.ones((2, 3), "float32")


def small(name: str = "net", size: int = 2, **options) -> NetBuilder:
    b = NetBuilder(name)
    out = b.fc(b.input("x", [-1, 3]), size=size, **options)
    b.backward_from(b.mean(b.square(out), name="loss"))
    b.add_optimization(0.1, "momentum")
    return b


def test_automatic_names_of_another_builder_are_refused() -> None:
    one, two, scope = small("one"), small("two"), Scope()
    one.run(scope, feed={"x": X})
    before = {name: scope.numpy(name) for name in scope.names()}
    message = (
        "net 'two': the scope holds 'fc_0.w', 'fc_0.b', 'optimizer@LEARNING_RATE' and . more of"
        r" another NetBuilder, 'one'\. Give this one a Scope\(\) of its own .* share=True"
    )
    for refused in (
        lambda: two.run(scope, feed={"x": X}),
        lambda: two.initialize(scope),
        lambda: opscope.train(two, [{"x": X}], epochs=1, scope=scope, progress=False),
        lambda: two.run(scope.new_scope(), feed={"x": X}),
        lambda: two.run(scope.new_scope().new_scope(), need_backward=False),
    ):
        with pytest.raises(VariableError, match=message):
            refused()
    assert scope.names() == list(before)
    assert all(np.array_equal(scope.numpy(name), value) for name, value in before.items())
    one.run(scope, feed={"x": X})
    two.run(Scope(), feed={"x": X})


def test_the_same_cell_run_again_says_so() -> None:
    names = ["again.w", "again.b"]
    try:
        for number in range(2):
            b = NetBuilder("cell")
            b.fc(b.input("x", [-1, 3]), size=2 + number, name="again")
            if not number:
                b.initialize()
        with pytest.raises(VariableError, match=r"run again, as a notebook's cell.*overwrite=True"):
            b.run(feed={"x": X}, fetch=["again"])
        b.initialize(overwrite=True)
        assert b.run(feed={"x": X}, fetch=["again"])["again"].shape == (2, 3)
    finally:
        for name in (*names, "x", "again"):
            default_scope().erase(name)


def test_builders_share_where_they_are_told_to() -> None:
    one, two, scope = small("one"), small("two"), Scope()
    one.run(scope, feed={"x": X})
    weights = scope.numpy("fc_0.w")
    two.initialize(scope, share=True)
    assert np.array_equal(scope.numpy("fc_0.w"), weights)
    two.run(scope, feed={"x": X})
    assert not np.array_equal(scope.numpy("fc_0.w"), weights)
    two.fc(two.var("fc_0"), size=4)  # the net changes; what was shared stays so, in kids too
    two.run(scope.new_scope(), feed={"x": X}, need_backward=False)
    one.run(scope, feed={"x": X})


def test_a_rate_is_not_shared_where_it_is_another() -> None:
    one, two, scope = small("one"), NetBuilder("two"), Scope()
    two.backward_from(two.mean(two.square(two.fc(two.input("x", [-1, 3]), size=2))))
    two.add_optimization(0.3, "momentum")
    one.run(scope, feed={"x": X})
    with pytest.raises(VariableError, match=r"'optimizer@LEARNING_RATE' is 0.1 .* and 0.3 here"):
        two.initialize(scope, share=True)
    with pytest.raises(VariableError, match="of another NetBuilder"):
        opscope.train(two, [{"x": X}], epochs=1, scope=scope, loss="mean_0", progress=False)
    assert scope.numpy("optimizer@LEARNING_RATE") == np.float32(0.1)
    kid = scope.new_scope()
    kid.var("optimizer@LEARNING_RATE")
    two.initialize(kid, share=True)
    weights = scope.numpy("fc_0.w")
    two.run(kid, feed={"x": X})
    assert not np.array_equal(scope.numpy("fc_0.w"), weights)
    assert kid.numpy("optimizer@LEARNING_RATE") == np.float32(0.3)
    assert scope.numpy("optimizer@LEARNING_RATE") == np.float32(0.1)


def test_builders_of_other_names_live_side_by_side() -> None:
    scope = Scope()
    for name in ("first", "second"):
        b = NetBuilder(name)
        b.fc(b.input("x", [-1, 3]), size=2, name=name)
        b.run(scope, feed={"x": X}, fetch=[name])
    assert {"first.w", "second.w"} <= set(scope.names())


def test_values_of_the_user_of_files_and_of_the_same_builder_are_used(tmp_path) -> None:
    one, scope = small("one"), Scope()
    one.run(scope, feed={"x": X})
    one.fc(one.var("fc_0"), size=2)  # it goes on with what it made itself
    one.run(scope, feed={"x": X})
    opscope.save(one, scope, tmp_path / "net")
    loaded = opscope.load(tmp_path / "net").scope
    two = small("two")
    two.run(loaded, feed={"x": X})

    opscope.load(tmp_path / "net", scope)  # into the scope of another builder
    two.run(scope, feed={"x": X})

    mine = Scope()
    mine.var("fc_0.w").set(np.ones((3, 2), "float32"))
    small("three").run(mine, feed={"x": X})
    assert mine.get("fc_0.w").numpy()[0, 0] != 1, "trained on from the value that was set"


def test_what_a_training_brings_back_stays_its_builders(tmp_path) -> None:
    one, scope = small("one"), Scope()
    opscope.train(
        one, [{"x": X}], epochs=3, scope=scope, early_stop=opscope.EarlyStop(1), progress=False
    )
    with pytest.raises(VariableError, match="of another NetBuilder, 'one'"):
        small("two").run(scope, feed={"x": X})


def test_a_builder_from_a_description_takes_up_its_variables() -> None:
    one, scope = small("one"), Scope()
    one.run(scope, feed={"x": X})
    again = NetBuilder.from_desc(one.desc)
    again.backward_from("loss")
    again.add_optimization(0.1, "momentum")
    again.run(scope, feed={"x": X})
    again.fc(again.var("fc_0"), size=2, name="new")
    again.run(scope, feed={"x": X})
    with pytest.raises(VariableError, match="holds 'new.w', 'new.b'"):
        other = NetBuilder("other")
        other.fc(other.input("x", [-1, 2]), size=2, name="new")
        other.initialize(scope)


def test_threads_with_kids_of_one_scope() -> None:
    b, scope = small(), Scope()
    b.initialize(scope)
    want = b.run(scope, feed={"x": X}, fetch=["fc_0"], need_backward=False)["fc_0"]
    found = []

    def work(factor: int) -> None:
        kid = scope.new_scope()
        for _ in range(50):
            x = np.repeat(X, factor, axis=0)
            out = b.run(kid, feed={"x": x}, fetch=["fc_0"], need_backward=False)["fc_0"]
            if not np.allclose(out, np.repeat(want, factor, axis=0), atol=1e-6):
                found.append(factor)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == []


# -- over an existing net -----------------------------------------------------------------------


def test_a_builder_over_a_plain_net_changes_that_net() -> None:
    """`NetBuilder(Net* net) : net_(net)`."""
    net = PlainNet()
    net.add_op("scale", {"x": "x"}, {"out": "h"}, {"scale": 2.0})
    b = NetBuilder(net)
    w = b.parameter("w", [1], 3.0)
    b.mul(b.var("h"), w, name="y")
    assert [op.type for op in net.operators] == ["scale", "mul"]
    scope = Scope()
    assert b.run(scope, feed={"x": np.float32([1, 2])}, fetch="y")["y"].tolist() == [6, 12]
    net.add_op("scale", {"x": "y"}, {"out": "z"}, {"scale": 10.0})  # seen by the builder
    assert b.run(scope, feed={"x": np.float32([1, 2])}, fetch="z")["z"].tolist() == [60, 120]


def test_a_builder_over_a_net_in_use_takes_up_its_variables() -> None:
    one, scope = small("one"), Scope()
    one.run(scope, feed={"x": X})
    two = NetBuilder(one.forward_net)
    assert two.name == "one"
    assert two.run(scope, feed={"x": X}, fetch="loss", need_backward=False)["loss"] > 0


def test_nets_that_a_builder_cannot_go_on_from(tmp_path) -> None:
    b, scope = small(), Scope()
    b.run(scope, feed={"x": X})
    with pytest.raises(OpscopeError, match=r"holds gradients or updates: NetBuilder\.from_desc"):
        NetBuilder(b.net)
    opscope.save(b, scope, tmp_path / "net")
    with pytest.raises(OpscopeError, match="was loaded to predict: NetBuilder.from_desc"):
        NetBuilder(opscope.load(tmp_path / "net").net)
    with pytest.raises(OpscopeError, match="wants a name or a PlainNet, not 3"):
        NetBuilder(3)  # pyright: ignore[reportArgumentType]


def test_gradients_and_updates_by_the_names_of_the_design() -> None:
    """`AddBackwardOps()`, `AddOptimizerOps()` and `last_forward_op_` of NetBuilder."""
    b = NetBuilder("n")
    b.mean(b.square(b.fc(b.input("x", [-1, 3]), size=2, name="out")), name="loss")
    assert b.last_forward_op == len(b.net.operators) - 1
    last = b.last_forward_op
    with pytest.raises(GradientError, match=r"add_optimizer_ops needs add_backward_ops\(\) first"):
        b.add_optimizer_ops(OptimizerAttrs("sgd", 0.1))
    assert b.add_backward_ops() == {"out.w": "out.w@GRAD", "out.b": "out.b@GRAD"}
    assert b.add_optimizer_ops(OptimizerAttrs("sgd", 0.1)) == ["optimizer@LEARNING_RATE"]
    assert b.last_forward_op == last < len(b.net.operators) - 1
    scope = Scope()
    losses = [float(b.run(scope, feed={"x": X}, fetch="loss")["loss"]) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    with pytest.raises(GradientError, match="has no operator yet"):
        NetBuilder().add_backward_ops()
    two = small("two")
    assert set(two.add_backward_ops(["loss"], wrt=[two.var("x")])) >= {"x"}
