"""What a training reports: variables, functions of arrays, and metrics with states."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import opscope
from opscope.framework.base.errors import AttributeTypeError, OpscopeError, VariableError
from opscope.framework.base.scope import Scope
from opscope.framework.files import checkpoint
from opscope.framework.files.checkpoint import read_checkpoint
from opscope.framework.training.metric import Metric
from opscope.python_api.train.metrics import Mean, Measure, as_metrics
from small_nets import classifier
from training_runs import BATCHES, HELD_OUT, InterruptAfter, numbers, run


def label_mean(label):
    return label.mean()


class Counts(Metric):
    """How often each label comes, and the share of label 0."""

    def __init__(self, classes=3):
        super().__init__("label", ["label"], [f"class{n}" for n in range(classes)])
        self.classes = classes
        self.reset()

    def reset(self):
        self.counts, self.calls = np.zeros(self.classes, np.int64), []

    def update(self, values, rows):
        assert list(values) == ["label"] and rows == len(values["label"])
        self.counts += np.bincount(values["label"], minlength=self.classes)
        self.calls.append(rows)

    def result(self):
        return {f"class{n}": count for n, count in enumerate(self.counts)}

    def state(self):
        return {"counts": self.counts, "calls": self.calls}

    def restore(self, state):
        self.counts, self.calls = state["counts"], state["calls"]


def labels(batches):
    return np.concatenate([batch["label"] for batch in batches])


def test_a_function_reads_the_variables_that_its_parameters_name():
    history = run(Scope(), metrics=[label_mean, "worst"], epochs=2)
    assert history.columns[1:4] == ["loss", "label_mean", "worst"]
    assert history["label_mean"] == pytest.approx([labels(BATCHES).mean()] * 2)
    assert history["eval_label_mean"] == pytest.approx([labels(HELD_OUT).mean()] * 2)


def test_names_of_columns_and_variables_by_name(tmp_path):
    metrics = {"peak": "worst", "low": Measure(lambda a, b: a.min() + b.min(), ["label", "label"])}
    with pytest.raises(AttributeTypeError, match="'low' is a Metric that names itself '<lambda>'"):
        as_metrics(metrics)
    metrics["low"] = Measure(lambda a, b: a.min() + b.min(), ["label", "label"], "low")
    history = run(Scope(), metrics=metrics, epochs=1, log_csv=tmp_path / "log.csv")
    plain = run(Scope(), metrics=["worst"], epochs=1)
    assert history["peak"] == plain["worst"] and history["eval_low"] == [0.0]
    header = (tmp_path / "log.csv").read_text().splitlines()[0]
    assert header == "epoch,loss,peak,low,eval_loss,eval_peak,eval_low,seconds"


def test_a_single_metric_needs_no_list():
    one = run(Scope(), metrics="worst", epochs=1)
    assert numbers(one) == numbers(run(Scope(), metrics=["worst"], epochs=1))
    assert "label_mean" in run(Scope(), metrics=label_mean, epochs=1).columns


def test_handles_are_variables():
    b = opscope.NetBuilder()
    x = b.input("x", [-1, 2])
    cost = b.mean(b.fc(x, size=1), name="loss")
    far = b.reduce_max(x, name="far")
    b.backward_from(cost)
    b.add_optimization(0.0)
    data = [{"x": np.full((2, 2), value, np.float32)} for value in (1, 3)]
    metrics = [far, Measure(lambda x: x[0, 0], [x], "first")]
    history = opscope.train(b, data, epochs=1, scope=Scope(), metrics=metrics, progress=False)
    assert history["far"] == [2.0] and history["first"] == [2.0]


def test_the_whole_epoch_at_once():
    metric = Measure(lambda label: np.median(label) + len(label), ["label"], "all", whole=True)
    history = run(Scope(), metrics=[metric], epochs=2)
    every, held = labels(BATCHES), labels(HELD_OUT)
    assert history["all"] == [np.median(every) + len(every)] * 2
    assert history["eval_all"] == [np.median(held) + len(held)] * 2


def test_a_metric_with_a_state_counts_epoch_and_held_out_data_apart():
    counts = Counts()
    history = run(Scope(), metrics=[counts], epochs=2)
    assert [c for c in history.columns if "label" in c] == [
        *(f"label.class{n}" for n in range(3)),
        *(f"eval_label.class{n}" for n in range(3)),
    ]
    for n, count in enumerate(np.bincount(labels(BATCHES), minlength=3)):
        assert history[f"label.class{n}"] == [count, count]
    for n, count in enumerate(np.bincount(labels(HELD_OUT), minlength=3)):
        assert history[f"eval_label.class{n}"] == [count, count]
    assert history.metrics["label"] is counts and counts.calls == [16, 16, 16, 12]
    held_out = history.metrics["eval_label"]
    assert isinstance(held_out, Counts) and held_out.calls == [20, 10]


@pytest.mark.parametrize("batch", [0, 2, 3])
def test_states_go_on_in_the_middle_of_an_epoch(tmp_path, batch):
    def metrics():
        whole = Measure(lambda label: label.sum(), ["label"], "sum", whole=True)
        return [Counts(), whole, label_mean, "worst"]

    options = {"metrics": metrics(), "checkpoint": tmp_path / "run", "epochs": 3}
    cut = run(Scope(), batches=InterruptAfter(1, batch), **options)
    assert cut.interrupted and len(cut) == 1
    options["metrics"] = metrics()
    resumed = run(Scope(), resume=True, **options)
    assert numbers(resumed) == numbers(run(Scope(), metrics=metrics(), epochs=3))
    assert resumed.metrics["label"].calls == [16, 16, 16, 12]


def test_checkpoints_between_epochs_hold_no_arrays_of_the_last(tmp_path):
    metric = Measure(lambda label: 0, ["label"], "nought", whole=True)
    run(Scope(), metrics=[metric], epochs=1, checkpoint=tmp_path / "run")
    assert read_checkpoint(tmp_path / "run").state["metrics"]["nought"]["arrays"] == {}


def test_a_checkpoint_of_means_as_they_were_written_before(tmp_path, monkeypatch):
    options = {"checkpoint": tmp_path / "run", "epochs": 2}
    run(Scope(), batches=InterruptAfter(1, 1), **options)

    def of_before(state):
        means = state.pop("metrics")
        state["averages"] = {
            "sums": {name: mean["sum"] for name, mean in means.items()},
            "rows": means["loss"]["rows"],
        }
        return json.dumps(state)

    monkeypatch.setattr(checkpoint, "json", SimpleNamespace(dumps=of_before, loads=json.loads))
    run(Scope(), batches=InterruptAfter(1, 1), **options)
    monkeypatch.undo()
    assert "metrics" not in read_checkpoint(tmp_path / "run").state
    assert numbers(run(Scope(), resume=True, **options)) == numbers(run(Scope(), epochs=2))


def test_another_metric_is_no_resume(tmp_path):
    run(Scope(), metrics=[Counts()], checkpoint=tmp_path / "run", epochs=1)
    with pytest.raises(OpscopeError, match="were loss or metrics changed"):
        run(Scope(), metrics=["worst"], checkpoint=tmp_path / "run", resume=True)


def test_early_stop_watches_columns_of_metrics():
    history = run(Scope(), metrics=[Counts()], early_stop=(1, "eval_label.class0", "max"))
    assert history.stopped_early and len(history) == 2
    with pytest.raises(VariableError, match="no column 'eval_label.class9'.*did you mean"):
        run(Scope(), metrics=[Counts()], early_stop=(1, "eval_label.class9", "max"))


def no_parameters():
    return 0.0


def two_numbers(label):
    return label[:2]


def a_word(label):
    return "good"


def fails(label):
    raise RuntimeError("out of luck")


class OtherKeys(Counts):
    def result(self):
        return {"class0": 1, "class1": 2, "klass": 3}


@pytest.mark.parametrize(
    ("metrics", "error", "message"),
    [
        ([lambda lable: 0.0], VariableError, "'lable' .did you mean label.*metric '<lambda>'"),
        (no_parameters, AttributeTypeError, r"'no_parameters'.*write Measure\(function"),
        (np.max, VariableError, "no variable 'a'"),
        (two_numbers, VariableError, r"metric 'two_numbers'.* shape \(2,\).*a single number"),
        (a_word, VariableError, "metric 'a_word': its function returned 'good'"),
        (fails, OpscopeError, "metric 'fails': RuntimeError in its function: out of luck"),
        ([OtherKeys()], OpscopeError, "metric 'label' gives 'class0', 'class1', 'klass', and its"),
        ([Counts], AttributeTypeError, "a class: make an object of it"),
        ([3], AttributeTypeError, "want variables, functions and Metrics, not 3"),
        (3, AttributeTypeError, "want a sequence or a mapping, not 3"),
        ([Counts(), Counts()], AttributeTypeError, "two of them are called 'label'"),
        ({"seconds": "worst"}, AttributeTypeError, "has a column 'seconds' already"),
        ({"loss": label_mean}, AttributeTypeError, "has a column 'loss' already"),
        ({"eval_loss": "worst"}, AttributeTypeError, "has a column 'eval_loss' already"),
        ([Mean("losses")], VariableError, r"'losses' holds an array of shape \(16,\)"),
    ],
)
def test_bad_metrics(metrics, error, message):
    with pytest.raises(error, match=message):
        run(Scope(), metrics=metrics, net=classifier())


def test_a_metric_needs_its_methods():
    class Half(Metric):
        def update(self, values, rows): ...

    with pytest.raises(TypeError, match="abstract"):
        Half("half", [])  # pyright: ignore
    with pytest.raises(AttributeTypeError, match="want a function, not 'accuracy'"):
        Measure("accuracy")  # pyright: ignore
