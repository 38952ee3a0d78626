"""Collective operators on 1 to 4 ranks, by their formulas; one rank alone is in tests/operators."""

from functools import partial

import numpy as np
import pytest

from mpi_runs import run_ranks
from opscope.framework.base.backend import to_host
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import RanksError, RunError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, make_var
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing.device_double import DOUBLE, instead_of_cupy

SIZES = (1, 2, 3, 4)


def run_op(c, op_type, inputs, outputs, attrs=None, *, place=None):
    """Values of all outputs after one operator, whose slots are fed with arrays."""
    net = PlainNet()
    scope = Scope(place)
    slots = {}
    for slot, arrays in inputs.items():
        names = []
        for number, array in enumerate(arrays if isinstance(arrays, list) else [arrays]):
            name = f"{slot}{number}"
            net.add_var(make_var(name, array.shape, array.dtype, INPUT))
            scope.var(name).set(array)
            names.append(name)
        slots[slot] = names
    net.add_op(op_type, slots, outputs, attrs)
    names = [name for given in outputs.values() for name in given]
    net.run(scope, OpContext(communicator=c, live_out=names))
    return {name: to_host(scope.get(name).array).copy() for name in names}


def rank_values(rank, *shape):
    return np.random.default_rng(rank).normal(size=shape)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", [None, DOUBLE], ids=str)
def test_sums_means_and_weighted_means(size, place):
    weights = [0.0 if rank == 1 else rank + 1.0 for rank in range(size)]

    def work(c):
        arrays = [rank_values(c.rank, 3, 2), rank_values(c.rank + 10, 4)]
        outs = {"out": ["a", "b"]}
        made = [
            run_op(c, "all_reduce", {"x": arrays}, outs, place=place),
            run_op(c, "all_reduce", {"x": arrays}, outs, {"mode": "mean"}, place=place),
        ]
        if c.rank == 1:
            arrays = [array * np.nan for array in arrays]
        weight = np.array(weights[c.rank])
        weighted = {"x": arrays, "weight": weight}
        made.append(run_op(c, "all_reduce", weighted, outs, place=place))
        return made

    if place is None:
        found = DryWorld(size).run(work)
    else:
        with instead_of_cupy():
            found = DryWorld(size).run(work)
    for name, base, shape in (("a", 0, (3, 2)), ("b", 10, (4,))):
        parts = [rank_values(rank + base, *shape) for rank in range(size)]
        whole = sum(weights)
        wanted = [
            sum(parts),
            sum(parts) / size,
            sum(w * part for w, part in zip(weights, parts, strict=True)) / whole,
        ]
        for one in found:
            for made, expected in zip(one, wanted, strict=True):
                np.testing.assert_allclose(made[name], expected, rtol=1e-13, atol=1e-13)
        for number in range(3):
            assert len({one[number][name].tobytes() for one in found}) == 1


@pytest.mark.parametrize("size", SIZES)
def test_start_and_wait(size):
    def work(c):
        net = PlainNet()
        scope = Scope()
        for name in ("a", "b"):
            net.add_var(make_var(name, (3,), "float64", INPUT))
            scope.var(name).set(rank_values(c.rank, 3) + (name == "b"))
        net.add_op("all_reduce_start", {"x": ["a", "b"]}, {"lent": ["c", "d"], "ticket": ["t"]})
        net.add_op("scale", {"x": ["a"]}, {"out": ["other"]}, {"scale": 2.0})
        net.add_op(
            "all_reduce_wait",
            {"x": ["c", "d"], "ticket": ["t"]},
            {"out": ["e", "f"]},
            {"mode": "mean"},
        )
        net.run(scope, OpContext(communicator=c))
        assert (scope.get("a").array == rank_values(c.rank, 3)).all()
        assert (scope.get("other").array == 2 * rank_values(c.rank, 3)).all()
        return scope.get("e").array, scope.get("f").array

    mean = sum(rank_values(rank, 3) for rank in range(size)) / size
    for first, second in DryWorld(size).run(work):
        np.testing.assert_allclose(first, mean, rtol=1e-14)
        np.testing.assert_allclose(second, mean + 1, rtol=1e-14)


@pytest.mark.parametrize("mode", ["sum", "mean", "weighted"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", [None, DOUBLE], ids=str)
def test_sums_that_are_scattered(place, size, mode):
    """reduce_scatter_start and reduce_scatter_wait, of arrays that no number of ranks divides."""
    shapes = [(3, 7), (), (0, 4), (24,)]
    weights = np.array([0.0 if rank == 1 else rank + 1.0 for rank in range(size)])

    def work(c):
        net, scope = PlainNet(), Scope(place)
        xs = [rank_values(c.rank + 10 * n, *shape) for n, shape in enumerate(shapes)]
        if mode == "weighted" and c.rank == 1:
            xs = [x * np.nan for x in xs]
        given = {f"x{n}": x for n, x in enumerate(xs)} | {"w": weights[c.rank : c.rank + 1][0]}
        for name, x in given.items():
            net.add_var(make_var(name, np.shape(x), "float64", INPUT))
            scope.var(name).set(x)
        names = [f"x{n}" for n in range(len(xs))]
        reads = {"x": names} | ({"weight": ["w"]} if mode == "weighted" else {})
        under_way = {"packed": ["p"], "part": ["q"], "ticket": ["t"]}
        net.add_op("reduce_scatter_start", reads, under_way, {"ranks": size})
        for name in names:  # which may change at once
            net.add_op("scale", {"x": [name]}, {"out": [f"{name}.twice"]}, {"scale": 2.0})
        outs = [f"{name}.part" for name in names]
        attrs = {"ranks": size, "mode": "mean" if mode == "mean" else "sum"}
        net.add_op("reduce_scatter_wait", {**under_way, "like": names}, {"out": outs}, attrs)
        net.run(scope, OpContext(communicator=c, live_out=outs))
        return [to_host(scope.get(name).array).copy() for name in outs]

    with instead_of_cupy():
        found = DryWorld(size).run(work)
    shares = {"sum": np.ones(size), "mean": np.ones(size) / size, "weighted": weights}[mode]
    shares = shares / shares.sum() if mode == "weighted" else shares
    for n, shape in enumerate(shapes):
        wanted = sum(s * rank_values(r + 10 * n, *shape) for r, s in enumerate(shares))
        whole = np.concatenate([parts[n] for parts in found])
        length = -(-np.size(wanted) // size)
        assert all(parts[n].shape == (length,) for parts in found)
        np.testing.assert_allclose(whole[: np.size(wanted)], np.ravel(wanted), rtol=1e-12)
        assert not whole[np.size(wanted) :].any()


def test_shards_want_their_number_of_ranks():
    def work(c):
        run_op(c, "shard", {"x": np.ones(4)}, {"out": ["a"]}, {"ranks": 3})

    with pytest.raises(RanksError, match=r"\(shard\).*ranks=3, but 2 run"):
        DryWorld(2).run(work)


def test_a_wait_without_a_start():
    def work(c):
        ticket = {"x": [np.ones(2)], "ticket": np.array(5)}
        run_op(c, "all_reduce_wait", ticket, {"out": ["a"]})

    with pytest.raises(RanksError, match="no sum is under way with ticket 'ticket0'"):
        DryWorld(2).run(work)


@pytest.mark.parametrize("size", SIZES)
def test_gathering_and_broadcasting(size):
    def work(c):
        x = rank_values(c.rank, 2, 3)
        found = run_op(c, "all_gather", {"x": x}, {"out": ["out"]}, {"ranks": size})
        given = run_op(c, "broadcast", {"x": [x, x + 1]}, {"out": ["a", "b"]}, {"root": size - 1})
        return found["out"], given["a"], given["b"]

    last = rank_values(size - 1, 2, 3)
    for gathered, first, second in DryWorld(size).run(work):
        parts = [rank_values(rank, 2, 3) for rank in range(size)]
        assert (gathered == np.concatenate(parts)).all()
        assert (first == last).all() and (second == last + 1).all()


def test_another_number_of_ranks_is_refused():
    def work(c):
        run_op(c, "all_gather", {"x": np.ones(2)}, {"out": ["out"]}, {"ranks": 3})

    with pytest.raises(RanksError, match=r"op 0 \(all_gather\).*ranks=3, but 2 run"):
        DryWorld(2).run(work)


@pytest.mark.parametrize("size", SIZES)
def test_rows_of_unequal_numbers(size):
    rows = [np.array([5, 1, 5][: 3 - rank % 3]) for rank in range(size)]

    def work(c):
        x = rank_values(c.rank, len(rows[c.rank]), 2)
        inputs = {"x": x, "rows": rows[c.rank], "like": np.zeros((7, 2))}
        outs = {"out": ["out"], "rows_out": ["rows"]}
        plain = run_op(c, "all_gather_rows", inputs, outs)
        inputs["weight"] = np.array(float(c.rank))
        return plain, run_op(c, "all_gather_rows", inputs, outs)

    def dense(found):
        table = np.zeros((7, 2))
        held = found["rows"] >= 0
        np.add.at(table, found["rows"][held], found["out"][held])
        return table

    wanted, weighted = np.zeros((7, 2)), np.zeros((7, 2))
    for rank in range(size):
        x = rank_values(rank, len(rows[rank]), 2)
        np.add.at(wanted, rows[rank], x)
        share = rank / (size * (size - 1) / 2) if size > 1 else 1.0
        np.add.at(weighted, rows[rank], x * share)
    for plain, other in DryWorld(size).run(work):
        np.testing.assert_allclose(dense(plain), wanted, rtol=1e-13)
        np.testing.assert_allclose(dense(other), weighted, rtol=1e-13)
        held = plain["rows"][plain["rows"] >= 0]
        assert held.tolist() == sorted(set(np.concatenate(rows).tolist()))


def test_too_many_rows():
    def work(c):
        inputs = {"x": np.ones((2, 1)), "rows": np.array([0, 1 + c.rank]), "like": np.ones((4, 1))}
        run_op(c, "all_gather_rows", inputs, {"out": ["o"], "rows_out": ["r"]}, {"most": 2})

    with pytest.raises(RanksError, match="the ranks have 3 rows, most=2"):
        DryWorld(2).run(work)


@pytest.mark.parametrize("size", SIZES)
def test_average_of_parameters(size):
    def work(c):
        param = {"param": [rank_values(c.rank, 3)]}
        outs = {"param_out": ["out"]}
        plain = run_op(c, "average_parameters", param, outs)["out"]
        step = {**param, "step": np.array(3)}
        kept = run_op(c, "average_parameters", step, outs, {"period": 2})["out"]
        weight = {**param, "weight": np.array(c.rank)}
        weighted = run_op(c, "average_parameters", weight, outs)["out"]
        return plain, kept, weighted

    parts = [rank_values(rank, 3) for rank in range(size)]
    shares = np.arange(size) / (size * (size - 1) / 2) if size > 1 else np.ones(1)
    for rank, (plain, kept, weighted) in enumerate(DryWorld(size).run(work)):
        np.testing.assert_allclose(plain, np.mean(parts, 0), rtol=1e-13)
        assert (kept == parts[rank]).all()
        np.testing.assert_allclose(weighted, shares @ np.array(parts), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_block_momentum_over_blocks(size, nesterov):
    """Three blocks, the ranks adding numbers of their own, against the paper's formulas."""
    eta, zeta = 0.75, 1.25

    def moved(rank, block):
        return rank_values(100 * rank + block, 3)

    def work(c):
        param = model = rank_values(77, 3)
        delta = np.zeros(3)
        for block in range(3):
            param = param + moved(c.rank, block)
            made = run_op(
                c,
                "block_momentum",
                {"param": [param], "model": [model], "delta": [delta]},
                {"param_out": ["p"], "model_out": ["m"], "delta_out": ["d"]},
                {"momentum": eta, "rate": zeta, "nesterov": nesterov},
            )
            param, model, delta = made["p"], made["m"], made["d"]
        return param, model

    begun = model = rank_values(77, 3)
    delta = np.zeros(3)
    for block in range(3):
        mean = sum(begun + moved(rank, block) for rank in range(size)) / size
        delta = eta * delta + zeta * (mean - begun)
        model = model + delta
        begun = model + eta * delta if nesterov else model
    for param, own in DryWorld(size).run(work):
        np.testing.assert_allclose(param, begun, rtol=1e-12)
        np.testing.assert_allclose(own, model, rtol=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_statistics_of_unequal_batches(size):
    def batch(rank):
        return rank_values(rank, 2 + rank if rank != 2 else 0, 3, 2) + 1000.0

    def work(c):
        outs = {"mean": ["m"], "variance": ["v"], "count": ["n"]}
        return run_op(c, "batch_norm_sums", {"x": batch(c.rank)}, outs)

    whole = np.concatenate([batch(rank) for rank in range(size)])
    for found in DryWorld(size).run(work):
        np.testing.assert_allclose(found["m"], whole.mean((0, 2)), rtol=1e-13)
        np.testing.assert_allclose(found["v"], whole.var((0, 2)), rtol=1e-9)
        assert found["n"] == whole.size / 3


def test_one_value_has_no_statistics():
    def work(c):
        x = np.ones((1 - c.rank, 3))
        run_op(c, "batch_norm_sums", {"x": x}, {"mean": ["m"], "variance": ["v"], "count": ["n"]})

    with pytest.raises(RunError, match="more than one value a channel, over all ranks, and has 1"):
        DryWorld(2).run(work)


@pytest.mark.parametrize("size", (2, 3))
@pytest.mark.parametrize(
    "op_type", ["all_reduce", "mean", "weighted", "all_gather", "broadcast", "batch_norm_sums"]
)
def test_gradients_are_those_of_the_sum_of_all_losses(size, op_type):
    """Against finite differences along one direction on one rank."""
    attrs = {"all_gather": {"ranks": size}, "broadcast": {"root": 1}}.get(op_type, {})
    outs = (
        {"mean": ["o"], "variance": ["v"], "count": ["n"]}
        if op_type == "batch_norm_sums"
        else {"out": ["o"]}
    )
    real = {"mean": "all_reduce", "weighted": "all_reduce"}.get(op_type, op_type)
    attrs = {"mode": "mean"} if op_type == "mean" else attrs

    def losses(moved, step, c):
        net, scope = PlainNet(), Scope()
        net.add_var(make_var("x", (2, 3), "float64", INPUT))
        x = rank_values(c.rank, 2, 3)
        scope.var("x").set(x + step * rank_values(5, 2, 3) * (c.rank == moved))
        slots = {"x": ["x"]}
        if op_type == "weighted":
            net.add_var(make_var("w", (), "float64", INPUT))
            scope.var("w").set(np.array(c.rank + 1.0))
            slots["weight"] = ["w"]
        net.add_op(real, slots, outs, attrs)
        net.add_var(make_var("own", (), "float64", INPUT))
        scope.var("own").set(np.array(c.rank + 1.0))
        net.add_op("mul", {"x": ["o"], "y": ["own"]}, {"out": ["s"]})
        net.add_op("sin", {"x": ["s"]}, {"out": ["t"]})
        net.add_op("reduce_sum", {"x": ["t"]}, {"out": ["loss"]})
        if op_type == "batch_norm_sums":
            net.add_op("square", {"x": ["v"]}, {"out": ["vv"]})
            net.add_op("reduce_sum", {"x": ["vv"]}, {"out": ["more"]})
            net.add_op("add", {"x": ["loss"], "y": ["more"]}, {"out": ["cost"]})
        grads = net.add_backward_ops(wrt=["x"])
        last = "cost" if op_type == "batch_norm_sums" else "loss"
        net.run(scope, OpContext(communicator=c, live_out=[last, *grads.values()]))
        cost = scope.get(last).array
        return float(cost), np.array(scope.get(grads["x"]).array)

    for moved in range(size):
        world, h = DryWorld(size), 1e-5
        upper = sum(cost for cost, _ in DryWorld(size).run(partial(losses, moved, h)))
        lower = sum(cost for cost, _ in DryWorld(size).run(partial(losses, moved, -h)))
        grad = world.run(partial(losses, moved, 0.0))[moved][1]
        slope = (upper - lower) / (2 * h)
        assert abs(slope - (grad * rank_values(5, 2, 3)).sum()) < 1e-6 * max(1, abs(slope))


def test_operators_under_mpiexec(tmp_path):
    program = """
        import numpy as np
        from opscope.framework.base.context import OpContext
        from opscope.framework.base.scope import Scope
        from opscope.framework.ir.desc import INPUT, make_var
        from opscope.framework.parallel.mpi import MpiCommunicator
        from opscope.framework.runtime.plain_net import PlainNet
        with MpiCommunicator() as c:
            net, scope = PlainNet(), Scope()
            for name, count in (("a", 3), ("b", 40000)):
                net.add_var(make_var(name, (count,), "float32", INPUT))
                scope.var(name).set(np.full(count, c.rank + 1, np.float32))
            net.add_op("all_reduce_start", {"x": ["a", "b"]}, {"lent": ["c", "d"], "ticket": ["t"]})
            net.add_op("all_gather", {"x": ["a"]}, {"out": ["g"]}, {"ranks": 3})
            net.add_op("all_reduce_wait", {"x": ["c", "d"], "ticket": ["t"]}, {"out": ["e", "f"]})
            for _ in range(3):
                net.run(scope, OpContext(communicator=c))
                assert scope.get("e").array.tolist() == [6.0] * 3
                assert (scope.get("f").array == 6).all()
                assert scope.get("g").array.tolist() == [1.0] * 3 + [2.0] * 3 + [3.0] * 3
    """
    done = run_ranks(3, program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
