"""The training loop: what it measures, how it resumes, stops and fails."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from opscope.framework.base.context import Hook, OpContext
from opscope.framework.base.errors import (
    NotFiniteError,
    OpscopeError,
    SaveError,
    ShapeError,
    VariableError,
)
from opscope.framework.base.scope import Scope
from opscope.framework.runtime.initialize import initialize
from opscope.python_api.train.training import train
from small_nets import classifier, data
from training_runs import BATCHES, numbers, run, same, values

# -- what is measured ------------------------------------------------------------------------------


def test_learns_and_reports():
    history = run(Scope(), epochs=15)
    assert history.columns == ["epoch", "loss", "worst", "eval_loss", "eval_worst", "seconds"]
    assert history["epoch"] == list(range(1, 16))
    assert history["loss"][-1] < 0.6 * history["loss"][0]
    assert history["eval_loss"][-1] < 0.7 * history["eval_loss"][0]
    assert history.last["loss"] == history["loss"][-1]
    assert not history.interrupted and not history.stopped_early
    with pytest.raises(VariableError, match="did you mean"):
        history["los"]


def test_means_are_weighted_by_rows():
    scope, net = Scope(), classifier(rate=0.0, dropout=0.0)
    history = run(scope, net, epochs=1, evaluate=None)
    arrays = data()
    scope.feed(arrays)
    context = OpContext(train=False, live_out=["loss"])
    net.run(scope, context, 0, net.last_forward_op + 1)
    assert history["loss"][0] == pytest.approx(float(scope.numpy("loss")), rel=1e-5)


def test_evaluation_is_forward_only_in_test_phase():
    scope, net = Scope(), classifier(rate=0.0, dropout=0.9)
    initialize(net.desc, scope, OpContext(seed=1))
    before = values(scope)
    history = run(scope, net, epochs=2)
    assert history["eval_loss"][0] == history["eval_loss"][1]
    assert history["loss"][0] != history["loss"][1]
    after = values(scope)
    assert all(np.array_equal(before[n], after[n]) for n in before if "@" not in n)


def test_the_same_seed_gives_the_same_training():
    one, two, other = Scope(), Scope(), Scope()
    assert numbers(run(one)) == numbers(run(two))
    assert same(values(one), values(two))
    assert numbers(run(other, seed=6)) != numbers(run(Scope()))


def test_evaluation_does_not_change_the_training():
    one, two = Scope(), Scope()
    run(one)
    run(two, evaluate=None)
    assert same(values(one), values(two))


def test_data_as_list_function_or_loader():
    whole = list(BATCHES)
    scopes = [Scope() for _ in range(3)]
    for scope, batches in zip(
        scopes, (whole, tuple(whole), lambda epoch: iter(whole)), strict=True
    ):
        run(scope, batches=batches)
    assert same(values(scopes[0]), values(scopes[1]))
    assert same(values(scopes[0]), values(scopes[2]))


def test_numbers_are_cast_where_that_loses_no_kind():
    wide = [{"x": b["x"].astype(float), "label": b["label"].astype(np.int32)} for b in BATCHES]
    lists = [{"x": b["x"].tolist(), "label": b["label"].tolist()} for b in BATCHES]
    one, two, three = Scope(), Scope(), Scope()
    run(one, batches=list(BATCHES))
    run(two, batches=wide)
    run(three, batches=lists)
    assert same(values(one), values(two)) and same(values(one), values(three))


def test_hooks_watch_training_runs():
    class Count(Hook):
        runs = 0

        def before_run(self, frame):
            assert frame.train
            self.runs += 1

    given, own = Count(), Count()
    context = OpContext(seed=1, hooks=[own])
    run(Scope(), epochs=2, hooks=[given], context=context)
    assert given.runs == own.runs == 8
    assert context.hooks == [own]


def test_default_scope_and_netbuilder_like_objects(monkeypatch):
    scope = Scope()
    monkeypatch.setattr("opscope.python_api.train.training.default_scope", lambda: scope)

    class Builder:
        net = classifier()
        desc = net.desc

    run(None, Builder())
    assert "w0" in scope


# -- files -----------------------------------------------------------------------------------------


def test_csv_and_plot(tmp_path):
    history = run(Scope(), epochs=3, log_csv=tmp_path / "a.csv", plot=tmp_path / "a.png")
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0] == "epoch,loss,worst,eval_loss,eval_worst,seconds"
    assert len(lines) == 4
    assert float(lines[-1].split(",")[1]) == history["loss"][-1]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "a.png"]


@pytest.mark.parametrize("epochs", [1, 3])
def test_plot_with_and_without_metrics(tmp_path, epochs):
    for name, options in (("a", {"metrics": [], "evaluate": None}), ("b", {"early_stop": (2,)})):
        history = run(Scope(), epochs=epochs, **options)
        history.plot(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_plot_without_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(OpscopeError, match=r"pip install opscope\[plot\]"):
        run(Scope(), plot=tmp_path / "a.png")


@pytest.mark.parametrize("option", ["log_csv", "plot", "checkpoint"])
def test_a_missing_folder_is_found_before_the_work(tmp_path, option):
    scope = Scope()
    with pytest.raises(SaveError, match="there is no folder"):
        run(scope, **{option: tmp_path / "none" / "file"})
    assert scope.names() == []


# -- bad input -------------------------------------------------------------------------------------


def with_batch(number, **change):
    """The data, one minibatch changed."""
    batches = [dict(batch) for batch in BATCHES]
    batches[number].update(change)
    return [{k: v for k, v in batch.items() if v is not None} for batch in batches]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_numbers_in_the_data_reach_no_parameter(tmp_path, value):
    bad = BATCHES.arrays["x"][:16].copy()
    bad[3, 2] = bad[4, 1] = value
    straight, scope = Scope(), Scope()
    run(straight, batches=list(BATCHES)[:2], epochs=1)
    message = "epoch 1, minibatch 3: 2 of the 96 numbers given for 'x' are NaN or infinite"
    with pytest.raises(NotFiniteError, match=message):
        run(scope, batches=with_batch(2, x=bad))
    assert same(values(scope), values(straight))


def test_bad_numbers_in_the_held_out_data():
    bad = {**data(4), "x": np.full((4, 6), np.nan, np.float32)}
    with pytest.raises(NotFiniteError, match="epoch 1, minibatch 5, evaluation: 24 of the 24"):
        run(Scope(), evaluate=[bad])


def test_large_numbers_whose_sum_overflows_are_no_error():
    """Only NaN and infinity are; the loss tells the rest."""
    from opscope.framework.runtime.feeding import not_finite

    assert not_finite(np.full(4, 3e38, np.float32)) == 0
    assert not_finite(np.array([3e38, 3e38, np.nan], np.float32)) == 1
    assert not_finite(np.array([np.inf, -np.inf])) == 2
    assert not_finite(np.zeros(0, np.float32)) == 0


def test_a_loss_that_diverges(tmp_path):
    scope, net = Scope(), classifier(rate=1e30)
    run(
        Scope(),
        classifier(rate=1e30),
        epochs=1,
        batches=list(BATCHES)[:1],
        checkpoint=tmp_path / "run",
    )
    good = (tmp_path / "run.checkpoint").read_bytes()
    message = (
        r"minibatch \d+: the loss 'loss' is (nan|inf); no longer finite: .*w0.*; the last.*;"
        " training diverges .* smaller learning rate, .*clip_norm=1.0"
    )
    with pytest.raises(NotFiniteError, match=message):
        run(scope, net, checkpoint=tmp_path / "run", log_csv=tmp_path / "a.csv")
    assert (tmp_path / "run.checkpoint").read_bytes() == good
    assert len(os.listdir(tmp_path)) <= 2


@pytest.mark.parametrize("held_out", [None, list(BATCHES)[:1]])
def test_a_last_update_that_diverges_warns_once(held_out):
    """No further minibatch tells it."""
    scope, one = Scope(), with_batch(0, x=1e3 * BATCHES.arrays["x"][:16])[:1]
    warned = "^after epoch 1.*; no longer finite: .*w0.*; training diverges .*smaller learning rate"
    with pytest.warns(RuntimeWarning, match=warned) as caught:
        run(scope, classifier(rate=3e38), epochs=1, batches=one, evaluate=held_out)
    told = [str(one.message) for one in caught if "diverges" in str(one.message)]
    assert len(told) == 1 and ("eval_loss is nan" in told[0]) == bool(held_out)


@pytest.mark.parametrize(
    ("batches", "error", "message"),
    [
        (with_batch(1, y=np.zeros(3)), VariableError, "minibatch 2: the net has no variable 'y'"),
        (with_batch(1, label=None), VariableError, "minibatch 2: feeds x; the minibatches before"),
        (with_batch(0, label=None)[:1], VariableError, "input 'label' is missing"),
        (with_batch(1, x=np.zeros((2, 5), np.float32)), ShapeError, "'x'"),
        (
            with_batch(1, label=np.zeros(16)),
            ShapeError,
            "'label' wants int64 and was given float64",
        ),
        (with_batch(1, x=[[1, 2], [3]]), ShapeError, "'x' is no array"),
        ([3], VariableError, "maps names to arrays; this is a int"),
        ([], OpscopeError, "the data hold no minibatch in epoch 1"),
        (iter(list(BATCHES)), OpscopeError, "gone through only once"),
    ],
)
def test_bad_data(batches, error, message):
    with pytest.raises(error, match=message):
        run(Scope(), batches=batches)


def test_no_held_out_data():
    with pytest.raises(OpscopeError, match="the held-out data hold no minibatch"):
        run(Scope(), evaluate=[])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epochs": 0}, OpscopeError, "epochs wants a number from 1 on, not 0"),
        ({"checkpoint_every": 0}, OpscopeError, "checkpoint_every wants a number from 1 on"),
        ({"resume": True}, OpscopeError, "needs checkpoint=PREFIX"),
        ({"loss": "los"}, VariableError, r"no variable 'los' \(did you mean loss"),
        ({"loss": "cost"}, VariableError, "no variable 'cost'.* loss= says .* perhaps .*'loss'"),
        ({"metrics": ["wurst"]}, VariableError, r"no variable 'wurst' \(did you mean worst"),
        ({"metrics": ["losses"]}, VariableError, r"'losses' holds an array of shape \(16,\)"),
        ({"net": classifier(update=False)}, OpscopeError, "holds no optimizer"),
    ],
)
def test_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        run(Scope(), **options)


# -- what is shown ---------------------------------------------------------------------------------


def test_a_line_for_each_epoch(capsys):
    train(classifier(), BATCHES, epochs=2, scope=Scope(), seed=1, metrics=["worst"])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("epoch 2/2  loss ") and "  worst " in lines[1]


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for batches in (BATCHES, lambda epoch: BATCHES(epoch)):
        train(classifier(), batches, epochs=2, scope=Scope(), seed=1)
        shown = capsys.readouterr().err
        assert "epoch 2/2" in shown and "minibatches" in shown
