"""OpenFst's `ngram` FST, a language model as two trees of bits, read into states and arcs.

States are contexts: state 0 the empty one, state 1 the start; children of a context lie one word
further back. Format: OpenFst's `ngram-fst.h` (Sorensen and Allauzen 2011, LOUDS).
"""

from __future__ import annotations

import numpy as np

from ...framework.base.sequence import repeated
from ...framework.base.untrusted.values import check_nesting
from .arcs import ARC
from .byte_file import ByteFile
from .fst import Fst, Header

_MOST = (1 << 31) - 2


def read_ngram(file: ByteFile, header: Header, _: int, __: int) -> Fst:
    """The FST after the header of the file: an epsilon arc to the shorter context comes first.

    Raises:
        FormatError: the file is cut, or the bits of the trees contradict its numbers.
    """
    place = file.offset
    states, futures, finals = file.unpack("QQQ", "the sizes of an ngram FST")
    if max(states, futures, finals) > min(_MOST, 8 * file.remaining) or finals > states:
        raise file.error(f"an ngram FST of {states} states cannot stand here", place)
    if states < 2:
        raise file.error(f"an ngram FST of {states} states has no start", place)
    context = _bits(file, 2 * states + 1)
    future = _bits(file, futures + states + 1)
    final_bits = _bits(file, states)
    words = file.array("<i4", states + 1, "the words of contexts")
    labels = file.array("<i4", futures, "the words of arcs")
    file.skip(-(file.offset - place) % 4, "padding")
    backoff = file.array("<f4", states + 1, "the costs of shorter contexts")
    final_costs = file.array("<f4", finals, "the costs of ends")
    costs = file.array("<f4", futures + 1, "the costs of arcs")
    if context.sum() != states or future.sum() != futures or final_bits.sum() != finals:
        raise file.error("the bits of an ngram FST are not as many as its states and arcs", place)
    # Node i of the tree is the i-th set bit; between the zeros k and k + 1 lie node k's children.
    ones = np.flatnonzero(context)
    zeros = np.flatnonzero(~context)
    parent = np.searchsorted(zeros, ones) - 1
    parent[0] = 0
    if len(zeros) != states + 1 or (parent[1:] >= np.arange(1, states)).any() or parent.min() < 0:
        raise file.error("the contexts of an ngram FST are no tree", place)
    if ones[0] != 0 or zeros[0] != 1 or (parent[1:2] != 0).any():
        raise file.error("the root of an ngram FST is not the empty context", place)
    future_zeros = np.flatnonzero(~future)
    counts = np.diff(future_zeros) - 1
    if len(future_zeros) != states + 1 or future_zeros[0] != 0:
        raise file.error("the arcs of an ngram FST do not follow each other", place)
    owner = repeated(np.arange(states), counts)
    same = owner[1:] == owner[:-1]
    if (labels < 1).any() or (labels[1:][same] <= labels[:-1][same]).any():
        raise file.error("the arcs of an ngram FST are not sorted by word", place)
    begin = np.concatenate([[0], np.cumsum(counts + (np.arange(states) > 0))])
    arcs = np.empty(int(begin[-1]), ARC)
    is_shorter = np.zeros(len(arcs), bool)
    is_shorter[begin[1:-1]] = True
    arcs["ilabel"][is_shorter], arcs["ilabel"][~is_shorter] = 0, labels
    arcs["olabel"] = arcs["ilabel"]
    arcs["weight"][is_shorter], arcs["weight"][~is_shorter] = backoff[1:states], costs[:futures]
    arcs["nextstate"][is_shorter] = parent[1:]
    arcs["nextstate"][~is_shorter] = _targets(words, parent, owner, labels, file.name)
    final = np.full(states, np.inf, np.float32)
    final[final_bits] = final_costs
    return Fst(1, final, begin, arcs, header)


def _bits(file: ByteFile, count: int) -> np.ndarray:
    words = file.array("<u8", (count + 63) // 64, "the bits of an ngram FST")
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")[:count]
    return bits.view(bool)


def _targets(
    words: np.ndarray, parent: np.ndarray, owner: np.ndarray, labels: np.ndarray, name: str
) -> np.ndarray:
    """The longest context that the owner's context and the label end with, for each arc.

    The tree is followed from the root, all arcs at once: the label first, then the words of the
    owner's context from the last one on.
    """
    states = len(parent)
    nodes = np.arange(1, states)
    keys = parent[1:].astype(np.int64) << 32 | words[1:states].astype(np.int64)
    order = np.argsort(keys, kind="stable")
    keys, nodes = keys[order], nodes[order]
    depth = np.zeros(states, np.int64)
    level = np.arange(states)
    steps = 0
    while (level > 0).any():
        steps += 1
        check_nesting(steps, f"{name}: the contexts of an ngram FST")
        depth += level > 0
        level = parent[level]
    # chain[d]: the node of depth d + 1 on the way from the root to each context.
    deepest = int(depth.max())
    chain = np.full((deepest + 1, states), -1, np.int64)
    node = np.arange(states)
    at = depth.copy()
    while (at > 0).any():
        inside = at > 0
        chain[at[inside] - 1, np.flatnonzero(inside)] = node[inside]
        node = np.where(inside, parent[node], node)
        at = at - inside
    target = np.zeros(len(owner), np.int64)
    alive = np.arange(len(owner))
    word = labels.astype(np.int64)
    for step in range(deepest + 1):
        wanted = target[alive] << 32 | word
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        hit = keys[place] == wanted
        alive = alive[hit]
        target[alive] = nodes[place[hit]]
        on_way = chain[step, owner[alive]]
        alive, on_way = alive[on_way >= 0], on_way[on_way >= 0]
        word = words[on_way].astype(np.int64)
    return target
