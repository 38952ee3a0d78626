"""Every archive among Kaldi's reference results is read, and written back byte by byte.

Runs over the folder named by OPSCOPE_KALDI_DATA, whichever archives it holds. Compressed matrices
are also compared with what Kaldi makes of them: `feats.cmM.decompressed.ark` beside
`feats.cmM.ark`, where M is the method, and `feats.float.ark` holds what was compressed.
"""

from __future__ import annotations

import numpy as np
import pytest

from kaldi_data import FOLDER, need
from opscope.kaldi.files.compressed import CompressedMatrix
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.tables.kinds import guess_kind
from opscope.kaldi.tables.tables import TableWriter, read_table

SINGLE = ("components", "random_nets")
"""Folders with an `io.ark` and a `grad.ark` for each case: one test for a whole folder."""


def archives(folder):
    """Archives below `folder`."""
    return sorted((FOLDER / folder).rglob("*.ark"))


FOLDERS = sorted(p.name for p in FOLDER.iterdir() if p.is_dir()) if FOLDER.exists() else []
NAMES = [
    str(path.relative_to(FOLDER))
    for name in FOLDERS
    if name not in SINGLE
    for path in archives(name)
]


def first_value(path):
    """A reader at the first value of an archive."""
    reader = Reader(path, binary=False)
    reader.read_token()
    return reader


def check_copy(path, target):
    """Reads the archive `path` and writes it to `target`: the same bytes; how many entries."""
    reader = first_value(path)
    kind = guess_kind(reader)
    form = "ark" if reader.read_header() else "ark,t"
    with TableWriter(f"{form}:{target}", kind) as writer:
        for key, value in read_table(f"ark:{path}", kind):
            writer.write(key, value)
    assert target.read_bytes() == path.read_bytes(), path
    return writer.count


def test_there_is_something_to_compare():
    need()
    assert NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_archive(name, tmp_path):
    assert check_copy(FOLDER / name, tmp_path / "copy") > 0


@pytest.mark.parametrize("folder", SINGLE)
def test_the_archives_of_all_cases(folder, tmp_path):
    need(folder)
    for path in archives(folder):
        assert check_copy(path, tmp_path / "copy") > 0


@pytest.mark.parametrize("method", range(1, 8))
def test_compression(method):
    stored = read_table(f"ark:{need('formats', f'feats.cm{method}.ark')}", "general_matrix")
    values = dict(
        read_table(f"ark:{need('formats', f'feats.cm{method}.decompressed.ark')}", "matrix")
    )
    plain = dict(read_table(f"ark:{need('formats', 'feats.float.ark')}", "matrix"))
    for key, matrix in stored:
        np.testing.assert_array_equal(matrix.decompress(), values[key], err_msg=key)
        both = []
        for each in (matrix, CompressedMatrix.compress(plain[key], method)):
            writer = Writer()
            each.write(writer)
            both.append(writer.getvalue())
        assert both[0] == both[1], key


def test_text_and_binary_hold_the_same():
    for name in ("feats.float", "ali", "post", "egs", "egs.merged"):
        text_name = "feats.text.ark" if name == "feats.float" else f"{name}.text.ark"
        binary, text = need("formats", f"{name}.ark"), need("formats", text_name)
        kind = guess_kind(first_value(binary))
        for (key, value), (text_key, text_value) in zip(
            read_table(f"ark:{binary}", kind), read_table(f"ark:{text}", kind), strict=True
        ):
            assert key == text_key
            printed = []
            for each in (value, text_value):
                writer = Writer(binary=False)
                kind.write(writer, each)
                printed.append(writer.getvalue())
            assert printed[0] == printed[1], key
