"""Paths of new words, joined to a look-ahead graph between the states where words begin and end.

The graph is not determinized again. New words take the path of other words as far as one of the
same phones has no word on it: a path of their own from the first phone on would make the search pay
for the grammar earlier than for other words, and a beam would lose it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...framework.base.sequence import bincount
from ...kaldi.fst.arcs import ARC, runs
from ...kaldi.fst.fst import EXPANDED, Fst
from ...kaldi.fst.fst_properties import label_properties
from ...kaldi.graphs.hmms import PhoneHmms
from ..fst.graph import NextLabels
from .contexts import Pair
from .junctions import Exit, Junctions
from .next_labels import MoreSets, Union, with_labels
from .own_paths import OwnPaths, own_paths
from .shared_paths import SharedPaths, Spelling, WordTree


@dataclass(frozen=True)
class Joined:
    """A look-ahead graph with new words.

    Attributes:
        fst: the states that were there come first. following: the labels that can come next.
        used: pairs of phones in the new words.
    """

    fst: Fst
    following: NextLabels
    used: frozenset[Pair]

    def with_header_of(self, old: Fst) -> Fst:
        """The FST as a file has it; `old` is that of a file without the new words."""
        sets, begin, intervals = self.following
        known = old.header.reachability
        assert known is not None  # it is a look-ahead graph
        sizes = np.diff(begin)[sets]
        reached = replace(
            known,
            begin=np.append(0, np.cumsum(sizes)),
            intervals=intervals[runs(begin[sets], sizes)],
        )
        header = replace(
            old.header,
            properties=EXPANDED | label_properties(self.fst),
            arcs=len(self.fst.arcs),
            reachability=reached,
            version=1,
        )
        return replace(self.fst, header=header)


def joined(
    fst: Fst,
    following: NextLabels,
    words: Sequence[Spelling],
    junctions: Junctions,
    hmms: PhoneHmms,
    first_new: int,
) -> Joined:
    """A look-ahead graph with new words.

    Args:
        fst, following: the graph, and the labels that can come next from its states.
        words: those with labels from `first_new` on are new, the others are in the graph. All their
            phones are, and words end in their last ones.

    Raises:
        FormatError: HMMs of the model have loops beyond single states.
    """
    tree = WordTree(sorted(words, key=lambda word: word.phones))
    shared = SharedPaths(fst, tree, junctions, hmms)
    own = own_paths(fst, tree, shared, junctions, hmms)
    exits = [_exits(word, junctions) for word in tree.words]
    ends = own.ends + [
        (state, tree.words[word].label, junctions.leave[state] + cost, word)
        for state, cost, word in shared.ends()
    ]
    steps, alone = _ended(ends, exits, fst.states + own.states)
    source, arcs = own.source, own.arcs
    states = fst.states + own.states + len(alone)
    # The self-loop of a state between words is not that of a new word's last transition.
    looped = sorted({row[-1] for row in steps if not row[1] and _has_loop(row[-1], junctions)})
    copies = {state: states + at for at, state in enumerate(looped)}
    steps = [(*row[:-1], copies.get(row[-1], row[-1])) for row in steps]
    bare = [_without_loop(fst, state, arcs[source == state], junctions) for state in looped]
    sizes = [len(each) for each in bare]
    source = np.concatenate(
        (source, [row[0] for row in steps], np.repeat(states + np.arange(len(bare)), sizes))
    ).astype(np.int64)
    arcs = np.concatenate((arcs, np.array([row[1:] for row in steps], ARC), *bare))
    order = np.lexsort((arcs["ilabel"], arcs["olabel"], source))
    source, arcs = source[order], arcs[order]
    begins = source < fst.states
    added = bincount(source[begins], minlength=fst.states)
    new = bincount(source[~begins] - fst.states, minlength=states + len(bare) - fst.states)
    begin = fst.begin + np.append(0, np.cumsum(added))
    final = (fst.final[looped] - junctions.leave[looped]).astype(np.float32)
    whole = Fst(
        fst.start,
        np.concatenate((fst.final, np.full(states - fst.states, np.inf, np.float32), final)),
        np.concatenate((begin, begin[-1] + np.cumsum(new))),
        np.concatenate((_merged(fst, source[begins], arcs[begins]), arcs[~begins])),
    )
    new = {word.label for word in words if word.label >= first_new}
    if new:
        following = with_labels(following, junctions.entries, first_new, len(new))
    more = MoreSets(following)
    sets = following.sets.copy()
    for state, labels in shared.labels().items():
        sets[state] = more.number(labels, frozenset((int(sets[state]),)))
    after = [frozenset(int(sets[state]) for _, state, _ in each) for each in exits]
    unions = _next(own, fst.states, after) + [(frozenset(), after[word]) for word in alone]
    made = [more.number(*each) for each in unions]
    sets = np.concatenate((sets, np.array(made, np.int32), sets[looped]))
    return Joined(whole, more.following(sets), frozenset(shared.used))


def _exits(word: Spelling, junctions: Junctions) -> list[Exit]:
    own = word.silence
    return junctions.exits(word.phones[-1], None if own is None else own[0])


_End = tuple[int, int, float, int]
"""State, output label, cost and word, as places in the list of words."""
_Step = tuple[int, int, int, float, int]
"""State, input label, output label, cost, next state."""


def _ended(
    ends: Sequence[_End], exits: Sequence[list[Exit]], states: int
) -> tuple[list[_Step], list[int]]:
    """What leads on from the ends of words, and a word for each new state, numbered from `states`.

    Words that are spelled alike end in one state. As in a graph that was made with them, a step
    with the label leads from there to a state where the word alone has ended, so that a search
    looks ahead for the next word at once.
    """
    found: list[_Step] = []
    known: dict[tuple[Exit, ...], int] = {}
    alone: list[int] = []
    for state, label, cost, word in ends:
        ways = exits[word]
        if not label or len(ways) == 1:
            found += [(state, ilabel, label, cost + each, after) for ilabel, after, each in ways]
            continue
        target = known.setdefault(tuple(ways), states + len(alone))
        if target == states + len(alone):
            alone.append(word)
            found += [(target, ilabel, 0, each, after) for ilabel, after, each in ways]
        found.append((state, 0, label, cost, target))
    return found, alone


def _has_loop(state: int, junctions: Junctions) -> bool:
    """Whether a state of the graph has a self-loop; new ones where words have ended have none."""
    return state < len(junctions.leave) and bool(junctions.leave[state])


def _next(own: OwnPaths, first: int, after: Sequence[frozenset[int]]) -> list[Union]:
    """What can come next from the states of new words, which are numbered from `first` on.

    Args:
        after: the sets of the states that each word leads to.
    """
    labels: list[set[int]] = [set() for _ in range(own.states)]
    sets: list[set[int]] = [set() for _ in range(own.states)]
    for state, label, _, word in own.ends:
        if label:
            labels[state - first].add(label)
        else:
            sets[state - first] |= after[word]
    columns = own.source, own.arcs["olabel"], own.arcs["nextstate"]
    arcs = list(zip(*(column.tolist() for column in columns), strict=True))
    count = -1
    while count < (count := sum(map(len, (*labels, *sets)))):
        for source, label, target in reversed(arcs):
            if source < first:
                continue
            mine, its = source - first, target - first
            labels[mine] |= {label} if label else labels[its]
            sets[mine] |= set() if label else sets[its]
    return [(frozenset(one), frozenset(other)) for one, other in zip(labels, sets, strict=True)]


def _merged(fst: Fst, source: np.ndarray, arcs: np.ndarray) -> np.ndarray:
    """The arcs of an FST and further ones of its states, by their output labels.

    Args:
        source: the states that `arcs` leave, rising; those of each state in the order of labels.
    """
    rows = fst.begin[source], fst.begin[source + 1], arcs["olabel"]
    places = [
        begin + int(np.searchsorted(fst.olabel[begin:end], label))
        for begin, end, label in zip(*(row.tolist() for row in rows), strict=True)
    ]
    return np.insert(fst.arcs, np.array(places, np.int64), arcs)


def _without_loop(fst: Fst, state: int, more: np.ndarray, junctions: Junctions) -> np.ndarray:
    """The arcs of a state and `more`, but for its self-loop and what it costs to leave that."""
    mine = slice(fst.begin[state], fst.begin[state + 1])
    arcs = np.concatenate((fst.arcs[mine][~junctions.loop[mine]], more))
    arcs["weight"] -= junctions.leave[state]
    return arcs
