"""How `opscope score` reads the sizes of a list, and cuts it into shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opscope.kaldi.tables.tables import ScriptLine
from opscope.scale.score.listing import Entry, list_entries
from opscope.scale.score.shards import cut_into_shards, grouped
from score_runs import features, write_table


def entries(*rows):
    return [Entry(ScriptLine(str(n), "x", None, ""), count, 6) for n, count in enumerate(rows)]


def rows_of(groups):
    return [[entry.rows for entry in group] for group in groups]


def test_groups_end_where_enough_rows_are_together():
    assert rows_of(grouped(entries(3, 3, 5, 1, 9, 2), 8)) == [[3, 3, 5], [1, 9], [2]]
    assert rows_of(grouped(entries(3, -1, 3, 5), 8)) == [[3], [-1], [3, 5]]
    assert rows_of(grouped(entries(3, 4), 1)) == [[3], [4]]


@pytest.mark.parametrize(
    ("rows", "count", "expected"),
    [
        ((4, 4, 4, 4), 2, [8, 8]),
        ((10, 1, 1, 1), 2, [10, 3]),
        ((1, 1, 1, 10), 2, [3, 10]),
        ((1, 1, 1, 10), 3, [2, 1, 10]),
        ((5, 5), 7, [5, 5]),
        ((7,), 1, [7]),
    ],
)
def test_shards_have_nearly_equal_rows(rows, count, expected):
    shards = cut_into_shards(grouped(entries(*rows), 1), count)
    assert [sum(map(sum, rows_of(shard))) for shard in shards] == expected


def test_shards_of_unknown_rows_have_equal_numbers_of_utterances():
    shards = cut_into_shards(grouped(entries(*[-1] * 5, 900), 1000), 3)
    assert [sum(map(len, shard)) for shard in shards] == [2, 2, 2]


def test_any_cut_keeps_order_and_leaves_no_shard_empty():
    rng = np.random.default_rng(4)
    for _ in range(200):
        groups = grouped(entries(*rng.integers(1, 50, rng.integers(1, 30))), 40)
        count = int(rng.integers(1, 12))
        shards = cut_into_shards(groups, count)
        assert len(shards) == min(count, len(groups)) and all(shards)
        assert [group for shard in shards for group in shard] == groups


def test_sizes_of_every_kind_of_entry(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = features(6)
    write_table("ark,scp:b.ark,b.scp", values)
    write_table("ark,t:t.ark", values)
    write_table("ark,scp:c.ark,c.scp", values, "compressed_matrix")
    wanted = [(key, *value.shape) for key, value in values.items()]
    for source in ("b.scp", "scp:b.scp", "b.ark", "ark:t.ark", "c.scp", "ark:c.ark"):
        found = list_entries(source, takes_samples=False)
        assert [(entry.line.key, entry.rows, entry.columns) for entry in found] == wanted, source
    lines = Path("b.scp").read_text().splitlines()
    Path("r.scp").write_text(f"{lines[0]}[0:9]\n{lines[1]}[5:8,2:3]\nx cat b.ark |\n")
    found = list_entries("r.scp", takes_samples=False)
    assert [(entry.rows, entry.columns) for entry in found] == [(10, 6), (4, 2), (-1, -1)]


def test_utterances_without_frames_are_passed_over(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    write_table("ark:f.ark", {"a": np.ones((3, 2), np.float32), "b": np.zeros((0, 0), np.float32)})
    assert [entry.line.key for entry in list_entries("f.ark", takes_samples=False)] == ["a"]
    assert "b: Zero-length utterance" in caplog.text
