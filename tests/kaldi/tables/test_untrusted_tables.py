"""Tables whose files change, never end, or name what is no file: the package's error, at once."""

import os
import re

import numpy as np
import pytest

from opscope.framework.base.errors import FormatError, OpscopeError
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.tables.kinds import kind_of
from opscope.kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from opscope.kaldi.tables.windows import WindowedFile

ROWS = 40_000  # of a matrix that is longer than the first window
MATRIX = np.arange(ROWS * 4, dtype=np.float32).reshape(ROWS, 4)


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "f.ark"
    with TableWriter(f"ark,scp:{path},{path}.scp", "matrix") as writer:
        for key in "abcd":
            writer.write(key, MATRIX)
    return path


def shrink(path):
    os.truncate(path, path.stat().st_size // 8)


def test_an_archive_that_shrinks_while_it_is_read(archive):
    entries = read_table(f"ark:{archive}", "matrix")
    next(entries)
    shrink(archive)
    with pytest.raises(FormatError, match=rf"{re.escape(str(archive))}.*byte \d+"):
        list(entries)


def test_a_script_whose_archive_shrinks(archive):
    entries = read_table(f"scp:{archive}.scp", "matrix")
    next(entries)
    shrink(archive)
    with pytest.raises(FormatError, match=r"f\.ark"):
        list(entries)


def test_random_access_to_an_archive_that_shrinks(archive):
    table = RandomAccessTable(f"ark:{archive}", "matrix")
    assert table["b"].shape == MATRIX.shape
    shrink(archive)
    with pytest.raises(FormatError, match=r"f\.ark"):
        table["a"]


def test_values_longer_than_a_window(archive):
    assert [key for key, value in read_table(f"scp:{archive}.scp", "matrix")] == list("abcd")
    table = RandomAccessTable(f"ark:{archive}", "matrix")
    for key in "dbac":
        assert np.array_equal(table[key], MATRIX)


def test_a_text_value_longer_than_a_window(tmp_path):
    (tmp_path / "t").write_bytes(b"head [" + b" 1 2\n" * 30_000 + b"]\nnext [ 3 ]\n")
    found = WindowedFile(str(tmp_path / "t")).read(5, kind_of("matrix").read_value)
    assert found.shape == (30_000, 2)


def test_only_windows_of_a_file_are_read(archive):
    """A value is read without those behind it, however long the file is."""
    file = WindowedFile(str(archive))
    os.truncate(archive, 1 << 40)  # a terabyte, sparse
    assert file.read(2, kind_of("matrix").read_value).shape == MATRIX.shape


@pytest.mark.parametrize("what", ["/dev/zero", "fifo"])
def test_a_line_that_names_no_regular_file(tmp_path, what):
    path = what
    if what == "fifo":
        path = str(tmp_path / "fifo")
        os.mkfifo(path)
    (tmp_path / "f.scp").write_text(f"a {path}\n")
    with pytest.raises(FormatError, match="a pipe or a device, not a file"):
        list(read_table(f"scp:{tmp_path / 'f.scp'}", "matrix"))


@pytest.mark.parametrize("name", ["ark:/dev/zero", "scp:/dev/zero"])
def test_a_device_that_never_ends(name, monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIMITS", "stream=4M")
    with pytest.raises(FormatError, match=r"limit of 4194304.*OPSCOPE_LIMITS=stream="):
        list(read_table(name, "matrix"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("a f\0.ark", "holds a NUL"),
        (f"a f.ark:{'9' * 5000}", "no whole number"),
        (f"a f.ark[0:{'9' * 5000}]", "is no range"),
        (f"a f.ark:0[{'9' * 30}:{'9' * 30}]", "is no range"),
        ("a /", "folder"),
    ],
)
def test_lines_of_scripts_that_name_nothing(tmp_path, monkeypatch, line, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.ark").write_bytes(b" [ 1 2 ]\n")
    (tmp_path / "f.scp").write_text(f"{line}\n")
    with pytest.raises(OpscopeError, match=told) as failed:
        list(read_table("scp:f.scp", "vector"))
    assert len(str(failed.value)) <= 500


def test_a_name_with_a_nul():
    for read in (lambda name: list(read_table(f"ark:{name}", "matrix")), Reader):
        with pytest.raises(FormatError, match="holds a NUL"):
            read("a\0b")
