"""The stages of fine-tuning: a model that is there already learns from new recordings."""

from __future__ import annotations

import csv
import os
from functools import partial
from typing import Any

from ...framework.base.untrusted.opener import read_text
from . import aligned, chain, networks, preparing, report, tuning
from .checking import check
from .options import COURSE, SPLIT, RecognizerOptions
from .stages import Stage

TUNED = "tuned"


def _data(training: Any, folder: str) -> None:
    options: RecognizerOptions = training.options
    features = tuning.chain_model(options.base).features.options
    rate = int(features.sample_frequency)
    checked = check(training.corpus, None, options, features.allow_upsample, rate)
    checked.write(os.path.join(folder, "checked.json"))
    for line in checked.lines():
        training.log(f"  {line}")


def _base(training: Any, folder: str) -> None:
    words = {word for each in training.checked.utterances for word in each.words}
    tuning.write_base(training.options, words, folder, training.log)


def _path(training: Any) -> str:
    """The folder of the model that is tuned."""
    return tuning.base_of(training.options, training.path("base"))


def _decode_before(training: Any, folder: str) -> None:
    report.recognize(training.checked.held_out, _path(training), folder, training.options.jobs)


def _features(training: Any, folder: str) -> None:
    preparing.write_features(
        training.checked.training,
        partial(tuning.ModelFrontEnd, _path(training)),
        training.options,
        folder,
        training.log,
    )


def _align(training: Any, folder: str) -> None:
    text_of = chain.text_of_copies(training.checked.training, training.options.copies)
    features = training.path("features")
    tuning.write_alignments(_path(training), text_of, features, folder, training.log)


def _tree(training: Any, folder: str) -> None:
    tuning.write_outputs(_path(training), training.path("align"), folder, training.log)


def _network(training: Any, folder: str) -> None:
    tuning.write_network(_path(training), training.options.body_rate, folder)


def _examples(training: Any, folder: str) -> None:
    aligned.write_chunks(
        training.path("align"),
        training.path("features"),
        training.path("tree"),
        training.path("tree"),
        training.path("network"),
        training.options.chunks,
        training.options.seed,
        folder,
        training.log,
    )


def _train(training: Any, folder: str) -> None:
    epochs = training.options.epochs or networks.TUNING_EPOCHS
    nnet = training.trained(epochs, ("examples", "tree", "network"), folder)
    tuning.write_acoustic_model(nnet, _path(training), folder)


def _model(training: Any, folder: str) -> None:
    tuning.pack(_path(training), training.path("train", "am", "final.mdl"), folder)


def _decode(training: Any, folder: str) -> None:
    report.recognize(
        training.checked.held_out, training.path("model"), folder, training.options.jobs
    )


def _report(training: Any, folder: str) -> None:
    before, _ = report.scored(training.path("decode-before"))
    for line in before.lines()[:1]:
        training.log(f"before: {line}")
    rows = csv.DictReader(read_text(training.path("train", "history.csv")).splitlines())
    counts = report.write_report(
        training.checked,
        [float(row["loss"]) for row in rows],
        training.plan.seconds(),
        training.path("decode"),
        os.path.join(folder, "report.html"),
        before=training.path("decode-before"),
    )
    for line in counts.lines():
        training.log(line)


def _of_base(options: RecognizerOptions) -> tuple[str, ...]:
    return ("base",)


STAGES = (
    Stage("data", (), "checked.json", _data, SPLIT, _of_base),
    Stage(
        "base",
        ("data",),
        "model",
        _base,
        ("order", "method", "skip_bad"),
        lambda options: ("base", "lexicon", "text", "lm"),
    ),
    Stage("decode-before", ("data", "base"), "hyp.txt ref.txt", _decode_before),
    Stage(
        "features",
        ("data", "base"),
        "feats.ark ivectors.ark",
        _features,
        ("copies", "speed_step", "volumes", "seed"),
    ),
    Stage("align", ("data", "base", "features"), "ali.ark", _align, ("copies",)),
    Stage("tree", ("base", "align"), "tree transitions.mdl den.fst", _tree),
    Stage("network", ("base",), "0.raw", _network, ("body_rate",)),
    Stage(
        "examples",
        ("features", "align", "tree", "network"),
        "train.ark",
        _examples,
        ("chunks", "seed"),
    ),
    Stage(
        "train",
        ("examples",),
        "am/final.mdl history.csv",
        _train,
        ("epochs", *COURSE),
        resumes=True,
    ),
    Stage("model", ("base", "train"), "am graph conf", _model),
    Stage("decode", ("data", "model"), "hyp.txt ref.txt", _decode),
    Stage("report", ("decode-before", "decode"), "report.html", _report),
)
"""In the order in which they are done."""
