"""Stopping and going on: checkpoints, resume bit for bit, early stop, Ctrl-C."""

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
from opscope.bridges.model.opening import open_model
from opscope.framework.base.errors import FormatError, OpscopeError, SaveError, VariableError
from opscope.framework.base.scope import Scope
from opscope.framework.files.checkpoint import net_difference, read_checkpoint
from opscope.framework.runtime.initialize import initialize
from opscope.python_api.train.training import EarlyStop, train
from small_nets import classifier, data
from training_runs import BATCHES, HELD_OUT, InterruptAfter, numbers, run, same, values

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
    loaded = open_model(tmp_path / "run.checkpoint").load()
    assert same(values(loaded.scope), values(scope))
    assert net_difference(loaded.net.op_list, classifier().op_list) == ""


def test_a_checkpoint_of_another_net_is_refused(tmp_path):
    run(Scope(), checkpoint=tmp_path / "run")
    scope = Scope()
    options = {"checkpoint": tmp_path / "run", "resume": True}
    with pytest.raises(FormatError, match=r"another net: op \d+ \('scale'\).*resume='weights'"):
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
    for content in (*cut, bytes(damaged), b"", np.random.default_rng(9).bytes(999)):
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
from opscope.python_api.train.minibatches import Minibatches
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
    net, loaded = opscope.load(tmp_path / "n", train=True)
    again = opscope.NetBuilder.from_desc(net.desc)
    after = again.run(loaded, feed=feed, fetch=["scores"], need_backward=False)["scores"]
    assert np.array_equal(before, after)
    more = train(net, BATCHES, epochs=1, scope=loaded, loss="cost", progress=False)
    assert more.last["cost"] < 1.5


def test_two_trainings_cannot_share_a_checkpoint(tmp_path):
    """The one whose checkpoint was replaced ends with an error; the other one is untouched."""
    path = tmp_path / "run"

    class Another(opscope.Callback):
        def on_step(self, at):
            if (at.epoch, at.step) == (2, 2):
                run(Scope(), epochs=1, checkpoint=path)

    with pytest.raises(SaveError, match="run.checkpoint: another program has written it since"):
        run(Scope(), epochs=4, checkpoint=path, callbacks=Another())
    assert read_checkpoint(path).state["epoch"] == 1
    assert [one.name for one in tmp_path.iterdir()] == ["run.checkpoint"]
    run(Scope(), epochs=2, checkpoint=path)  # one that is left from before is replaced

    def removed(at):
        (tmp_path / "run.checkpoint").unlink()

    run(Scope(), epochs=3, checkpoint=path, callbacks=removed)
    assert read_checkpoint(path).state["epoch"] == 3
