"""`opscope convert`: data. Every entry of the table, what is lost, what is refused."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import format_nets
import opscope
from format_nets import archive, checked, features
from opscope import FormatError, OpscopeError, RunError
from opscope.cntk.readers.base.htk_files import HtkFile
from opscope.cntk.readers.htk.mlf import read_mlf
from opscope.kaldi.files.compressed import CompressedMatrix
from opscope.kaldi.tables.tables import read_table
from opscope.python_api.formats.sources import LABELS, TABLE
from opscope.python_api.formats.table import TABLE_OF

USED: set[tuple[str, str]] = set()


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _note_entries(monkeypatch):
    """Which entries of the table have run; see the last test."""
    format_nets.note_entries(monkeypatch, USED)


def test_tables_of_matrices_go_around():
    wanted = features()
    archive("f.ark", wanted)
    path = "f.ark"
    for target in ("f.npz", "g.ark", "f.safetensors", "h.ark", "htk/"):
        assert checked(opscope.convert(path, target)) == ""
        path = target
    assert HtkFile.open("htk/utt-1.fea").read().shape == (6, 4)
    lost = checked(opscope.convert("htk/list.scp", "last.ark", text=True))
    assert "period of 10 ms" in lost
    found = dict(read_table("ark:last.ark", "matrix"))
    assert list(found) == list(wanted)
    for key, array in wanted.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-6)


def test_single_values():
    wanted = features(1)
    archive("one.ark", wanted)
    assert checked(opscope.convert("one.ark", "x.npy")) == "the key utt-0"
    checked(opscope.convert("x.npy", "x.fea"))
    assert "kind USER" in checked(opscope.convert("x.fea", "y.npz"))
    assert np.array_equal(np.load("y.npz")["x"], wanted["utt-0"])
    archive("two.ark", features(2))
    with pytest.raises(FormatError, match="holds 2 arrays, .npy one"):
        opscope.convert("two.ark", "z.npy")
    with pytest.raises(FormatError, match="holds 2 utterances"):
        opscope.convert("two.ark", "z.fea")
    packed = {key: CompressedMatrix.compress(array) for key, array in features(1).items()}
    archive("compressed.ark", packed, "compressed_matrix")
    assert "compression" in checked(opscope.convert("compressed.ark", "c.npz"))


def test_numbers_that_do_not_fit_are_refused():
    np.savez("wide.npz", a=np.array([[1e300, 1.0]]), b=np.zeros((2, 2), np.float32))
    with pytest.raises(RunError, match="not written: 'a' would differ by inf"):
        opscope.convert("wide.npz", "wide.ark")
    np.savez("ints.npz", a=np.array([1 << 40]))
    with pytest.raises(FormatError, match="integers beyond 32 bits"):
        opscope.convert("ints.npz", "ints.ark")
    np.savez("cube.npz", a=np.zeros((2, 2, 2)))
    with pytest.raises(FormatError, match=r"an archive holds matrices or vectors.*a \[2, 2, 2\]"):
        opscope.convert("cube.npz", "cube.ark")
    assert not list(Path().glob("*.ark"))


def test_labels_and_alignments():
    Path("states").write_text("sil\nah\noh\n")
    wanted = {"a": np.array([0, 0, 1, 2, 2], np.int32), "b": np.array([2], np.int32)}
    archive("ali.ark", wanted, "int_vector")
    assert checked(opscope.convert("ali.ark", "ali.mlf", states="states")) == ""
    assert Path("ali.mlf").read_text().splitlines()[1:3] == ['"a.lab"', "0 200000 sil"]
    assert "names of states" in checked(opscope.convert("ali.mlf", "b.ark", states="states"))
    found = dict(read_table("ark:b.ark", "int_vector"))
    assert all(np.array_equal(found[key], states) for key, states in wanted.items())
    assert read_mlf("ali.mlf", {"sil": 0, "ah": 1, "oh": 2}).keys() == wanted.keys()
    with pytest.raises(FormatError, match="ali.mlf:3: .*; where labels have names alone, --states"):
        opscope.convert("ali.mlf", "x.ark")
    with pytest.raises(OpscopeError, match="--states wants a file"):
        opscope.convert("ali.ark", "x.mlf")
    Path("states").write_text("sil\n")
    with pytest.raises(FormatError, match="a: states 0 to 2; states names 1"):
        opscope.convert("ali.ark", "x.mlf", states="states")


def test_every_entry_of_the_table_has_run(tmp_path, monkeypatch):
    """By the tests above, which run again here where another process has run them."""
    entries = {key for key in TABLE_OF if key[0] in (TABLE, LABELS)}
    format_nets.use(entries, USED, globals(), tmp_path, monkeypatch)
    assert entries <= USED


@pytest.mark.parametrize("target", ["a.npz", "a.safetensors", "folder"])
@pytest.mark.parametrize("key", [b"\xff", b"a\x04b", b"a\x00b"])
def test_keys_that_are_no_names(tmp_path, target, key):
    """Bytes that no name of the target can hold are refused before anything is written."""
    (tmp_path / "a.ark").write_bytes(key + b" [ 1 2\n 3 4 ]\n")
    to = "htk-folder" if target == "folder" else None
    with pytest.raises(FormatError, match="cannot be the name of"):
        opscope.convert(tmp_path / "a.ark", tmp_path / target, to)
    assert not (tmp_path / target).exists()


def test_a_long_word_in_an_archive(tmp_path):
    """Looking for compressed matrices takes time in proportion to what is looked at."""
    rows = "1 " * 3 + "-" * 60_000
    (tmp_path / "a.ark").write_text(f"a [ {rows} ]\n")
    begin = time.process_time()
    with pytest.raises(FormatError):
        opscope.convert(tmp_path / "a.ark", tmp_path / "a.npz")
    assert time.process_time() - begin < 1
