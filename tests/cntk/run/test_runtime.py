"""Networks that run: loops, delays, truncation, sparse input, images; gradients by differences."""

from __future__ import annotations

import numpy as np
import pytest

from cntk_runtime_nets import LENGTHS, Builder, check_gradients, data, minibatch
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.layout import Layout, packed
from opscope.cntk.readers.base.pack import Minibatch
from opscope.framework.base.errors import FormatError, RunError, ShapeError


class TestLoops:
    def two_delays(self):
        """h depends on itself one and three steps before; the far one starts from a parameter."""
        b = Builder()
        x = b.add("InputValue", "x", shape=2)
        near, far = b.add("PastValue", "near", shape=3, defaultHiddenActivation=0.2), None
        far = b.add("PastValue", "far", shape=3, timeStep=3)
        own = b.add("Times", "own", b.parameter("R", 3, 3), near)
        both = b.add("Plus", "both", own, far)
        up = b.add("Times", "up", b.parameter("W", 3, 2), x)
        h = b.add("Tanh", "h", b.add("Plus", "z", up, both))
        b.network.connect(near, [h])
        b.network.connect(far, [h, b.parameter("start", 3)])
        b.criterion(h)
        return b

    def reference(self, net, x):
        """The values of h, sequence by sequence."""
        found = []
        for begin, length in zip(np.cumsum(LENGTHS) - LENGTHS, LENGTHS, strict=True):
            h = []
            for t in range(length):
                near = h[t - 1] if t else np.full(3, 0.2)
                far = h[t - 3] if t >= 3 else net.get("start")
                h.append(np.tanh(net.get("W") @ x[begin + t] + net.get("R") @ near + far))
            found += h
        return np.array(found)

    def test_values(self):
        b = self.two_delays()
        net, x = b.net(), data(b.rng, 2)
        value = net.forward(minibatch(x=x), ["h"])["h"]
        np.testing.assert_allclose(value.data, self.reference(net, x))
        assert [len(rows) for rows in value.sequences()] == LENGTHS.tolist()
        assert value.layout.parallel == 3 and value.shape == (3,)

    @pytest.mark.parametrize("way", ["fast", "steps"])
    def test_gradients(self, way, monkeypatch):
        monkeypatch.setenv("OPSCOPE_RECURRENT", way)
        b = self.two_delays()
        check_gradients(b.net(), minibatch(x=data(b.rng, 2)))

    def test_one_loop_feeds_another_backwards(self):
        b = Builder()
        x = b.add("InputValue", "x", shape=2)
        loops = []
        for name, delay, below in (("f", "PastValue", x), ("g", "FutureValue", None)):
            below = below or loops[-1]
            d = b.add(delay, f"{name}d", shape=2, timeStep=2, defaultHiddenActivation=0.3)
            up = b.add("Times", f"{name}u", b.parameter(f"{name}W", 2, 2), below)
            side = b.add("Times", f"{name}s", b.parameter(f"{name}R", 2, 2), d)
            loops.append(b.add("Sigmoid", name, b.add("Plus", f"{name}z", up, side)))
            b.network.connect(d, [loops[-1]])
        b.criterion(loops[-1])
        assert len(b.net().network.loops) == 2
        check_gradients(b.net(), minibatch(x=data(b.rng, 2)))

    def test_delays_outside_of_loops(self):
        b = Builder()
        x = b.add("InputValue", "x", shape=2)
        h = b.add("Plus", "h", x, b.parameter("b", 2))
        past = b.add("PastValue", "past", h, b.parameter("start", 2), timeStep=2)
        future = b.add("FutureValue", "future", h, defaultHiddenActivation=0.5)
        b.criterion(b.add("Plus", "sum", past, future))
        net, rows = b.net(), data(b.rng, 2)
        batch = minibatch(x=rows)
        values = net.forward(batch, ["past", "future"])
        shifted = rows + net.get("b")
        np.testing.assert_allclose(
            values["past"].data[:3, 0], [*[net.get("start")[0]] * 2, shifted[0, 0]]
        )
        np.testing.assert_allclose(
            values["future"].data[:3, 1], [shifted[1, 1], shifted[2, 1], 0.5]
        )
        check_gradients(net, batch)

    @pytest.mark.parametrize("kind", ["PastValue", "FutureValue"])
    def test_a_delay_is_held_to_its_limit(self, kind, monkeypatch):
        """Each of its steps is a state of its own."""
        monkeypatch.setenv("OPSCOPE_LIMITS", "delay=3")
        for steps in (1, 3, 4, 10**9):
            b = Builder()
            x = b.add("InputValue", "x", shape=2)
            b.criterion(b.add(kind, "d", x, timeStep=steps, defaultHiddenActivation=0.5))
            net, batch = b.net(), minibatch(x=data(b.rng, 2))
            if steps <= 3:
                first = net.forward(batch, ["d"])["d"].data[0 if kind == "PastValue" else -1, 0]
                np.testing.assert_allclose(first, 0.5)
                continue
            with pytest.raises(FormatError, match=f"d .*the delay: {steps} steps, .*delay=NUMBER"):
                net.forward(batch, ["d"])

    @pytest.mark.parametrize("offset", [3, -3, 4, -4, -(10**9)])
    def test_a_shift_is_held_to_the_limit_of_delays(self, offset, monkeypatch):
        monkeypatch.setenv("OPSCOPE_LIMITS", "delay=3")
        b = Builder()
        x = b.add("InputValue", "x", shape=2)
        b.criterion(b.add("Shift", "d", x, b.parameter("start", 2), fromOffset=offset))
        net, batch = b.net(), minibatch(x=data(b.rng, 2))
        if abs(offset) <= 3:
            assert net.forward(batch, ["d"])["d"].data.shape[-1] == 2
            return
        with pytest.raises(FormatError, match=f"d .*the delay: {abs(offset)} steps, .*delay=NUM"):
            net.forward(batch, ["d"])


class TestTruncation:
    """The same sequences in pieces, in two slots: 6 and 3 then 4 steps, cut after every second."""

    lengths = np.array([6, 3, 4])
    # slot, begin and end of each sequence in a row of minibatches of two steps
    places = [
        [(0, 0, 6), (1, 0, 3)],
        [(0, -2, 4), (1, -2, 1), (1, 1, 5)],
        [(0, -4, 2), (1, -1, 3)],
        [(1, -3, 1)],
    ]
    numbers = [[0, 1], [0, 1, 2], [0, 2], [2]]

    def pieces(self, rows):
        begins = np.cumsum(self.lengths) - self.lengths
        for places, numbers in zip(self.places, self.numbers, strict=True):
            layout = Layout(2, 2, *np.array(places).T)
            taken = []
            for number, (_, begin, end) in zip(numbers, places, strict=True):
                first, last = max(begin, 0) - begin, min(end, 2) - begin
                taken.append(np.arange(first, last) + begins[number])
            lengths = [len(t) for t in taken]
            samples = Samples(np.append(0, np.cumsum(lengths)), rows[np.concatenate(taken)])
            batch = Minibatch({"x": samples}, {"x": layout}, np.zeros((len(numbers), 2)))
            yield np.concatenate(taken), batch

    @pytest.mark.parametrize("loop", [True, False])
    def test_states_go_on(self, loop):
        if loop:
            b = TestLoops().two_delays()
            name = "h"
        else:
            b, name = Builder(), "d"
            b.add("PastValue", "d", b.add("InputValue", "x", shape=2), timeStep=3)
        rows = data(b.rng, 2, 13)
        whole = b.net().forward(minibatch(self.lengths, x=rows), [name])[name].data
        net = b.net()
        for taken, batch in self.pieces(rows):
            found = net.forward(batch, [name])[name].data
            np.testing.assert_allclose(found, whole[taken], err_msg=str(taken))

    def test_gradients_stop_at_the_border(self):
        b = TestLoops().two_delays()
        net, rows = b.net(), data(b.rng, 2, 13)
        start = np.zeros(3)
        for _, batch in self.pieces(rows):
            net.forward_backward(batch, "total")
            start += np.abs(net.gradient("start"))
        assert np.isfinite(start).all() and np.abs(net.gradient("start")).max() == 0

    def test_a_sequence_without_its_beginning(self):
        b = TestLoops().two_delays()
        (_, batch) = list(self.pieces(data(b.rng, 2, 13)))[1]
        with pytest.raises(RunError, match="began in an earlier one"):
            b.net().forward(batch, ["h"])

    def test_looking_beyond_the_end(self):
        b = Builder()
        b.add("FutureValue", "d", b.add("InputValue", "x", shape=2))
        _, batch = next(self.pieces(data(b.rng, 2, 13)))
        with pytest.raises(RunError, match="beyond the end of a truncated sequence"):
            b.net().forward(batch, ["d"])


class TestInputs:
    sparse = Samples(
        np.append(0, np.cumsum(LENGTHS)),
        np.arange(1.0, 13.0),
        np.array([4, 0, 1, 2, 3, 4, 4, 1, 0, 0, 2, 3]),
        np.array([0, 1, 1, 3, 4, 5, 6, 8, 9, 10, 12]),
    )

    def network(self, operation):
        b = Builder()
        x = b.add(operation, "x", shape=5)
        h = b.add("Times", "h", b.parameter("W", 3, 5), x)
        d = b.add("PastValue", "d", shape=3)
        s = b.add("Tanh", "s", b.add("Plus", "z", h, d))
        b.network.connect(d, [s])
        b.criterion(s)
        return b.net()

    def test_sparse_and_dense_are_the_same(self):
        results = []
        for operation in ("InputValue", "SparseInputValue"):
            for samples in (self.sparse, self.sparse.dense(5)):
                net = self.network(operation)
                value = net.forward_backward(minibatch(x=samples), "total")["total"]
                results.append((value, net.gradient("W")))
        for value, gradient in results[1:]:
            assert value == pytest.approx(results[0][0])
            np.testing.assert_allclose(gradient, results[0][1], atol=1e-12)
        check_gradients(self.network("SparseInputValue"), minibatch(x=self.sparse))

    def test_missing_stream(self):
        with pytest.raises(ShapeError, match=r"has no stream 'x' \(it has y\)"):
            self.network("InputValue").forward(minibatch(y=np.zeros((10, 5))), ["h"])

    def test_wrong_dimension(self):
        with pytest.raises(ShapeError, match="gives samples of 4, not 5"):
            self.network("InputValue").forward(minibatch(x=np.zeros((10, 4))), ["h"])

    def test_inputs_of_other_lengths(self):
        b = Builder()
        b.add("Plus", "s", *(b.add("InputValue", name, shape=1) for name in "xy"))
        batch = minibatch(x=np.zeros((10, 1)))
        batch.streams["y"] = Samples(np.array([0, 5, 10]), np.zeros((10, 1)))
        batch.layouts["y"] = packed(np.array([5, 5]))
        with pytest.raises(ShapeError, match="give it an axis of its own"):
            b.net().forward(batch, ["s"])


def image_net(*build, shape=(5, 4, 2)):
    b = Builder()
    x = b.add("InputValue", "x", shape=shape)
    b.criterion(build[0](b, x))
    return b.net(), minibatch(np.ones(3, int), x=b.rng.normal(size=(3, int(np.prod(shape)))))


CONVOLUTIONS = {
    "usual": ((3, 2, 2, 3), {"kernelShape": (3, 2, 2), "mapCount": (1, 1, 3)}),
    "strides, padding on one side": (
        (2, 3, 2, 3),
        {
            "kernelShape": (2, 3, 2),
            "mapCount": (1, 1, 3),
            "strideShape": (2, 1, 2),
            "dimPadding": (False,),
            "dimPadUpper": (1, 1, 0),
            "dimPadLower": (0, 0, 0),
        },
    ),
    "channels overlap": (
        (3, 3, 1, 2),
        {"kernelShape": (3, 3, 1), "mapCount": (1, 1, 2), "strideShape": (1, 1, 1)},
    ),
    "kernels of their own": (
        (2, 2, 2, 12, 3),
        {
            "kernelShape": (2, 2, 2),
            "mapCount": (1, 1, 3),
            "strideShape": (1, 1, 2),
            "dimSharing": (False, False, False),
            "dimPadding": (False,),
        },
    ),
    "transposed": (
        (3, 2, 4, 2),
        {
            "kernelShape": (3, 2, 4),
            "mapCount": (1, 1, 2),
            "strideShape": (2, 2, 4),
            "dimPadding": (False,),
            "transpose": True,
        },
    ),
}


@pytest.mark.parametrize("which", CONVOLUTIONS)
def test_convolution(which):
    shape, attributes = CONVOLUTIONS[which]

    def build(b, x):
        return b.add("Convolution", "c", b.parameter("W", *shape), x, **attributes)

    check_gradients(*image_net(build))


@pytest.mark.parametrize("pool", ["max", "average"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernelShape": (2, 2), "strideShape": (2, 2), "dimPadding": (False,)},
        {"kernelShape": (3, 2), "strideShape": (2, 1), "dimPadding": (True,)},
        {"kernelShape": (2, 2, 2), "strideShape": (1, 2, 2), "dimPadding": (False,)},
    ],
)
def test_pooling(pool, attributes):
    def build(b, x):
        scaled = b.add("ElementTimes", "scaled", x, b.parameter("s", 5, 4, 2))
        return b.add("Pooling", "p", scaled, pool=pool, **attributes)

    check_gradients(*image_net(build))


def test_convolution_is_what_it_says():
    """Against a sum over the kernel's elements."""

    def build(b, x):
        attributes = {"kernelShape": (3, 3, 2), "mapCount": (1, 1, 2), "strideShape": (1, 1, 2)}
        return b.add("Convolution", "c", b.parameter("W", 3, 3, 2, 2), x, **attributes)

    net, batch = image_net(build)
    x = batch.streams["x"].values.reshape(3, 2, 4, 5)
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    weight = net.get("W").transpose()  # [maps, channels, height, width]
    wanted = sum(
        np.einsum("nchw,mc->nmhw", wide[:, :, i : i + 4, j : j + 5], weight[:, :, i, j])
        for i in range(3)
        for j in range(3)
    )
    np.testing.assert_allclose(net.forward(batch, ["c"])["c"].data, wanted)


def test_first_rows_of_sequences():
    """Where, PackedIndex, GatherPacked and ScatterPacked, and a value sent back to all rows."""
    b = Builder()
    x = b.add("InputValue", "x", shape=2)
    h = b.add("Plus", "h", x, b.parameter("b", 2))
    past = b.add(
        "PastValue", "past", b.add("InputValue", "one", shape=1), defaultHiddenActivation=0
    )
    first = b.add("Equal", "first", past, b.constant("zero", 0))
    where = b.add("Where", "where", first)
    index = b.add("PackedIndex", "index", h, where)
    gathered = b.add("GatherPacked", "gathered", index, h)
    squared = b.add("ElementTimes", "squared", gathered, gathered)
    scattered = b.add("ScatterPacked", "scattered", x, index, squared)
    b.criterion(scattered)
    net, rows = b.net(), data(b.rng, 2)
    batch = minibatch(x=rows, one=np.ones((10, 1)))
    values = net.forward(batch, ["gathered", "scattered"])
    begins = np.cumsum(LENGTHS) - LENGTHS
    wanted = rows[begins] + net.get("b")
    np.testing.assert_allclose(values["gathered"].data, wanted)
    assert values["gathered"].offsets.tolist() == [0, 1, 2, 3, 4]
    whole = np.zeros((10, 2))
    whole[begins] = wanted**2
    np.testing.assert_allclose(values["scattered"].data, whole)
    check_gradients(net, batch)


def test_a_criterion_with_samples_is_summed():
    b = Builder()
    x = b.add("InputValue", "x", shape=3)
    h = b.add("Tanh", "h", b.add("Times", "z", b.parameter("W", 3, 3), x))
    b.add("ReduceElements", "each", h, reductionOp="Sum", axis=1)
    b.add("SumElements", "total", h)
    net, batch = b.net(), minibatch(x=data(b.rng, 3))
    found = []
    for name in ("each", "total"):
        value = net.forward_backward(batch, name)[name]
        found.append((value, net.gradient("W")))
    assert found[0][0] == pytest.approx(found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1])


def test_parameters_go_back_to_the_network():
    b = Builder()
    b.add("Times", "h", b.parameter("W", 3, 2), b.add("InputValue", "x", shape=2))
    net = b.net()
    net.set("W", np.arange(6.0).reshape(3, 2))
    net.store()
    np.testing.assert_array_equal(b.network.find("W").value, np.arange(6.0).reshape(3, 2))
    with pytest.raises(ShapeError, match="does not fit"):
        net.set("W", np.zeros((2, 2)))


class TestShift:
    def net(self, shape=3, boundary=None, **attributes):
        b = Builder()
        x = b.add("InputValue", "x", shape=shape)
        h = b.add("Plus", "h", x, b.parameter("b", *np.atleast_1d(shape)))
        second = b.parameter("start", 3) if boundary is None else boundary(b)
        b.criterion(b.add("Shift", "node", h, second, **attributes))
        return b.net()

    def check(self, net, reference, dim=3, **streams):
        rows = data(np.random.default_rng(5), dim)
        batch = minibatch(x=rows, **streams)
        found = net.forward(batch, ["node"])["node"].sequences()
        begin = 0
        for part, length in zip(found, LENGTHS, strict=True):
            h = rows[begin : begin + length].reshape(part.shape) + net.get("b").transpose()
            np.testing.assert_allclose(part, reference(h, begin))
            begin += length
        check_gradients(net, batch)

    @pytest.mark.parametrize("offset", [-2, 1])
    def test_across_the_edge(self, offset):
        net = self.net(fromOffset=offset)
        edge = net.get("start")

        def reference(h, begin):
            steps = np.arange(len(h)) + offset
            inside = (steps >= 0) & (steps < len(h))
            return np.where(inside[:, None], h[np.clip(steps, 0, len(h) - 1)], edge)

        self.check(net, reference)

    @pytest.mark.parametrize("offset", [-2, 1])
    def test_copies_of_the_edge(self, offset):
        net = self.net(fromOffset=offset, boundaryMode=0)
        self.check(net, lambda h, _: h[np.clip(np.arange(len(h)) + offset, 0, len(h) - 1)])

    def test_from_the_last_row_of_another_sequence(self):
        other = data(np.random.default_rng(6), 3)

        def boundary(b):
            return b.add("Plus", "q", b.add("InputValue", "y", shape=3), b.parameter("c", 3))

        net = self.net(boundary=boundary, fromOffset=-1)

        def reference(h, begin):
            last = other[begin + len(h) - 1] + net.get("c")
            return np.concatenate([last[None], h[:-1]])

        self.check(net, reference, y=other)

    @pytest.mark.parametrize(("offset", "mode"), [(-1, -1), (2, 0)])
    def test_along_an_axis(self, offset, mode):
        net = self.net((3, 4), fromOffset=offset, boundaryMode=mode, dim=2)

        def reference(h, _):
            if mode == 0:
                return h[:, np.clip(np.arange(4) + offset, 0, 3)]
            edge = np.broadcast_to(net.get("start"), (len(h), 1, 3))
            return np.concatenate([edge, h[:, :-1]], 1)

        self.check(net, reference, 12)

    def test_in_a_loop(self):
        """As a PastValue that starts from a parameter."""
        results = []
        for operation in ("PastValue", "Shift"):
            b = Builder()
            x = b.add("InputValue", "x", shape=3)
            options = {"fromOffset": -2} if operation == "Shift" else {"timeStep": 2}
            d = b.add(operation, "d", **options)
            h = b.add("Tanh", "h", b.add("Plus", "z", x, d))
            b.network.connect(d, [h, b.parameter("start", 3)])
            b.criterion(h)
            net, rows = b.net(), data(np.random.default_rng(8), 3)
            value = net.forward_backward(minibatch(x=rows), "total")["total"]
            results.append((value, net.gradient("start")))
        assert results[0][0] == pytest.approx(results[1][0])
        np.testing.assert_allclose(results[0][1], results[1][1])
