"""Training of large tables: gradients and updates touch the rows that occur, and no others."""

import tracemalloc

import numpy as np
import pytest

from cntk_runtime_nets import Builder, check_gradients, minibatch
from opscope.cntk.config import parse_config
from opscope.cntk.network.network import Network
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.run.runtime import CntkNet
from opscope.cntk.sgd.options import SgdOptions
from opscope.cntk.sgd.updates import Updates, learning_parameters
from opscope.framework.base.context import OpContext
from opscope.framework.ir.names import grad_name, rows_name

WORDS, WIDTH = 1_000_000, 8
SEEN = np.array([7, 999_999, 7, 40_000])
SETTINGS = {
    "momentum": "",
    "nesterov": "useNAG = true",
    "adagrad": "gradUpdateType = adaGrad",
    "fs_adagrad": "gradUpdateType = fsAdaGrad",
    "rms_prop": "gradUpdateType = rmsProp",
    "clipped": "clippingThresholdPerSample = 1e-3",
    "clipped by norm": "clippingThresholdPerSample = 1e-3 ; gradientClippingWithTruncation = false",
    "noise": "gaussianNoiseInjectStd = 0.01",
}
START = {"LookupTable": 1, "Times": 1, "two words": 2}


def trained(kind: str, sgd: str, words: int, numbers: np.ndarray):
    """The table after three updates, and the bytes that these took at most."""
    width, parts = WIDTH, START[kind]
    network = Network("table")
    x = network.add("SparseInputValue", "x", shape=parts * words)
    table = network.add("LearnableParameter", "E", shape=(width, words))
    table.value = np.zeros((width, words), np.float32, order="F")
    h = network.add("Times" if kind == "Times" else "LookupTable", "h", [table, x])
    y = network.add("InputValue", "y", shape=parts * width)
    network.add("SquareError", "error", [h, y], tags=["criterion"])
    network.validate()
    net = CntkNet(network)
    criterion = network.find("error")
    options = SgdOptions.of(
        parse_config(f"SGD = [ maxEpochs = 1 ; learningRatesPerSample = 0.05 ; {sgd} ]").section(
            "SGD"
        )
    )
    parameters = learning_parameters(network, criterion)
    updates = Updates(options, parameters, np.dtype(np.float32))
    updates.reset(net.scope)
    updates.control(net.scope, 0.05, 0.5, len(numbers) / parts)
    bound = net.bound_net([criterion], criterion, extend=updates.extend, key=updates)
    rows = len(numbers) // parts
    begin = np.arange(rows + 1)
    first = begin * parts
    targets = np.random.default_rng(0).normal(size=(rows, parts * width)).astype(np.float32)
    place = numbers + np.arange(len(numbers)) % parts * words
    batch = minibatch(
        np.ones(rows, int),
        x=Samples(begin, np.ones(len(numbers), np.float32), place, first),
        y=Samples(begin, targets),
    )
    tracemalloc.start()
    for number in range(3):
        bound.run(batch, OpContext(train=True, seed=number))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bound.gradients["E"] == grad_name("E")
    assert net.scope.numpy(rows_name(grad_name("E"))).tolist() == numbers.tolist()
    assert net.scope.numpy(grad_name("E")).shape == (len(numbers), width)
    return net.get("E").T, peak


@pytest.mark.parametrize("kind", START)
@pytest.mark.parametrize("learner", SETTINGS)
def test_only_rows_that_occur_change(kind, learner):
    """Their values are those of a small table."""
    table, peak = trained(kind, SETTINGS[learner], WORDS, SEEN)
    assert peak < 4_000_000  # a gradient of all rows would be 32 MB
    changed = np.flatnonzero(table.any(1))
    assert changed.tolist() == sorted(set(SEEN.tolist()))
    known, small = np.unique(SEEN, return_inverse=True)
    wanted, _ = trained(kind, SETTINGS[learner], 3, small)
    np.testing.assert_array_equal(table[known], wanted)


DEPTH, ROWS = 5, 7
PRODUCTS = {
    "matrix": ("Times", (3, DEPTH), (DEPTH,), {}, True),
    "tensor": ("Times", (2, 3, DEPTH), (DEPTH,), {"outputRank": 2}, True),
    "two samples": ("Times", (3, DEPTH), (DEPTH, 2), {}, True),
    "two dimensions": ("Times", (3, 2, DEPTH), (2, DEPTH), {}, False),
    "transposed": ("TransposeTimes", (DEPTH, 3), (DEPTH,), {}, False),
    "transposed vector": ("TransposeTimes", (DEPTH,), (DEPTH,), {}, False),
    "words": ("LookupTable", (3, DEPTH), (DEPTH * 2,), {}, True),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_sparse_products_are_dense_ones(name):
    operation, left, right, attributes, rows = PRODUCTS[name]
    results = []
    for kind in ("InputValue", "SparseInputValue"):
        b = Builder()
        x = b.add(kind, "x", shape=right)
        b.criterion(b.add(operation, "h", b.parameter("W", *left), x, **attributes))
        net = b.net()
        values = b.rng.integers(0, 3, (ROWS, int(np.prod(right)))) * b.rng.normal(size=(ROWS, 1))
        batch = minibatch(np.array([3, 4]), x=values)
        total = net.forward_backward(batch, "total")["total"]
        results.append((total, net.gradient("W")))
    check_gradients(net, batch)
    assert results[1][0] == pytest.approx(results[0][0])
    np.testing.assert_allclose(results[1][1], results[0][1], atol=1e-12)
    assert (net.scope.find(rows_name(grad_name("W"))) is not None) == rows
