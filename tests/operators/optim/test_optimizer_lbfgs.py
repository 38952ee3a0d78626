"""L-BFGS: the recursion written out, PyTorch update for update, and problems it has to solve."""

from __future__ import annotations

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest

HISTORY = 3


def inverse_hessian_times(q, pairs):
    """H q by the BFGS formula on whole matrices, from (s, y) oldest first."""
    size = len(q)
    s, y = pairs[-1] if pairs else (None, None)
    h = np.eye(size) * (s @ y / (y @ y) if pairs else 1.0)
    for s, y in pairs:
        rho = 1 / (s @ y)
        left = np.eye(size) - rho * np.outer(s, y)
        h = left @ h @ left.T + rho * np.outer(s, s)
    return h @ q


class TestLbfgs(OpTest):
    halves = False  # they are refused
    type = "lbfgs"
    dtypes = ("float32", "float64")
    exact_dtype = ("counts",)

    def inputs(self, rng, updates=7, remembered=5, shapes=((2, 3), (4,), ())):
        size = sum(int(np.prod(shape)) for shape in shapes)
        steps = rng.normal(size=(HISTORY, size))
        changes = steps * rng.uniform(0.5, 2, steps.shape)
        return {
            "param": [rng.normal(size=shape) for shape in shapes],
            "grad": [rng.normal(size=shape) for shape in shapes],
            "lr": np.array(0.5),
            "steps": steps,
            "changes": changes,
            "products": (steps * changes).sum(1),
            "last_gradient": rng.normal(size=size),
            "last_step": rng.normal(size=size),
            "counts": np.array([updates, remembered]),
        }

    def cases(self, rng):
        share = {f"{name}_out": name for name in ("steps", "changes", "counts", "last_step")}
        for updates, remembered in ((0, 0), (1, 0), (3, 2), (7, 5), (8, 7)):
            inputs = self.inputs(rng, updates, remembered)
            attrs = {"history": HISTORY}
            yield Case(inputs, attrs)
            yield Case(
                inputs | {"grad_scale": np.array(0.25)},
                attrs | {"weight_decay": 0.3, "lr_factors": [1.0, 0.0, 2.5], "max_step": 0.5},
                share=share,
            )
            forward = self.inputs(rng, updates, remembered)
            grads = np.concatenate([np.ravel(g) for g in forward["grad"]])
            forward["last_gradient"] = grads - 2 * forward["last_step"]  # to be remembered
            yield Case(forward, attrs)
        yield Case(inputs, attrs | {"curvature": 1e9})

    def reference(self, inputs, attrs):
        flat = [np.concatenate([np.ravel(x) for x in inputs[name]]) for name in ("param", "grad")]
        g = flat[1] * inputs.get("grad_scale", 1) + attrs["weight_decay"] * flat[0]
        updates, remembered = (int(number) for number in inputs["counts"])
        new = {name: inputs[name].copy() for name in ("steps", "changes", "products", "counts")}
        y, s = g - inputs["last_gradient"], inputs["last_step"]
        if updates and y @ s > attrs["curvature"]:
            row = remembered % attrs["history"]
            new["steps"][row], new["changes"][row], new["products"][row] = s, y, s @ y
            remembered += 1
        history = attrs["history"]
        order = [row % history for row in range(remembered)][-history:]
        pairs = [(new["steps"][row], new["changes"][row]) for row in order]
        step = -inputs["lr"] * inverse_hessian_times(g, pairs)
        if not updates:
            step = step * min(1, 1 / np.abs(g).sum())
        cuts = np.cumsum([p.size for p in inputs["param"]])[:-1]
        parts = np.split(step, cuts)
        factors = attrs["lr_factors"] or (1,) * len(parts)
        step = np.concatenate([part * f for part, f in zip(parts, factors, strict=True)])
        if attrs["max_step"]:
            step = step * min(1, attrs["max_step"] / np.sqrt(step @ step))
        new["counts"][:] = updates + 1, remembered
        moved = [
            p + part.reshape(p.shape)
            for p, part in zip(inputs["param"], np.split(step, cuts), strict=True)
        ]
        states = new | {"last_gradient": g, "last_step": step}
        return {"param_out": moved} | {f"{name}_out": value for name, value in states.items()}

    def test_refuses(self):
        good = self.inputs(np.random.default_rng(0))
        attrs = {"history": HISTORY}
        self.refuses("3 parameters want as many", good | {"grad": good["grad"][:2]}, attrs)
        swapped = good | {"grad": [np.zeros((3, 2)), *good["grad"][1:]]}
        self.refuses("param and grad must", swapped, attrs)
        self.refuses("one for each of 3 parameters, not 2", good, attrs | {"lr_factors": [1.0, 2]})
        self.refuses("steps must", good, {"history": 4})
        self.refuses("lr wants 0 dimensions", good | {"lr": np.zeros(1)}, attrs)
        self.refuses("integer dtype", good | {"counts": np.zeros(2)}, attrs)
        self.refuses("is below 1", good, {"history": 0}, AttributeTypeError)


# -- in nets ---------------------------------------------------------------------------------------


def rosenbrock():
    """(1 - u)^2 + 100 (v - u^2)^2, from (-1.2, 1)."""
    b = NetBuilder("rosenbrock", dtype="float64")
    u, v = b.parameter("u", [1], -1.2), b.parameter("v", [1], 1.0)
    valley = b.square(1.0 - u) + 100.0 * b.square(v - b.square(u))
    b.add_op("reduce_sum", valley, name="cost")
    b.backward_from("cost")
    return b, {}


def least_squares(rows=60, columns=12):
    """A badly scaled linear regression."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(rows, columns)) * np.geomspace(0.1, 3, columns)
    y = x @ rng.normal(size=(columns, 1)) + 0.1 * rng.normal(size=(rows, 1))
    b = NetBuilder("lsq", dtype="float64")
    made = b.add_op(
        "affine",
        b.input("x", [-1, columns]),
        b.parameter("w", [columns, 1], 0.0),
        b.parameter("c", [1], 0.0),
    )
    b.mean(b.squared_error(made, b.input("y", [-1, 1])), name="cost")
    b.backward_from("cost")
    return b, {"x": x, "y": y}


def logistic(rows=80, columns=6):
    """Logistic regression with weight decay, of classes that overlap."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, columns))
    label = (x @ rng.normal(size=columns) + rng.normal(size=rows) > 0).astype(int)
    b = NetBuilder("logistic", dtype="float64")
    made = b.add_op(
        "affine",
        b.input("x", [-1, columns]),
        b.parameter("w", [columns, 2], 0.0),
        b.parameter("c", [2], 0.0),
    )
    b.mean(b.softmax_cross_entropy(made, b.input("label", [-1], "int64")), name="cost")
    b.backward_from("cost")
    return b, {"x": x, "label": label}


def minimized(problem, updates, rate=1.0, **attrs):
    b, feed = problem()
    b.add_optimization(rate, "lbfgs", **attrs)
    scope = Scope()
    costs = [b.run(scope, feed=feed, fetch=["cost"])["cost"].item() for _ in range(updates)]
    return costs, scope


def torch_costs(problem, updates, rate=1.0, history=10, weight_decay=0.0):
    """The same problem by torch.optim.LBFGS without line search, an evaluation an update."""
    torch = pytest.importorskip("torch")
    _, feed = problem()
    given = {name: torch.tensor(array) for name, array in feed.items()}

    def parameter(*shape, value=0.0):
        return torch.full(shape, value, dtype=torch.float64, requires_grad=True)

    if problem is rosenbrock:
        p = [parameter(1, value=-1.2), parameter(1, value=1.0)]

        def cost():
            return ((1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2).sum()

    elif problem is least_squares:
        p = [parameter(given["x"].shape[1], 1), parameter(1)]

        def cost():
            return ((given["x"] @ p[0] + p[1] - given["y"]) ** 2).mean()

    else:
        p = [parameter(given["x"].shape[1], 2), parameter(2)]

        def cost():
            scores = given["x"] @ p[0] + p[1]
            return torch.nn.functional.cross_entropy(scores, given["label"])

    optimizer = torch.optim.LBFGS(
        p, lr=rate, max_iter=1, history_size=history, tolerance_grad=0, tolerance_change=0
    )
    costs = []

    def closure():
        optimizer.zero_grad()
        value = cost()
        costs.append(value.item())
        whole = value + sum(weight_decay / 2 * (q * q).sum() for q in p)
        whole.backward()
        return whole

    for _ in range(updates):
        optimizer.step(closure)
    return costs


@pytest.mark.parametrize(
    ("problem", "options", "updates"),
    [
        (rosenbrock, {"rate": 0.5}, 30),
        (rosenbrock, {"rate": 0.5, "history": 2}, 30),
        (least_squares, {}, 25),
        (logistic, {"weight_decay": 0.01}, 25),
        (logistic, {"rate": 0.25, "history": 5, "weight_decay": 0.01}, 25),
    ],
)
def test_equals_torch_update_for_update(problem, options, updates):
    found, _ = minimized(problem, updates, **options)
    np.testing.assert_allclose(found, torch_costs(problem, updates, **options), rtol=1e-6)


def test_rosenbrock():
    costs, scope = minimized(rosenbrock, 100, 0.5)
    assert costs[-1] < 1e-18
    np.testing.assert_allclose([scope.numpy("u"), scope.numpy("v")], 1, rtol=1e-8)
    bounded, _ = minimized(rosenbrock, 60, 1.0, max_step=0.1)
    assert bounded[-1] < 1e-18 and max(bounded) == bounded[0]
    unbounded, _ = minimized(rosenbrock, 60, 1.0)
    assert max(unbounded) > 1000  # what the bound is for
    momentum, feed = rosenbrock()
    momentum.add_optimization(1e-3, "momentum")
    scope = Scope()
    for _ in range(100):
        last = momentum.run(scope, feed=feed, fetch=["cost"])["cost"]
    assert last > 1e-3


def test_least_squares():
    costs, scope = minimized(least_squares, 100, history=20)
    _, feed = least_squares()
    whole = np.hstack([feed["x"], np.ones((len(feed["x"]), 1))])
    best, *_ = np.linalg.lstsq(whole, feed["y"])
    found = np.concatenate([scope.numpy("w"), scope.numpy("c")[None]])
    np.testing.assert_allclose(found, best, atol=1e-6)
    assert costs[-1] - ((whole @ best - feed["y"]) ** 2).mean() < 1e-14


def test_logistic_regression():
    b, feed = logistic()
    b.add_optimization(1.0, "lbfgs", weight_decay=0.01)
    scope = Scope()
    for _ in range(60):
        b.run(scope, feed=feed)
    slopes = {name: b.gradient(name) for name in ("w", "c")}
    held = {name: scope.numpy(name) for name in slopes}
    b.run(scope, feed=feed, fetch=list(slopes.values()))
    for name, slope in slopes.items():
        assert np.abs(scope.numpy(slope) + 0.01 * held[name]).max() < 1e-7


def test_factors_and_frozen_parameters():
    b = NetBuilder(dtype="float64")
    u, v = b.parameter("u", [3], 1.0, lr_factor=0.0), b.parameter("v", [2], 1.0)
    b.add_op("reduce_sum", b.square(b.concat([u, v], axis=0)), name="cost")
    b.backward_from("cost")
    b.add_optimization(1.0, "lbfgs")
    scope = Scope()
    for _ in range(20):
        b.run(scope)
    np.testing.assert_array_equal(scope.numpy("u"), np.ones(3))
    assert np.abs(scope.numpy("v")).max() < 1e-8


def test_its_states_go_through_files_and_checkpoints(tmp_path):
    def part(epochs, name="run", resume=False):
        b, feed = least_squares()
        b.add_optimization(1.0, "lbfgs")
        scope = Scope()
        history = opscope.train(
            b,
            [feed],
            epochs=epochs,
            scope=scope,
            loss="cost",
            checkpoint=tmp_path / name,
            resume=resume,
            progress=False,
        )
        return history["cost"], scope, b

    part(6)
    costs, scope, b = part(12, resume=True)
    np.testing.assert_array_equal(costs, part(12, "straight")[0])
    opscope.save(b, scope, tmp_path / "n")
    net, loaded = opscope.load(tmp_path / "n", train=True)
    _, feed = least_squares()
    loaded.feed(feed)
    b.run(scope, feed=feed)
    net.run(loaded)
    np.testing.assert_array_equal(loaded.numpy("w"), scope.numpy("w"))


def test_two_of_them_and_another_optimizer():
    b = NetBuilder(dtype="float64")
    names = ("u", "v", "w")
    for name in names:
        b.parameter(name, [2], 1.0)
    b.add_op("reduce_sum", b.square(b.concat([b.var(n) for n in names], axis=0)), name="cost")
    b.backward_from("cost")
    b.add_optimization(1.0, "lbfgs", parameters=["u"], history=3)
    b.add_optimization(0.5, "lbfgs", parameters=["v"], clip_norm=1.0)
    b.add_optimization(0.1, parameters="rest")
    scope = Scope()
    for _ in range(3):
        b.run(scope)
    assert scope.numpy("optimizer@LBFGS_STEPS").shape == (3, 2)
    assert scope.numpy("optimizer@LBFGS_STEPS@2").shape == (10, 2)
    np.testing.assert_allclose(scope.numpy("w"), 0.8**3 * np.ones(2))
    assert np.abs(scope.numpy("u")).max() < 1e-8 < scope.numpy("v").min()
