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


WRITTEN_BY_CNTK = {  # one lattice, by its own code, and what its forwardbackward() makes of it
    1: bytes.fromhex(
        "4c4154200100000005000000080000000000803f000000007b14ae47e17a843f08000000010000804e4f"
        "4445050000000000050006000800080045444745080000000000100000000000d4320bc0245b8c3f0000"
        "200000020000003805c0b1dc873f0100200000040000179a103f43cc1cbf0000300000050000a757a3bf"
        "0d4768bf0100300000070000bde3e53f75bbaf3e0100300000080000a51071bee70c57be020030000009"
        "00004a3bc8be093c12c003004000000b00003a13323ee9ab0140414c49470b0000000000280001000000"
        "000008000100280003000800030040000100000000001800000018000000100001000000454e4420"
    ),
    2: bytes.fromhex(
        "4c4154200200000005000000080000000000803f000000007b14ae47e17a843f08000000010000804e4f"
        "445305000000000005000600080008004544475308000000000010008002000000002000800500000100"
        "2000000b0000000030008008000001003000000e00000100300000110000020030008014000003004000"
        "00170000414c4e5317000000d4320bc0245b8c3f00002880003805c0b1dc873f00000880a757a3bf0d47"
        "68bf03004080179a103f43cc1cbf03000880a51071bee70c57be00001880bde3e53f75bbaf3e00001880"
        "4a3bc8be093c12c0000010803a13323ee9ab0140454e4420"
    ),
}
LIKELIHOODS = np.sin(np.arange(48)).reshape(8, 6)  # lmf 1.3, wp -0.2, amf 2
TOTAL = -1.2552857957
SHARES = [0.512164, 0, 0, 0, 0.486204, 0.001631]  # of the states in frame 5
REFERENCE = [(0, 3), (2, 3), (3, 2)]
ALIGNED = [1, 1, 1, 2, 3, 3, 4, 4]
