"""The training loop: what it measures, how it resumes, stops and fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import opscope
from opscope.framework.context import Hook, OpContext
from opscope.framework.errors import (
    FormatError,
    NotFiniteError,
    OpscopeError,
    SaveError,
    ShapeError,
    VariableError,
)
from opscope.framework.initialize import initialize
from opscope.framework.scope import Scope
from opscope.python_api.checkpoint import check_same_net, load_checkpoint, read_checkpoint
from opscope.python_api.io import persistent_values
from opscope.python_api.minibatches import Minibatches
from opscope.python_api.training import EarlyStop, train
from small_nets import classifier, data

BATCHES = Minibatches(data(), 16, seed=3)  # 16, 16, 16 and 12 rows
HELD_OUT = Minibatches(data(30, seed=9), 20, shuffle=False)


def run(scope, net=None, batches=BATCHES, **options):
    options.setdefault("epochs", 4)
    options.setdefault("seed", 5)
    options.setdefault("metrics", ["worst"])
    options.setdefault("evaluate", HELD_OUT)
    return train(net or classifier(), batches, scope=scope, progress=False, **options)


def values(scope, net=None):
    found = persistent_values((net or classifier()).desc, scope)
    return {name: array.copy() for name, array in found.items()}


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[n], two[n]) for n in one)


def numbers(history):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history.rows]


class InterruptAfter:
    """Minibatches during which a Ctrl-C comes, once."""

    def __init__(self, epoch, batch, data=BATCHES):
        self.when, self.data = (epoch, batch), data

    def __len__(self):
        return len(self.data)

    def __call__(self, epoch):
        for number, batch in enumerate(self.data(epoch)):
            if (epoch, number) == self.when:
                os.kill(os.getpid(), signal.SIGINT)
            yield batch


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
    context = OpContext(train=False, keep=["loss"])
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
    monkeypatch.setattr("opscope.python_api.training.default_scope", lambda: scope)

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


# -- checkpoints -----------------------------------------------------------------------------------


def test_resume_continues_bit_for_bit(tmp_path):
    straight, parts = Scope(), Scope()
    whole = run(straight, epochs=4)
    run(parts, epochs=2, checkpoint=tmp_path / "run")
    again = Scope()
    resumed = run(again, epochs=4, checkpoint=tmp_path / "run", resume=True, seed=99)
    assert numbers(resumed) == numbers(whole)
    assert same(values(again), values(straight))


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_interrupted_in_an_epoch_and_resumed(tmp_path, batch, capsys):
    straight, broken, again = Scope(), Scope(), Scope()
    whole = run(straight, epochs=4)
    handler = signal.getsignal(signal.SIGINT)
    part = run(broken, batches=InterruptAfter(2, batch), checkpoint=tmp_path / "run")
    assert signal.getsignal(signal.SIGINT) is handler
    assert part.interrupted and len(part) == 2
    assert "Ctrl-C" in capsys.readouterr().err
    assert read_checkpoint(tmp_path / "run").state["batch"] == batch + 1
    resumed = run(again, checkpoint=tmp_path / "run", resume=True)
    assert not resumed.interrupted
    assert numbers(resumed) == numbers(whole)
    assert same(values(again), values(straight))


def test_interrupted_in_the_evaluation_and_resumed(tmp_path):
    straight, broken, again = Scope(), Scope(), Scope()
    whole = run(straight)
    held_out = InterruptAfter(1, 0, HELD_OUT)
    part = run(broken, evaluate=held_out, checkpoint=tmp_path / "run")
    assert part.interrupted and len(part) == 1
    resumed = run(again, checkpoint=tmp_path / "run", resume=True)
    assert numbers(resumed) == numbers(whole)
    assert same(values(again), values(straight))


def test_checkpoints_within_epochs(tmp_path):
    straight, broken, again = Scope(), Scope(), Scope()
    whole = run(straight)

    def failing(epoch):
        for number, batch in enumerate(BATCHES(epoch)):
            if (epoch, number) == (1, 3):
                raise ZeroDivisionError
            yield batch

    with pytest.raises(ZeroDivisionError):
        run(broken, batches=failing, checkpoint=tmp_path / "run", checkpoint_batches=2)
    assert read_checkpoint(tmp_path / "run").state["batch"] == 2
    resumed = run(again, checkpoint=tmp_path / "run", resume=True)
    assert numbers(resumed) == numbers(whole)
    assert same(values(again), values(straight))


def test_resume_in_the_scope_of_before(tmp_path):
    straight, scope = Scope(), Scope()
    run(straight)
    net = classifier()
    run(scope, net, epochs=2, checkpoint=tmp_path / "run")
    scope.get("w0").set(np.zeros((6, 8), np.float32))
    run(scope, net, checkpoint=tmp_path / "run", resume=True)
    assert same(values(scope), values(straight))


def test_resume_without_a_checkpoint_starts_afresh(tmp_path):
    one, two = Scope(), Scope()
    assert numbers(run(one, checkpoint=tmp_path / "run", resume=True)) == numbers(run(two))
    finished = run(Scope(), checkpoint=tmp_path / "run", resume=True)
    assert numbers(finished) == numbers(run(Scope()))


def test_resume_keeps_the_csv_whole(tmp_path):
    options = {"checkpoint": tmp_path / "run", "log_csv": tmp_path / "a.csv"}
    run(Scope(), epochs=2, **options)
    run(Scope(), epochs=4, resume=True, **options)
    epochs = [line.split(",")[0] for line in (tmp_path / "a.csv").read_text().splitlines()]
    assert epochs == ["epoch", "1", "2", "3", "4"]


def test_checkpoint_every(tmp_path):
    seen = []

    def watching(epoch):
        path = tmp_path / "run.checkpoint"
        seen.append(read_checkpoint(path).state["epoch"] if path.exists() else None)
        return BATCHES(epoch)

    run(Scope(), batches=watching, epochs=5, checkpoint=tmp_path / "run", checkpoint_every=2)
    assert seen == [None, None, 2, 2, 4]
    assert read_checkpoint(tmp_path / "run").state["epoch"] == 5


def test_a_checkpoint_loads_as_a_net(tmp_path):
    scope = Scope()
    run(scope, checkpoint=tmp_path / "run")
    loaded = load_checkpoint(tmp_path / "run")
    assert same(values(loaded.scope), values(scope))
    check_same_net(loaded.net.desc, classifier().desc, "run")


def test_a_checkpoint_of_another_net_is_refused(tmp_path):
    run(Scope(), checkpoint=tmp_path / "run")
    scope = Scope()
    options = {"checkpoint": tmp_path / "run", "resume": True}
    with pytest.raises(FormatError, match=r"another net: op \d+ \('scale'\)"):
        run(scope, classifier(rate=0.2), **options)
    with pytest.raises(OpscopeError, match="were loss or metrics changed"):
        run(scope, metrics=["worst", "losses"], **options)
    assert scope.names() == []


def test_damaged_checkpoints(tmp_path):
    run(Scope(), epochs=1, checkpoint=tmp_path / "run")
    path = tmp_path / "run.checkpoint"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[-3] ^= 1
    cut = [whole[:n] for n in range(0, len(whole), 501)]
    for content in (*cut, bytes(damaged), b"", os.urandom(999)):
        path.write_bytes(content)
        scope = Scope()
        with pytest.raises(FormatError, match=r"run\.checkpoint"):
            run(scope, epochs=2, checkpoint=tmp_path / "run", resume=True)
        assert scope.names() == []
    opscope.save(classifier(update=False), _initialized(), tmp_path / "saved")
    path.write_bytes((tmp_path / "saved.safetensors").read_bytes())
    with pytest.raises(FormatError, match="but no checkpoint"):
        read_checkpoint(path)
    path.write_bytes(whole.replace(b'"opscope.checkpoint":"1"', b'"opscope.checkpoint":"2"'))
    with pytest.raises(FormatError, match="format 2 is newer than 1"):
        read_checkpoint(path)


def _initialized():
    scope = Scope()
    initialize(classifier(update=False).desc, scope)
    return scope


# -- early stop ------------------------------------------------------------------------------------


def test_early_stop_brings_the_best_back(tmp_path):
    """With a rate far too high the loss gets worse soon."""
    scope, net = Scope(), classifier(rate=3.0)
    stop = EarlyStop(patience=2)
    history = run(scope, net, epochs=50, early_stop=stop, checkpoint=tmp_path / "run")
    losses = history["eval_loss"]
    assert history.stopped_early and len(history) < 50
    assert history.best_epoch == int(np.argmin(losses)) + 1
    assert len(history) == history.best_epoch + 2
    exact = Scope()
    repeated = run(exact, net, epochs=history.best_epoch)
    assert numbers(repeated) == numbers(history)[: history.best_epoch]
    assert same(values(scope), values(exact))

    again = Scope()
    resumed = run(again, net, epochs=50, early_stop=stop, checkpoint=tmp_path / "run", resume=True)
    assert resumed.stopped_early and numbers(resumed) == numbers(history)
    assert same(values(again), values(exact))


def test_early_stop_resumed_midway(tmp_path):
    net, stop = classifier(rate=3.0), (3, "worst", "max")
    whole = run(Scope(), net, epochs=30, early_stop=stop)
    run(Scope(), net, epochs=2, early_stop=stop, checkpoint=tmp_path / "run")
    one, two = Scope(), Scope()
    resumed = run(one, net, epochs=30, early_stop=stop, checkpoint=tmp_path / "run", resume=True)
    run(two, net, epochs=30, early_stop=stop)
    assert numbers(resumed) == numbers(whole)
    assert same(values(one), values(two))


def test_the_best_comes_back_without_a_stop_too():
    scope, net = Scope(), classifier(rate=3.0)
    history = run(scope, net, epochs=4, early_stop=(50,))
    exact = Scope()
    run(exact, net, epochs=history.best_epoch)
    assert not history.stopped_early
    assert same(values(scope), values(exact))


@pytest.mark.parametrize("fields", [(0,), (1, "loss", "least"), (1, "loss", "min", -1.0)])
def test_bad_early_stop(fields):
    with pytest.raises(OpscopeError, match="early stop: want"):
        EarlyStop(*fields)


def test_early_stop_of_an_unknown_column():
    with pytest.raises(VariableError, match=r"'eval_los'.*did you mean eval_loss"):
        run(Scope(), early_stop=(2, "eval_los"))


def test_is_better():
    nan = float("nan")
    assert EarlyStop().is_better(1.0, None) and not EarlyStop().is_better(nan, None)
    assert not EarlyStop().is_better(nan, 1.0)
    assert not EarlyStop(min_delta=0.1).is_better(0.95, 1.0)
    assert EarlyStop(mode="max").is_better(1.1, 1.0)


# -- Ctrl-C ----------------------------------------------------------------------------------------


def test_a_second_ctrl_c_ends_at_once():
    def impatient(epoch):
        for batch in BATCHES(epoch):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            yield batch

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(Scope(), batches=impatient)
    assert signal.getsignal(signal.SIGINT) is handler


def test_ctrl_c_in_the_last_minibatch_of_an_epoch_leaves_the_evaluation_to_the_resume(tmp_path):
    history = run(Scope(), epochs=2, batches=InterruptAfter(1, 3), checkpoint=tmp_path / "run")
    assert history.interrupted and len(history) == 1
    resumed = run(Scope(), epochs=2, checkpoint=tmp_path / "run", resume=True)
    assert numbers(resumed) == numbers(run(Scope(), epochs=2))


def test_trains_in_another_thread():
    scope, results = Scope(), []
    thread = threading.Thread(target=lambda: results.append(run(scope, epochs=2)))
    thread.start()
    thread.join()
    assert len(results[0]) == 2


SCRIPT = """
import sys
from small_nets import classifier, data
import opscope
from opscope.python_api.minibatches import Minibatches
def batches(epoch):
    print("epoch", epoch, flush=True)
    yield from Minibatches(data(), 4)(epoch)
history = opscope.train(classifier(), batches, epochs=10**6, scope=opscope.Scope(),
                        checkpoint=sys.argv[1], checkpoint_every=10**6)
print("left", history.interrupted, len(history) > 0)
"""


def test_a_real_ctrl_c_in_a_process(tmp_path):
    path = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run")]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=Path(__file__).parent,
    ) as process:
        for line in process.stdout:
            if line.strip() == "epoch 3":
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "left True True" in out
    assert "Ctrl-C: ending after this minibatch" in err and "Traceback" not in err
    assert read_checkpoint(tmp_path / "run").state["epoch"] >= 3


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
    from opscope.python_api.feeding import not_finite

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
    message = r"minibatch \d+: the loss 'loss' is (nan|inf); no longer finite: .*w0.*; the last"
    with pytest.raises(NotFiniteError, match=message):
        run(scope, net, checkpoint=tmp_path / "run", log_csv=tmp_path / "a.csv")
    assert (tmp_path / "run.checkpoint").read_bytes() == good
    assert len(os.listdir(tmp_path)) <= 2


@pytest.mark.parametrize(
    ("batches", "error", "message"),
    [
        (with_batch(1, y=np.zeros(3)), VariableError, "minibatch 2: the net has no variable 'y'"),
        (with_batch(1, label=None), VariableError, "minibatch 2: feeds x; the minibatches before"),
        (with_batch(0, label=None)[:1], VariableError, "no variable 'label'"),
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
        ({"epochs": 0}, OpscopeError, "epochs >= 1"),
        ({"checkpoint_every": 0}, OpscopeError, "checkpoint_every >= 1"),
        ({"resume": True}, OpscopeError, "needs checkpoint=PREFIX"),
        ({"loss": "los"}, VariableError, r"no variable 'los' \(did you mean loss"),
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


# -- with NetBuilder -------------------------------------------------------------------------------


def build():
    b = opscope.NetBuilder("built")
    x, label = b.input("x", [-1, 6]), b.input("label", [-1], "int64")
    w = b.parameter("w0", [6, 12]), b.parameter("b0", [12], 0.0)
    hidden = b.dropout(b.relu(b.add_op("affine", x, *w)), p=0.3)
    w = b.parameter("w1", [12, 3]), b.parameter("b1", [3], 0.0)
    losses = b.softmax_cross_entropy(b.add_op("affine", hidden, *w, name="scores"), label)
    cost = b.mean(losses, name="cost")
    return b, cost


def build_and_optimize():
    """The same net again, from other lines: a resume does not mind."""
    b, cost = build()
    b.backward_from(cost)
    b.add_optimization(0.01, "adam", clip_norm=1.0)
    return b


def test_a_builder_with_adam_resumes_bit_for_bit(tmp_path):
    b, cost = build()
    b.backward_from(cost)
    b.add_optimization(0.01, "adam", clip_norm=1.0)
    straight, again = Scope(), Scope()
    options = {"loss": cost, "metrics": (), "evaluate": HELD_OUT}
    whole = run(straight, b, epochs=5, **options)
    assert whole["eval_cost"][-1] < whole["eval_cost"][0]
    part = InterruptAfter(2, 1)
    run(Scope(), b, batches=part, epochs=5, checkpoint=tmp_path / "run", **options)
    options["loss"] = "cost"
    other = build_and_optimize()
    resumed = run(again, other, epochs=5, checkpoint=tmp_path / "run", resume=True, **options)
    assert numbers(resumed) == numbers(whole)
    assert same(values(again, other), values(straight, b))


def test_a_builder_saves_loads_and_predicts_the_same(tmp_path):
    b, scope = build_and_optimize(), Scope()
    run(scope, b, loss="cost", metrics=())
    feed = {"x": data(9)["x"]}
    before = b.run(scope, feed=feed, fetch=["scores"], need_backward=False)["scores"]
    opscope.save(b, scope, tmp_path / "n")
    net, loaded = opscope.load(tmp_path / "n")
    again = opscope.NetBuilder.from_desc(net.desc)
    after = again.run(loaded, feed=feed, fetch=["scores"], need_backward=False)["scores"]
    assert np.array_equal(before, after)
    more = train(net, BATCHES, epochs=1, scope=loaded, loss="cost", progress=False)
    assert more.last["cost"] < 1.5
