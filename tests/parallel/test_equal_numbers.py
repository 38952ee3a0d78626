"""Training on ranks gives the numbers of one process at equal total batch."""

import numpy as np
import pytest

from mpi_runs import run_ranks
from opscope import options
from opscope.framework.passes.ranks.all_reduce import InsertAllReduce
from opscope.framework.passes.ranks.sync_batch_norm import SyncBatchNorm
from opscope.testing.device_double import DOUBLE, instead_of_cupy
from parallel_nets import (
    compare,
    cut,
    halves,
    lstm,
    mlp,
    normalized,
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
    "batch_norm": normalized,
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
    monkeypatch.setattr("opscope.framework.passes.ranks.all_reduce.WORTH", 1)
    batches = parts(2, 10, "float64")
    one = on_ranks(mlp("float64"), batches)[0]
    small = InsertAllReduce(bucket_bytes=100, overlap=overlap)
    other = on_ranks(mlp("float64"), batches, (small,))[0]
    assert all((one[name] == other[name]).all() for name in one)


def test_the_order_of_the_passes_is_free():
    batches = parts(2, 10, "float64", UNEQUAL)
    for passes in ((InsertAllReduce(), SyncBatchNorm()), (SyncBatchNorm(), InsertAllReduce())):
        compare(normalized("float64"), batches, 1e-12, passes)


def test_without_synchronized_statistics_it_is_another_training():
    batches = parts(2, 10, "float64")
    wanted = run_steps(normalized("float64"), [rows(s, 12, "float64") for s in range(10)], None)
    found = on_ranks(normalized("float64"), batches, (InsertAllReduce(),))[0]
    gaps = [np.abs(found[name] - wanted[name]).max() for name in wanted]
    assert max(gaps) > 1e-3


def test_a_rank_alone_trains_as_without_ranks():
    batches = [rows(step, 12, "float64") for step in range(20)]
    wanted = run_steps(mlp("float64"), batches, None)
    net = InsertAllReduce().apply(mlp("float64"))
    found = run_steps(net, batches, None)
    assert all((found[name] == wanted[name]).all() for name in wanted)


@pytest.mark.parametrize("size", [2, 4])
def test_half_precision_with_a_scaled_loss(size):
    """Updates are made in float32 from gradients that were rounded to 11 bits."""
    batches = parts(size, 20, "float16", UNEQUAL)
    compare(halves("float16"), batches, 2e-3)
    # A gradient that overflows on one rank holds the step up on all of them.
    found = on_ranks(halves("float16", "dynamic"), batches)
    for name in found[0]:
        assert len({one[name].tobytes() for one in found}) == 1
        assert np.isfinite(found[0][name]).all()


@pytest.mark.parametrize("size", [2, 3])
def test_mpi_gives_the_bits_of_dry_ranks(size, tmp_path):
    program = """
        import numpy as np
        from opscope.framework.parallel.mpi import MpiCommunicator
        from opscope.framework.passes.ranks.all_reduce import InsertAllReduce
        from opscope.framework.passes.pipeline import run_passes
        from opscope.framework.passes.ranks.sync_batch_norm import SyncBatchNorm
        from parallel_nets import cut, lstm, normalized, rows, run_steps, words

        bounds = np.load("bounds.npy").tolist()
        with MpiCommunicator() as c:
            for make in (normalized, words):
                passes = (SyncBatchNorm(), InsertAllReduce(bucket_bytes=200))
                net = run_passes(make("float32"), passes)
                steps = [cut(rows(step, 12, "float32"), bounds)[c.rank] for step in range(10)]
                np.savez(f"{make.__name__}{c.rank}.npz", **run_steps(net, steps, c))
    """
    bounds = [0, 5, 12] if size == 2 else [0, 5, 5, 12]
    np.save(tmp_path / "bounds.npy", bounds)
    done = run_ranks(size, program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    batches = [cut(rows(step, 12, "float32"), bounds) for step in range(10)]
    for make in (normalized, words):
        passes = (SyncBatchNorm(), InsertAllReduce(bucket_bytes=200))
        for rank, dry in enumerate(on_ranks(make("float32"), batches, passes)):
            with np.load(tmp_path / f"{make.__name__}{rank}.npz") as found:
                assert set(found.files) == set(dry)
                assert all(found[name].tobytes() == dry[name].tobytes() for name in dry)


@pytest.mark.parametrize("off", ["reuse", "inplace"])
def test_memory_switches_change_no_bit(off):
    batches = parts(2, 5, "float32", UNEQUAL)
    for make in (normalized, words, weighted):
        wanted = on_ranks(make("float32"), batches)[0]
        with options(**{off: False}):
            found = on_ranks(make("float32"), batches)[0]
        assert all((found[name] == wanted[name]).all() for name in wanted)


@pytest.mark.parametrize("make", [mlp, words, normalized, weighted])
def test_ranks_with_a_gpu_each(make):
    """On the stand-in of CuPy."""
    batches = parts(2, 5, "float64", UNEQUAL)
    wanted = on_ranks(make("float64"), batches)[0]
    with instead_of_cupy():
        first, second = on_ranks(make("float64"), batches, place=DOUBLE)
    for name, value in wanted.items():
        assert (first[name] == second[name]).all()
        np.testing.assert_allclose(first[name], value, rtol=1e-11, atol=1e-13)
