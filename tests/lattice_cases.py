"""Small phones and lattices, and the sums over all their paths one by one."""

from __future__ import annotations

import itertools

import numpy as np

from opscope.cntk.lattices import Hmms, Lattice

STATES = ["sil_2", "sil_3", "a_2", "a_3", "b_2", "sp_2"]
PHONES = """sil T_sil sil_2 sil_3
sp T_sp sp_2
x-a+b T_two a_2 a_3
a T_two a_2 a_3
b T_one b_2
b-c T_chain b_2 a_3
"""
TRANSITIONS = """T_sil 2  .7 .3 0  .6 .4 0  .1 .5 .4
T_two 2  1 0 0  .5 .4 .1  0 .6 .4
T_chain 2  1 0 0  .5 .5 0  0 .6 .4
T_one 1  1 0  .5 .5
T_sp 1  .4 .6  .3 .7
"""


def hmms(folder) -> Hmms:
    """Phones of two states at most; the pause may have no frames."""
    (folder / "tying").write_text(PHONES)
    (folder / "transprob").write_text(TRANSITIONS)
    (folder / "states").write_text("".join(f"{state}\n" for state in STATES))
    return Hmms.read(folder / "tying", folder / "transprob", STATES)


def split(rng, frames, phones):
    """Units of an edge: some phones that share its frames."""
    counts = np.bincount(rng.integers(phones, size=frames - phones), minlength=phones) + 1
    return [(int(rng.choice([0, 2, 3, 4])), int(count)) for count in counts]


def lattice(rng, pause=1, frames=7, final_null=False, acoustic=False) -> Lattice:
    """Two nodes between begin and end, edges of one or two phones, some with a pause behind."""
    times = [0, *sorted(rng.integers(2, frames - 1, 2).tolist()), frames]
    times[2] = max(times[2], times[1] + 1)
    edges = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (1, 3), (2, 3)]
    units = []
    for begin, end in edges:
        length = times[end] - times[begin]
        own = split(rng, length, int(rng.integers(1, min(length, 2) + 1)))
        if rng.random() < 0.5 and own[-1][1] > 1 and len(own) == 1:
            rest = int(rng.integers(own[-1][1]))
            own = [(own[0][0], own[0][1] - rest), (pause, rest)]
        elif rng.random() < 0.5:
            own.append((pause, 0))
        units.append(own)
    if final_null:
        times, edges = [*times, frames], [*edges, (3, 4)]
        units.append([])
    first = np.cumsum([0] + [len(own) for own in units])
    flat = np.array([unit for own in units for unit in own])
    scores = rng.normal(size=len(edges)).astype(np.float32)
    spoken = rng.normal(size=len(edges)).astype(np.float32) if acoustic else None
    return Lattice(times, edges, scores, flat, first, acoustic=spoken)


def best_path(likelihoods, states, transitions):
    """Score and states of the best way through a phone, from likelihoods of its frames."""
    states = states[states >= 0]
    count, frames = len(states), len(likelihoods)
    if not frames:
        return transitions[0, -1], ()
    best = (-np.inf, ())
    for way in itertools.product(range(count), repeat=frames):
        score = transitions[0, way[0]] + transitions[1 + way[-1], -1]
        score += sum(transitions[1 + i, j] for i, j in itertools.pairwise(way))
        score += sum(likelihoods[t, states[i]] for t, i in enumerate(way))
        if score > best[0]:
            best = (score, tuple(states[list(way)].tolist()))
    return best


def ways(edges, last):
    """All paths from node 0 to the last one, as numbers of edges."""
    waiting = [(0, [])]
    while waiting:
        node, path = waiting.pop()
        if node == last:
            yield path
        waiting += [(end, [*path, j]) for j, (begin, end) in enumerate(edges) if begin == node]


def paths(lattice, hmms, likelihoods, language=1.0, penalty=0.0):
    """Score and states of every path through a lattice, for likelihoods of its frames."""
    edges = []
    for j, (begin, _) in enumerate(lattice.edges.tolist()):
        row = int(lattice.times[begin])
        score, states = language * lattice.scores[j] + penalty, []
        for phone, count in lattice.units[lattice.first[j] : lattice.first[j + 1]].tolist():
            part = likelihoods[row : row + count]
            own, found = best_path(part, hmms.states[phone], hmms.transitions[phone])
            score += own
            states += found
            row += count
        edges.append((score, states))
    for way in ways(lattice.edges.tolist(), len(lattice.times) - 1):
        score = sum(edges[j][0] for j in way)
        if np.isfinite(score):
            yield score, [state for j in way for state in edges[j][1]], way
