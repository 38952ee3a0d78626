"""OpenFst's `ngram` FST, a language model as two trees of bits: read into states and arcs, written.

States are contexts: state 0 the empty one, state 1 the start; children of a context lie one word
further back. Format: OpenFst's `ngram-fst.h` (Sorensen and Allauzen 2011, LOUDS).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.sequence import bincount, repeated
from ....framework.base.untrusted.values import check_nesting
from ..arcs import ARC
from ..fst import Fst, Header
from .byte_file import ByteFile

_MOST = (1 << 31) - 2
_MOST_WORDS = 256  # of a context that is written


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


def is_ngram(fst: Fst) -> bool:
    """Whether an FST can be written as `ngram`.

    It is an acceptor whose states are contexts of words. Each but the empty one has an epsilon to
    the context without its first word, and each word leads to the longest context that there is.
    """
    return _contexts(fst) is not None


def ngram_body(fst: Fst) -> bytes:
    """What follows the header in the file of an `ngram` FST.

    Raises:
        FormatError: it cannot be written so; see `is_ngram`.
    """
    found = _contexts(fst)
    if found is None:
        raise FormatError("an FST whose states are not the contexts of an n-gram model")
    states, rows, source = fst.states, found.rows, fst.source()
    silent = np.flatnonzero(fst.ilabel == 0)
    backoff = np.full(states, np.inf, np.float32)
    backoff[source[silent]] = fst.weight[silent]
    final = fst.final[found.order]
    ends = ~np.isposinf(final)
    counts = bincount(source[rows], minlength=states)[found.order]
    children = bincount(found.parent[1:], minlength=states)
    sizes = np.array([states, len(rows), int(ends.sum())], "<u8")
    bits = np.append(True, _ones(children)), _ones(counts), ends
    # An element that stands for nothing follows the arrays of contexts and of arcs' costs.
    words = np.append(found.word, 0).astype("<i4")
    labels = fst.ilabel[rows].astype("<i4")
    costs = (np.append(backoff[found.order], 0), final[ends], np.append(fst.weight[rows], 0))
    parts = sizes, *map(_packed, bits), words, labels, *(cost.astype("<f4") for cost in costs)
    return b"".join(part.tobytes() for part in parts)


class _Contexts(NamedTuple):
    """The states of an FST as the contexts of an n-gram model.

    Attributes:
        order: the states, each context after the shorter one, those of one by their first words.
        parent, word: of each in that order, the place of the shorter context; the first word, 0 at
            the start of sentences, -1 where there is none.
        rows: the arcs with words, by context and word.
    """

    order: np.ndarray
    parent: np.ndarray
    word: np.ndarray
    rows: np.ndarray


def _contexts(fst: Fst) -> _Contexts | None:
    """None: they are something else."""
    source, target, label = fst.source(), fst.nextstate, fst.ilabel
    silent = label == 0
    counts = bincount(source[silent], minlength=fst.states)
    roots = np.flatnonzero(counts == 0)
    if fst.states < 2 or fst.start < 0:
        return None
    if not np.array_equal(label, fst.olabel) or len(roots) != 1 or counts.max() > 1:
        return None
    root = int(roots[0])
    shorter = np.full(fst.states, root)
    shorter[source[silent]] = target[silent]
    depth = np.zeros(fst.states, np.int64)
    context = np.arange(fst.states)
    while (longer := context != root).any():
        depth += longer
        context = shorter[context]
        if depth.max() > _MOST_WORDS:
            return None
    # The first word of a context is that of the context without its last word.
    word = np.full(fst.states, -1)
    said = np.flatnonzero(~silent & (depth[target] == depth[source] + 1))
    for length in range(1, int(depth.max()) + 1):
        mine = said[depth[target[said]] == length]
        word[target[mine]] = label[mine] if length == 1 else word[source[mine]]
        if length == depth[fst.start] == 1:
            word[fst.start] = 0
    place, orders = np.zeros(fst.states, np.int64), [roots]
    for length in range(1, int(depth.max()) + 1):
        mine = np.flatnonzero(depth == length)
        mine = mine[np.lexsort((word[mine], place[shorter[mine]]))]
        place[mine] = sum(map(len, orders)) + np.arange(len(mine))
        orders.append(mine)
    order = np.concatenate(orders)
    parent = place[shorter[order]]
    rows = np.flatnonzero(~silent)
    rows = rows[np.lexsort((label[rows], place[source[rows]]))]
    found = _Contexts(order, parent, word[order], rows)
    owner, labels = place[source[rows]], label[rows]
    twice = (owner[1:] == owner[:-1]) & (labels[1:] == labels[:-1])
    same = (parent[2:] == parent[1:-1]) & (found.word[2:] == found.word[1:-1])
    if place[fst.start] != 1 or (found.word[1:] < 0).any() or twice.any() or same.any():
        return None
    led = _targets(found.word, parent, owner, labels, "the FST")
    return found if np.array_equal(led, place[target[rows]]) else None


def _ones(counts: np.ndarray) -> np.ndarray:
    """As many ones as each count says, with a zero before them, and one at the end."""
    bits = np.ones(int(counts.sum()) + len(counts) + 1, bool)
    bits[np.append(0, np.cumsum(counts + 1))] = False
    return bits


def _packed(bits: np.ndarray) -> np.ndarray:
    """Bits in words of 64, the lowest first."""
    data = np.packbits(bits, bitorder="little")
    return np.append(data, np.zeros(-len(data) % 8, np.uint8))
