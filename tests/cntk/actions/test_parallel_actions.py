"""Actions on several ranks: what they share, what the main one does; the redesigned language."""

import re

import numpy as np
import pytest

from cntk_ranks import config_text, model_values, run_on, write_points
from htk_files import corpus
from mistakes.cntk import redesigned
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.experiment import run_experiment
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.programs.check import check_file
from opscope.framework.base.errors import OpscopeError
from opscope.framework.parallel.dry import DryWorld, EchoCommunicator

READER = """reader = [ readerType = CNTKTextFormatReader ; file = "{0}/train.ctf"
    randomize = false ; input = [ features = [ dim = 3 ; format = dense ]
                                  labels = [ dim = 2 ; format = dense ] ] ]"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_points(tmp_path / "train.ctf", 60)
    run_on(0, config_text(tmp_path, nodes=NORM), tmp_path / "m.dnn")
    return tmp_path


NORM = "n = BatchNormalizationLayer {} (h) ; q = Parameter {2, 4} * n\n"
NORM += "second = CrossEntropyWithSoftmax (labels, q, tag = 'evaluation')"


def act(ranks, action, section, folder):
    """Run a command on ranks; the logs."""
    text = f"""command = A ; modelPath = "{folder}/m.dnn" ; deviceId = -1 ; precision = double
    doneFile = "{folder}/done{ranks}" ; A = [ action = {action} ; {section}
    {READER.format(folder)} ]"""
    logs = [[] for _ in range(max(ranks, 1))]
    if not ranks:
        run_commands(parse_config(text, "a.cntk"), Run(say=logs[0].append))
    else:
        DryWorld(ranks).run(
            lambda c: run_commands(
                parse_config(text, "a.cntk"), Run(say=logs[c.rank].append, communicator=c)
            )
        )
    assert (folder / f"done{ranks}").exists()
    return ["".join(log) for log in logs]


@pytest.mark.parametrize("more", ["", "distributedMBReading = false", "minibatchSize = 7"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_evaluation_adds_up_over_ranks(ranks, more, folder):
    def final(log):
        (line,) = re.findall(r"Final Results: Minibatch\[.*?\]: (.*)", log)
        return [float(value) for value in re.findall(r"= ([-.\d]+)%? \* 60", line)]

    (alone,) = act(0, "test", more, folder)
    for log in act(ranks, "test", more, folder):
        assert len(final(log)) == 3
        np.testing.assert_allclose(final(log), final(alone), rtol=1e-7)


def test_more_ranks_than_samples(folder):
    write_points(folder / "train.ctf", 2)
    (alone,) = act(0, "test", "", folder)
    for log in act(4, "test", "", folder):
        assert re.findall(r" = (\S+ \* 2);", log) == re.findall(r" = (\S+ \* 2);", alone)


def test_cross_validation(folder):
    section = "crossValidationInterval = 1:1:1 ; sleepTimeBetweenRuns = 0"
    found = {ranks: act(ranks, "cv", section, folder) for ranks in (0, 2)}
    best = [re.findall(r"(?m)^.*lowest.*$|^.*Best.*$", log) for log in found[2]]
    assert best[0] == best[1] == re.findall(r"(?m)^.*lowest.*$|^.*Best.*$", found[0][0])


STATISTICS = 'minibatchSize = 20 ; itersPerNode = 3 ; evalNodeNames = second ; newModelPath = "{}"'


def statistics(path):
    values = model_values(path)
    return [values[name] for name in sorted(values) if "run" in name.lower()]


@pytest.mark.parametrize(
    ("more", "rows"),
    [
        ("", lambda rank: np.r_[0:60].reshape(3, 2, 10)[:, rank].ravel()),  # halves of minibatches
        (" ; enableDistributedMBReading = true", lambda rank: np.arange(60)[rank::2]),
    ],
    ids=["cut", "shares"],
)
def test_statistics_are_means_over_the_ranks(more, rows, folder):
    """The mean of the means and of the variances that each has over its part of the data."""
    section = STATISTICS + more
    act(2, "bnstat", section.format(folder / "two.dnn"), folder)
    lines = (folder / "train.ctf").read_text().splitlines()
    parts = []
    for rank in range(2):
        here = folder / f"rank{rank}"
        here.mkdir()
        (here / "m.dnn").write_bytes((folder / "m.dnn").read_bytes())
        own = [lines[row] for row in rows(rank)]
        (here / "train.ctf").write_text("".join(f"{line}\n" for line in own))
        own_section = STATISTICS.replace("= 20", "= 10").format(here / "one.dnn")
        act(0, "bnstat", own_section, here)
        parts.append(statistics(here / "one.dnn"))
    found = statistics(folder / "two.dnn")
    before = statistics(folder / "m.dnn")
    assert len(found) >= 2
    joined = 0
    for value, *own, old in zip(found, *parts, before, strict=True):
        if value.size > 1:
            np.testing.assert_allclose(value, sum(own) / 2, rtol=1e-12)
            joined += not np.allclose(value, old) and not np.allclose(own[0], own[1])
    assert joined == 2


def test_a_rank_without_samples_does_not_count(folder):
    write_points(folder / "train.ctf", 6)
    section = STATISTICS.replace("= 20", "= 2")
    act(3, "bnstat", section.format(folder / "three.dnn"), folder)
    act(2, "bnstat", section.format(folder / "two.dnn"), folder)
    for one, other in zip(*map(statistics, ("three.dnn", "two.dnn")), strict=True):
        np.testing.assert_array_equal(one, other)


def test_other_actions_are_the_main_ranks(folder):
    section = f'outputNodeNames = q ; outputPath = "{folder}/out"'
    logs = act(3, "write", section, folder)
    assert "Total Samples Evaluated = 60" in logs[0]
    assert "Total Samples" not in logs[1] + logs[2]
    assert len((folder / "out.q").read_text().splitlines()) == 60


# -- the redesigned language


PARALLEL = "0.8 ; ParallelTrain = [ parallelizationMethod = 'DataParallelSGD' ; {} ]"


def experiment(folder, ranks, model, rates):
    text = redesigned(rates=rates).replace("m.dnn", model)
    text = text.replace('"a.mlf"', '"a.mlf" ; labelMappingFile = "states"')
    (folder / "train.bs").write_text(text)
    if not ranks:
        run_experiment(["configFile=train.bs"], Run(say=lambda line: None))
        return
    DryWorld(ranks).run(
        lambda c: run_experiment(
            ["configFile=train.bs"], Run(say=lambda line: None, communicator=c)
        )
    )


def test_an_experiment_on_ranks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path, [6, 8, 5, 7], dim=2)
    part = "DataParallelSGD = [ gradientBits = 32 ]"
    experiment(tmp_path, 0, "one.dnn", "0.8")
    experiment(tmp_path, 2, "two.dnn", PARALLEL.format(part))
    one, two = model_values(tmp_path / "one.dnn"), model_values(tmp_path / "two.dnn")
    assert max(abs(one[name] - two[name]).max() for name in one) < 1e-4
    before = model_values(tmp_path / "two.dnn.0")
    assert max(abs(before[name] - two[name]).max() for name in two) > 1e-3


def test_an_experiment_that_refuses_ranks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.bs").write_text("parallelTrain = false\n" + redesigned())
    with pytest.raises(OpscopeError, match="train.bs: parallelTrain is false, but 3 processes"):
        run_experiment(["configFile=train.bs"], communicator=EchoCommunicator(3))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("DataParallelSGD = [ gradientBits = 3 ]", "gradientBits values must be in the range"),
        ("distributedMBReding = true", "(did you mean distributedMBReading?)"),
        ("ModelAveragingSGD = [ blockSize = 3 ]", "is DataParallelSGD"),
    ],
)
def test_the_section_is_checked(part, message, tmp_path):
    (tmp_path / "train.bs").write_text(redesigned(rates=PARALLEL.format(part)))
    told = [text for _, text in check_file(tmp_path / "train.bs").problems]
    assert any(message in text for text in told), told
