"""Streaming metrics: equal to scikit-learn's over all samples, however these are cut to batches."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope, metrics
from opscope.framework.base.errors import AttributeTypeError, RunError
from opscope.metrics import F1

CUTS = [0, 1, 1, 30, 37, 100]  # unequal minibatches, an empty one among them


def batches(**arrays: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    for begin, end in zip(CUTS, CUTS[1:], strict=False):
        yield {name: array[begin:end] for name, array in arrays.items()}


def measured(metric: metrics.Metric, **arrays: np.ndarray) -> Any:
    """The result over all batches, with a checkpoint and a fresh start on the way."""
    for batch in batches(**arrays):
        metric.update(batch, len(batch["label"]))
    wanted = metric.result()
    again = metric.fresh()
    for number, batch in enumerate(batches(**arrays)):
        if number == 2:
            state, again = copy.deepcopy(again.state()), metric.fresh()
            again.restore(state)
        again.update(batch)
    np.testing.assert_equal(again.result(), wanted)
    again.reset()
    again.update({name: array for name, array in arrays.items()})
    np.testing.assert_equal(again.result(), wanted)
    return wanted


def samples(classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(classes)
    label = rng.integers(0, classes, 100)
    scores = rng.normal(size=(100, classes)) + 1.5 * np.eye(classes)[label]
    return scores.astype(np.float32), label


RATIOS = {"Precision": "precision_score", "Recall": "recall_score", "F1": "f1_score"}


@pytest.mark.parametrize("name", RATIOS)
@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "none"])
def test_ratios_of_many_classes_are_those_of_sklearn(name: str, average: str) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    scores, label = samples(5)
    label[label == 3] = 4  # a class that is predicted only
    scores[:, 2] = -9  # and one that is never predicted
    metric = getattr(metrics, name)("scores", "label", average, classes=5)
    found = measured(metric, scores=scores, label=label)
    more = {"average": None if average == "none" else average, "zero_division": 0}
    if average == "none":
        more["labels"] = range(5)
        assert metric.columns == [f"{name.lower()}.{c}" for c in range(5)]
        found = [found[str(c)] for c in range(5)]
    wanted = getattr(sklearn, RATIOS[name])(label, scores.argmax(1), **more)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", RATIOS)
@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("form", ["probabilities", "column", "two scores", "classes", "flags"])
def test_binary_ratios_are_those_of_sklearn(name: str, positive: int, form: str) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    two, label = samples(2)
    one = 1 / (1 + np.exp(two[:, 0] - two[:, 1]))
    forms = {
        "probabilities": one,
        "column": one[:, None],
        "two scores": two,
        "classes": two.argmax(1),
        "flags": one > 0.5,
    }
    shown = label[:, None].astype(np.float32) if form == "column" else label
    metric = getattr(metrics, name)("scores", "label", positive=positive)
    found = measured(metric, scores=forms[form], label=shown)
    wanted = getattr(sklearn, RATIOS[name])(label, one > 0.5, pos_label=positive)
    assert found == pytest.approx(wanted, rel=1e-12)
    high = getattr(metrics, name)("scores", "label", threshold=0.8)
    if form == "probabilities":
        wanted = getattr(sklearn, RATIOS[name])(label, one > 0.8)
        assert measured(high, scores=one, label=label) == pytest.approx(wanted, rel=1e-12)


def test_counts_are_no_means_of_batches() -> None:
    """Precision of 1 right of 1, and 0 right of 3: 1/4, not the mean 1/2."""
    metric = metrics.Precision("guess", "label")
    metric.update({"guess": np.array([1]), "label": np.array([1])}, 1)
    metric.update({"guess": np.array([1, 1, 1]), "label": np.array([0, 0, 0])}, 3)
    assert metric.result() == 0.25


def test_a_class_without_samples_gives_zero() -> None:
    for name in RATIOS:
        metric = getattr(metrics, name)("guess", "label")
        metric.update({"guess": np.zeros(3, int), "label": np.zeros(3, int)})
        assert metric.result() == 0


def test_the_confusion_matrix_is_that_of_sklearn() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    scores, label = samples(3)
    metric = metrics.ConfusionMatrix("scores", "label", ["cat", "dog", "cow"])
    found = measured(metric, scores=scores, label=label)
    wanted = sklearn.confusion_matrix(label, scores.argmax(1))
    np.testing.assert_array_equal(metric.matrix, wanted)
    assert found["cat.dog"] == wanted[0, 1] and found["cow.cow"] == wanted[2, 2]
    assert metric.columns[1] == "confusion.cat.dog" and len(metric.columns) == 9


@pytest.mark.parametrize("k", [1, 2, 4])
def test_accuracy_is_that_of_sklearn_and_of_the_operator(k: int) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    scores, label = samples(5)
    metric = metrics.Accuracy("scores", "label", k)
    found = measured(metric, scores=scores, label=label)
    wanted = sklearn.top_k_accuracy_score(label, scores, k=k, labels=range(5))
    assert found == pytest.approx(wanted, rel=1e-12)
    assert metric.name == ("accuracy" if k == 1 else f"top_{k}_accuracy")
    tied = np.random.default_rng(0).integers(0, 3, (100, 5)).astype(np.float32)
    tied[5] = np.nan
    label[7] = -100
    b = NetBuilder()
    b.accuracy(b.input("scores", [-1, 5]), b.input("label", [-1], "int64"), k=k, name="out")
    given = {"scores": tied, "label": label}
    out = b.run(Scope(), feed=given, fetch=["out"], need_backward=False)["out"]
    if k == 1:
        tied[5] = -np.eye(5)[label[5]]  # the operator calls NaN wrong
    assert measured(metrics.Accuracy("scores", "label", k), **given) == pytest.approx(out, rel=1e-6)


@pytest.mark.parametrize("bins", [0, 1 << 16])
def test_auc_is_that_of_sklearn(bins: int) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    two, label = samples(2)
    one = np.round(1 / (1 + np.exp(two[:, 0] - two[:, 1])), 1 if not bins else 3)
    found = measured(metrics.AUC("scores", "label", bins=bins), scores=one, label=label)
    assert found == pytest.approx(sklearn.roc_auc_score(label, one), rel=1e-12)
    coarse = measured(metrics.AUC("scores", "label", bins=4), scores=one, label=label)
    quarters = np.minimum(np.floor(one.astype(float) * 4), 3)
    assert coarse == pytest.approx(sklearn.roc_auc_score(label, quarters), rel=1e-12)
    logits = metrics.AUC("scores", "label", bins=1 << 16, low=-8, high=8)
    margin = two[:, 1] - two[:, 0]
    found = measured(logits, scores=margin[:, None], label=label[:, None])
    assert found == pytest.approx(sklearn.roc_auc_score(label, margin), abs=1e-3)


def test_without_samples_there_is_no_number() -> None:
    for metric in (metrics.AUC("x", "label"), metrics.AUC("x", "label", bins=3)):
        assert np.isnan(metric.result())
        metric.update({"x": np.ones(2), "label": np.ones(2, int)})
        assert np.isnan(metric.result())
    assert np.isnan(metrics.Accuracy("x", "label").result())


def test_ignored_samples_do_not_count() -> None:
    label = np.array([1, -100, 0, 7, 1])
    guess = np.array([1, 1, 1, 1, 0])
    values = {"x": guess, "label": label}
    for metric, wanted in (
        (metrics.Precision("x", "label", ignore_index=7), None),
        (metrics.Precision("x", "label", "micro", classes=8), 0.25),
        (metrics.Accuracy("x", "label"), 0.25),
    ):
        if wanted is None:
            with pytest.raises(RunError, match="holds the class -100, want 0"):
                metric.update(values)
            continue
        metric.update(values)
        assert metric.result() == wanted


@pytest.mark.parametrize(
    ("make", "values", "error", "words"),
    [
        (lambda: metrics.F1("x", "label", "avg"), {}, AttributeTypeError, "one of binary, macro"),
        (lambda: metrics.F1("x", "label", "none"), {}, AttributeTypeError, "classes=3, not None"),
        (lambda: metrics.ConfusionMatrix("x", "label", 0), {}, AttributeTypeError, "not 0"),
        (lambda: metrics.Accuracy("x", "label", 0), {}, AttributeTypeError, "at least 1, not 0"),
        (lambda: metrics.AUC("x", "label", low=2), {}, AttributeTypeError, "low < high"),
        (
            lambda: metrics.F1("x", "label"),
            {"x": np.array([0, 2]), "label": np.array([0, 1])},
            RunError,
            "choose one of macro, micro, weighted, none",
        ),
        (
            lambda: metrics.F1("x", "label", "macro"),
            {"x": np.zeros((2, 3)), "label": np.array([0, 3])},
            RunError,
            "'label' holds the class 3, want 0 .. 2",
        ),
        (
            lambda: metrics.ConfusionMatrix("x", "label", 2),
            {"x": np.array([0, 2]), "label": np.array([0, 1])},
            RunError,
            "'x' holds the class 2, want 0 .. 1",
        ),
        (
            lambda: metrics.ConfusionMatrix("x", "label", 2),
            {"x": np.eye(3, dtype="f"), "label": np.array([0, 1, 0])},
            RunError,
            "'x' holds the class 2, want 0 .. 1",
        ),
        (
            lambda: metrics.Recall("x", "label"),
            {"x": np.zeros((3, 2)), "label": np.zeros(2)},
            RunError,
            r"'x' \[3, 2\] float64 holds no prediction for each label of 'label' \[2\]",
        ),
        (
            lambda: metrics.Recall("x", "label"),
            {"x": np.zeros(2), "label": np.array([0.5, 1])},
            RunError,
            "'label' holds no classes",
        ),
        (
            lambda: metrics.AUC("x", "label"),
            {"x": np.zeros((2, 2)), "label": np.zeros(2, int)},
            RunError,
            "2 scores a sample; AUC wants one",
        ),
        (
            lambda: metrics.AUC("x", "label"),
            {"x": np.array([np.nan]), "label": np.zeros(1, int)},
            RunError,
            "holds NaN",
        ),
        (
            lambda: metrics.Accuracy("x", "label", 2),
            {"x": np.zeros(1), "label": np.zeros(1, int)},
            RunError,
            r"k=2 wants scores \[..., C\]",
        ),
    ],
)
def test_refuses(make: Any, values: dict[str, Any], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        metric = make()
        metric.update(values)


def classifier() -> tuple[NetBuilder, dict[str, np.ndarray]]:
    b = NetBuilder("classes")
    x, label = b.input("x", [-1, 4]), b.input("label", [-1], "int64")
    scores = b.fc(x, size=3, name="scores")
    b.mean(b.softmax_cross_entropy(scores, label), name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1, "adam")
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 50)
    x = rng.normal(size=(50, 4)) + np.eye(3, 4)[label]
    return b, {"x": x.astype(np.float32), "label": label}


def test_in_a_training(tmp_path: pathlib.Path) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    b, data = classifier()
    scope = Scope()
    parts = [{k: v[i:j] for k, v in data.items()} for i, j in ((0, 7), (7, 20), (20, 50))]
    measured = [
        metrics.F1("scores", "label", "macro"),
        metrics.Recall("scores", "label", "none", classes=["a", "b", "c"]),
        metrics.ConfusionMatrix("scores", "label", 3),
        metrics.Accuracy("scores", "label", 2),
    ]
    history = opscope.train(
        b,
        parts,
        epochs=3,
        scope=scope,
        evaluate=parts,
        metrics=measured,
        checkpoint=tmp_path / "run",
        progress=False,
    )
    scores = b.run(scope, feed=data, fetch=["scores"], need_backward=False)["scores"]
    guess, label = scores.argmax(1), data["label"]
    last = history.last
    assert last["eval_f1"] == pytest.approx(sklearn.f1_score(label, guess, average="macro"))
    assert last["eval_recall.b"] == pytest.approx(
        sklearn.recall_score(label, guess, average=None)[1]
    )
    assert last["eval_confusion.1.2"] == sklearn.confusion_matrix(label, guess)[1, 2]
    wanted = sklearn.top_k_accuracy_score(label, scores, k=2)
    assert last["eval_top_2_accuracy"] == pytest.approx(wanted)
    assert 0 < history["f1"][0] <= 1


def test_a_resumed_epoch_counts_all_its_minibatches(tmp_path: pathlib.Path) -> None:
    _, data = classifier()
    parts = [{k: v[i:j] for k, v in data.items()} for i, j in ((0, 7), (7, 20), (20, 50))]

    def run(stop: bool, **more: Any) -> opscope.History:
        b, _ = classifier()
        score = b.fc("x", size=1, activation="sigmoid", name="score")
        b.cast(
            b.equal(b.var("label"), b.fill_constant(shape=[], dtype="int64", value=1.0)),
            dtype="int64",
            name="one",
        )
        seen = []

        def batches(epoch: int) -> Iterator[dict[str, np.ndarray]]:
            for number, part in enumerate(parts):
                if stop and (epoch, number) == (1, 2):
                    raise KeyboardInterrupt
                seen.append((epoch, number))
                yield part

        measured = [
            F1("scores", "label", "macro"),
            metrics.AUC(score, "one"),
            metrics.ConfusionMatrix("scores", "label", 3),
        ]
        return opscope.train(
            b, batches, epochs=2, scope=Scope(), metrics=measured, seed=0, progress=False, **more
        )

    whole = run(False)
    with pytest.raises(KeyboardInterrupt):
        run(True, checkpoint=tmp_path / "run", checkpoint_batches=1)
    resumed = run(False, checkpoint=tmp_path / "run", resume=True)
    for column in whole.columns:
        if column != "seconds":
            assert resumed[column] == whole[column], column


def test_by_hand() -> None:
    """The lines of the module's text."""
    b, data = classifier()
    scope, f1 = Scope(), metrics.F1("scores", "label", "macro")
    for begin, end in ((0, 7), (7, 50)):
        batch = {name: array[begin:end] for name, array in data.items()}
        f1.update(b.run(scope, feed=batch, fetch=f1.fetch, need_backward=False))
    whole = metrics.F1(b.var("scores"), b.var("label"), "macro")
    whole.update(b.run(scope, feed=data, fetch=whole.fetch, need_backward=False))
    assert f1.result() == whole.result() > 0


def test_sequences_are_counted_by_rows() -> None:
    b = NetBuilder()
    x, label = b.input("x", [-1, 4], levels=1), b.input("label", [-1], "int64", levels=1)
    scores = b.fc(x, size=3)
    rng = np.random.default_rng(0)
    feed = {
        "x": opscope.Sequences.from_list([rng.normal(size=(n, 4)) for n in (3, 1, 4)]),
        "label": opscope.Sequences.from_list([rng.integers(0, 3, n) for n in (3, 1, 4)]),
    }
    accuracy = metrics.Accuracy(scores, label)
    found = b.run(Scope(), feed=feed, fetch=accuracy.fetch, need_backward=False)
    accuracy.update(found)
    guess, truth = (np.asarray(found[name].data) for name in accuracy.fetch)
    assert accuracy.result() == np.mean(guess.argmax(1) == truth)


def test_the_face_knows_the_module() -> None:
    assert opscope.metrics is metrics and "metrics" in dir(opscope)
    assert opscope.metrics.F1 is F1
    assert set(metrics.__all__) >= {"Metric", "Precision", "Recall", "F1", "AUC", "Accuracy"}
