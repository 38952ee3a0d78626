"""Callbacks of a training: what they see, how they stop it, and what is said when they fail."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import Callback
from opscope.framework.base.errors import AttributeTypeError, OpscopeError
from opscope.framework.base.scope import Scope
from training_runs import numbers, run, same, values


class Watch(Callback):
    def __init__(self):
        self.steps, self.rows = [], []

    def on_step(self, at):
        assert at.row == {} and at.epochs == 2
        self.steps.append((at.epoch, at.step, float(at.values["loss"]), len(at.history)))

    def on_epoch(self, at):
        assert at.history.last == at.row
        self.rows.append(dict(at.row))


def test_steps_and_epochs_are_seen():
    watch, seen = Watch(), []
    history = run(Scope(), epochs=2, callbacks=[watch, lambda at: seen.append(at.row["eval_loss"])])
    assert [step[:2] for step in watch.steps] == [(e, s) for e in (1, 2) for s in (1, 2, 3, 4)]
    assert [step[3] for step in watch.steps] == [0] * 4 + [1] * 4
    assert watch.rows == history.rows and seen == history["eval_loss"]
    rows = [16, 16, 16, 12]
    first = [loss * n for (_, _, loss, _), n in zip(watch.steps[:4], rows, strict=True)]
    assert history["loss"][0] == pytest.approx(sum(first) / 60)


def test_watching_does_not_change_the_training():
    one, two = Scope(), Scope()
    run(one, epochs=2)
    run(two, epochs=2, callbacks=Watch())
    assert same(values(one), values(two))


def test_an_epoch_callback_stops_with_everything_written(tmp_path):
    def stop(at):
        if at.epoch == 2:
            at.stop()

    options = {"checkpoint": tmp_path / "run", "log_csv": tmp_path / "log.csv"}
    history = run(Scope(), callbacks=stop, checkpoint_every=3, **options)
    assert len(history) == 2 and not history.interrupted and not history.stopped_early
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3
    resumed = run(Scope(), resume=True, **options)
    assert numbers(resumed) == numbers(run(Scope()))


def test_a_step_callback_stops_within_the_epoch(tmp_path):
    class Stop(Callback):
        def on_step(self, at):
            if (at.epoch, at.step) == (2, 3):
                at.stop()

    history = run(Scope(), callbacks=[Stop()], checkpoint=tmp_path / "run")
    assert len(history) == 1 and history.interrupted
    resumed = run(Scope(), checkpoint=tmp_path / "run", resume=True)
    assert numbers(resumed) == numbers(run(Scope()))


def test_what_a_callback_sets_is_trained_and_saved(tmp_path):
    def nought(at):
        at.scope.get("w0").set(np.zeros_like(at.scope.numpy("w0")))

    scope = Scope()
    run(scope, callbacks=nought, checkpoint=tmp_path / "run", epochs=1)
    assert not scope.numpy("w0").any()


def test_any_object_with_the_methods():
    class Duck:
        seen = 0

        def on_step(self, at):
            self.seen += 1

    duck = Duck()
    run(Scope(), epochs=1, callbacks=duck)
    assert duck.seen == 4


def fails(at):
    raise ValueError("no luck")


class FailsAtStep(Callback):
    def on_step(self, at):
        at.value  # noqa: B018  misspelt


class Misspelt(Callback):
    def on_epoch_end(self, at): ...


@pytest.mark.parametrize(
    ("callbacks", "error", "message"),
    [
        (fails, OpscopeError, "callback fails, epoch 1: ValueError: no luck"),
        (FailsAtStep(), OpscopeError, "callback FailsAtStep.on_step, epoch 1, minibatch 1: Attr"),
        (Misspelt(), AttributeTypeError, r"Misspelt has a method on_epoch_end.*did you mean on_ep"),
        (Watch, AttributeTypeError, r"Watch is a class; give an object: Watch\(\)"),
        ([3], AttributeTypeError, "want functions and objects with on_step or on_epoch, not 3"),
        (3, AttributeTypeError, "want functions and Callbacks, not 3"),
    ],
)
def test_bad_callbacks(callbacks, error, message):
    with pytest.raises(error, match=message):
        run(Scope(), callbacks=callbacks)
