"""Every type of FST is read, from a mapped file and from bytes, and written where it can be."""

from __future__ import annotations

import errno
import mmap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fst_types import KINDS, TEXT, sample
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.fst.files.byte_file import ByteFile
from opscope.kaldi.fst.files.fst_io import WRITTEN, read_fst, read_whole, write_fst
from opscope.kaldi.fst.fst import Fst, SymbolTable


def assert_equal(one: Fst, other: Fst) -> None:
    assert one.start == other.start
    for name in ("final", "begin", "arcs"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def written(fst: Fst, kind: str) -> bytes:
    writer = Writer(kind != TEXT, header=False)
    write_fst(fst, writer, None if kind == TEXT else kind)
    return writer.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_is_read(kind: str, tmp_path: Path) -> None:
    wanted, data = sample(kind)
    (tmp_path / "a.fst").write_bytes(data)
    mapped = read_whole(ByteFile.open(tmp_path / "a.fst"))
    reader = Reader(b"key " + data + b"\n", name="a.ark", binary=False, offset=4)
    for found in (mapped, read_fst(reader)):
        assert_equal(found, wanted)
        assert found.header.kind == ("vector" if kind == TEXT else kind)
    assert reader.data[reader.offset :] in (b"", b"\n")
    if kind != TEXT:
        assert_equal(read_fst(Reader(b"\0B" + data, name="a.fst", binary=False)), wanted)


def test_a_file_system_that_maps_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(mmap, "mmap", refused)
    wanted, data = sample("vector")
    (tmp_path / "a.fst").write_bytes(data)
    assert_equal(read_whole(ByteFile.open(tmp_path / "a.fst")), wanted)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != TEXT])
def test_a_cut_file_is_refused_with_the_place(kind: str) -> None:
    _, data = sample(kind)
    for size in range(len(data)):
        with pytest.raises(FormatError, match=r"^a\.fst: .*\(byte \d+\)$"):
            read_whole(ByteFile(data[:size], "a.fst"))
    with pytest.raises(FormatError, match=r"^a\.fst: 1 bytes follow the FST \(byte \d+\)$"):
        read_whole(ByteFile(data + b"\0", "a.fst"))


@pytest.mark.parametrize("form", [*WRITTEN, TEXT])
@pytest.mark.parametrize("kind", KINDS)
def test_a_type_is_written_as_another(kind: str, form: str) -> None:
    fst = read_whole(ByteFile(sample(kind)[1], "a.fst"))
    if form == "compact_acceptor" and not np.array_equal(fst.ilabel, fst.olabel):
        with pytest.raises(FormatError, match="labels differ"):
            written(fst, form)
        return
    if form == "ngram" != kind:
        with pytest.raises(FormatError, match="are not the contexts of an n-gram model"):
            written(fst, form)
        return
    data = written(fst, form)
    again = read_fst(Reader(data, binary=False))
    # In text states are numbered as they come, the start first; only OpenFst's start is a number.
    if form != TEXT:
        assert again.header.kind == form
        assert_equal(again, fst)
        assert written(again, form) == data
    assert sorted(again.arcs.tolist()) == sorted(fst.arcs.tolist())
    assert again.start == fst.start


@pytest.mark.parametrize("kind", ["ilabel_lookahead", "olabel_lookahead"])
def test_a_look_ahead_fst_is_written_as_it_was_read(kind: str) -> None:
    data = sample(kind)[1]
    fst = read_whole(ByteFile(data, "a.fst"))
    assert written(fst, kind) == data
    with pytest.raises(FormatError, match="without reachability data"):
        written(replace(fst, header=replace(fst.header, reachability=None)), kind)


def test_tables_of_symbols_are_written_as_they_were_read() -> None:
    fst, _ = sample("vector")
    table = SymbolTable("words", 9, {0: "<eps>", 3: "tr\N{LATIN SMALL LETTER E WITH ACUTE}s"})
    for tables in ((table, None), (None, table), (table, table)):
        named = replace(fst.header, input_symbols=tables[0], output_symbols=tables[1])
        for kind in ("vector", "compact_acceptor"):
            acceptor = fst.with_columns(olabel=fst.ilabel)
            data = written(replace(acceptor, header=named), kind)
            found = read_fst(Reader(data, binary=False))
            assert (found.header.input_symbols, found.header.output_symbols) == tables
            assert written(found, kind) == data


def test_states_on_no_path_stay_in_text() -> None:
    fst = Fst.of_arcs([0, 0], [1, 2], [0.1234567891, 0], [1, 2], [np.inf, np.inf, 0])
    data = written(fst, TEXT)
    assert data == b"\n0\t1\t1\t1\t0.1234568\n0\t2\t2\t2\n1\tInfinity\n2\n\n"
    assert_equal(read_fst(Reader(data, binary=False)).with_columns(weight=fst.weight), fst)


def test_a_text_that_is_no_fst_is_refused_with_the_place() -> None:
    for data in (b"\n0 1 x 2\n", b"0 1 2 3\n1\n\nmore", b"words\n"):
        with pytest.raises(FormatError, match=r"^a\.fst: .*\(byte \d+(, line \d+)?\)$"):
            read_whole(ByteFile(data, "a.fst"))
