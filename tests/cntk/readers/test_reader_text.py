"""CNTK's text format: values, both ways of parsing, what is wrong and where."""

from __future__ import annotations

import logging
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cntk_data import need
from opscope.cntk.readers.base.data import Stream
from opscope.cntk.readers.text import format as text_format
from opscope.cntk.readers.text.format import TextFormat, TextStream
from opscope.framework.base.errors import FormatError, OpscopeError

DENSE = TextStream(Stream("features", 2), "f")
SPARSE = TextStream(Stream("words", 5, sparse=True), "w")


def reader(tmp_path, text, streams=(DENSE, SPARSE), **options):
    path = tmp_path / "data.ctf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return TextFormat(path, list(streams), **options)


def values(source, number=0):
    """Lengths and dense values of each stream of a chunk."""
    pairs = zip(source.read_chunk(number), source.streams, strict=True)
    return [(s.lengths.tolist(), s.dense(stream.dim).tolist()) for s, stream in pairs]


def test_sequences_by_number(tmp_path):
    source = reader(tmp_path, "7 |f 1 2 |w 0:1\n7 |w |f 3 -4e1\n2 |f 5 6 |w 1:2 4:0.5\n")
    assert list(source.chunks[0].keys) == ["7", "2"]
    features, words = values(source)
    assert features == ([2, 1], [[1, 2], [3, -40], [5, 6]])
    assert words == ([2, 1], [[1, 0, 0, 0, 0], [0] * 5, [0, 2, 0, 0, 0.5]])


def test_each_line_is_a_sequence_without_numbers(tmp_path):
    text = "|f 1 2 |w 0:1\n|f 3 4 |w 3:1\n"
    source = reader(tmp_path, text)
    assert source.samples == 2 and values(source)[0][0] == [1, 1]
    numbered = "1 |f 1 2 |w 0:1\n1 |f 3 4 |w 3:1\n"
    assert values(reader(tmp_path, numbered, skip_ids=True)) == values(reader(tmp_path, text))


def test_chunks_hold_whole_sequences(tmp_path):
    text = "".join(f"{n} |f {n} {t} |w {t}:1\n" for n in range(10, 20) for t in range(3))
    source = reader(tmp_path, text, chunk_size=110)
    assert [len(chunk.lengths) for chunk in source.chunks] == [2] * 5
    assert values(source, 3)[0][1] == [[n, t] for n in (16, 17) for t in range(3)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("|f 1 2 |w 0:1\n|f 1 x |w 0:1\n", r"data.ctf:2:6: a number was expected, .* 'x'"),
        ("|f 1 .5 |w 0:1\n", r":1:6: a number was expected, .* '\.'"),
        ("|f 1 2 3 |w 0:1\n", r":1:3: a sample of features has 3 values; 2 were expected"),
        ("|f 1 2 |w 5:1\n", r":1:11: the index 5 of words is not below 5"),
        ("|f 1 2 |w 1 1\n", r":1:12: ':' was expected"),
        ("|f 1 2 |w -1:1\n", r":1:11: an index was expected"),
        ("|f 1 2 |words 1:1\n", r"'words' is none of those configured: f, w"),
        ("|f 1 2 | 1:1\n", r"the name of a stream was expected"),
        ("1 f 1 2 |w 1:1\n", r":1:3: '\|' and the name"),
        ("|f 1 2 |w 1:1\n\n", r":2:1: the line has no sample"),
        ("|f 1 2\n", r"data.ctf:1: sequence 0 has no sample of words"),
        ("1 |f 1 2 |w 1:1\n1 |f 1 2 |f 1 2\n", r":1:1: the sequence has 2 lines, but 3"),
        ("x |f 1 2\n", r":1:1: the number of a sequence or '\|' was expected"),
        ("", "the file is empty"),
        (b"\xff\xfe|\0", "UTF-16"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, why):
    with pytest.raises(FormatError, match=why):
        reader(tmp_path, text).read_chunk(0)


def test_errors_are_passed_over_up_to_a_number(tmp_path, caplog):
    text = "|f 1 2 |w 0:1\n|f 1 2 |f 1 x |w 0:1\n|f 3 4 |w 9:1 |w 2:1\n"
    found = values(reader(tmp_path, text, max_errors=2))
    assert found[0][1] == [[1, 2], [1, 2], [3, 4]]
    assert "data.ctf:2:13" in caplog.text and "data.ctf:3:11" in caplog.text
    with pytest.raises(FormatError, match=r"data.ctf:3:11: .*error 2; maxErrors is 1"):
        reader(tmp_path, text, max_errors=1).read_chunk(0)


def test_what_is_odd_but_allowed(tmp_path, caplog):
    text = b"\xef\xbb\xbf1 |f 1 |# no |w 0:1\t|x 5 \r\n2 |f 3 4 |w 2:1"
    features, words = values(reader(tmp_path, text))
    assert features == ([1, 1], [[1, 0], [3, 4]])
    assert words == ([1, 1], [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]])
    assert "1 of 2 values" in caplog.text and "'x'" in caplog.text


number = st.sampled_from(["0", "1", "-2.5", "+3.", "4e1", "5E-2", ".5", "x", "1:2", "--1", "1e"])
words = st.lists(number, max_size=3).map(" ".join)
pairs = st.lists(st.tuples(st.integers(0, 6), number), max_size=3).map(
    lambda found: " ".join(f"{i}:{v}" for i, v in found)
)
field = st.one_of(
    st.just("|f 1 2"),
    st.just("|w 0:1"),
    words.map("|f {}".format),
    pairs.map("|w {}".format),
    st.sampled_from(["|# a comment", "|x 1", "|long 1", "|", "y", "\t", "\0", "|f 1\x0b2", ""]),
)
line = st.tuples(st.sampled_from(["", "1 ", "2\t", "x"]), st.lists(field, max_size=4)).map(
    lambda found: found[0] + " ".join(found[1])
)


@settings(max_examples=300, deadline=None)
@given(
    lines=st.lists(line, min_size=1, max_size=5),
    newline=st.booleans(),
    errors=st.sampled_from([0, 9]),
)
def test_both_ways_of_parsing_agree(tmp_path_factory, lines, newline, errors):
    logging.disable(logging.WARNING)
    text = "\n".join(lines) + "\n" * newline
    path = tmp_path_factory.mktemp("ctf")
    outcomes = []
    ways = [text_format.parse_arrays, lambda *args: None]
    for way in ways:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_format, "parse_arrays", way)
            try:
                outcomes.append(values(reader(path, text, max_errors=errors)))
            except OpscopeError as error:
                outcomes.append(str(error))
    logging.disable(logging.NOTSET)
    assert outcomes[0] == outcomes[1]


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=60))
def test_random_bytes(tmp_path_factory, data):
    try:
        reader(tmp_path_factory.mktemp("ctf"), data).read_chunk(0)
    except OpscopeError as error:
        assert "data.ctf" in str(error)


identified = st.tuples(st.sampled_from(["", "7", "12", "123456789012345678"]), st.integers(0, 9))


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(identified, min_size=1, max_size=12), block=st.integers(1, 60))
def test_lines_are_found_in_blocks_of_any_size(tmp_path_factory, lines, block):
    text = "1" + "".join(f"{key}\t|w 0:{value}\n" for key, value in lines) + "|w 4:1"
    folder = tmp_path_factory.mktemp("ctf")
    whole = reader(folder, text, [SPARSE])
    keys, found = list(whole.chunks[0].keys), values(whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_format, "_BLOCK", block)
        patch.setattr(text_format, "_PIECE", block)
        source = reader(folder, text, [SPARSE])
        assert (list(source.chunks[0].keys), values(source)) == (keys, found)


def test_places_are_those_of_the_file_in_every_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(text_format, "_PIECE", 20)
    lines = ["|f 1 2 |w 0:1\n"] * 9
    lines[7] = "|f 1 x |w 0:1\n"
    with pytest.raises(FormatError, match=r"data.ctf:8:6: a number was expected"):
        reader(tmp_path, "".join(lines)).read_chunk(0)


@pytest.mark.parametrize("cut", [True, False])
def test_a_file_that_changes_while_it_is_read(tmp_path, cut):
    text = "|f 1 2 |w 0:1\n" * 1000
    source = reader(tmp_path, text, chunk_size=100)
    source.read_chunk(5)
    path = tmp_path / "data.ctf"
    path.write_text(text[:200] if cut else text.replace("1", "2"))
    os.utime(path, ns=(0, 0))
    with pytest.raises(FormatError, match="data.ctf: the file has changed while it was read"):
        source.read_chunk(6)


def test_real_data_takes_the_fast_way(monkeypatch):
    path = need("data", "..", "..", "cntk", "atis.test.ctf")
    streams = [
        TextStream(Stream("S0", 943, sparse=True), "S0"),
        TextStream(Stream("S1", 26, sparse=True), "S1"),
        TextStream(Stream("S2", 129, sparse=True), "S2"),
    ]
    source = TextFormat(path, streams)
    slow = [text_format.parse_lines, monkeypatch.setattr(text_format, "parse_lines", None)][0]
    fast = source.read_chunk(0)
    assert source.samples == 10984 and fast[0].lengths.sum() == 10984
    monkeypatch.setattr(text_format, "parse_lines", slow)
    monkeypatch.setattr(text_format, "parse_arrays", lambda *args: None)
    for a, b in zip(fast, source.read_chunk(0), strict=True):
        for name in ("begin", "values", "indices", "first"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
