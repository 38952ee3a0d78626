"""Several minibatches before one update train as one minibatch of all their rows."""

from functools import partial

import numpy as np
import pytest

import opscope
from opscope.framework.base.errors import GradientError, OpscopeError
from opscope.framework.files.checkpoint import read_checkpoint
from training_on_ranks import arrays, half, net, numbers, on_ranks, tied, train

WHOLE = arrays(45)


def batches(*sizes):
    ends = np.cumsum(sizes)
    spans = zip(ends - sizes, ends, strict=True)
    return [{name: value[a:b] for name, value in WHOLE.items()} for a, b in spans]


LARGE, SMALL = batches(20, 25), batches(12, 8, 12, 13)


@pytest.mark.parametrize(("size", "zero"), [(1, 0), (2, 0), (2, 1), (2, 2), (4, 3)])
def test_equals_minibatches_of_all_rows(size, zero):
    build = partial(net, "adam", clip_norm=1.0)
    wanted = train(build, LARGE)[0]
    found = on_ranks(size, build, SMALL, accumulate=2, zero=zero)
    for values, history in found:
        assert numbers(history) == numbers(found[0][1])
        for name, value in wanted.items():
            assert np.abs(values[name] - value).max(initial=0) < 1e-11, name


def test_the_rest_of_an_epoch_is_an_update():
    wanted = train(net, batches(32, 13))[0]
    found = train(net, SMALL, accumulate=3)[0]
    for name, value in wanted.items():
        assert np.abs(found[name] - value).max(initial=0) < 1e-11, name


def test_half_precision_and_checkpoints(tmp_path):
    build = partial(half, "bfloat16", None)
    options = {"accumulate": 2, "checkpoint": tmp_path / "run"}
    wanted = train(build, SMALL, epochs=4, accumulate=2)[0]
    train(build, SMALL, epochs=2, **options)
    assert not any("ACCUMULATED" in name for name in read_checkpoint(tmp_path / "run").values)
    found = train(build, SMALL, epochs=4, resume=True, **options)[0]
    assert all(found[name].tobytes() == value.tobytes() for name, value in wanted.items())


def test_refusals():
    with pytest.raises(OpscopeError, match="accumulate wants a number from 1 on, not 0"):
        train(net, SMALL, accumulate=0)
    with pytest.raises(OpscopeError, match="checkpoint_batches=3 is no multiple of accumulate=2"):
        train(net, SMALL, accumulate=2, checkpoint="run", checkpoint_batches=3)
    with pytest.raises(GradientError, match=r"table.w@GRAD.*has rows.*sparse=False"):
        train(tied, SMALL, accumulate=2)


def test_a_training_that_ends_within_a_group_leaves_no_sums():
    wanted = train(net, SMALL, accumulate=2)[0]
    built, scope = net(), opscope.Scope()
    options = {"scope": scope, "progress": False, "seed": 5, "accumulate": 2, "epochs": 4}
    bad = {**SMALL[1], "x": np.full_like(SMALL[1]["x"], np.nan)}
    with pytest.raises(OpscopeError, match="minibatch 2"):
        opscope.train(built, [SMALL[0], bad], **options)
    opscope.train(built, SMALL, **options)
    for name, value in wanted.items():
        assert scope.numpy(name).tobytes() == value.tobytes(), name
