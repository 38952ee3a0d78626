"""Statistics, clusters and trees against plain references; gmm-init-mono against Kaldi's files."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from kaldi_data import need
from opscope.framework.base.algorithms.glibc_rand import GlibcRand
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.context_dependency import ContextDependency, Leaf, Split, Table, answers
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.transition_model import TransitionModel
from opscope.speech.trees.building import GrowingOptions, Told, build_tree
from opscope.speech.trees.clustering import hierarchy, k_means, merged_below, merged_to_count
from opscope.speech.trees.gaussians import objectives
from opscope.speech.trees.questions import KeyQuestions, Questions, questions_of
from opscope.speech.trees.statistics import TreeAccumulator, TreeStats, leaves
from opscope.speech.trees.stubs import PhoneCounts, Roots, biphone_tree, roots_tree

FLOOR = 0.01
QUIET = Told(*[lambda line: None] * 3)


def rows_of(rng: np.random.Generator, means: np.ndarray) -> np.ndarray:
    frames = [mean + rng.normal(size=(int(rng.integers(5, 40)), len(mean))) for mean in means]
    return np.array([[len(x), *x.sum(0), *(x * x).sum(0)] for x in frames])


def objective(row: np.ndarray) -> float:
    """The formula, in words of a text book: the log-likelihood of a Gaussian's own data."""
    count, dim = row[0], len(row) // 2
    if count == 0:
        return 0.0
    variance = row[1 + dim :] / count - (row[1 : 1 + dim] / count) ** 2
    floored = np.maximum(variance, FLOOR)
    return float(-0.5 * count * np.sum(variance / floored + np.log(2 * np.pi * floored)))


@pytest.fixture
def stats() -> TreeStats:
    rng = np.random.default_rng(5)
    shift = 4 * rng.normal(size=(8, 3))
    events = sorted(
        {
            ((-1, c), (0, int(left)), (1, int(own)), (2, int(right)))
            for left, own, right in rng.integers(1, 8, (160, 3))
            for c in range(2)
        }
    )
    means = [
        shift[e[2][1]] + (0.6 * shift[e[1][1]] if e[0][1] == 0 else 0.3 * shift[e[3][1]])
        for e in events
    ]
    return TreeStats(tuple(events), rows_of(rng, np.array(means)), FLOOR)


def test_objectives(stats):
    rows = np.append(stats.rows, np.zeros((1, 7)), axis=0)
    np.testing.assert_allclose(objectives(rows, FLOOR), [objective(row) for row in rows], 1e-6)


@pytest.mark.parametrize("binary", [True, False])
def test_files(stats, binary):
    writer = Writer(binary)
    stats.write_to(writer)
    read = TreeStats.read(Reader(writer.getvalue()))
    assert read.events == stats.events and abs(read.floor - FLOOR) < 1e-9
    np.testing.assert_allclose(read.rows, stats.rows, 0 if binary else 1e-6)
    with pytest.raises(FormatError):
        TreeStats.read(Reader(writer.getvalue()[:-40]))
    asked = questions_of([[1, 2], [3], [1, 2]], 3, 3, 2)
    writer = Writer(binary)
    asked.write_to(writer)
    assert Questions.read(Reader(writer.getvalue())) == asked
    assert asked.by_key[-1].sets == ((0,), (0, 1)) and asked.by_key[2].sets == ((1, 2), (3,))


def test_merging_takes_the_closest_pair():
    rng = np.random.default_rng(1)
    rows = rows_of(rng, 3 * rng.normal(size=(9, 2)))

    def plain(groups, threshold, count):
        parts = [[{i} for i in range(len(group))] for group in groups]
        while sum(map(len, parts)) > count:
            found = []
            for g, part in enumerate(parts):
                for a, b in combinations(range(len(part)), 2):
                    one, two = (groups[g][sorted(part[k])].sum(0) for k in (a, b))
                    found.append((objective(one) + objective(two) - objective(one + two), g, a, b))
            if not found or min(found)[0] > threshold:
                break
            _, g, a, b = min(found)
            parts[g][a] |= parts[g].pop(b)
        return [{frozenset(part) for part in group} for group in parts]

    def sets(clusters):
        return {frozenset(np.flatnonzero(np.array(clusters) == c).tolist()) for c in set(clusters)}

    assert [sets(merged_below(rows, 40.0, FLOOR))] == plain([rows], 40.0, 1)
    groups = [rows[:4], rows[4:5], rows[5:]]
    found = merged_to_count(groups, 5, FLOOR)
    assert [sets(own) for own in found] == plain(groups, np.inf, 5)


def test_k_means_and_hierarchy_find_what_lies_apart():
    rng = np.random.default_rng(2)
    centers = np.array([[0.0, 0], [40, 0], [0, 40], [40, 45]])
    rows = rows_of(rng, np.repeat(centers, 3, axis=0))
    random = iter(GlibcRand(1).rand(500).tolist())
    gain, assigned = k_means(rows, 4, FLOOR, random.__next__)
    assert len(set(assigned.reshape(4, 3)[:, 0])) == 4
    assert (assigned.reshape(4, 3) == assigned.reshape(4, 3)[:, :1]).all()
    sums = rows.reshape(4, 3, -1).sum(1)
    np.testing.assert_allclose(gain, sum(map(objective, sums)) - objective(rows.sum(0)), 1e-5)
    leaf, parents = hierarchy(rows, FLOOR, random.__next__)
    assert sorted(leaf) == list(range(12)) and len(parents) == 23 and parents[-1] == 22

    def above(node):
        return {node} if parents[node] == node else {node} | above(parents[node])

    for group in leaf.reshape(4, 3):  # each center has a node that is above its points alone
        common = set.intersection(*map(above, group))
        assert any(sum(node in above(other) for other in leaf) == 3 for node in common)


def grown_plainly(stats, roots, questions, options):
    """Leaves as sets of events, the best split of all done again and again."""
    parts = [np.flatnonzero(leaves(roots, stats) == i) for i in range(max(answers(roots, {})) + 1)]
    while len(parts) < options.max_leaves:
        best = (options.threshold, None, None)
        for number, part in enumerate(parts):
            for key, asked in questions.by_key.items():
                for values in asked.sets:
                    yes = np.isin(stats.values(key)[part], values)
                    halves = part[yes], part[~yes]
                    gain = sum(objective(stats.rows[half].sum(0)) for half in halves)
                    gain -= objective(stats.rows[part].sum(0))
                    if gain > best[0] + 1e-3:
                        best = gain, number, halves
        if best[1] is None:
            break
        parts[best[1] : best[1] + 1] = best[2]
    return {frozenset(part.tolist()) for part in parts}


def test_a_tree_is_grown_greedily(stats):
    sets = [[1, 2], [3], [4, 5, 6, 7]]
    roots = Roots(sets, [True, False, True], [True, True, True])
    questions = questions_of([[1], [2, 5], [3, 4], [1, 6, 7], [2]], 3, 2, 0)
    options = GrowingOptions(13, 20.0, 0.0, False)
    classes = dict.fromkeys(range(1, 8), 2)
    tree = build_tree(stats, roots, questions, classes, 1, options, QUIET)
    own = leaves(tree, stats)
    found = {frozenset(np.flatnonzero(own == leaf).tolist()) for leaf in set(own.tolist())}
    stub = roots_tree(1, sets, roots.shared, classes)
    assert len(found) == 13 and found == grown_plainly(stats, stub, questions, options)
    rounded = build_tree(
        stats, roots, questions, classes, 1, GrowingOptions(13, 20.0, 0.0, True), QUIET
    )
    assert answers(rounded, {}) == set(range(8))
    own = leaves(stub, stats)  # leaves are merged below roots alone
    together = leaves(rounded, stats)
    assert all(len(set(own[together == leaf])) == 1 for leaf in range(8))


def test_of_equal_questions_the_first_is_asked(stats):
    asked = KeyQuestions(((4, 5, 6, 7), (1, 2, 3), (1, 2, 3, 9)), 0)
    roots = Roots([list(range(1, 8))], [True], [True])
    options = GrowingOptions(2, 1.0, 0.0, False)
    tree = build_tree(stats, roots, Questions({1: asked}), {}, 1, options, QUIET)
    assert isinstance(tree, Split) and tree.values == {4, 5, 6, 7}
    refined = Questions({1: KeyQuestions(((1,),), 5)})
    better = build_tree(stats, roots, refined, {}, 1, options, QUIET)

    def gain(found):
        own = leaves(found, stats)
        return sum(objective(stats.rows[own == leaf].sum(0)) for leaf in (0, 1))

    plain = build_tree(
        stats, roots, Questions({1: KeyQuestions(((1,),), 0)}), {}, 1, options, QUIET
    )
    assert gain(better) > gain(plain)


def test_roots_and_biphones():
    assert roots_tree(1, [[1], [2]], [True, False], {1: 3, 2: 2}) == Table(
        1, (None, Leaf(0), Table(-1, (Leaf(1), Leaf(2))))
    )
    assert roots_tree(1, [[1, 2], [3]], [True, True], {}) == Split(
        1, frozenset({1, 2}), Leaf(0), Leaf(1)
    )
    full = biphone_tree([[2], [3]], [1], 2, None)
    assert full.num_pdfs == 2 + 2 * (2 + 2 * 2)
    assert full.outputs({0: 1, 1: 2}, 0) == full.outputs({0: 0, 1: 2}, 0) == {2}
    counts = PhoneCounts({2: 50, 3: 1}, {(2, 2): 200, (3, 2): 5}, 20, 100)
    rare = biphone_tree([[2], [3]], [1], 2, counts)
    windows = [(2, 2), (3, 2), (2, 3), (3, 3)]
    assert [rare.outputs({0: a, 1: b}, 1) for a, b in windows] == [{5}, {7}, {11}, {11}]
    assert biphone_tree([[2, 4], [3]], [], 1, counts).outputs({0: 3, 1: 4}, 0) == {2}


def test_statistics_of_an_alignment():
    model = TransitionModel.read_from(
        Reader(
            b"<TransitionModel> <Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones> <State> 0"
            b" <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State> <State> 1 </State>"
            b" </TopologyEntry> </Topology> <Triples> 2 1 0 0 2 0 1 </Triples> <LogProbs>"
            b" [ 0 -1 -1 -1 -1 ] </LogProbs> </TransitionModel> "
        )
    )
    features = np.arange(8, dtype=np.float32).reshape(4, 2)
    accumulator = TreeAccumulator(model, 3, 1, [2])
    assert accumulator.accumulate(np.array([1, 2, 4, 2]), features)
    assert not accumulator.accumulate(np.array([1, 1]), features[:2])
    assert {event: row.tolist() for event, row in accumulator.rows.items()} == {
        ((-1, 0), (0, 0), (1, 1), (2, 2)): [2, 2, 4, 4, 10],
        ((-1, 0), (1, 2)): [1, 4, 5, 16, 25],
        ((-1, 0), (0, 2), (1, 1), (2, 0)): [1, 6, 7, 36, 49],
    }


@pytest.mark.parametrize("folder", ["formats", "chain"])
def test_kaldis_trees_are_written_byte_by_byte(folder):
    path = need(folder, "tree")
    writer = Writer(True)
    ContextDependency.read(Reader(path)).write_to(writer)
    assert writer.getvalue() == path.read_bytes()
