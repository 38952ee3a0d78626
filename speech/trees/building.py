"""Decision trees grown of statistics: greedy splits by questions, then merging of leaves.

Source: Kaldi's `tree/build-tree.cc`, `tree/build-tree-utils.cc`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.options.option_fields import option
from ...kaldi.files.context_dependency import EventMap, Leaf, Split, answers, with_leaves
from .clustering import merged_below, merged_to_count, refined
from .gaussians import objectives, sums_by
from .questions import KeyQuestions, Questions
from .statistics import ABSENT, TreeStats, leaves
from .stubs import Roots, renumbered, roots_tree

_NO_SPLIT = np.float32(1e20)


@dataclass(frozen=True)
class GrowingOptions:
    """How large a tree grows.

    Raises:
        FormatError: nothing would end it.
    """

    max_leaves: int = option(0, "Maximum number of leaves of the tree (if positive)")
    threshold: float = option(
        300.0, "Log-likelihood change threshold for tree-building", name="thresh"
    )
    cluster_threshold: float = option(
        -1.0,
        "Log-likelihood change threshold for clustering after tree-building. 0 means no clustering;"
        " -1 means the likelihood change of the final split",
        name="cluster-thresh",
    )
    round_num_leaves: bool = option(
        True, "Reduce the number of leaves to a multiple of 8 by clustering"
    )

    def __post_init__(self) -> None:
        if not (self.threshold > 0 or self.max_leaves > 0):
            raise FormatError("one of --thresh and --max-leaves must be positive")


@dataclass(frozen=True)
class Told:
    """Who is told what happens: functions that print a line."""

    log: Callable[[str], None]
    detail: Callable[[str], None]
    warn: Callable[[str], None]


@dataclass(eq=False)
class _Node:
    """A leaf with its best split, or a node that was split.

    Attributes:
        which: its events. gain: of the best split at or below it.
    """

    leaf: int
    which: np.ndarray
    gain: np.float32 = np.float32(0)
    key: int = 0
    values: tuple[int, ...] = ()
    halves: list[_Node] = field(default_factory=list)


class _Grower:
    """Splits leaves where the objective grows most."""

    def __init__(self, stats: TreeStats, questions: Questions) -> None:
        self._rows = stats.rows
        self._floor = stats.floor
        self._values = {key: stats.values(key) for key in sorted(questions.by_key)}
        self._asked = {
            key: _Asked(questions.by_key[key], int(values.max(initial=0)), stats.floor)
            for key, values in self._values.items()
        }
        self._nodes: list[_Node] = []

    def node(self, leaf: int, which: np.ndarray) -> _Node:
        """A leaf of some events, with its best split found."""
        node = _Node(leaf, which)
        self._nodes.append(node)
        if len(which) < 2:
            return node
        for key, all_values in self._values.items():
            values = all_values[which]
            if values.min() == ABSENT:
                continue
            sums = sums_by(values, self._rows[which], int(values.max()) + 1)
            gain, yes = self._asked[key].best(sums, np.unique(values))
            if gain > node.gain:
                node.gain, node.key, node.values = gain, key, yes
        return node

    def split(self, root: _Node, new_leaf: int) -> None:
        """Do the best split at or below a node; `new_leaf` is the leaf of the no."""
        above = []
        node = root
        while node.halves:
            above.append(node)
            yes, no = node.halves
            node = yes if yes.gain >= no.gain else no
        says_yes = np.isin(self._values[node.key][node.which], node.values)
        node.halves = [
            self.node(node.leaf, node.which[says_yes]),
            self.node(new_leaf, node.which[~says_yes]),
        ]
        for changed in (node, *reversed(above)):
            changed.gain = max(half.gain for half in changed.halves)

    def trees(self) -> dict[int, EventMap]:
        """The trees of all nodes, by `id`."""
        made: dict[int, EventMap] = {}
        for node in reversed(self._nodes):  # halves were made after what they are of
            if node.halves:
                yes, no = (made[id(half)] for half in node.halves)
                made[id(node)] = Split(node.key, frozenset(node.values), yes, no)
            else:
                made[id(node)] = Leaf(node.leaf)
        return made


class _Asked:
    """The questions about a key."""

    def __init__(self, questions: KeyQuestions, highest: int, floor: float) -> None:
        self._questions = questions
        self._floor = floor
        self._yes = np.zeros((len(questions.sets), highest + 1), bool)
        for row, values in zip(self._yes, questions.sets, strict=True):
            row[[value for value in values if value <= highest]] = True

    def best(self, sums: np.ndarray, present: np.ndarray) -> tuple[np.float32, tuple[int, ...]]:
        """The best question: how much the objective grows, and the values that it says yes to.

        Args:
            sums: the statistics by value. present: the values that there are.
        """
        gain, yes = self._best_as_given(sums[present], present)
        questions = self._questions
        if questions.iterations > 0:
            assigned = np.isin(np.arange(len(sums)), yes).astype(np.int64)
            clusters = sums_by(assigned, sums, 2)
            gain += refined(
                sums, clusters, assigned, questions.iterations, questions.closest, self._floor
            )
            yes = tuple(np.flatnonzero(assigned).tolist())
        return gain, yes

    def _best_as_given(
        self, sums: np.ndarray, present: np.ndarray
    ) -> tuple[np.float32, tuple[int, ...]]:
        yes = self._yes[:, present]
        # Questions that divide what is there in the same way must have the same objective to the
        # last digit, for then the first of them is taken: each division is computed once, the
        # smaller half summed and the other one the rest.
        sizes = 2 * yes.sum(axis=1)
        flipped = (sizes > len(present)) | ((sizes == len(present)) & yes[:, 0])
        smaller = np.where(flipped[:, None], ~yes, yes)
        packed = np.packbits(smaller, axis=1)
        _, first, same = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        total = sums.sum(axis=0)
        halves = smaller[first].astype(np.float64) @ sums
        split = objectives(halves, self._floor) + objectives(total - halves, self._floor)
        gains = np.where(smaller[first].any(axis=1), split - objectives(total, self._floor), 0)
        gains = gains.astype(np.float32)[same.ravel()]
        best = int(gains.argmax()) if len(gains) else -1
        if best < 0 or not gains[best] > 0:
            return np.float32(0), ()
        return gains[best], self._questions.sets[best]


def _grown(
    stub: EventMap, stats: TreeStats, questions: Questions, options: GrowingOptions, told: Told
) -> tuple[EventMap, np.float32]:
    """A tree whose leaves were split, and the least gain of a split."""
    num_leaves = max(answers(stub, {})) + 1
    roots_of = leaves(stub, stats)
    grower = _Grower(stats, questions)
    size = int(roots_of.max(initial=-1)) + 1
    roots = [grower.node(leaf, np.flatnonzero(roots_of == leaf)) for leaf in range(size)]
    queue = [(-root.gain, -leaf) for leaf, root in enumerate(roots)]
    heapq.heapify(queue)
    least, total = _NO_SPLIT, np.float32(0)
    splits = 0
    threshold = np.float32(options.threshold)
    while queue and -queue[0][0] > threshold:
        if 0 < options.max_leaves <= num_leaves:
            break
        root = roots[-queue[0][1]]
        least = min(least, root.gain)
        total += root.gain
        grower.split(root, num_leaves)
        num_leaves += 1
        splits += 1
        heapq.heapreplace(queue, (-root.gain, queue[0][1]))
    told.log(f"DoDecisionTreeSplit: split {splits} times, #leaves now {num_leaves}")
    frames = stats.frames
    told.detail(
        f"After decision tree split, num-leaves = {num_leaves}, like-impr ="
        f" {total / frames if frames else 0:.6g} per frame over {frames:.6g} frames."
    )
    made = grower.trees()
    trees = {leaf: made[id(root)] for leaf, root in enumerate(roots)}
    return with_leaves(stub, lambda leaf: trees.get(leaf, Leaf(leaf))), least


def _sums_of_leaves(tree: EventMap, stats: TreeStats) -> tuple[np.ndarray, np.ndarray]:
    """The leaves that events come to, rising, and their statistics."""
    own = leaves(tree, stats)
    found, places = np.unique(own, return_inverse=True)
    return found, sums_by(places, stats.rows, len(found))


def _by_root(stub: EventMap, stats: TreeStats) -> list[TreeStats]:
    """The statistics of each root up to the last that has some."""
    roots = leaves(stub, stats)
    return [stats.chosen(np.flatnonzero(roots == root)) for root in range(int(roots.max()) + 1)]


def _merged(tree: EventMap, groups: Sequence[tuple[np.ndarray, Sequence[int]]]) -> EventMap:
    """A tree with the leaves of each group, (leaves, their clusters), merged.

    Kaldi gives a cluster with number n the n'th of the leaves of its group, which is not always one
    of its own; so does this.
    """
    new: dict[int, int] = {}
    for found, clusters in groups:
        new |= dict(zip(found.tolist(), found[list(clusters)].tolist(), strict=True))
    return with_leaves(tree, lambda leaf: Leaf(new.get(leaf, leaf)))


def _clustered(
    tree: EventMap, stub: EventMap, stats: TreeStats, threshold: np.float32
) -> tuple[EventMap, int]:
    """A tree whose leaves below a root are merged while little is lost; how many are gone."""
    removed = 0
    groups = []
    for part in _by_root(stub, stats):
        if part.events:
            found, rows = _sums_of_leaves(tree, part)
            clusters = merged_below(rows, float(threshold), stats.floor)
            removed += len(found) - len(set(clusters))
            groups.append((found, clusters))
    return _merged(tree, groups), removed


def _with_count(
    tree: EventMap, stub: EventMap, stats: TreeStats, count: int, told: Told
) -> tuple[EventMap, int]:
    """A tree whose leaves below roots are merged until `count` are left; how many are gone."""
    parts = _by_root(stub, stats)
    if count < len(parts):
        told.warn("num-clusters-required is less than size of map. Not doing anything.")
        return tree, 0
    count -= sum(not part.events for part in parts)  # a root without statistics keeps its leaf
    pairs = [_sums_of_leaves(tree, part) for part in parts if part.events]
    present = sum(len(found) for found, _ in pairs)
    if count > present:
        told.warn(
            f"Cannot get required num-clusters: {count} non-empty clusters are wanted, but there"
            f" are {present}"
        )
        return tree, 0
    clusters = merged_to_count([rows for _, rows in pairs], count, stats.floor)
    groups = [(found, own) for (found, _), own in zip(pairs, clusters, strict=True)]
    return _merged(tree, groups), present - sum(len(set(own)) for own in clusters)


def build_tree(
    stats: TreeStats,
    roots: Roots,
    questions: Questions,
    classes: Mapping[int, int],
    central: int,
    options: GrowingOptions,
    told: Told,
) -> EventMap:
    """A decision tree of statistics, as Kaldi's `build-tree` grows it.

    Args:
        roots: the sets of phones that have a tree each. questions: what nodes may ask.
        classes: how many classes of outputs each phone's states have.
        central: the place of the phone whose output is wanted.

    Raises:
        FormatError: statistics do not fit to the roots, or lack the central phone.
    """
    stub = roots_tree(central, roots.phones, roots.shared, classes)
    told.log(f"BuildTree: before building trees, map has {len(answers(stub, {}))} leaves.")
    fixed = [
        phone
        for phones, split in zip(roots.phones, roots.split, strict=True)
        for phone in phones
        if not split
    ]
    growing = stats.chosen(~np.isin(stats.required(central), fixed))
    tree, least = _grown(stub, growing, questions, options, told)
    threshold = np.float32(options.cluster_threshold)
    if threshold < 0:
        told.log(f"Setting clustering threshold to smallest split {least:.6g}")
        threshold = least
    if threshold == 0 and not options.round_num_leaves:
        return tree
    num_leaves = max(answers(tree, {})) + 1
    if threshold != 0:
        tree, removed = _clustered(tree, stub, stats, threshold)
        told.log(f"BuildTree: removed {removed} leaves.")
        num_leaves -= removed
    if options.round_num_leaves:
        tree, removed = _with_count(tree, stub, stats, num_leaves // 8 * 8, told)
        if removed:
            told.log(
                f"BuildTree: Rounded num leaves to multiple of 8 by removing {removed} leaves."
            )
    tree, num_leaves = renumbered(tree, answers(tree, {}))
    told.detail(f"Num-leaves is now {num_leaves}")
    return tree
