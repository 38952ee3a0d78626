"""Shapes of plans, computed from the sizes of inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base.errors import RunError
from opscope.framework.base.sequence import EvenOffsets, Sequences
from opscope.framework.ir import infer
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.plans import plan
from opscope.framework.runtime.plans.open_sizes import OpenSizes

FLOAT = np.dtype(np.float32)
WIDTHS = (2, 12, 40), (2, 12, 56), (2, 12, 64), (2, 12, 72)
OTHERS = (3, 20, 64), (4, 36, 36), (1, 36, 40)


def images() -> tuple[NetBuilder, list[str]]:
    b = NetBuilder("shapes")
    h = b.conv2d(b.input("x", [-1, 3, -1, -1]), filters=8, kernel=3, stride=2, padding=1)
    h = b.max_pool2d(b.relu(h), kernel=2)
    h = b.mul(h, b.mean(h, axes=[2, 3], keepdims=True))
    return b, [h.name, b.mean(h, axes=[2, 3]).name]


def run(net: Any, scope: Scope, x: np.ndarray, names: list[str]) -> list[bytes]:
    scope.feed({"x": x})
    net.run(scope, OpContext(train=False, live_out=names))
    return [scope.numpy(name).tobytes() for name in names]


def test_shapes_are_inferred_until_it_is_known_what_varies(monkeypatch: pytest.MonkeyPatch) -> None:
    b, names = images()
    scope = Scope()
    b.initialize(scope, OpContext(seed=0))
    values = {var.name: scope.numpy(var.name) for var in b.op_list.vars if var.name in scope}
    monkeypatch.setenv("OPSCOPE_VERIFY", "0")  # which compares with what is inferred
    inferred: list[int] = []
    infer = plan.infer_specs
    monkeypatch.setattr(plan, "infer_specs", lambda *a, **o: inferred.append(0) or infer(*a, **o))
    rng = np.random.default_rng(0)
    counts = []
    for size in (*WIDTHS, *OTHERS):
        x = rng.normal(size=(size[0], 3, *size[1:])).astype(np.float32)
        inferred.clear()
        found = run(b.net, scope, x, names)
        counts.append(len(inferred))
        alone = Scope()
        alone.feed(values)
        assert found == run(Net.create(b.net.op_list), alone, x, names)
    # Of the third width, and of the first other batch, with sizes that are left open.
    assert counts == [1, 1, 1, 0, 1, 0, 1]


def test_other_shapes_than_those_inferred_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    b, names = images()
    scope = Scope()
    b.initialize(scope, OpContext(seed=0))
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    specs = OpenSizes.specs

    def one_more(self: OpenSizes, known: Any, levels: Any) -> Any:
        found = specs(self, known, levels)
        if found is None:
            return None
        return [(tuple([size + 1 for size in shape]), dtype) for shape, dtype in found[0]], {}

    monkeypatch.setattr(OpenSizes, "specs", one_more)
    with pytest.raises(RunError, match=r"is computed as .*, not "):
        for size in WIDTHS:
            run(b.net, scope, np.zeros((size[0], 3, *size[1:]), np.float32), names)


def test_what_is_left_open() -> None:
    known = {"x": ((4, 6), FLOAT), "w": ((6, 3), FLOAT)}

    def product(own: Any, _: Any) -> Any:
        (rows, _), (_, columns) = own["x"][0], own["w"][0]
        specs = [((rows, columns), FLOAT), ((rows * columns // 2,), FLOAT)]
        return specs, {"y": (EvenOffsets(rows, columns),), "z": (np.array([0, 4]),), "x": ()}

    sizes = OpenSizes(known, {}, {"x": {0}}, product)
    for rows in (2, 4, 5, 100):
        found = sizes.specs({**known, "x": ((rows, 6), FLOAT)}, {})
        assert found is not None
        assert found[0] == [((rows, 3), FLOAT), ((rows * 3 // 2,), FLOAT)]
        levels = {name: [one.tolist() for one in own] for name, own in found[1].items()}
        assert levels == {"y": [list(range(0, 3 * rows + 1, 3))], "z": [[0, 4]]}
    # Sizes are Python's integers: a count beyond 64 bits is no smaller number.
    found = sizes.specs({**known, "x": ((1 << 63, 6), FLOAT)}, {})
    assert found is not None
    assert found[0] == [((1 << 63, 3), FLOAT), ((3 << 62,), FLOAT)]
    others: list[Any] = [
        ((1, 6), FLOAT),
        ((5, 7), FLOAT),
        ((5, 6, 1), FLOAT),
        ((5, 6), np.dtype(int)),
    ]
    assert all(sizes.specs({**known, "x": spec}, {}) is None for spec in others)
    assert sizes.specs({**known, "w": ((6, 4), FLOAT)}, {}) is None
    with pytest.raises(ValueError, match="these sizes alone"):
        OpenSizes(known, {}, {"x": {0}}, lambda own, _: ([((int(own["x"][0][0]),), FLOAT)], {}))


def test_offsets_of_inputs_are_left_open() -> None:
    offsets = {"x": (np.array([0, 3, 3, 6]),), "y": (np.array([0, 3, 3, 6]),)}
    known = {"x": ((6, 6), FLOAT), "y": ((6,), FLOAT)}

    def padded(_: Any, levels: Any) -> Any:
        ((own,), (other,)) = levels["x"], levels["y"]
        assert own is other
        numbers = own.count, own.rows, own.longest, own.first, own.last
        return [(numbers, FLOAT)], {"z": (own,)}

    sizes = OpenSizes(known, offsets, {"x": {0}, "y": {0}}, padded)
    batches: list[tuple[list[int], Any]] = [
        ([0, 3, 3, 7, 9], (4, 9, 4, 3, 1)),
        ([0, 4, 4, 8, 9], (4, 9, 4, 3, 2)),
        ([0, 3, 6], (2, 6, 3, 2, 2)),
        ([0, 2, 4, 4, 4], (4, 4, 2, 2, 2)),
        ([0, 5], None),  # of one sequence nothing is known
        ([0, 1, 2], None),
    ]
    for given, wanted in batches:
        rows, own = given[-1], np.array(given)
        specs = {"x": ((rows, 6), FLOAT), "y": ((rows,), FLOAT)}
        found = sizes.specs(specs, {"x": (own,), "y": (own.copy(),)})
        if wanted is None or 1 in wanted:
            assert found is None
            continue
        assert found is not None and found[0] == [(wanted, FLOAT)]
        assert found[1] == {"z": (own,)}
        other = np.array([0, rows])
        assert sizes.specs(specs, {"x": (own,), "y": (other,)}) is None
        assert sizes.specs(specs, {"x": (own,)}) is None
        assert sizes.specs(specs, {"x": (own, own), "y": (own, own)}) is None


@pytest.mark.parametrize("padded", [False, True])
def test_sizes_left_open_reach_no_other_net(padded: bool) -> None:
    """What shape rules have found is kept for all nets, and holds numbers alone."""
    b = NetBuilder("attention")
    x = b.input("x", [-1, 8], levels=1)
    static = b.sequence_pool(x, pool_type="mean")
    if padded:
        static = b.reshape(b.sequence_pad(x), shape=[-1, 8])
    with b.recurrent("loop") as steps:
        row, before = steps.input(x), steps.memory(8)
        weights = b.softmax(b.matmul(before, static, transpose_y=True))
        after = b.tanh(b.add(row, b.matmul(weights, static)))
        steps.update(before, after)
        out = steps.output(after)
    net, scope, rng = Net.create(b.op_list), Scope(), np.random.default_rng(0)
    for lengths in ([3, 5, 2], [4, 2, 2, 7], [9, 1, 2, 2, 2], [3, 6, 4], [5, 5, 5], [7, 2]):
        rows = [rng.normal(size=(length, 8)).astype("f4") for length in lengths]
        found = []
        for one, own in ((net, scope), (Net.create(b.op_list), Scope())):
            own.feed({"x": Sequences.from_list(rows)})
            one.run(own, OpContext(live_out=[out.name]))
            found.append(own.numpy(out.name).copy())
        np.testing.assert_array_equal(*found)
    kept = [size for specs in infer._INFERRED.values() for shape, _ in specs for size in shape]
    assert kept and {type(size) for size in kept} == {int}
