"""Predicting: of a loaded net and of a builder; and that a loaded net does not train unasked."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, OpContext, Scope, Sequences
from opscope.bridges.model.opening import open_model
from opscope.framework.base.errors import OpscopeError, ShapeError, VariableError
from opscope.framework.files.saved import Loaded
from opscope.framework.ir.desc import OUTPUT
from rnn_nets import fill, packed, run, simple

X = np.random.default_rng(0).normal(size=(10, 4)).astype("float32")
LABEL = np.arange(10) % 3


def close(value, wanted) -> None:
    """Equal but for rounding: batches of other sizes go to other products."""
    np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)


def classifier() -> NetBuilder:
    """With dropout and batch normalization, so that the phase can be seen."""
    b = NetBuilder("classifier")
    x, label = b.input("x", [-1, 4]), b.input("label", [-1], "int64")
    hidden = b.dropout(b.batch_norm(b.fc(x, size=8), name="norm"), p=0.5, name="hidden")
    scores = b.fc(hidden, size=3, name="scores")
    b.accuracy(scores, label, name="accuracy")
    b.backward_from(b.mean(b.softmax_cross_entropy(scores, label), name="cost"))
    b.add_optimization(0.1, "adam")
    return b


def values_of(net, scope: Scope) -> dict[str, np.ndarray]:
    from opscope.framework.files.saved import op_list_of, persistent_values

    return {name: array.copy() for name, array in persistent_values(op_list_of(net), scope).items()}


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


@pytest.fixture
def trained() -> tuple[NetBuilder, Scope]:
    b, scope = classifier(), Scope()
    for _ in range(5):
        b.run(scope, feed={"x": X, "label": LABEL})
    return b, scope


@pytest.fixture
def saved(trained, tmp_path):
    opscope.save(*trained, tmp_path / "net")
    return tmp_path / "net"


# -- a loaded net does not train --------------------------------------------------------------


def test_running_a_loaded_net_changes_nothing_and_is_in_test_phase(trained, saved) -> None:
    b, scope = trained
    want = b.run(scope, feed={"x": X}, fetch="scores", need_backward=False)["scores"]
    loaded = opscope.load(saved)
    net, held = loaded
    before = values_of(net, held)
    held.feed({"x": X, "label": LABEL})
    for context in (None, OpContext(), OpContext(train=False)):
        net.run(held, context)
        np.testing.assert_array_equal(held.numpy("scores"), want)
    net.run(held, None, 0, net.last_forward_op + 1)
    net.run(held, OpContext(live_out=["hidden"]), 0, 4)
    assert same(before, values_of(net, held))
    assert net.desc == opscope.load(saved, train=True).net.desc, "it keeps all its operators"


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda net, scope: net.run(scope, OpContext(train=True)), "the context says train=True"),
        (
            lambda net, scope: net.run(scope, None, 0, len(net.operators)),
            "reach into its gradients and updates, [0-9]+ and up",
        ),
        (lambda net, scope: net.run(scope, None, len(net.operators) - 1), "reach into"),
        (lambda net, scope: net.add_backward_ops(), "gradients are asked for"),
        (
            lambda net, scope: net.add_optimizer_ops(opscope.OptimizerAttrs("sgd", 0.1)),
            "updates are asked for",
        ),
        (lambda net, scope: opscope.train(net, [{"x": X}], epochs=1, loss="cost"), "predict"),
        (
            lambda net, scope: opscope.train(
                Loaded(net, scope), [{"x": X}], epochs=1, scope=scope, loss="cost"
            ),
            "predict",
        ),
    ],
)
def test_asking_a_loaded_net_for_training_says_how(saved, ask, why) -> None:
    net, scope = opscope.load(saved)
    before = values_of(net, scope)
    scope.feed({"x": X, "label": LABEL})
    with pytest.raises(OpscopeError, match=f"was loaded to predict.*{why}|{why}") as error:
        ask(net, scope)
    assert "load(path, train=True)" in str(error.value)
    assert same(before, values_of(net, scope))


def test_a_net_loaded_to_train_trains(trained, saved) -> None:
    loaded = opscope.load(saved, train=True)
    before = values_of(loaded.net, loaded.scope)
    loaded.scope.feed({"x": X, "label": LABEL})
    loaded.net.run(loaded.scope)
    assert not same(before, values_of(loaded.net, loaded.scope))
    batches = [{"x": X, "label": LABEL}]
    before = values_of(loaded.net, loaded.scope)
    opscope.train(loaded, batches, epochs=1, loss="cost", progress=False)
    assert not same(before, values_of(loaded.net, loaded.scope)), "in the scope that was loaded"


def test_checkpoints_are_loaded_likewise(trained, tmp_path) -> None:
    b, scope = trained
    batches, options = [{"x": X, "label": LABEL}], {"loss": "cost", "progress": False}
    opscope.train(b, batches, epochs=1, scope=scope, checkpoint=tmp_path / "run", **options)
    net, held = open_model(tmp_path / "run.checkpoint").load()
    with pytest.raises(OpscopeError, match="was loaded to predict"):
        net.run(held, OpContext(train=True))
    assert not open_model(tmp_path / "run.checkpoint").load(train=True).net.predicts


def test_a_recurrent_net_is_loaded_to_predict(tmp_path) -> None:
    net, scope = opscope.Net.create(simple()), Scope()
    given = {"u": np.ones((5, 3)), "w": np.eye(3)}
    xs = packed(np.random.default_rng(0), [2, 4, 0, 1], 5)
    fill(scope, given)
    opscope.save(net, scope, tmp_path / "rnn")
    loaded = opscope.load(tmp_path / "rnn")
    loaded.scope.feed({"u": given["u"], "w": given["w"]})
    want = run(simple(), given | {"xs": xs}, ["ys"])["ys"]
    for size in (None, 3):
        found = loaded.predict({"xs": xs}, "ys", batch_size=size)["ys"]
        close(found.data, want)
    with pytest.raises(OpscopeError, match="was loaded to predict"):
        loaded.net.run(loaded.scope, OpContext(train=True))
    with pytest.raises(OpscopeError, match="was loaded to predict"):
        loaded.net.add_backward_ops("ys")


# -- predict -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 10, 256, None])
def test_predictions_are_those_of_one_forward_run(trained, saved, size) -> None:
    b, scope = trained
    want = b.run(scope, feed={"x": X}, fetch=["scores", "hidden"], need_backward=False)
    loaded = opscope.load(saved)
    found = loaded.predict({"x": X}, ["scores", "hidden"], batch_size=size)
    assert list(found) == ["scores", "hidden"]
    for name, value in found.items():
        close(value, want[name])
    mine = b.predict({b.var("x"): X}, b.var("scores"), size, scope=scope)
    close(mine["scores"], want["scores"])


def test_predicting_changes_nothing(trained) -> None:
    b, scope = trained
    before, names, version = values_of(b, scope), scope.names(), scope.root.version
    arrays = [scope.get(name).array for name in names]
    b.predict({"x": X}, scope=scope, batch_size=3)
    assert same(before, values_of(b, scope)) and scope.names() == names
    assert all(scope.get(n).array is a for n, a in zip(names, arrays, strict=True))
    assert scope.numpy("x").shape == (10, 4) and scope.kids == []
    assert version <= scope.root.version


def test_what_is_predicted_where_nobody_says_it(trained) -> None:
    b, scope = trained
    assert list(b.predict({"x": X}, scope=scope)) == ["scores"]
    assert list(b.predict({"x": X, "label": LABEL}, scope=scope)) == ["scores"]
    with pytest.raises(VariableError, match="no result can be computed from label"):
        b.predict({"label": LABEL}, scope=scope)
    with pytest.raises(VariableError, match="computed from no inputs"):
        b.predict({}, scope=scope)
    b.argmax(b.var("scores"), axis=1, name="class")
    assert list(b.predict({"x": X}, scope=scope)) == ["class"]


def test_variables_declared_as_outputs_are_predicted() -> None:
    b, scope = NetBuilder("n"), Scope()
    hidden = b.scale(b.input("x", [-1, 2]), scale=2.0, name="hidden")
    b.scale(hidden, scale=3.0, name="last")
    op_list = b.op_list
    op_list.vars = [
        var.changed(kind=OUTPUT) if var.name == "hidden" else var for var in op_list.vars
    ]
    found = Loaded(opscope.Net.create(op_list), scope).predict({"x": [[1, 2]]})
    assert {name: value.tolist() for name, value in found.items()} == {"hidden": [[2, 4]]}


def test_inputs_without_rows_go_whole_into_each_batch() -> None:
    b = NetBuilder("n")
    x, table = b.input("x", [-1, 2]), b.input("table", [2, 3])
    b.matmul(x, table, name="out")
    x_, t = np.arange(10.0).reshape(5, 2), np.ones((2, 3))
    out = b.predict({"x": x_, "table": t}, batch_size=2, scope=Scope())["out"]
    close(out, x_ @ t)
    scope = Scope()
    b.feed(scope, {"table": t})
    close(b.predict({"x": x_}, scope=scope, batch_size=2)["out"], x_ @ t)
    assert b.predict({"x": x_[:0]}, scope=scope)["out"].shape == (0, 3)


def test_sequences_are_cut_between_sequences() -> None:
    b, scope = NetBuilder("n"), Scope()
    x = b.input("x", [-1, 2], levels=1)
    states, (last,) = b.gru(x, 3, name="gru")
    b.initialize(scope)
    items = [np.ones((n, 2)) * n for n in (3, 1, 2, 0, 4)]
    whole = b.predict({"x": items}, [states, last], scope=scope)
    parts = b.predict({"x": items}, [states, last], 2, scope=scope)
    assert isinstance(parts[states.name], Sequences)
    assert [len(item) for item in parts[states.name]] == [3, 1, 2, 0, 4]
    close(parts[states.name].data, whole[states.name].data)
    close(parts[last.name], whole[last.name])


def test_what_an_operator_computes_may_be_fed() -> None:
    b = NetBuilder("between")
    x = b.input("x", [-1, 4])
    code = b.fc(x, size=2, name="code")
    one, other = b.split(code, num=2, axis=1)
    seen = b.fc(b.mul(one, other), size=4, name="seen")
    loss = b.mean(b.square(seen - x), name="loss")
    scope = Scope()
    b.initialize(scope)
    wanted = b.run(scope, feed={"x": X[:, :4]}, fetch=["code", "seen", "loss", one])
    given = {"code": wanted["code"]}
    for found in (
        b.run(scope, feed=given, fetch="seen"),
        b.predict(given, "seen", 3, scope=scope),
        b.predict(given, scope=scope),
    ):
        assert list(found) == ["seen"]
        close(found["seen"], wanted["seen"])
    both = {"x": X[:, :4], "code": wanted["code"] * 0}
    found = b.run(scope, feed=both, fetch=["code", "loss"])
    assert not found["code"].any() and found["loss"] != wanted["loss"]
    with pytest.raises(VariableError, match="input 'x' is not in the feed"):
        b.run(scope, feed=given, fetch="loss")
    with pytest.raises(VariableError, match="name what is wanted of it by fetch="):
        b.run(scope, feed=given)
    with pytest.raises(VariableError, match="cannot be given: split computes it beside"):
        b.run(scope, feed={one: wanted[one.name]}, fetch="seen")
    b.backward_from(loss)
    with pytest.raises(VariableError, match="'code' is computed by an operator, whose gradient"):
        b.run(scope, feed=both, fetch="seen")
    close(b.run(scope, feed=given, fetch="seen", need_backward=False)["seen"], wanted["seen"])


def test_states_that_a_net_carries_stay() -> None:
    b, scope = NetBuilder("n"), Scope()
    held = b.state("held", [1], 1.0)
    x = b.input("x", [-1, 1])
    entry = b.add(x, held, name="out")
    b.forward_net.add_op("scale", {"x": "held"}, {"out": "held"}, {"scale": 2.0})
    b.initialize(scope)
    out = b.predict({"x": np.zeros((3, 1))}, ["out", "held"], None, scope=scope)
    assert out["held"].tolist() == [2] and scope.numpy("held").tolist() == [1]
    assert b.predict({"x": np.zeros((3, 1))}, "held", None, scope=scope)["held"].tolist() == [2]
    assert entry.name == "out"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"feed": {"x": X[:, :3]}}, ShapeError, r"'x' wants \[-1, 4\]"),
        ({"feed": {"xx": X}}, VariableError, r"no variable 'xx'.*inputs are x, label"),
        ({"feed": {"hidden": X}, "fetch": "hidden"}, ShapeError, "'hidden' wants"),
        ({"feed": [X]}, VariableError, "maps names of inputs to arrays"),
        ({"feed": {"x": X}, "fetch": "score"}, VariableError, "did you mean scores"),
        ({"feed": {"x": X}, "fetch": ["cost"]}, VariableError, "input 'label' is not in the feed"),
        ({"feed": {"x": X}, "fetch": ["x"]}, VariableError, "no forward operator computes 'x'"),
        ({"feed": {"x": X, "label": LABEL[:4]}, "fetch": "cost"}, ShapeError, "'x' 10, 'label' 4"),
        (
            {"feed": {"x": X, "label": LABEL}, "fetch": "cost", "batch_size": 4},
            ShapeError,
            "'cost' is .. and has no row for each of the 4 rows.*batch_size=None",
        ),
        ({"feed": {"x": X}, "batch_size": 0}, ShapeError, "batch_size >= 1 or None, not 0"),
        ({"feed": {"x": X}, "scope": Scope()}, VariableError, "holds no value of 'fc_0.w'"),
        ({"feed": Scope(), "fetch": {"x": X}}, VariableError, r"predict\(\{'x': array\}, scope="),
    ],
)
def test_wrong_predictions_say_what_is_wrong(trained, options, error, message) -> None:
    b, scope = trained
    names = scope.names()
    with pytest.raises(error, match=message):
        b.predict(**{"scope": scope, **options})
    assert scope.names() == names


def test_threads_predict_at_once(saved) -> None:
    loaded = opscope.load(saved)
    rng = np.random.default_rng(1)
    cases = [rng.normal(size=(rows, 4)).astype("float32") for rows in range(1, 25)]
    want = [loaded.predict({"x": x})["scores"] for x in cases]
    found: dict[int, bool] = {}

    def work(offset: int) -> None:
        good = True
        for number in [*range(offset, 24), *range(offset)] * 3:
            scores = loaded.predict({"x": cases[number]}, batch_size=7)["scores"]
            good &= np.allclose(scores, want[number], 1e-5, 1e-6)
        found[offset] = good

    threads = [threading.Thread(target=work, args=(3 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(0, 24, 3), True)


def test_an_edited_net_predicts_what_it_is_now(saved) -> None:
    loaded = opscope.load(saved)
    before = loaded.predict({"x": X})["scores"]
    loaded.net.add_op("scale", {"x": "scores"}, {"out": "twice"}, {"scale": 2.0})
    close(loaded.predict({"x": X}, "twice")["twice"], 2 * before)
