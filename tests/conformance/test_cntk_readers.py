"""Readers and writers against CNTK's reference cases: order, layout and values of minibatches."""

from __future__ import annotations

import re

import numpy as np

from cntk_data import need
from htk_files import epoch
from opscope.cntk.config import load_config
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.htk_files import HtkFile, read_script
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.readers.htk.writer import HtkWriter


def reader_of(case, command, monkeypatch, name="reader"):
    """The reader of a command of a case, opened from the folder of the case."""
    monkeypatch.chdir(need(case))
    return create_reader(load_config("case.cntk").section(command).section(name))


def logged_counts(case):
    """How many samples each minibatch of training had, epoch by epoch."""
    text = need(case, "log.txt").read_text()
    pattern = r"Epoch\[ *(\d+) of.*?\]-Minibatch.*?= [-\d.]+ \* (\d+)"
    found: dict[int, list[int]] = {}
    for number, count in re.findall(pattern, text):
        found.setdefault(int(number) - 1, []).append(int(count))
    return found


def parameter(case, name):
    """The values of a parameter in the dump of a case."""
    text = need(case, "init.params.txt").read_text()
    body = re.search(rf"^{re.escape(name)}=.*?\n(.*?)\n\s*#", text, re.MULTILINE | re.DOTALL)
    return np.array(body.group(1).split(), np.float64)


def test_htk_frames_in_order(monkeypatch):
    case = "07_htk_frame_rolling"
    reader = reader_of(case, "Train", monkeypatch)
    counts = logged_counts(case)
    with reader:
        batches = [epoch(reader, size, number) for number, size in enumerate((64, 128))]
    for number, found in enumerate(batches):
        assert [batch.samples for batch in found] == counts[number]
    rows = np.concatenate([batch.streams["features"].values for batch in batches[0]])
    np.testing.assert_allclose(rows.mean(0), parameter(case, "MeanOfFeatures"), atol=1e-4)
    labels = np.concatenate([batch.streams["labels"].indices for batch in batches[0]])
    prior = np.bincount(labels, minlength=10) / len(labels)
    np.testing.assert_allclose(prior, parameter(case, "Prior"), atol=1e-6)


def test_htk_truncated_order(monkeypatch):
    case = "09_htk_lstm_truncated_ndl"
    reader = reader_of(case, "Train", monkeypatch)
    names = [entry.name for entry in read_script("../data/htk/train.scp")]
    counts, found = logged_counts(case), []
    with reader:
        for number in range(2):
            batches = epoch(reader, 15, number)
            assert [batch.samples for batch in batches] == counts[number]
            for place, batch in enumerate(batches, 1):
                layout = batch.layouts["features"]
                slots = [[] for _ in range(layout.parallel)]
                for (_, utterance), slot, begin, end in zip(
                    batch.sequences, layout.slot, layout.begin, layout.end, strict=True
                ):
                    first, last = max(0, begin), min(layout.steps, end)
                    slots[slot].append(f"{names[utterance]}[{first - begin},{last - begin - 1}]")
                shown = " | ".join(" + ".join(slot) or "(empty)" for slot in slots)
                found.append(f"epoch {number + 1} minibatch {place}: {shown}")
    assert found == need(case, "order.txt").read_text().splitlines()


def test_htk_utterances_of_tests_and_of_writing(monkeypatch):
    case = "09_htk_lstm_truncated_ndl"
    with reader_of(case, "Test", monkeypatch) as reader:
        assert [batch.samples for batch in epoch(reader, 2000)] == [279, 21]
    sizes = re.findall(r"ActualMBSize = (\d+)", need(case, "log.txt").read_text())
    with reader_of(case, "Write", monkeypatch) as reader:
        assert [batch.samples for batch in epoch(reader, 2000)] == [int(size) for size in sizes]


def test_htk_two_streams(monkeypatch):
    case = "41_htk_two_streams"
    with reader_of(case, "Train", monkeypatch) as reader:
        batches = epoch(reader, 80)
    assert [batch.samples for batch in batches] == logged_counts(case)[0]
    for stream, dim in (("near", 39), ("wide", 91)):
        rows = np.concatenate([batch.streams[stream].values for batch in batches])
        assert rows.shape == (1277, dim)


def test_htk_writer_makes_the_same_bytes(tmp_path):
    source = sorted(need("41_htk_two_streams", "htkout").iterdir())[0]
    values = HtkFile.open(source).read()
    writer = HtkWriter(["scaled"], [10], [[str(tmp_path / "a.out")]])
    writer.save_data({"scaled": Samples(np.array([0, len(values)]), values)})
    assert (tmp_path / "a.out").read_bytes() == source.read_bytes()


def test_uci_records(monkeypatch):
    case = "05_uci_reader_dnn"
    counts = logged_counts(case)
    with reader_of(case, "Train", monkeypatch) as reader:
        for number in range(3):
            batches = epoch(reader, 32, number)
            assert [batch.samples for batch in batches] == counts[number]
    rows = np.concatenate([batch.streams["features"].values for batch in batches])
    np.testing.assert_allclose(rows.mean(0), parameter(case, "MeanOfFeatures"), atol=1e-7)
    labels = np.concatenate([batch.streams["labels"].indices for batch in batches])
    prior = np.bincount(labels, minlength=2) / len(labels)
    np.testing.assert_allclose(prior, parameter(case, "Prior"), atol=1e-7)


def test_composite_reader_truncates(monkeypatch):
    case = "36_ctf_truncated_bptt"
    counts = logged_counts(case)
    with reader_of(case, "Train", monkeypatch) as reader:
        for number in range(2):
            batches = epoch(reader, 12, number)
            assert [batch.samples for batch in batches] == counts[number]
            assert all(batch.columns == 12 for batch in batches)
    with reader_of(case, "Write", monkeypatch) as reader:
        assert [(b.samples, len(b.sequences)) for b in epoch(reader, 100)] == [(20, 6)]


def test_language_model_order(monkeypatch):
    case = "17_lm_class_rnn"
    found, counts = [], logged_counts(case)
    with reader_of(case, "Train", monkeypatch) as reader:
        for number in range(3):
            batches = epoch(reader, 30, number)
            assert [batch.samples for batch in batches] == counts[number]
            for place, batch in enumerate(batches, 1):
                lines = " ".join(str(line) for line in batch.sequences[:, 1])
                last = batch.layouts["labels"].steps - 1
                found.append(
                    f"epoch {number + 1} minibatch {place}: lines {lines}, words 0 to {last} "
                    f"({batch.samples} samples)"
                )
    expected = need(case, "order.txt").read_text().splitlines()
    assert found == [line for line in expected if "minibatch" in line]


def test_tagged_sentences(monkeypatch):
    case = "19_lu_reader_lstm"
    counts = logged_counts(case)
    with reader_of(case, "Train", monkeypatch) as reader:
        for number in range(9):
            batches = epoch(reader, 20, number, 1000000)
            assert [batch.samples for batch in batches] == counts[number]
    with reader_of(case, "Write", monkeypatch) as reader:
        lengths = [batch.samples for batch in epoch(reader, 100, 0, 1000000)]
    tags = need(case, "tags.txt").read_text().splitlines()
    assert lengths == [len(line.split()) for line in tags]
