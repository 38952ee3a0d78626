"""Lattices: files, both kinds, operations, phone alignment; against kaldifst where it is there."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.lattices.lattice import (
    ONE,
    Arc,
    CompactLattice,
    Weight,
    joined,
    renumbered,
    split,
    top_sorted,
)
from opscope.kaldi.lattices.lattice_io import (
    read_compact_lattice,
    read_lattice,
    write_compact_lattice,
    write_lattice,
)
from opscope.kaldi.lattices.operations import (
    best_path,
    connected,
    pruned,
    state_times,
    without_epsilons,
)
from opscope.kaldi.lattices.phone_align import PhoneAlignOptions, phone_aligned
from opscope.kaldi.lattices.transition_ids import TransitionIds
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.programs.base.graphs import open_fst

SEEDS = range(6)
TEXT = "\n0\t1\t7\t0.5,-2,1_2\n0\t2\t0\t1,0,\n1\t2\t8\n2\t3,4,5\n\n"
PLAIN = "\n0\t3\t1\t7\t0.5,-2\n0\t2\t0\t0\t1,0\n1\t2\t0\t8\n2\t4\t5\t0\t3,4\n3\t1\t2\t0\n4\n\n"


def random_lattice(rng, states=6, epsilons=0.4):
    """An acyclic lattice from state 0 on; all states are on a path to an end."""
    lattice = CompactLattice(0)
    for _ in range(states):
        lattice.add_state()
    lattice.final[-1] = Weight(0.25, 1.5)
    for state in range(states - 1):
        for target in {state + 1, *rng.integers(state + 1, states, 2).tolist()}:
            label = 0 if rng.uniform() < epsilons else int(rng.integers(1, 4))
            costs = (rng.integers(0, 16, 2) / 4).tolist()
            ids = tuple(rng.integers(1, 9, rng.integers(0, 3)).tolist()) if label else ()
            lattice.arcs[state].append(Arc(label, Weight(*costs, ids), target))
    return lattice


def language(lattice):
    """The best cost of each sequence of words and ids."""
    found = {}
    todo = [(lattice.start, (), ONE)] if lattice.start >= 0 else []
    while todo:
        state, words, weight = todo.pop()
        end = lattice.final[state]
        if end is not None:
            whole = weight.times(end)
            key = words, whole.ids
            found[key] = min(found.get(key, np.inf), whole.cost)
        for label, more, target in lattice.arcs[state]:
            then = (*words, label) if label else words
            todo.append((target, then, weight.times(more)))
    return found


def by_words(lattice):
    """The best cost of each sequence of words."""
    found = {}
    for (words, _), cost in language(lattice).items():
        found[words] = min(found.get(words, np.inf), cost)
    return found


def written(lattice, binary, write=write_compact_lattice):
    writer = Writer(binary, header=False)
    write(writer, lattice)
    return writer.getvalue()


def parts(lattice):
    return lattice.start, lattice.arcs, lattice.final


def reader(data):
    return Reader(data, binary=False)


def test_text():
    lattice = read_compact_lattice(reader(TEXT.encode()))
    assert lattice.arcs[0] == [Arc(7, Weight(0.5, -2.0, (1, 2)), 1), Arc(0, Weight(1.0, 0.0), 2)]
    assert lattice.final == [None, None, Weight(3.0, 4.0, (5,))]
    assert written(lattice, False).decode() == TEXT
    plain = split(lattice)
    assert written(plain, False, write_lattice).decode() == PLAIN
    assert parts(read_lattice(reader(TEXT.encode()))) == parts(plain)
    # an end has no ids in a lattice that was joined: they became an arc
    again = read_compact_lattice(reader(PLAIN.encode()))
    assert language(again) == language(lattice) and again.states == 4


@pytest.mark.parametrize("seed", SEEDS)
def test_both_forms_and_both_kinds(seed):
    lattice = random_lattice(np.random.default_rng(seed))
    for binary in (True, False):
        same = read_compact_lattice(reader(written(lattice, binary)))
        assert parts(same) == parts(lattice)
        plain = read_lattice(reader(written(split(lattice), binary, write_lattice)))
        assert parts(plain) == parts(split(lattice))
        assert language(joined(plain)) == language(lattice)
    with pytest.raises(FormatError, match="cannot be written as a plain one"):
        written(CompactLattice(0, [[]], [Weight(0, 0, (1, 2))]), True, write_lattice)


def test_costs_of_eight_bytes():
    lattice = random_lattice(np.random.default_rng(0), epsilons=0)
    data = written(CompactLattice(0, [[]], [Weight(0.5, 2, (4,))]), True)
    wide = data.replace(b"compactlattice44", b"compactlattice84")
    at = wide.index(np.float32([0.5, 2]).tobytes())
    wide = wide[:at] + np.float64([0.5, 2]).tobytes() + wide[at + 8 :]
    assert read_compact_lattice(reader(wide)).final == [Weight(0.5, 2.0, (4,))]
    assert language(lattice)


def test_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lattice = random_lattice(np.random.default_rng(1))
    for form in ("ark", "ark,t"):
        with TableWriter(f"{form}:l.ark", "compact_lattice") as table:
            table.write("a", lattice)
            table.write("b", lattice)
        found = dict(read_table("ark:l.ark", "compact_lattice"))
        assert [*found] == ["a", "b"] and parts(found["b"]) == parts(lattice)
    with TableWriter("ark,scp:l.ark,l.scp", "compact_lattice") as table:
        table.write("a", lattice)
    # behind the key stands OpenFst's magic number, without Kaldi's header
    assert (tmp_path / "l.ark").read_bytes().startswith(b"a \xd6\xfd\xb2\x7e\x06\0\0\0vector")
    ((_, found),) = read_table("scp:l.scp", "compact_lattice")
    assert parts(found) == parts(lattice)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"x", "a lattice, binary or text after a line end"),
        (b"\n0 1 2 3 4 5\n\n", "a line of a lattice"),
        (b"\n0 1 2 3,x,4\n\n", "a line of a lattice"),
        (b"\n0 1 1 Infinity,Infinity,\n\n", "a line of a lattice"),
        (b"\n0 1 1 0,1e99,4\n\n", "costs 0 and inf"),
        (b"\n0 1 1 -Infinity,0,4\n\n", "a line of a lattice"),
        (b"\n0 1 1 0,0,\n0 1 1 1 0,0\n\n", "lines of a compact and of a plain one"),
        (b"\n0 1000 1\n\n", "a state 1000, but far fewer lines"),
        (b"\n0 0 1 1 0,0\n0\n\n", "the lattice has a loop"),
    ],
)
def test_damaged_text(data, said):
    with pytest.raises(FormatError, match=said):
        read_compact_lattice(reader(data))


def test_damaged_binary():
    data = written(random_lattice(np.random.default_rng(2)), True)
    for end in range(0, len(data), 7):
        with pytest.raises(FormatError):
            read_compact_lattice(reader(data[:end]))
    with pytest.raises(FormatError, match=r"'compactlattice99' is no lattice.*lattice4, lattice8"):
        read_compact_lattice(reader(data.replace(b"lattice44", b"lattice99")))


@pytest.mark.parametrize("seed", SEEDS)
def test_operations_keep_the_paths(seed):
    lattice = random_lattice(np.random.default_rng(seed), 7)
    wanted = language(lattice)
    bare = without_epsilons(lattice)
    assert all(arc.label for group in bare.arcs for arc in group)
    # of arcs with one word between the same states the best one is kept
    assert language(bare).items() <= wanted.items() and by_words(bare) == by_words(lattice)
    ((best, cost),) = language(best_path(lattice)).items()
    assert cost == min(wanted.values()) == wanted[best]
    beam = 3.0
    kept = language(pruned(lattice, beam))
    assert kept.items() <= wanted.items()
    assert {key for key, cost in wanted.items() if cost <= min(wanted.values()) + beam} <= {*kept}
    order = list(np.random.default_rng(seed).permutation(range(1, 7)))
    mixed = renumbered(lattice, [int(i) for i in [*order, 0]])
    assert language(top_sorted(mixed)) == wanted and top_sorted(mixed).start == 0
    assert connected(lattice) is lattice


@pytest.mark.parametrize("seed", range(12))
def test_epsilons_as_openfst_removes_them(seed, tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    rng = np.random.default_rng(seed)
    lattice = random_lattice(rng, 8, epsilons=0.5)
    lattice.arcs = [
        [arc._replace(weight=Weight(arc.weight.graph)) for arc in group] for group in lattice.arcs
    ]
    lattice.final[-1] = Weight(0.25)
    lines = [
        f"{state} {arc.target} {arc.label} {arc.label} {arc.weight.graph}"
        for state, group in enumerate(lattice.arcs)
        for arc in group
    ]
    text = "\n".join([*lines, f"{lattice.states - 1} 0.25"]) + "\n"
    theirs = kaldifst.compile(text, keep_state_numbering=True)
    kaldifst.rmepsilon(theirs)
    theirs.write(str(tmp_path / "f"))
    fst = open_fst(str(tmp_path / "f"))
    ours = without_epsilons(lattice)
    assert fst.states == ours.states
    flat = [arc for group in ours.arcs for arc in group]
    assert fst.ilabel.tolist() == [arc.label for arc in flat]
    assert fst.nextstate.tolist() == [arc.target for arc in flat]
    assert fst.weight.tolist() == [arc.weight.graph for arc in flat]


def test_files_of_kaldifst(tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    plain = split(random_lattice(np.random.default_rng(3)))
    path = str(tmp_path / "l")
    (tmp_path / "l").write_bytes(written(plain, True, write_lattice))
    theirs = kaldifst.Lattice.read(path)
    assert theirs.num_states == plain.states
    assert theirs.num_arcs(0) == len(plain.arcs[0])
    theirs.write(path)
    assert parts(read_lattice(reader((tmp_path / "l").read_bytes()))) == parts(plain)


def test_times():
    lattice = read_compact_lattice(reader(b"\n0 1 4 0,0,1_2\n1 2 5 0,0,3\n0 2 6 0,0,1_1_1\n2\n\n"))
    assert state_times(lattice) == ([0, 2, 3], 3)
    lattice.arcs[1] = [Arc(5, ONE, 2)]
    with pytest.raises(ShapeError, match="paths to state 2 of the lattice have 3 and 2 frames"):
        state_times(lattice)
    with pytest.raises(ShapeError, match="no end"):
        state_times(CompactLattice(0, [[]], [None]))


# Phones 1 and 2 of one state each: 1 and 3 leave it, 2 and 4 are loops.
IDS = TransitionIds(
    [0, 1, 1, 2, 2],
    [0, 1, 1, 2, 2],
    [-1, 0, 1, 2, 3],
    [False, False, True, False, True],
    [False, True, False, True, False],
    [-1, 1, 0, 1, 0],
)


def aligned(text, told=None, **options):
    lattice = read_compact_lattice(reader(text))
    warn = (told if told is not None else []).append
    found, right = phone_aligned(lattice, IDS, PhoneAlignOptions(**options), warn)
    return language(found), top_sorted(found), right


def test_phone_alignment():
    # one word over two phones, and the loop of the second on the next arc
    text = b"\n0 1 9 1,2,1_2_3\n1 2 0 0.5,0,4_4\n2 0.25,0,\n\n"
    paths, found, right = aligned(text, replace_output_symbols=True)
    assert right and paths == {((1, 2), (1, 2, 3, 4, 4)): 3.75}
    assert [arc.weight.ids for group in found.arcs for arc in group] == [(1, 2), (3, 4, 4)]
    paths, found, right = aligned(text)
    assert right and paths == {((9,), (1, 2, 3, 4, 4)): 3.75}
    paths, found, right = aligned(text, remove_epsilon=False)
    assert paths == {((9,), (1, 2, 3, 4, 4)): 3.75} and found.num_arcs > 3
    # words without frames are put out before a third comes
    paths, _, right = aligned(b"\n0 1 7\n1 2 8\n2 3 9 0,0,1\n3\n\n")
    assert right and paths == {((7, 8, 9), (1,)): 0.0}


def test_alignment_that_goes_wrong():
    told: list[str] = []
    paths, _, right = aligned(b"\n0 1 9 0,0,2_3\n1\n\n", told, replace_output_symbols=True)
    assert not right and len(told) == 1 and "Phone changed before final" in told[0] and paths
    told = []
    _, _, right = aligned(b"\n0 1 9 0,0,2_2\n1\n\n", told, replace_output_symbols=True)
    assert not right and "saw 0 final-states" in told[0]
    with pytest.raises(ShapeError, match="5 is no transition-id: the model has 1 to 4"):
        aligned(b"\n0 1 9 0,0,5\n1\n\n")
    with pytest.raises(ShapeError, match="loop"):
        aligned(b"\n0 0 9 0,0,1\n0\n\n")
