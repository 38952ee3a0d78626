"""Sums that travel in few bits, against an evaluation written apart, value by value."""

import math

import numpy as np
import pytest

from opscope import OpContext, Scope
from opscope.framework.base.errors import AttributeTypeError, OpscopeError, ShapeError
from opscope.framework.ir.desc import INPUT, STATE, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.runtime.plain_net import PlainNet

SHAPES = [(3, 5), (7,), (2, 3, 4), ()]


def net_of(shapes, bits, zero, dtype):
    net = OpList()
    names = [[f"{slot}{n}" for n in range(len(shapes))] for slot in ("x", "e", "s")]
    for slot, kind in zip(names, (INPUT, STATE, STATE), strict=True):
        for name, shape in zip(slot, shapes, strict=True):
            net.vars.append(make_var(name, shape, dtype, kind))
    x, error, sums = names
    net.ops.append(
        make_op(
            "cntk.quantized_all_reduce",
            {"x": x, "error": error, "sum_error": sums},
            {"out": x, "error_out": error, "sum_error_out": sums},
            {"bits": bits, "zero": zero},
        )
    )
    return net


def run_steps(values, bits, zero, dtype):
    """Outputs of several steps, [steps][ranks][arrays], for values of the same form."""
    ranks, shapes = len(values[0]), [np.shape(a) for a in values[0][0]]

    def one_rank(c):
        scope, found = Scope(), []
        for n, shape in enumerate(shapes):
            for slot in "es":
                scope.var(f"{slot}{n}").set(np.zeros(shape, dtype))
        net = PlainNet(net_of(shapes, bits, zero, dtype))
        for step in values:
            for n, value in enumerate(step[c.rank]):
                scope.var(f"x{n}").set(np.array(value, dtype))
            net.run(scope, OpContext(train=True, communicator=c))
            found.append([scope.numpy(f"x{n}").copy() for n in range(len(shapes))])
        return found, c.messages

    results = DryWorld(ranks).run(one_rank)
    return [[result[0][step] for result in results] for step in range(len(values))], results


# -- the same, one value after the other


def ends(column, bits, zero):
    """The range of a column: with 1 bit so that the two numbers stand for the means of the values
    below the limit and of those from it on; with more, four standard deviations around 0."""
    if bits > 1:
        sigma = math.sqrt(sum(v * v for v in column) / len(column))
        return -4 * sigma, 4 * sigma
    mean = 0.0 if zero else sum(column) / len(column)
    low = [v for v in column if v < mean]
    high = [v for v in column if v >= mean]
    if zero:
        below = sum(low) / len(low) if low else 0.0
        above = sum(high) / len(high) if high else 0.0
        radius = 2 * (above - (below + above) / 2)
        return (below + above) / 2 - radius, (below + above) / 2 + radius
    radius = 2 * sum(abs(v - mean) for v in column) / len(column)
    return mean - radius, mean + radius


def rounded(column, bits, zero):
    """What travels of a column."""
    low, high = ends(column, bits, zero)
    if high - low < 1e-36:
        return [low] * len(column)
    if bits == 1:
        limit = 0.0 if zero else (low + high) / 2
        step = (high - low) / 2
        return [low + step * (1.5 if v >= limit else 0.5) for v in column]
    step = (high - low) / (2**bits - 1)
    numbers = [min(max(int((v - low) // step), 0), 2**bits - 1) for v in column]
    return [low + step * (number + 0.5) for number in numbers]


class Apart:
    """Ranks with errors of their own, and one of the sums."""

    def __init__(self, ranks, shapes, bits, zero):
        self.bits, self.zero = bits, zero
        self.own = [[np.zeros(shape) for shape in shapes] for _ in range(ranks)]
        self.sums = [np.zeros(shape) for shape in shapes]

    def round(self, array):
        rows = array.reshape(1, -1) if array.ndim < 2 else array.reshape(-1, array.shape[-1])
        found = [rounded([float(v) for v in row], self.bits, self.zero) for row in rows]
        return np.array(found).reshape(array.shape)

    def step(self, values):
        found = []
        for n in range(len(self.sums)):
            total = self.sums[n].copy()
            for rank, own in enumerate(self.own):
                wanted = np.asarray(values[rank][n], float) + own[n]
                sent = self.round(wanted)
                own[n] = wanted - sent
                total += sent
            found.append(self.round(total))
            self.sums[n] = total - found[-1]
        return found


def made(ranks, steps, shapes=SHAPES, seed=0):
    rng = np.random.default_rng(seed)
    return [[[rng.normal(size=s) for s in shapes] for _ in range(ranks)] for _ in range(steps)]


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_equals_an_evaluation_written_apart(ranks, bits, zero):
    values = made(ranks, 6)
    found, _ = run_steps(values, bits, zero, np.float64)
    apart = Apart(ranks, SHAPES, bits, zero)
    for number, step in enumerate(values):
        wanted = apart.step(step)
        for rank in range(ranks):
            for out, value in zip(found[number][rank], wanted, strict=True):
                np.testing.assert_allclose(out, value, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bits", [1, 4, 32])
def test_all_ranks_have_the_same_bits(bits, dtype):
    for step in run_steps(made(3, 4), bits, True, dtype)[0]:
        for other in step[1:]:
            for one, two in zip(step[0], other, strict=True):
                assert one.dtype == dtype and one.tobytes() == two.tobytes()


@pytest.mark.parametrize("bits", [1, 2, 8])
def test_what_rounding_loses_comes_later(bits):
    """Over many steps the sums of what comes out and of what went in stay near each other."""
    values = made(2, 200, [(4, 6)])
    found, _ = run_steps(values, bits, True, np.float64)
    inside = sum(step[rank][0] for step in values for rank in range(2))
    outside = sum(step[0][0] for step in found)
    single = max(abs(np.asarray(step[0][0])).max() for step in values)
    assert abs(inside - outside).max() < 8 * 2 * single  # and not 200 times that
    assert abs(inside).max() > 5


def test_one_bit_stands_for_the_means_of_both_sides():
    """The paper's reconstruction: each number is the mean of the values that it stands for."""
    for zero, row, wanted in (
        (True, [-3.0, -1.0, 2.0, 4.0, 6.0], [-2, -2, 4, 4, 4]),
        (False, [-2.5, -0.5, 3.5, 5.5], [-1.5, -1.5, 4.5, 4.5]),  # 3 to both sides of the mean
    ):
        ((((out,),),), _) = run_steps([[[np.array([row])]]], 1, zero, np.float64)
        np.testing.assert_allclose(out, [wanted], rtol=1e-12)


@pytest.mark.parametrize(("bits", "size"), [(1, 3), (2, 5), (4, 10), (8, 20), (16, 40), (32, 80)])
def test_messages_hold_the_ends_of_rows_and_the_bits(bits, size):
    """20 numbers in 4 rows of float32: 32 bytes of ends, and the bits rounded up to bytes."""
    _, results = run_steps(made(2, 1, [(4, 5)]), bits, True, np.float32)
    sent = [m.nbytes for m in results[0][1] if m.kind == "all_gather"]
    assert sent == [32 + size]


@pytest.mark.parametrize("bits", [1, 2, 8, 32])
def test_zeros_and_equal_values_stay(bits):
    values = [[[np.zeros((2, 3)), np.zeros(4)]] * 2] * 3
    for step in run_steps(values, bits, True, np.float32)[0]:
        for arrays in step:
            assert all((array == 0).all() for array in arrays)


@pytest.mark.parametrize("bits", [0, 33, -1])
def test_bits_out_of_range(bits):
    with pytest.raises(AttributeTypeError, match="bits"):
        PlainNet(net_of([(2,)], bits, True, np.float32)).run(Scope(), OpContext())


def test_wrong_nets():
    for bits, dtype, message in ((3, np.float32, "power of two"), (1, np.int32, "floats")):
        with pytest.raises(ShapeError, match=message):
            run_steps([[[np.zeros(2)]]], bits, True, dtype)
    net = net_of([(2,), (3,)], 1, True, np.float32)
    net.vars[2] = make_var("e0", (4,), np.float32, STATE)
    with pytest.raises(OpscopeError, match="x and error"):
        run_net(net)


def run_net(net):
    scope = Scope()
    for var in net.vars:
        scope.var(var.name).set(np.zeros([abs(n) for n in var.shape], np.float32))
    PlainNet(net).run(scope, OpContext(train=True))
