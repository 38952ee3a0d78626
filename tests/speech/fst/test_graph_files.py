"""OpenFst's files of decoding graphs, graphs of a folder and on disk, grammars; damaged ones."""

from __future__ import annotations

import logging
import math
import struct
from pathlib import Path

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError
from opscope.kaldi.fst.files.byte_file import ByteFile
from opscope.kaldi.fst.files.fst_io import fst_bytes
from opscope.kaldi.fst.files.openfst import read_openfst
from opscope.kaldi.fst.fst import Fst
from opscope.speech.fst import graph_cache
from opscope.speech.fst.grammar import grammar_fst, phrase_labels
from opscope.speech.fst.graph import LookaheadGraph, StaticGraph, distinct_sets
from opscope.speech.fst.graph_folder import load_graph
from opscope.speech.fst.sums import running_sums
from opscope.speech.fst.words import Words
from opscope.speech.search.decoder import Decoder
from speech_graphs import (
    INFINITY,
    Context,
    arc_fst,
    const_bytes,
    lookahead_bytes,
    lookahead_file,
    ngram_bytes,
    random_first,
    random_grammar,
    reachability,
    text,
    vector_bytes,
)

WORDS = {0: "<eps>", 1: "uno", 2: "dos", 3: "tres", 4: "[unk]"}
TRIGRAM = [
    Context((), {1: 1.0, 2: 2.0, 3: 3.0}, final=4.0),
    Context((0,), {1: 0.5, 3: 0.75}, backoff=0.1),
    Context((1,), {2: 0.25, 3: 1.5}, backoff=0.2, final=2.0),
    Context((2,), {1: 0.4}, backoff=0.3),
    Context((1, 2), {1: 0.6, 3: 0.7}, backoff=0.35, final=0.9),
    Context((2, 1), {3: 0.8}, backoff=0.45),
    Context((0, 1), {2: 0.9}, backoff=0.55),
]


def read(data: bytes) -> Fst:
    return read_openfst(ByteFile(data, "some.fst"))


def pair(seed: int = 0) -> tuple[Fst, Fst]:
    random = np.random.default_rng(seed)
    return random_first(random, 6, 7), random_grammar(random, 6)


def assert_equal(one: Fst, other: Fst) -> None:
    assert one.start == other.start
    for name in ("final", "begin", "arcs"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("make", [vector_bytes, const_bytes])
def test_files_hold_what_was_written(make) -> None:
    for fst in pair():
        assert_equal(read(make(fst)), fst)
    assert_equal(read(const_bytes(fst, aligned=True)), fst)
    found = read(vector_bytes(fst, WORDS))
    assert found.header.output_symbols.texts == WORDS
    assert_equal(found, fst)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (text("uno") + struct.pack("<q", -1), r"a symbol, 'uno', has the label -1 \(byte 16\)"),
        (text("uno") + struct.pack("<q", 9), r"a symbol, 'uno', has the label 9 \(byte 16\)"),
        (text("uno")[:6], r"a symbol needs 3 bytes, the file has 2 more \(byte 20\)"),
        (text("uno"), r"the label of a symbol needs 8 bytes, the file has 0 more \(byte 23\)"),
        (struct.pack("<i", -2), r"a symbol of -2 bytes \(byte 16\)"),
        (struct.pack("<i", 1 << 20), r"a symbol of 1048576 bytes \(byte 16\)"),
        (b"", r"a symbol needs 4 bytes, the file has 0 more \(byte 16\)"),
    ],
)
def test_damaged_symbols(rows: bytes, message: str) -> None:
    whole = text("é") + struct.pack("<q", 8)
    file = ByteFile(b"...\0" + whole[:2] + whole, "some.fst")
    file.skip(6, "a beginning")
    assert file.labeled_texts(1, 8, "a symbol") == {8: "é"} and not file.remaining
    file = ByteFile(b".." + whole + rows, "some.fst")
    file.skip(2, "a beginning")
    with pytest.raises(FormatError, match=f"some.fst: {message}"):
        file.labeled_texts(2, 8, "a symbol")


@pytest.mark.parametrize("kind", ["vector", "const"])
def test_files_of_kaldifst_are_read(kind: str, tmp_path: Path) -> None:
    kaldifst = pytest.importorskip("kaldifst")
    made = kaldifst.compile("0 1 3 4 0.5\n0 1 5 0 1.25\n1 2 0 7\n2 0.75\n1 3.5\n")
    made = made if kind == "vector" else kaldifst.StdConstFst(made)
    made.write(str(tmp_path / "a.fst"))
    rows = [[(3, 4, 0.5, 1), (5, 0, 1.25, 1)], [(0, 7, 0.0, 2)], []]
    found = read_openfst(ByteFile.open(tmp_path / "a.fst"))
    assert found.header.kind == kind
    assert_equal(found, arc_fst(rows, {1: 3.5, 2: 0.75}))


def test_reachability_is_read() -> None:
    first, _ = pair()
    read_back = read(lookahead_bytes(first, 9))
    assert_equal(read_back, first)
    found, wanted = read_back.header.reachability, reachability(first, 9)
    assert found is not None and not found.of_input
    np.testing.assert_array_equal(found.begin, wanted.begin)
    np.testing.assert_array_equal(found.intervals, wanted.intervals)
    assert found.final_label == 9


def test_a_language_model_is_read() -> None:
    fst = read(ngram_bytes(TRIGRAM))
    assert (fst.start, fst.states) == (1, 7)
    # States level by level, children by the word they add.
    order = [(), (0,), (1,), (2,), (0, 1), (2, 1), (1, 2)]
    by_words = {context.words: context for context in TRIGRAM}
    for state, words in enumerate(order):
        context = by_words[words]
        wanted = [] if not words else [(0, 0, context.backoff, order.index(words[1:]))]
        for word, cost in sorted(context.arcs.items()):
            longest = (*words, word)
            while longest not in by_words:
                longest = longest[1:]
            wanted.append((word, word, cost, order.index(longest)))
        arcs = fst.arcs[fst.begin[state] : fst.begin[state + 1]].tolist()
        assert [(*a[:2], round(a[2], 5), a[3]) for a in arcs] == wanted
        assert fst.final[state] == np.float32(context.final)


def test_a_language_model_is_written() -> None:
    """To the byte, whatever the order of its states is; nothing else is."""
    data = ngram_bytes(TRIGRAM)
    fst = read(data)
    assert fst_bytes(fst, "ngram") == data
    place = np.array([3, 6, 0, 5, 1, 4, 2])
    rows = place[fst.source()], fst.ilabel, fst.weight, place[fst.nextstate]
    mixed = Fst.of_arcs(*rows, fst.final[np.argsort(place)], start=int(place[1]))
    assert_equal(read(fst_bytes(mixed, "ngram")), fst)
    columns = fst.source(), fst.ilabel, fst.weight, fst.nextstate
    for column, arc, value in (
        (3, 0, 3),  # a word leads to another context
        (3, 11, 3),  # a shorter context that is none
        (1, 2, 2),  # a word that comes twice
        (1, 7, 0),  # two shorter contexts
        (1, 3, 7),  # none
    ):
        changed = [each.copy() for each in columns]
        changed[column][arc] = value
        with pytest.raises(FormatError, match="are not the contexts of an n-gram model"):
            fst_bytes(Fst.of_arcs(*changed, fst.final, start=1), "ngram")


def cut_files() -> dict[str, bytes]:
    first, second = pair()
    return {
        "vector": vector_bytes(second, WORDS),
        "const": const_bytes(second),
        "lookahead": lookahead_bytes(first, 9),
        "ngram": ngram_bytes(TRIGRAM),
    }


@pytest.mark.parametrize("kind", cut_files())
def test_cut_files_are_refused_with_the_place(kind: str) -> None:
    data = cut_files()[kind]
    for size in range(0, len(data), 7):
        with pytest.raises(FormatError, match=r"^some\.fst: .*\(byte \d+\)$"):
            read(data[:size])


def patched(data: bytes, at: int, form: str, value: float) -> bytes:
    size = struct.calcsize(form)
    at %= len(data)
    return data[:at] + struct.pack(form, value) + data[at + size :]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\0" * 80, "a binary FST of OpenFst was expected"),
        (vector_bytes(pair()[1]).replace(b"vector", b"victor"), "type 'victor': only vector"),
        (vector_bytes(pair()[1]).replace(b"standard", b"log_arcs"), "arcs of type 'log_arcs'"),
        (patched(vector_bytes(pair()[1]), 26, "<i", 7), "version 7 of a vector FST"),
        (patched(vector_bytes(pair()[1]), 42, "<q", 99), "the start state 99 is none of 7"),
        (patched(const_bytes(pair()[1]), -4, "<i", 7), "leads to the state 7"),
        (patched(const_bytes(pair()[1]), -16, "<i", -3), "has the input label -3"),
        (
            patched(const_bytes(pair()[1]), -8, "<f", math.nan),
            "weight of the FST is not a number",
        ),
        (patched(const_bytes(pair()[1]), 69, "<i", 1), "do not follow each other"),
        (
            patched(vector_bytes(pair()[1]), 70, "<q", 1 << 40),
            "the states of an FST has 1099511627776",
        ),
        (lookahead_bytes(pair()[0], 9).replace(b"const", b"ngram"), "version 2 of a ngram FST"),
        (patched(ngram_bytes(TRIGRAM), 65, "<Q", 1 << 50), "of 1125899906842624 states cannot"),
        (patched(ngram_bytes(TRIGRAM), 89, "<Q", 0xFFFF), "the bits of an ngram FST are not"),
    ],
)
def test_damaged_files_are_refused(data: bytes, told: str) -> None:
    with pytest.raises(FormatError, match=rf"^some\.fst: .*{told}"):
        read(data)


def test_running_sums_are_those_of_the_arcs() -> None:
    random = np.random.default_rng(0)
    rows = [
        [(i + 1, i + 1, float(c), 0) for i, c in enumerate(random.uniform(0, 9, n))]
        for n in (3, 0, 64, 65, 500, 1)
    ]
    fst = arc_fst(rows, {0: 0.0})
    sums = running_sums(fst)
    for begin, end in zip(fst.begin, fst.begin[1:], strict=False):
        wanted = np.cumsum(np.exp(-fst.arcs["weight"][begin:end].astype(np.float64)))
        np.testing.assert_allclose(sums[begin:end], wanted, rtol=1e-12)


def test_equal_sets_of_intervals_are_kept_once() -> None:
    intervals = np.array([[1, 3], [5, 6], [1, 3], [1, 3], [5, 6], [2, 3]], np.int32)
    begin = np.array([0, 2, 3, 5, 5, 6, 6], np.int64)
    sets, starts, kept = distinct_sets(begin, intervals)
    for state in range(6):
        mine = kept[starts[sets[state]] : starts[sets[state] + 1]]
        np.testing.assert_array_equal(mine, intervals[begin[state] : begin[state + 1]])
    assert len(starts) - 1 == 4


# Folders


def folder_with(path: Path, **files: bytes) -> Path:
    for name, data in files.items():
        (path / name.replace("_fst", ".fst").replace("_txt", ".txt")).write_bytes(data)
    return path


def composed_files() -> dict[str, bytes]:
    first, _ = pair()
    second = grammar_fst([[1, 2], [3, 4]])
    return {
        "HCLr_fst": lookahead_bytes(first, 9),
        "Gr_fst": vector_bytes(second, {**WORDS, 5: "a", 6: "b"}),
        "disambig_tid.int": b"7\n",
    }


def test_a_folder_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    model = folder_with(tmp_path / "model", **composed_files())
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    likes = np.random.default_rng(1).normal(-1, 1, (12, 7)).astype(np.float32)
    found = []
    for _ in range(2):
        made = load_graph(model)
        assert isinstance(made.graph, LookaheadGraph)
        assert [made.words[label] for label in range(5)] == list(WORDS.values())
        decoder = Decoder(made.graph, np.arange(-1, 7))
        decoder.accept(likes)
        found.append(decoder.best_path().words.tolist())
    assert found[0] == found[1] and found[0]
    (kept,) = (tmp_path / "cache").glob("*.graph")
    # A file that lost its end is made again, and so is that of a model that was written to.
    kept.write_bytes(kept.read_bytes()[:-100])
    assert load_graph(model).graph.largest == 6
    (model / "disambig_tid.int").write_bytes(b"5\n\n6\n")
    assert load_graph(model).graph.largest == 4
    assert len(list((tmp_path / "cache").glob("*.graph"))) == 2


def test_a_static_graph_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    _, second = pair()
    lines = "".join(f"{word} {label}\n" for label, word in WORDS.items())
    folder = folder_with(tmp_path, HCLG_fst=const_bytes(second), words_txt=lines.encode())
    with pytest.raises(FormatError, match=r"HCLG\.fst: the word 6 of an arc is none of 5"):
        load_graph(folder)
    folder_with(tmp_path, words_txt=(lines + "a 5\nb 6\n").encode())
    for _ in range(2):
        made = load_graph(folder)
        assert isinstance(made.graph, StaticGraph)
        assert made.words.find("tres") == 3
        assert made.words.find("cuatro") is None


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"HCLr\.fst, Gr\.fst, disambig_tid\.int is missing"):
        load_graph(tmp_path, keep=False)
    files = composed_files()
    folder_with(tmp_path, **files)
    for name, data, told in (
        ("Gr.fst", files["Gr_fst"] + b"more", r"Gr\.fst: 4 bytes follow the FST"),
        ("Gr.fst", b"", r"Gr\.fst: the file is empty"),
        ("HCLr.fst", files["Gr_fst"], "a vector FST; an olabel_lookahead FST is wanted"),
        ("disambig_tid.int", b"5\nx\n", r"line 2 \(byte 2\): 'x' is no whole number"),
        ("Gr.fst", vector_bytes(grammar_fst([[1]])), r"has no table of words, and .*words\.txt"),
    ):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FormatError, match=told):
            load_graph(tmp_path, keep=False)
        (tmp_path / name).write_bytes(whole)
    (tmp_path / "words.txt").write_bytes(b"a 0\nb c d\n")
    (tmp_path / "Gr.fst").write_bytes(vector_bytes(grammar_fst([[1]])))
    with pytest.raises(FormatError, match=r"words\.txt: line 2 \(byte 4\): a word and its label"):
        load_graph(tmp_path, keep=False)


def test_keys_change_with_the_files(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    missing = graph_cache.key_of([path])
    Path(path).write_bytes(b"1")
    assert graph_cache.key_of([path]) != missing


# Grammars


def test_a_grammar_is_a_discounted_bigram() -> None:
    fst = grammar_fst([[5, 7], [5], [9]])
    half = -math.log(0.5)
    rows = {
        state: [(a[0], round(a[2], 5), a[3]) for a in fst.arcs[fst.begin[state] :][:n].tolist()]
        for state, n in enumerate(np.diff(fst.begin).tolist())
    }
    # Without a context: 5 twice, 7 and 9 once, an end after each of three phrases.
    cost = {n: round(-math.log(n * 0.5 / 7), 5) for n in (1, 2, 3)}
    after5 = [(0, round(half, 5), 0), (7, round(-math.log(1 / 4), 5), 2)]
    assert rows[0] == [(5, cost[2], 1), (7, cost[1], 2), (9, cost[1], 3)]
    assert rows[1] == after5
    assert rows[2] == rows[3] == [(0, round(half, 5), 0)]
    ends = [cost[3], -math.log(1 / 4), half, half]
    np.testing.assert_allclose(fst.final, ends, atol=1e-5)


def test_words_that_the_model_lacks_are_told(caplog: pytest.LogCaptureFixture) -> None:
    words = Words.of(WORDS, "words")
    with caplog.at_level(logging.WARNING):
        assert phrase_labels(["uno seis dos", "[unk]"], words) == [[1, 2], [4]]
        assert phrase_labels(["seis", ""], words) == [[], []]
    assert "seis" in caplog.text
    assert "no word of the model" in caplog.text
    for wrong in ([], [[1, 0]]):
        with pytest.raises(OpscopeError, match="the grammar has"):
            grammar_fst(wrong)


def test_a_grammar_takes_the_place_of_another() -> None:
    first, second = pair()
    graph = LookaheadGraph.of(lookahead_file(first, 9), second)
    likes = np.random.default_rng(0).normal(-1, 1, (40, 7)).astype(np.float32)
    decoder = Decoder(graph.with_grammar(grammar_fst([[2, 4]])), np.arange(-1, 7))
    decoder.accept(likes)
    decoder.finalize()
    assert set(decoder.best_path().words.tolist()) <= {2, 4}
    assert INFINITY == math.inf
