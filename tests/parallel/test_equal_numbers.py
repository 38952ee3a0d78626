"""Training on ranks gives the numbers of one process at equal total batch."""

import numpy as np
import pytest

from opscope.framework.passes.all_reduce import InsertAllReduce
from opscope.framework.passes.sync_batch_norm import SyncBatchNorm
from parallel_nets import (
    compare,
    cut,
    lstm,
    mlp,
    normalised,
    on_ranks,
    rows,
    run_steps,
    weighted,
    words,
)

PRECISIONS = [("float64", 200, 1e-12), ("float32", 20, 1e-6)]
EQUAL = {2: [0, 6, 12], 4: [0, 3, 6, 9, 12]}
UNEQUAL = {2: [0, 9, 12], 4: [0, 5, 5, 11, 12]}


def parts(size, steps, dtype, bounds=EQUAL):
    return [cut(rows(step, 12, dtype), bounds[size]) for step in range(steps)]


NETS = {
    "momentum": mlp,
    "clipping": lambda dtype: mlp(dtype, "adam", clip_norm=0.1),
    "clip_value": lambda dtype: mlp(dtype, "sgd", clip_value=0.01),
    "layerwise": lambda dtype: mlp(dtype, "lamb", 0.001),
    "weights": weighted,
    "batch_norm": normalised,
    "sparse": words,
    "sparse_clipped": lambda dtype: words(dtype, "adam", clip_norm=0.1),
    "sparse_dense": lambda dtype: words(dtype, "lamb"),
}


@pytest.mark.parametrize(("dtype", "steps", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", NETS)
def test_equal_batches(kind, size, dtype, steps, tolerance):
    compare(NETS[kind](dtype), parts(size, steps, dtype), tolerance)


@pytest.mark.parametrize(("dtype", "steps", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", NETS)
def test_unequal_batches(kind, size, dtype, steps, tolerance):
    """Also where a rank has nothing at all."""
    compare(NETS[kind](dtype), parts(size, steps, dtype, UNEQUAL), tolerance)


@pytest.mark.parametrize(("dtype", "steps", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("size", [2, 4])
def test_lstm_on_unequal_sequences(size, dtype, steps, tolerance):
    made = []
    for step in range(steps):
        rng = np.random.default_rng(step)
        ranks = []
        for rank in range(size):
            lengths = rng.integers(1, 5, 1 + (rank + step) % 2)
            ranks.append(
                {
                    "x": [rng.normal(size=(n, 6)).astype(dtype) for n in lengths],
                    "label": [rng.integers(0, 3, n) for n in lengths],
                }
            )
        made.append(ranks)
    compare(lstm(dtype), made, tolerance)


@pytest.mark.parametrize("overlap", [True, False])
def test_small_buckets_change_no_bit(overlap, monkeypatch):
    monkeypatch.setattr("opscope.framework.passes.all_reduce._WORTH", 1)
    batches = parts(2, 10, "float64")
    one = on_ranks(mlp("float64"), batches)[0]
    small = InsertAllReduce(bucket_bytes=100, overlap=overlap)
    other = on_ranks(mlp("float64"), batches, (small,))[0]
    assert all((one[name] == other[name]).all() for name in one)


def test_the_order_of_the_passes_is_free():
    batches = parts(2, 10, "float64", UNEQUAL)
    for passes in ((InsertAllReduce(), SyncBatchNorm()), (SyncBatchNorm(), InsertAllReduce())):
        compare(normalised("float64"), batches, 1e-12, passes)


def test_without_synchronised_statistics_it_is_another_training():
    batches = parts(2, 10, "float64")
    wanted = run_steps(normalised("float64"), [rows(s, 12, "float64") for s in range(10)], None)
    found = on_ranks(normalised("float64"), batches, (InsertAllReduce(),))[0]
    gaps = [np.abs(found[name] - wanted[name]).max() for name in wanted]
    assert max(gaps) > 1e-3


def test_a_rank_alone_trains_as_without_ranks():
    batches = [rows(step, 12, "float64") for step in range(20)]
    wanted = run_steps(mlp("float64"), batches, None)
    net = InsertAllReduce().apply(mlp("float64"))
    found = run_steps(net, batches, None)
    assert all((found[name] == wanted[name]).all() for name in wanted)
