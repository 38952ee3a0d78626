"""NetBuilder: operators, layers, gradients, updates, runs, and its refusals."""

from __future__ import annotations

import ast
import inspect
import pathlib

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base import errors
from opscope.framework.ir.desc import BACKWARD, FORWARD, OPTIMIZE, PARAMETER
from opscope.framework.ir.registry import Slot, lookup, operator, unregister
from opscope.operators.base.derived import derived_kernel
from opscope.python_api.builder import Var, methods
from opscope.python_api.builder.operator_methods import method_types
from opscope.python_api.to_python import stubs

RNG = np.random.default_rng(0)


def regression(optimizer: bool = True) -> tuple[NetBuilder, Scope, dict[str, np.ndarray]]:
    """y = x w, learned from 32 rows."""
    b = NetBuilder("regression")
    x, y = b.input("x", [-1, 3]), b.input("y", [-1, 1])
    out = b.fc(x, size=1, name="out")
    b.mean(b.squared_error(out, y), name="cost")
    b.backward_from("cost")
    if optimizer:
        b.add_optimization(0.1, "sgd")
    rows = np.random.default_rng(1).normal(size=(32, 3)).astype(np.float32)
    return b, Scope(), {"x": rows, "y": rows @ np.float32([[1], [-2], [3]])}


# -- building ----------------------------------------------------------------------------------


def test_the_design_documents_example() -> None:
    """`AddOp(type, inputs, size, act)`, and a program without `BackwardFrom`."""
    b = NetBuilder()
    image, label = b.input("image", [-1, 8]), b.input("label", [-1, 1], "int64")
    fc_out = b.add_op("fc", [image], 100, "Sigmoid")
    prediction = b.add_op("fc", input=fc_out, size=10, activation="softmax")
    loss = b.add_op("cross_entropy", prediction, label=label)
    avg_loss = b.add_op("mean", loss)
    b.accuracy(prediction, label)
    b.add_optimization(1e-2, "adam")
    feed = {"image": RNG.normal(size=(4, 8)), "label": [[1], [2], [3], [4]]}
    scope = Scope()
    losses = [b.run(scope, feed=feed, fetch=[avg_loss])[avg_loss.name] for _ in range(5)]
    assert losses[-1] < 0.9 * losses[0]


def test_shapes_are_known_while_building() -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 6])
    assert b.fc(x, size=4).shape == (-1, 4)
    assert b.reshape(x, shape=[-1, 2, 3]).shape == (-1, 2, 3)
    assert b.argmax(x, axis=1).dtype == np.int64
    assert b.mean(x).shape == ()


def test_infix_operators() -> None:
    b = NetBuilder(dtype="float64")
    x, y = b.input("x", [3]), b.input("y", [3])
    given = {"x": RNG.normal(size=3), "y": RNG.normal(size=3) + 3}
    u, v = given["x"], given["y"]
    cases = {
        x + y: u + v, x - y: u - v, x * y: u * v, x / y: u / v, y**x: v**u, -x: -u,
        x + 2: u + 2, 2 + x: u + 2, x - 2: u - 2, 2 - x: 2 - u, 3 * x: 3 * u, x / 4: u / 4,
        1 / y: 1 / v, y**2: v**2,
    }  # fmt: skip
    out = b.run(Scope(), feed=given, fetch=list(cases), need_backward=False)
    for handle, want in cases.items():
        np.testing.assert_allclose(out[handle.name], want, rtol=1e-12, atol=1e-14)


def test_matrix_product_operator() -> None:
    b = NetBuilder()
    x, w = b.input("x", [-1, 3]), b.parameter("w", [3, 2], 0.5)
    out = b.run(Scope(), feed={"x": np.ones((2, 3))}, fetch=[x @ w], need_backward=False)
    np.testing.assert_allclose(next(iter(out.values())), np.full((2, 2), 1.5))


def test_several_outputs() -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 6])
    assert [part.shape for part in b.split(x, num=3, axis=1)] == [(-1, 2)] * 3
    assert [part.shape for part in b.split(x, sections=[1, 5], axis=1)] == [(-1, 1), (-1, 5)]
    values, ids = b.top_k(x, k=2, name="best")
    assert (values.name, ids.name) == ("best", "best.ids")


def test_names_are_unique_and_may_be_given() -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 2])
    assert [b.relu(x).name, b.relu(x).name, b.relu(x, name="mine").name] == [
        "relu_0",
        "relu_1",
        "mine",
    ]
    with pytest.raises(errors.VariableError, match=r"test_builder\.py:\d+: variable 'mine'"):
        b.tanh(x, name="mine")


def test_parameters_can_be_shared() -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 3])
    b.fc(x, size=3, name="first")
    again = b.fc("first", w="first.w", b="first.b")
    assert again.shape == (-1, 3)
    assert sum(var.kind == PARAMETER for var in b.desc.vars) == 2


def test_fc_of_several_inputs() -> None:
    b = NetBuilder()
    x, y = b.input("x", [-1, 2]), b.input("y", [-1, 3])
    out = b.fc([x, y], size=2, init=1.0, bias_init=0.5)
    got = b.run(
        Scope(), feed={"x": np.ones((1, 2)), "y": np.ones((1, 3))}, fetch=[out], need_backward=False
    )
    np.testing.assert_allclose(got[out.name], [[5.5, 5.5]])


def test_operators_remember_where_they_were_written() -> None:
    b = NetBuilder()
    b.relu(b.input("x", [2]))
    source = b.desc.ops[0].source
    assert pathlib.Path(source.file).name == "test_builder.py"
    assert "b.relu" in pathlib.Path(source.file).read_text().splitlines()[source.line - 1]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda b, x: b.add_op("rleu", x), errors.UnknownOperatorError, "did you mean relu"),
        (lambda b, x: b.add_op("relu"), errors.SlotError, "input slot 'x' is missing"),
        (
            lambda b, x: b.add_op("relu", x, x),
            errors.SlotError,
            "relu takes x by position, which are 1 inputs, not 2",
        ),
        (lambda b, x: b.add_op("relu", x, x=x), errors.SlotError, "given twice"),
        (lambda b, x: b.relu(3), errors.SlotError, "wants a variable, not 3"),
        (lambda b, x: b.relu("y"), errors.VariableError, "no variable 'y'"),
        (lambda b, x: b.softmax(x, axs=1), errors.AttributeTypeError, "did you mean axis"),
        (lambda b, x: b.softmax(x, axis=1.5), errors.AttributeTypeError, "is float, want int"),
        (lambda b, x: b.softmax(x, axis=5), errors.ShapeError, "out of range"),
        (lambda b, x: b.dropout(x, p=2.0), errors.AttributeTypeError, "is above"),
        (lambda b, x: b.fc(x), errors.AttributeTypeError, "give `size`"),
        (lambda b, x: b.add_op("fc", x, siz=3), errors.AttributeTypeError, "fc has .* mean size"),
        (lambda b, x: b.conv2d(x, filters=2), errors.AttributeTypeError, "`kernel`"),
        (lambda b, x: b.input("x", [1]), errors.VariableError, "defined twice"),
        (lambda b, x: b.parameter("w", [2], "xaver"), errors.AttributeTypeError, "xavier"),
        (lambda b, x: b.add_optimization(0.1), errors.GradientError, "backward_from"),
        (lambda b, x: b.backward_from("nothing"), errors.VariableError, "no variable"),
    ],
)
def test_mistakes_fail_where_they_are_written(call, error, message) -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 4])
    before = b.desc.SerializeToString(deterministic=True)
    with pytest.raises(error, match=message):
        call(b, x)
    b._changed()
    assert b.desc.SerializeToString(deterministic=True) == before


def test_variables_of_another_builder_are_refused() -> None:
    x = NetBuilder().input("x", [1])
    b = NetBuilder()
    b.input("x", [1])
    with pytest.raises(errors.VariableError, match="another NetBuilder"):
        b.relu(x)


def test_unknown_method_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean softmax"):
        NetBuilder().sofmax  # noqa: B018
    with pytest.raises(AttributeError, match="'upsample'; write b.interpolate"):
        NetBuilder().upsample  # noqa: B018


# -- gradients, updates, runs ------------------------------------------------------------------


def test_training_finds_the_weights() -> None:
    b, scope, feed = regression()
    costs = [float(b.run(scope, feed=feed, fetch=["cost"])["cost"]) for _ in range(200)]
    assert costs[-1] < 1e-6 < costs[0]
    np.testing.assert_allclose(scope.numpy("out.w").ravel(), [1, -2, 3], atol=1e-3)


def test_roles_stand_in_order() -> None:
    roles = [op.role for op in regression()[0].desc.ops]
    assert roles == sorted(roles)
    assert set(roles) == {FORWARD, BACKWARD, OPTIMIZE}


def test_forward_only_runs_change_nothing_and_need_no_labels() -> None:
    b, scope, feed = regression()
    b.initialize(scope)
    before = scope.numpy("out.w")
    out = b.run(scope, feed={"x": feed["x"]}, fetch=["out"], need_backward=False)
    np.testing.assert_allclose(out["out"], feed["x"] @ before + scope.numpy("out.b"), rtol=1e-5)
    np.testing.assert_array_equal(scope.numpy("out.w"), before)


def test_gradients_can_be_fetched() -> None:
    b, scope, feed = regression(optimizer=False)
    got = b.run(scope, feed=feed, fetch=["out", b.gradient("out.w")])
    want = 2 * feed["x"].T @ (got["out"] - feed["y"]) / 32
    np.testing.assert_allclose(got["out.w@GRAD"], want, rtol=1e-4, atol=1e-6)
    with pytest.raises(errors.GradientError, match="no gradient of 'x'"):
        b.gradient("x")


def test_gradient_with_respect_to_an_input() -> None:
    b = NetBuilder(dtype="float64")
    x = b.input("x", [3])
    b.backward_from(b.reduce_sum(b.square(x), name="cost"), wrt=[x])
    out = b.run(Scope(), feed={"x": [1.0, 2.0, 3.0]}, fetch=[b.gradient(x)])
    np.testing.assert_allclose(out["x@GRAD"], [2, 4, 6])


def test_a_change_after_a_run_rebuilds_what_is_needed() -> None:
    b, scope, feed = regression()
    b.run(scope, feed=feed)
    extra = b.mean(b.abs("out"), name="size")
    b.backward_from(extra)
    out = b.run(scope, feed=feed, fetch=["size", "cost"])
    assert out["size"] > 0
    roles = [op.role for op in b.desc.ops]
    assert roles == sorted(roles)


def test_clipping_sees_the_whole_gradient_of_a_row() -> None:
    """A row that is looked up twice counts once, with the sum of its gradients."""

    def moved(sparse: bool) -> np.ndarray:
        b = NetBuilder()
        rows = b.embedding(b.input("ids", [-1], "int64"), [4, 2], init=1.0, sparse=sparse, name="e")
        b.backward_from(b.reduce_sum(rows))
        b.add_optimization(1.0, "sgd", clip_norm=0.5, clip_value=1.5)
        scope = Scope()
        b.run(scope, feed={"ids": [1, 1, 3]})
        return scope.numpy("e.w")

    np.testing.assert_allclose(moved(True), moved(False), rtol=1e-6)


def test_optional_states_are_made_where_they_are_needed() -> None:
    def states(**attrs: object) -> set[str]:
        b, _, _ = regression(optimizer=False)
        b.add_optimization(0.1, "rmsprop", **attrs)
        return {var.name.split("RMSPROP_")[1] for var in b.desc.vars if "RMSPROP" in var.name}

    assert states() == {"SQUARE_AVERAGE"}
    assert states(momentum=0.9) == {"SQUARE_AVERAGE", "VELOCITY"}
    assert states(centered=True) == {"SQUARE_AVERAGE", "GRADIENT_AVERAGE"}


def test_untrained_parameters_stay() -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 2])
    fixed = b.parameter("fixed", [2, 2], 1.0, trainable=False)
    free = b.parameter("free", [2, 2], 1.0, lr_factor=0.0)
    moved = b.parameter("moved", [2, 2], 1.0)
    b.backward_from(b.mean(b.square(x @ fixed @ free @ moved)))
    b.add_optimization(0.1)
    scope = Scope()
    b.run(scope, feed={"x": np.ones((2, 2))})
    np.testing.assert_array_equal(scope.numpy("fixed"), np.ones((2, 2)))
    np.testing.assert_array_equal(scope.numpy("free"), np.ones((2, 2)))
    assert not np.array_equal(scope.numpy("moved"), np.ones((2, 2)))


def test_schedules_and_clipping() -> None:
    b, scope, feed = regression(optimizer=False)
    b.add_optimization(
        0.1,
        "momentum",
        schedule="exponential_decay",
        schedule_attrs={"decay_rate": 0.5, "decay_steps": 1},
        clip_norm=1e-3,
        clip_value=1.0,
    )
    b.initialize(scope)
    before = scope.numpy("out.w")
    b.run(scope, feed=feed)
    step = np.linalg.norm(scope.numpy("out.w") - before)
    assert 0 < step <= 0.1 * 1e-3 * 1.001
    b.run(scope, feed=feed)
    assert scope.numpy("optimizer@STEP") == 2
    assert scope.numpy("optimizer@LEARNING_RATE") == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("feed", "error", "message"),
    [
        ({"x": np.ones((2, 4))}, errors.ShapeError, r"wants \[-1, 3\].*given \[2, 4\]"),
        ({"x": np.ones((2, 3), complex)}, errors.ShapeError, "wants float32.*complex"),
        ({"z": 1}, errors.VariableError, "no variable 'z'"),
        ({"x": np.ones((2, 3)), "y": np.ones((3, 1))}, errors.ShapeError, "squared_error"),
    ],
)
def test_wrong_feeds(feed, error, message) -> None:
    b, scope, good = regression()
    b.run(scope, feed=good)
    before = scope.numpy("out.w")
    with pytest.raises(error, match=message):
        b.run(scope, feed=feed)
    np.testing.assert_array_equal(scope.numpy("out.w"), before)
    b.run(scope, feed=good)  # works as before


def test_a_missing_input_is_named() -> None:
    b, _, feed = regression()
    with pytest.raises(errors.VariableError, match="'y'"):
        b.run(Scope(), feed={"x": feed["x"]})


def test_batch_norm_differs_between_phases() -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 2])
    out = b.batch_norm(x, name="norm")
    b.backward_from(b.mean(out))
    scope = Scope()
    rows = RNG.normal(3, 2, size=(64, 2)).astype(np.float32)
    trained = b.run(scope, feed={"x": rows}, fetch=[out])["norm"]
    np.testing.assert_allclose(trained.mean(axis=0), 0, atol=1e-5)
    assert np.all(scope.numpy("norm.mean") > 0)
    tested = b.run(scope, feed={"x": rows}, fetch=[out], need_backward=False)["norm"]
    assert abs(tested.mean()) > 0.5


def test_dropout_follows_the_seed() -> None:
    def masks(seed: int) -> np.ndarray:
        b = NetBuilder()
        out = b.dropout(b.parameter("w", [100], 1.0), p=0.5)
        b.backward_from(b.mean(out))
        return b.run(Scope(), fetch=[out], context=OpContext(seed=seed))[out.name]

    np.testing.assert_array_equal(masks(1), masks(1))
    assert not np.array_equal(masks(1), masks(2))


def test_from_desc_goes_on_from_a_saved_net(tmp_path: pathlib.Path) -> None:
    b, scope, feed = regression()
    b.run(scope, feed=feed)
    opscope.save(b, scope, tmp_path / "net.pb")
    net, loaded = opscope.load(tmp_path / "net.pb")
    again = NetBuilder.from_desc(net.desc)
    again.backward_from("cost")
    again.add_optimization(0.1, "sgd")
    b.run(scope, feed=feed)
    again.run(loaded, feed=feed)
    np.testing.assert_array_equal(scope.numpy("out.w"), loaded.numpy("out.w"))


# -- methods -----------------------------------------------------------------------------------


def test_every_operator_has_a_documented_typed_method() -> None:
    b = NetBuilder()
    for name in method_types():
        method = getattr(b, name)
        assert method.__doc__, name
    assert "softmax" in dir(b)


@pytest.mark.parametrize("path", stubs.stubs(), ids=lambda path: path.name)
def test_the_stubs_are_up_to_date(path: pathlib.Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == stubs.stubs()[path], "run: python build.py stubs"
    ast.parse(text)


def test_the_stub_of_the_root_holds_every_public_name() -> None:
    imported = [node for node in ast.parse(stubs.face_text(opscope)).body if hasattr(node, "names")]
    assert {alias.asname for node in imported for alias in node.names} == set(opscope.__all__)


def test_the_stub_tells_the_signatures_of_methods() -> None:
    (members,) = (
        node.body for node in ast.parse(stubs.methods_text()).body if isinstance(node, ast.ClassDef)
    )
    b = NetBuilder()
    for member in members:
        assert isinstance(member, ast.FunctionDef)
        arguments = member.args
        told = [*arguments.args[1:], *arguments.kwonlyargs]
        signature = inspect.signature(getattr(b, member.name)).parameters.values()
        named = [p.name for p in signature if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        assert [argument.arg for argument in told] == named, member.name
        assert bool(arguments.kwarg) == any(p.kind is p.VAR_KEYWORD for p in signature)
    names = {member.name for member in members}
    assert {"fc", "lstm", "recurrent", "tree_lstm", "attention", "run", "softmax"} <= names


def test_the_stub_leaves_out_operators_of_plugins() -> None:
    """Also those whose kernels are derived by this package."""
    entry = operator("plugin_op", doc="x.", inputs=[Slot("x", "")], outputs=[Slot("out", "")])
    try:
        entry.kernel(derived_kernel)
        assert "def plugin_op(" not in stubs.methods_text()
    finally:
        unregister("plugin_op")


def test_the_layer_of_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of docs/adding_a_layer.md, as it is written there."""
    monkeypatch.setattr(methods, "BUILDER_METHODS", dict(methods.BUILDER_METHODS))
    page = pathlib.Path(__file__).parents[3] / "docs" / "adding_a_layer.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    try:
        exec(compile(code, str(page), "exec"), {"__name__": "example"})
        b = NetBuilder()
        out = b.highway(b.input("x", [-1, 3]), activation="tanh", name="way")
        assert "highway" in dir(b)
        assert b.highway.__doc__.startswith("Highway layer")
        scope, x = Scope(), RNG.normal(size=(4, 3)).astype(np.float32)
        got = b.run(scope, feed={"x": x}, fetch=[out], need_backward=False)["way"]
        new = np.tanh(x @ scope.numpy("way.new.w") + scope.numpy("way.new.b"))
        gate = 1 / (1 + np.exp(-(x @ scope.numpy("way.gate.w") + scope.numpy("way.gate.b"))))
        np.testing.assert_allclose(got, x + gate * (new - x), rtol=1e-5, atol=1e-6)
    finally:
        del methods.BuilderMethods.highway


def test_a_layer_makes_the_parameters_of_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """`add_op` calls the layer of an operator's name, but where its first parameter is given."""
    monkeypatch.setattr(methods, "BUILDER_METHODS", dict(methods.BUILDER_METHODS))
    monkeypatch.setattr(methods, "_PARAMETERS", dict(methods._PARAMETERS))

    def matmul(builder: NetBuilder, x: Var | str, *, size: int, name: str = "") -> Var:
        w = builder.parameter("made.w", [3, size])
        return builder.append(lookup("matmul"), (x, w), {}, name=name)

    try:
        methods.layer("y")(matmul)
        b = NetBuilder()
        x = b.input("x", [-1, 3])
        assert b.add_op("matmul", x, size=5).shape == (-1, 5)
        assert b.add_op("matmul", x, b.parameter("mine", [3, 2])).shape == (-1, 2)
        assert b.add_op("matmul", x, y="mine").shape == (-1, 2)
        with pytest.raises(errors.AttributeTypeError, match="'siz' .did you mean size"):
            b.add_op("matmul", x, siz=5)
    finally:
        del methods.BuilderMethods.matmul
