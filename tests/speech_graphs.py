"""Small decoding graphs for the tests of speech: OpenFst's files of them, byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from opscope.kaldi.fst.arcs import ARC
from opscope.kaldi.fst.fst import Fst, Header, Reachability
from opscope.speech.fst.composition import Composition
from opscope.speech.fst.graph import LookaheadGraph
from opscope.speech.fst.key_table import KeyTable

MAGIC = struct.pack("<i", 2125659606)
INFINITY = float("inf")
Row = tuple[int, int, float, int]  # input label, output label, cost, next state


def arc_fst(rows: Sequence[Sequence[Row]], finals: dict[int, float], start: int = 0) -> Fst:
    """An FST of the arcs of each state and the costs of ending."""
    begin = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    final = np.full(len(rows), np.inf, np.float32)
    for state, cost in finals.items():
        final[state] = cost
    return Fst(start, final, begin, np.array([row for each in rows for row in each], ARC))


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<i", len(data)) + data


def header(kind: str, version: int, start: int, states: int, arcs: int, flags: int = 0) -> bytes:
    told = struct.pack("<iiQqqq", version, flags, 0, start, states, arcs)
    return MAGIC + text(kind) + text("standard") + told


def symbol_table(words: dict[int, str]) -> bytes:
    rows = b"".join(text(word) + struct.pack("<q", label) for label, word in words.items())
    count = len(words)
    return struct.pack("<i", 2125658996) + text("words") + struct.pack("<qq", count, count) + rows


def vector_bytes(fst: Fst, words: dict[int, str] | None = None) -> bytes:
    parts = [header("vector", 2, fst.start, fst.states, len(fst.arcs), 2 if words else 0)]
    parts += [symbol_table(words)] if words else []
    for state in range(fst.states):
        arcs = fst.arcs[fst.begin[state] : fst.begin[state + 1]]
        parts.append(struct.pack("<fq", fst.final[state], len(arcs)) + arcs.tobytes())
    return b"".join(parts)


def const_bytes(fst: Fst, *, aligned: bool = False, bits: str = "") -> bytes:
    """A `const` FST.

    Args:
        bits: of its counts, as the name of the type says them; empty: 32.
    """
    form = {"8": "<fBBBB", "16": "<fHHHH", "": "<fIIII", "64": "<f4xQQQQ"}[bits]
    data = header(f"const{bits}", 1 if aligned else 2, fst.start, fst.states, len(fst.arcs))
    data += b"\0" * (-len(data) % 16 if aligned else 0)
    for state in range(fst.states):
        begin, end = fst.begin[state : state + 2].tolist()
        arcs = fst.arcs[begin:end]
        epsilons = [int((arcs[name] == 0).sum()) for name in ("ilabel", "olabel")]
        data += struct.pack(form, fst.final[state], begin, end - begin, *epsilons)
    data += b"\0" * (-len(data) % 16 if aligned else 0)
    return data + fst.arcs.tobytes()


def reachability(fst: Fst, final_label: int) -> Reachability:
    """The output labels that can come next from each state, by following epsilons."""
    begin, intervals = [0], []
    for state in range(fst.states):
        found, seen, stack = set(), {state}, [state]
        while stack:
            at = stack.pop()
            if np.isfinite(fst.final[at]):
                found.add(final_label)
            for arc in fst.arcs[fst.begin[at] : fst.begin[at + 1]]:
                if arc["olabel"]:
                    found.add(int(arc["olabel"]))
                elif int(arc["nextstate"]) not in seen:
                    seen.add(int(arc["nextstate"]))
                    stack.append(int(arc["nextstate"]))
        for label in sorted(found):
            if len(intervals) > begin[-1] and intervals[-1][1] == label:
                intervals[-1][1] = label + 1
            else:
                intervals.append([label, label + 1])
        begin.append(len(intervals))
    pairs = np.zeros((0, 2), np.int32)
    array = np.array(intervals, np.int32).reshape(-1, 2)
    return Reachability(np.array(begin, np.int64), array, final_label, pairs)


def lookahead_file(fst: Fst, final_label: int) -> Fst:
    known = reachability(fst, final_label)
    return replace(fst, header=Header("olabel_lookahead", reachability=known))


def lookahead_bytes(fst: Fst, final_label: int, kind: str = "olabel_lookahead") -> bytes:
    """A look-ahead FST without its table of labels; of input labels only for an acceptor."""
    known = reachability(fst, final_label)
    data = header(kind, 1, -1, 0, 0) + struct.pack("<i", 446681434) + const_bytes(fst)
    if kind == "arc_lookahead":
        return data + struct.pack("<???", True, False, False)
    of_input = kind == "ilabel_lookahead"
    data += struct.pack("<??", True, of_input) + (b"" if of_input else struct.pack("<?", True))
    data += struct.pack("<??iq", of_input, False, final_label, fst.states)
    for state in range(fst.states):
        mine = known.intervals[known.begin[state] : known.begin[state + 1]]
        count = int((mine[:, 1] - mine[:, 0]).sum())
        data += struct.pack("<q", len(mine)) + mine.tobytes() + struct.pack("<i", count)
    return data + (struct.pack("<?", False) if of_input else b"")


@dataclass
class Context:
    """A context of a language model: its arcs, word to cost; the cost of the shorter one."""

    words: tuple[int, ...]
    arcs: dict[int, float]
    backoff: float = 0.0
    final: float = INFINITY


def ngram_bytes(contexts: Sequence[Context]) -> bytes:
    """An `ngram` FST; `contexts` hold (), the start (0,), and all suffixes of each context.

    Words of a context stand in the order in which they are said.
    """
    by_words = {context.words: context for context in contexts}
    order, at = [()], 0
    bits, words, backoff = [1, 0], [-1], [INFINITY]
    future, labels, costs, final_bits, finals = [0], [], [], [], []
    while at < len(order):
        context = by_words[order[at]]
        longer = sorted(
            (each for each in by_words if each and each[1:] == context.words),
            key=lambda each: each[0],
        )
        for each in longer:
            bits.append(1)
            words.append(each[0])
            backoff.append(by_words[each].backoff)
            order.append(each)
        bits.append(0)
        for word, cost in sorted(context.arcs.items()):
            future.append(1)
            labels.append(word)
            costs.append(cost)
        future.append(0)
        final_bits.append(int(context.final < INFINITY))
        finals += [context.final] if context.final < INFINITY else []
        at += 1

    def packed(values: list[int]) -> bytes:
        array = np.packbits(np.array(values, bool), bitorder="little").tobytes()
        return array + b"\0" * (-len(array) % 8)

    count = len(order)
    data = struct.pack("<QQQ", count, len(labels), len(finals))
    data += packed(bits) + packed(future) + packed(final_bits)
    data += np.array([*words, 0], "<i4").tobytes() + np.array(labels, "<i4").tobytes()
    data += np.array([*backoff, 0], "<f4").tobytes() + np.array(finals, "<f4").tobytes()
    data += np.array([*costs, 0], "<f4").tobytes()
    return header("ngram", 4, 1, count, 0) + data


def grammar_bytes(offset: int, top: Fst, *parts: Fst) -> bytes:
    """A file of Kaldi's GrammarFst; the nonterminals are the phones from `offset` + 4 on."""

    def number(value: int) -> bytes:
        return b"\4" + struct.pack("<i", value)

    data = b"\0B<GrammarFst> " + b"".join(map(number, (1, len(parts), offset))) + const_bytes(top)
    for name, part in enumerate(parts, offset + 4):
        data += number(name) + const_bytes(part)
    return data + b"</GrammarFst> "


def random_first(random: np.random.Generator, words: int, labels: int) -> Fst:
    """A small HCL: for each word a chain of input labels with loops; silence between words."""
    rows: list[list[Row]] = [[]]

    def chain(at: int, label: int, to: int | None = None) -> int:
        rows.append([])
        new = len(rows) - 1
        cost = float(np.float32(random.uniform(0, 2)))
        rows[at].append((label, 0, cost, new))
        rows[new].append((label, 0, 0.25, new))
        if to is not None:
            rows[new].append((0, 0, 0.5, to))
        return new

    pick = lambda: int(random.integers(1, labels + 1))  # noqa: E731
    prefixes = [chain(0, pick()) for _ in range(max(1, words // 3))]
    for word in range(1, words + 1):
        at = prefixes[int(random.integers(len(prefixes)))]
        for _ in range(int(random.integers(0, 2))):
            at = chain(at, pick())
        rows.append([])
        rows[at].append((pick(), word, float(np.float32(random.uniform(0, 1))), len(rows) - 1))
        chain(len(rows) - 1, pick(), 0)
    chain(0, pick(), 0)  # silence
    rows = [sorted(row, key=lambda arc: arc[1]) for row in rows]
    return arc_fst(rows, {0: 0.0})


def random_grammar(random: np.random.Generator, words: int) -> Fst:
    """A bigram with a shorter context behind an epsilon."""
    cost = lambda: float(np.float32(random.uniform(0.1, 6)))  # noqa: E731
    rows: list[list[Row]] = [[(word, word, cost(), word) for word in range(1, words + 1)]]
    for _ in range(words):
        some = sorted(random.choice(words, int(random.integers(0, words)), replace=False) + 1)
        rows.append([(0, 0, cost(), 0), *((int(w), int(w), cost(), int(w)) for w in some)])
    finals = {s: cost() for s in range(words + 1) if random.random() < 0.7}
    return arc_fst(rows, finals | {0: cost()}, int(random.integers(words + 1)))


def expanded(graph: LookaheadGraph) -> Fst:
    """All of a composition, as an HCLG.fst has it."""
    composition, numbers = Composition(graph), KeyTable(2)
    border = composition.start()
    numbers.numbers(*border)
    finals, counts, arcs = [], [], []
    while len(border[0]):
        made, known = composition.arcs(*border), numbers.count
        rows = np.empty(len(made.ilabel), ARC)
        for name in ("ilabel", "olabel", "weight"):
            rows[name] = getattr(made, name)
        rows["nextstate"] = numbers.numbers(made.first, made.second)
        arcs.append(rows)
        finals.append(composition.finals(*border))
        counts.append(made.counts)
        new = np.arange(known, numbers.count)
        first, second = numbers.keys
        border = first[new], second[new]
    begin = np.cumsum([0, *np.concatenate(counts)]).astype(np.int64)
    return Fst(0, np.concatenate(finals).astype(np.float32), begin, np.concatenate(arcs))
