"""Dropout and sampling draw the numbers that CNTK's CPU code draws."""

import numpy as np
import pytest

import opscope.cntk.operators  # noqa: F401  registers them
from cntk_runtime_nets import Builder, minibatch
from opscope.cntk.base import mersenne
from opscope.cntk.base.mersenne import Mersenne64
from opscope.cntk.config import parse_config
from opscope.cntk.sgd.gradient_check import GradientCheck
from opscope.cntk.sgd.options import SgdOptions
from opscope.cntk.sgd.schedules import Schedules
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import RunError
from opscope.framework.base.scope import Scope
from opscope.framework.runtime.plain_net import PlainNet

LENGTHS = np.array([3, 1, 4, 2])  # in columns of 2 slots and 5 steps, or 3 slots and 4 steps
RATE = 0.3


def uniform(seed, count, dtype=np.float64):
    """As Boost makes them of std::mt19937_64."""
    return (Mersenne64(seed).draw(count).astype(dtype) * dtype(2.0**-64)).astype(dtype)


def mask(numbers, rate=RATE):
    return np.where(numbers <= rate, 0, 1 / (1 - rate))


@pytest.mark.parametrize("many", [1, 1 << 60])
def test_generator(many, monkeypatch):
    """Its 10,000th number is part of the C++ standard; in C and in NumPy."""
    monkeypatch.setattr(mersenne, "_MANY", many)
    random = Mersenne64(5489)
    numbers = np.concatenate([random.draw(count) for count in (1, 311, 313, 9000, 375)])
    assert len(numbers) == 10000 and numbers[-1] == 9981545732273789042


class TestMask:
    attrs = {"shape": (2, 3), "dtype": np.dtype(np.float64)}

    def net(self, columns=True, **attrs):
        net, scope = PlainNet(), Scope()
        reads = {slot: slot for slot in ("rate", "seed", "drawn")}
        if columns:
            reads.update(columns="columns", grid="grid")
            scope.feed({"columns": np.array([0, 2, 5, 3]), "grid": np.array([2, 3])})
        writes = {"out": "out", "drawn_out": "drawn"}
        net.add_op("cntk.dropout_mask", reads, writes, {**self.attrs, **attrs})
        scope.feed({"rate": np.array([RATE]), "seed": np.array([7]), "drawn": np.array([0])})
        return net, scope

    def run(self, net, scope, train=True):
        net.run(scope, OpContext(train=train))
        return scope.numpy("out").copy()

    def test_columns_with_gaps(self):
        """Two slots, three steps; runs go on where the one before left off."""
        numbers = uniform(7, 72).reshape(2, 6, 2, 3)
        net, scope = self.net()
        for part in numbers:
            np.testing.assert_array_equal(self.run(net, scope), mask(part)[[0, 2, 5, 3]])
        assert scope.numpy("drawn") == 72

    def test_from_any_position(self):
        net, scope = self.net()
        scope.feed({"drawn": np.array([36])})
        found = mask(uniform(7, 72)[36:].reshape(6, 2, 3))
        np.testing.assert_array_equal(self.run(net, scope), found[[0, 2, 5, 3]])
        scope.feed({"drawn": np.array([0]), "seed": np.array([8])})
        found = mask(uniform(8, 36).reshape(6, 2, 3))
        np.testing.assert_array_equal(self.run(net, scope), found[[0, 2, 5, 3]])

    def test_backwards(self):
        """Columns 0, 2, 5 and 3 are of the steps 0, 1, 2 and 1, which come as 2, 1, 0 and 1."""
        found = mask(uniform(7, 36).reshape(6, 2, 3))[[4, 2, 1, 3]]
        np.testing.assert_array_equal(self.run(*self.net(reverse=True)), found)

    def test_without_an_axis(self):
        found = mask(uniform(7, 6, np.float32), np.float32(RATE)).reshape(2, 3)
        net, scope = self.net(columns=False, dtype=np.dtype(np.float32))
        np.testing.assert_array_equal(self.run(net, scope), found.astype(np.float32))

    def test_nothing_is_drawn_where_nothing_is_dropped(self):
        net, scope = self.net()
        assert (self.run(net, scope, train=False) == 1).all()
        scope.feed({"rate": np.array([0.0])})
        assert (self.run(net, scope) == 1).all() and scope.numpy("drawn") == 0


def dropping(net, rate=RATE):
    for node in net.network.nodes.values():
        if node.operation == "Dropout":
            net.scope.var(f"{node.name}@RATE").set(np.full(1, rate))


@pytest.mark.parametrize("delay", ["PastValue", "FutureValue"])
def test_dropout_of_rows_and_in_loops(delay):
    """Numbers are drawn for columns, in a loop in the order of its steps."""
    b = Builder()
    x = b.add("InputValue", "x", shape=3)
    rows = b.add("Dropout", "rows", x, rngSeed=3)
    past = b.add(delay, "past", shape=3, defaultHiddenActivation=0.0)
    kept = b.add("Dropout", "kept", past, rngSeed=4)
    step = b.add("Plus", "step", rows, kept)
    b.network.connect(past, [step])
    b.criterion(step)
    net = b.net()
    batch = minibatch(LENGTHS, x=np.ones((10, 3)))
    net.bound_net(["total", "rows", "step"])
    dropping(net)
    values = net.forward(batch, ["total", "rows", "step"], train=True)
    layout = values["rows"].layout
    first = mask(uniform(3, layout.columns * 3).reshape(-1, 3))[layout.column]
    np.testing.assert_array_equal(values["rows"].data, first)
    numbers = mask(uniform(4, layout.columns * 3).reshape(layout.steps, layout.parallel, 3))
    if delay == "FutureValue":
        numbers = numbers[::-1]
    second = numbers.reshape(-1, 3)[layout.column]
    wanted = first.copy()
    begin = values["step"].offsets
    for a, z in zip(begin[:-1], begin[1:], strict=True):
        order = range(a, z) if delay == "PastValue" else range(z - 1, a - 1, -1)
        state = np.zeros(3)
        for row in order:
            wanted[row] += state * second[row]
            state = wanted[row]
    np.testing.assert_allclose(values["step"].data, wanted)
    net.store()
    assert b.network.find("kept").attributes["rngOffset"] == layout.columns * 3


def test_gradients_pass_what_is_kept():
    b = Builder()
    x = b.add("InputValue", "x", shape=2)
    h = b.add("Dropout", "h", b.add("Times", "z", b.parameter("W", 2, 2), x))
    b.criterion(h)
    net = b.net()
    net.bound_net(["total"], "total")
    dropping(net)
    batch = minibatch(LENGTHS, x=np.ones((10, 2)))
    net.forward_backward(batch, "total")
    weights = net.get("h.weights")
    kept = mask(uniform(0, net.forward(batch, ["h"])["h"].layout.columns * 2).reshape(-1, 2))
    kept = kept[net.forward(batch, ["h"])["h"].layout.column]
    np.testing.assert_allclose(net.gradient("W"), (kept.sum(0) * weights)[:, None] * np.ones(2))


def two_dropouts():
    b = Builder()
    x = b.add("InputValue", "x", shape=2)
    h = b.add("Dropout", "first", b.add("Times", "z", b.parameter("W", 2, 2), x))
    b.criterion(b.add("Dropout", "second", h))
    return b.net()


def test_each_node_has_a_seed_at_each_epoch():
    net = two_dropouts()
    text = "SGD = [ maxEpochs = 4 ; learningRatesPerSample = 1 ; dropoutRate = 0:0.5 ]"
    options = SgdOptions.of(parse_config(text).section("SGD"))
    log = []
    schedules = Schedules(net, net.network.find("total"), options, log.append)
    for epoch in (0, 3):
        schedules.set(epoch)
        seeds = [net.network.find(name).attributes["rngSeed"] for name in ("first", "second")]
        assert seeds == [2 * epoch, 2 * epoch + 1]
        assert [net.scope.numpy(f"{name}@SEED")[0] for name in ("first", "second")] == seeds
    assert log == ["Setting dropout rate to 0.5.\n"]


def test_gradients_are_checked_with_the_same_numbers():
    net = two_dropouts()
    net.bound_net(["total"], "total")
    dropping(net)
    total, weights = net.network.find("total"), [net.network.find("W")]
    GradientCheck(net, total, weights, 4, lambda line: None)(
        minibatch(LENGTHS, x=np.random.default_rng(0).normal(size=(10, 2)))
    )


class TestSamples:
    weights = np.array([4.0, 2, 1, 1, 0], np.float32)

    def run(self, count, duplicates, runs=1):
        net, scope = PlainNet(), Scope()
        attrs = {"count": count, "duplicates": duplicates}
        reads = {"weights": "w", "seed": "seed", "drawn": "drawn"}
        writes = {name: name for name in ("values", "indices", "counts")} | {"drawn_out": "drawn"}
        net.add_op("cntk.random_sample", reads, writes, attrs)
        net.add_op("cntk.inclusion_frequency", {"weights": "w"}, {"out": "often"}, attrs)
        scope.feed({"w": self.weights, "seed": np.array([5]), "drawn": np.array([0])})
        found = []
        for _ in range(runs):
            net.run(scope, OpContext(train=True, live_out=("values", "indices", "counts", "often")))
            assert (scope.numpy("values") == 1).all() and (scope.numpy("counts") == 1).all()
            found.append(scope.numpy("indices").copy())
        return np.array(found), scope

    def test_any_classes(self):
        found, scope = self.run(3, True, runs=2)
        wanted = np.searchsorted([4, 6, 7, 8, 8], 8 * uniform(5, 6))
        assert found.reshape(-1).tolist() == wanted.tolist()
        assert scope.numpy("drawn") == 6

    def test_different_classes(self):
        found, scope = self.run(4, False)
        wanted: list[int] = []
        numbers = iter(uniform(5, 1000))
        while len(wanted) < 4:
            drawn = int(np.searchsorted([4, 6, 7, 8, 8], 8 * next(numbers)))
            if drawn not in wanted:
                wanted.append(drawn)
        assert found[0].tolist() == wanted
        assert scope.numpy("drawn") == 1000 - len(list(numbers))

    def test_more_than_there_are(self):
        with pytest.raises(RunError, match="5 of 4 classes"):
            self.run(5, False)

    @pytest.mark.parametrize("duplicates", [True, False])
    def test_frequencies(self, duplicates):
        found, scope = self.run(3, duplicates, runs=2000)
        often = scope.numpy("often")
        assert often.sum() == pytest.approx(3) and often[4] == 0
        # Without duplicates CNTK's number is that of draws until there are enough on average.
        total = (found.reshape(-1) == np.arange(5)[:, None]).sum(1) / 2000
        np.testing.assert_allclose(total, often, atol=0.05 if duplicates else 0.15)


def test_sampled_rows_of_a_large_table():
    """A sampled softmax multiplies the rows that are drawn, and only these get gradients."""
    b = Builder()
    classes, count = 100_000, 5
    weights = b.parameter("frequency", classes, 1)
    weights.attributes["learningRateMultiplier"] = 0
    b.values["frequency"] = np.abs(b.values["frequency"])
    sample = b.add(
        "RandomSample", "sample", weights, sizeOfSampledSet=count, allowDuplicates=False, rngSeed=9
    )
    b.criterion(b.add("Times", "rows", b.parameter("W", 3, classes), sample))
    net = b.net()
    net.forward_backward(minibatch(LENGTHS), "total")
    sums = np.cumsum(b.values["frequency"][:, 0])
    drawn = np.searchsorted(sums, sums[-1] * uniform(9, count))
    assert len(set(drawn.tolist())) == count
    gradient = net.gradient("W")
    assert np.flatnonzero(gradient.any(0)).tolist() == sorted(drawn.tolist())
    np.testing.assert_allclose(gradient[:, drawn], net.get("rows.weights"))
    assert net.scope.numpy("W@GRAD").shape == (count, 3)
    values = net.forward(minibatch(LENGTHS), ["sample", "rows"])
    again = values["sample"].data
    assert again.shape == (count, classes) and (again.sum(1) == 1).all()
    np.testing.assert_allclose(values["rows"].data, net.get("W").T[again.argmax(1)])
