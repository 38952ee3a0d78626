"""`nnet3.compile` against what Kaldi tells of its random networks: every stage has its numbers."""

import pytest

from kaldi_data import FOLDER, need
from opscope import nnet3
from opscope.nnet3.index.indexes import NO_TIME

CASES = sorted(path.parent.name for path in FOLDER.glob("random_nets/*/steps.txt")) or ["case_0000"]


@pytest.mark.parametrize("case", CASES)
def test_every_stage(case):
    folder = need("random_nets", case)
    compiled = nnet3.compile(folder / "model.raw", folder / "request.txt", shortcut=False)
    told = [line.split() for line in (folder / "steps.txt").read_text().splitlines()]
    counts = {words[0]: int(words[1]) for words in told if len(words) == 2 and words[1].isdigit()}
    assert compiled.cindexes.before_pruning == counts["cindexes-before-prune"]
    assert len(compiled.cindexes) == counts["cindexes"] == sum(1 for _ in compiled.cindexes)
    assert len(compiled.phases) == counts["phases"]
    for words in told:
        if words[0] == "epoch":
            assert compiled.epochs.of(words[1]) == int(words[2])
    steps = [words for words in told if words[0] == "step"]
    assert len(compiled.steps) == len(steps)
    for number, words in enumerate(steps):
        rows = [tuple(map(int, word.split(","))) for word in words[3:]]
        assert [tuple(row) for row in compiled.steps[number].indexes.tolist()] == rows
        assert not rows or compiled.steps.name(number) == words[2]
    rows_of_phases = sum(len(rows) for phase in compiled.phases for rows in phase.values())
    assert rows_of_phases == counts["cindexes"]
    assert compiled.plain.to_kaldi() == (folder / "computation.txt").read_text()
    assert compiled.optimized.to_kaldi() == (folder / "computation.opt.txt").read_text()


@pytest.mark.parametrize("case", CASES[::6])
def test_phases_hold_what_is_there_already(case):
    folder = need("random_nets", case)
    compiled = nnet3.compile(folder / "model.raw", folder / "request.txt")
    there = set()
    for phase in compiled.phases:
        rows = [(node, *row) for node, found in phase.items() for row in found.tolist()]
        for node, n, t, x in rows:
            read = {tuple(source) for source in compiled.cindexes.dependencies(node, t, n, x)}
            assert read <= there
        there.update(rows)
    assert not any(t == NO_TIME for _, _, t, _ in there)


@pytest.mark.parametrize("case", CASES[::10])
def test_every_stage_prints(case):
    folder = need("random_nets", case)
    compiled = nnet3.compile(folder / "model.raw", folder / "request.txt")
    parts = "request options epochs computable cindexes phases steps plain optimized sizes memory"
    for name in parts.split():
        part = getattr(compiled, name)
        assert str(part).strip() and part.to_kaldi().endswith("\n")
    lines = str(compiled).splitlines()
    assert [line.split()[0] for line in lines[:6]] == [
        *("request", "network", "cindexes", "order", "plain", "optimized")
    ]
