"""Symbols of transducers, against kaldifst and the relations that they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from fst_relations import random_transducer, relation, rows, through
from opscope.framework.base.errors import ShapeError
from opscope.kaldi.fst.algorithms.partition import minimize_unpushed
from opscope.kaldi.fst.algorithms.symbols import (
    add_self_loops,
    penalize_symbols,
    remove_arcs,
    remove_symbols,
    sort_by,
    with_header_of,
)
from opscope.kaldi.fst.fst import Fst, Header, SymbolTable

SEEDS = range(4)


@pytest.mark.parametrize("side", ["ilabel", "olabel"])
def test_symbols_of_one_side(side):
    fst = Fst.of_arcs([0, 0], [1, 3], [0, 0.5], [0, 0], [0], [3, 2])
    gone, at = (3, 1) if side == "ilabel" else (3, 0)
    removed = remove_symbols(fst, [gone, 9], side)
    assert removed.arcs[side][at] == 0 and removed.arcs[side][1 - at] == fst.arcs[side][1 - at]
    assert penalize_symbols(fst, [gone], 2.0, side).weight[at] == fst.weight[at] + 2
    assert rows(remove_arcs(fst, [gone], side)) == [rows(fst)[1 - at]]
    assert remove_arcs(fst.with_columns(nextstate=np.int32([0, 0])), [1, 3]).states == 1
    assert fst.ilabel.tolist() == [1, 3]  # it is not changed


def test_nothing_is_left():
    assert remove_arcs(Fst.of_arcs([0], [1], [0], [1], [np.inf, 0]), [1]).start == -1


@pytest.mark.parametrize("seed", SEEDS)
def test_loops_sorting_and_minimizing_are_those_of_kaldi(seed, tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    fst = random_transducer(np.random.default_rng(seed), loops=True)
    wanted = through(tmp_path, kaldifst, fst, lambda f: kaldifst.add_self_loops(f, [7, 8], [9, 6]))
    assert rows(add_self_loops(fst, [7, 8], [9, 6])) == rows(wanted)
    for side in ("ilabel", "olabel"):
        wanted = through(tmp_path, kaldifst, fst, lambda f, side=side: kaldifst.arcsort(f, side))
        assert rows(sort_by(fst, side)) == rows(wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_labels_count_where_states_are_merged(seed, tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    rng = np.random.default_rng(seed)
    # deterministic once labels and weights are one symbol, with states to be merged
    source, target = np.repeat(np.arange(30), 2), np.minimum(np.repeat(np.arange(30), 2) + 3, 29)
    ilabel, olabel = np.tile([1, 2], 30), rng.integers(0, 2, 60)
    keep = source < 29
    columns = (x[keep] for x in (ilabel, rng.integers(0, 2, 60) / 2, target))
    final = np.where(np.arange(30) == 29, 0, np.inf)
    fst = Fst.of_arcs(source[keep], *columns, final, olabel[keep])
    found = minimize_unpushed(fst, 1 / 1024)
    wanted = through(tmp_path, kaldifst, fst, kaldifst.minimize_encoded)
    assert (found.states, len(found.arcs)) == (wanted.states, len(wanted.arcs))
    assert relation(found) == relation(fst) and found.states < 30


def test_mistakes():
    fst = Fst.of_arcs([0], [1], [0], [0], [0], [2])
    for inputs, outputs, part in (
        ([3], [], "1 input symbols, but 0 output symbols"),
        ([3, 3], [4, 5], "must differ"),
        ([0], [4], "above 0"),
        ([1], [4], "already has the ilabel 1"),
        ([4], [2], "already has the olabel 2"),
    ):
        with pytest.raises(ShapeError, match=part):
            add_self_loops(fst, inputs, outputs)


def test_tables_of_symbols_stay():
    fst = Fst.of_arcs([0], [1], [0], [0], [0], [2])
    table = SymbolTable("words", 2, {1: "a"})
    fst.header = Header("const", input_symbols=table, arcs=1)
    made = with_header_of(remove_symbols(fst, [1]), fst)
    assert made.header.input_symbols is table and made.header.kind == "vector"
