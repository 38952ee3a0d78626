"""`opscope.train` on ranks: the numbers of one process, what rank 0 does alone, what is refused."""

import json
import warnings
from functools import partial

import numpy as np
import pytest

import opscope
from nccl_double import instead_of_nccl
from opscope import Minibatches, Sequences
from opscope.framework.base.backend import GPUPlace
from opscope.framework.base.communicator import SingleCommunicator
from opscope.framework.base.errors import (
    GradientError,
    NotFiniteError,
    OpscopeError,
    RanksError,
    ShapeError,
)
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.passes.ranks.all_reduce import InsertAllReduce
from opscope.python_api.ranks import agreement
from training_on_ranks import arrays, check_equal, classifier, numbers, on_ranks, train

DATA = Minibatches(arrays(45), 12, seed=3)  # 12, 12, 12 and 9 rows
HELD_OUT = Minibatches(arrays(30, seed=9), 20, shuffle=False)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_equals_one_process(size):
    options = {"epochs": 25, "evaluate": HELD_OUT, "metrics": ["right"]}
    check_equal(on_ranks(size, classifier, DATA, **options), train(classifier, DATA, **options))


def test_fewer_rows_than_ranks():
    data = Minibatches(arrays(14), 4, seed=3)  # the last minibatch has 2 rows for 3 ranks
    check_equal(on_ranks(3, classifier, data), train(classifier, data))


def test_batch_norm_over_all_ranks():
    build = partial(classifier, norm=True)
    wanted = train(build, DATA)
    check_equal(on_ranks(2, build, DATA, sync_batch_norm=True), wanted, 1e-11)
    apart = on_ranks(2, build, DATA)
    assert not np.allclose(apart[0][0]["h.w"], wanted[0]["h.w"], atol=1e-6)
    for name, value in apart[0][0].items():  # running statistics are those of rank 0
        assert np.array_equal(apart[1][0][name], value)


def tagger():
    b = opscope.NetBuilder("tagger", "float64")
    h = b.embedding(b.input("word", [-1], "int64", levels=1), [20, 4])
    states, _ = b.lstm(h, 5)
    cost = b.softmax_cross_entropy(b.fc(states, size=3), b.input("slot", [-1], "int64"))
    b.mean(cost, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.05, "adam", clip_norm=5.0)
    return b


def test_sequences_are_cut_with_the_rows_of_their_steps():
    rng = np.random.default_rng(0)
    data = []
    for lengths in ([3, 1, 6, 2, 5], [4, 2, 7], [1, 2]):
        words = Sequences.from_list([rng.integers(0, 20, n) for n in lengths])
        data.append({"word": words, "slot": rng.integers(0, 3, sum(lengths))})
    check_equal(on_ranks(2, tagger, data), train(tagger, data), 1e-11)


def test_dropout_is_drawn_by_each_rank():
    states = DryWorld(3).run(random_after)
    assert len(set(states)) == 3
    assert states == DryWorld(3).run(random_after)
    build = partial(classifier, dropout=0.5)
    found = on_ranks(2, build, DATA)
    check_equal(found, found[0], 0.0)


def random_after(c):
    context = opscope.OpContext(seed=1)
    train(partial(classifier, dropout=0.5), DATA, c, context=context, epochs=1)
    return json.dumps(context.random_state())


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_resumed_on_as_many_ranks_bit_by_bit(tmp_path, dropout):
    build = partial(classifier, dropout=dropout)
    whole = on_ranks(2, build, DATA, epochs=6)
    options = {"checkpoint": tmp_path / "run", "checkpoint_batches": 3}
    on_ranks(2, build, DATA, epochs=3, **options)
    found = on_ranks(2, build, DATA, epochs=6, resume=True, **options)
    check_equal(found, whole[0], 0.0)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 4), (4, 3)])
def test_resumed_on_another_number_of_ranks(tmp_path, before, after):
    options = {"checkpoint": tmp_path / "run", "evaluate": HELD_OUT}
    wanted = train(classifier, DATA, epochs=6, evaluate=HELD_OUT)
    on_ranks(before, classifier, DATA, epochs=3, **options)
    found = on_ranks(after, classifier, DATA, epochs=6, resume=True, **options)
    check_equal(found, wanted)


def test_stopped_within_an_epoch_by_one_rank_and_resumed(tmp_path):
    wanted = train(classifier, DATA, epochs=4)

    class Stop(opscope.Callback):
        def on_step(self, at):
            if at.rank == 1 and (at.epoch, at.step) == (2, 2):
                at.stop()

    options = {"checkpoint": tmp_path / "run"}
    part = on_ranks(2, classifier, DATA, callbacks=Stop(), **options)
    assert all(history.interrupted and len(history.rows) == 1 for _, history in part)
    check_equal(on_ranks(3, classifier, DATA, resume=True, **options), wanted)


def test_early_stop_on_all_ranks_at_once():
    options = {"epochs": 60, "evaluate": HELD_OUT, "early_stop": (2,)}
    wanted = train(classifier, DATA, **options)
    found = on_ranks(2, classifier, DATA, **options)
    assert wanted[1].stopped_early
    assert all(history.stopped_early for _, history in found)
    check_equal(found, wanted, 1e-11)


def test_rank_0_alone_writes_and_reports(tmp_path):
    written = []

    def one_rank(c):
        path = tmp_path / str(c.rank)
        path.mkdir()
        train(classifier, DATA, c, log_csv=path / "log.csv", checkpoint=path / "run")
        written.append((c.rank, sorted(one.name for one in path.iterdir())))

    DryWorld(3).run(one_rank)
    assert sorted(written) == [(0, ["log.csv", "run.checkpoint"]), (1, []), (2, [])]


def test_own_minibatches_of_each_rank():
    whole = [arrays(9, seed=n) for n in range(4)]
    cut = [
        [{name: value[a:b] for name, value in one.items()} for one in whole]
        for a, b in ((0, 7), (7, 9))
    ]
    found = DryWorld(2).run(lambda c: train(classifier, cut[c.rank], c, shard=False))
    check_equal(found, train(classifier, whole))


def test_unequal_numbers_of_steps_are_named():
    def one_rank(c):
        return train(classifier, (lambda epoch: [arrays(9)] * (3 - c.rank)), c, shard=False)

    with pytest.raises(RanksError, match="minibatch 3: rank 1 has no more .* rank 0 has"):
        DryWorld(2).run(one_rank)
    with pytest.raises(RanksError, match="the number of steps of rank 1 is `8`, of rank 0 `12`"):
        DryWorld(2).run(lambda c: train(classifier, [arrays(9)] * (3 - c.rank), c, shard=False))


def test_different_data_and_arguments_are_named():
    with pytest.raises(RanksError, match="rank 1 is given another minibatch than rank 0"):
        DryWorld(2).run(lambda c: train(classifier, [arrays(9, seed=c.rank)], c))
    with pytest.raises(RanksError, match="the setting checkpoint_every of rank 1 is `2`"):
        DryWorld(2).run(lambda c: train(classifier, DATA, c, checkpoint_every=1 + c.rank))


def test_inputs_that_cannot_be_cut():
    data = [arrays(9) | {"label": np.zeros(4, int)}]
    with pytest.raises(ShapeError, match="'label' has 4 where there are x 9, label 4"):
        on_ranks(2, classifier, data)


def test_a_loss_that_is_not_finite_ends_all():
    data = [arrays(9) | {"x": np.full((9, 6), 1e308)}]

    def build():
        b = opscope.NetBuilder("squares", "float64")
        b.mean(b.square(b.fc(b.input("x", [-1, 6]), size=2)), name="loss")
        b.input("label", [-1], "int64")
        b.backward_from("loss")
        b.add_optimization(0.1)
        return b

    with pytest.raises(NotFiniteError, match="the loss 'loss' is inf"):
        on_ranks(2, build, data)


def test_an_error_on_one_rank_ends_the_others():
    def at_two(at):
        if at.rank == 1:
            raise ValueError("broken")

    with pytest.raises(OpscopeError, match=r"callback at_two, epoch 1: ValueError: broken"):
        on_ranks(2, classifier, DATA, callbacks=at_two)


def test_one_of_several_processes_without_a_communicator_is_warned(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "4")
    with pytest.warns(UserWarning, match="one of 4 processes, and trains alone"):
        train(classifier, DATA, epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(classifier, DATA, SingleCommunicator(), epochs=1)


def test_what_is_no_communicator_is_refused():
    with pytest.raises(OpscopeError, match="communicator is a Communicator, 'mpi' or None"):
        train(classifier, DATA, "four")  # pyright: ignore[reportArgumentType]


def test_values_of_the_whole_minibatch():
    rows = []

    class Look(opscope.Callback):
        def on_step(self, at):
            rows.append((at.rank, at.values["scores"].shape, float(at.values["worst"])))

    def watched():
        b = opscope.NetBuilder("watched", "float64")
        cost = b.softmax_cross_entropy(
            b.fc(b.input("x", [-1, 6]), size=3, name="scores"),
            b.input("label", [-1], "int64"),
            name="cost",
        )
        b.reduce_max(cost, name="worst")
        b.mean(cost, name="loss")
        b.backward_from("loss")
        b.add_optimization(0.1)
        return b

    metric = opscope.Measure(lambda scores: len(scores), ["scores"], "rows")
    options = {"metrics": [metric, "worst"], "epochs": 2}
    found = on_ranks(2, watched, DATA, callbacks=Look(), **options)
    wanted = train(watched, DATA, **options)
    check_equal(found, wanted)
    assert {shape for _, shape, _ in rows} == {(12, 3), (9, 3)}
    assert numbers(wanted[1])[0]["rows"] > 9


def strange(weight=""):
    b = opscope.NetBuilder("strange", "float64")
    cost = b.mean(b.square(b.fc(b.input("x", [-1, 6]), size=2)), name="half")
    b.input("label", [-1], "int64")
    b.scale(cost, scale=2.0, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1)
    return opscope.PlainNet(InsertAllReduce(weight=weight).apply(b.op_list)) if weight else b


def test_a_loss_of_unknown_weight_and_a_net_with_sums_of_its_own():
    with pytest.raises(GradientError, match=r"made by scale.*train PlainNet\(InsertAllReduce\("):
        on_ranks(2, strange, DATA)
    data = Minibatches(arrays(48), 12)  # equal parts, whose mean is that of the whole
    check_equal(on_ranks(2, partial(strange, "mean"), data), train(strange, data))


@pytest.fixture
def asked(monkeypatch):
    """Ranks of the process, as `opscope launch --device gpu` has them."""
    monkeypatch.setattr(agreement, "_of_process", [])
    monkeypatch.setenv("OPSCOPE_DEVICE", "gpu")
    monkeypatch.delenv("OPSCOPE_SHARED_GPUS", raising=False)

    def between(ranks):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = agreement._between_gpus(ranks)
        return found, [str(one.message) for one in told]

    return between


def test_nccl_is_taken_where_all_ranks_have_it(asked, monkeypatch):
    with instead_of_nccl(2) as library:
        found = DryWorld(2).run(asked)
        assert [ranks.kind for ranks, _ in found] == ["nccl"] * 2 and not found[0][1]
        monkeypatch.setenv("OPSCOPE_SHARED_GPUS", "1")  # NCCL wants a GPU for each
        assert DryWorld(2).run(asked)[0][0].kind == "dry"
        monkeypatch.delenv("OPSCOPE_SHARED_GPUS")
        library.available = False
        (first, told), (second, silent) = DryWorld(2).run(asked)
        assert first.kind == second.kind == "dry"
        assert (
            len(told + silent) == 1 and "gradients go through the host, as CuPy has no" in told[0]
        )
    monkeypatch.setenv("OPSCOPE_DEVICE", "cpu")
    assert DryWorld(2).run(asked)[0][0].kind == "dry"


def test_ranks_with_other_gpus_are_refused(monkeypatch):
    with instead_of_nccl(2):
        from opscope.testing.device_double import xp

        names = {"name": b"A100", "major": 8, "minor": 0}, {"name": b"H100", "major": 9, "minor": 0}
        monkeypatch.setattr(xp.cuda.runtime, "getDeviceProperties", names.__getitem__)
        with pytest.raises(RanksError, match=r"setting device of rank 1 is `H100 \(9.0\), CuPy 0"):
            DryWorld(2).run(lambda c: train(classifier, DATA, c, place=GPUPlace(c.rank)))
