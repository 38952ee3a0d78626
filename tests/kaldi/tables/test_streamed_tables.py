"""Archives from standard input and commands are read piece by piece, as if they were files."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.framework.base.errors import FormatError
from opscope.kaldi.tables import tables
from opscope.kaldi.tables.tables import TableWriter, read_table

RNG = np.random.default_rng(0)
VALUES = {
    "matrix": lambda n: RNG.normal(size=(n, 3)).astype(np.float32),
    "vector": lambda n: RNG.normal(size=n).astype(np.float32),
    "int_vector": lambda n: RNG.integers(-999, 999, n),
    "int": lambda n: int(RNG.integers(100000)),
    "token": lambda n: "x" * (n + 1),
}


class Stdin:
    """A standard input that counts what was taken from it."""

    def __init__(self, data):
        self.buffer = io.BytesIO(data)


def archive(folder, kind, sizes, form):
    path = folder / "a.ark"
    with TableWriter(f"ark{form}:{path}", kind) as writer:
        for number, size in enumerate(sizes):
            writer.write(f"key{number}", VALUES[kind](size))
    return path


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(VALUES)),
    st.lists(st.integers(1, 30), max_size=8),
    st.sampled_from(["", ",t"]),
    st.integers(1, 400),
)
def test_any_pieces_give_the_same_entries(tmp_path_factory, kind, sizes, form, piece):
    path = archive(tmp_path_factory.mktemp("a"), kind, sizes, form)
    expected = list(read_table(f"ark:{path}", kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_PIECE", piece)
        patch.setattr(sys, "stdin", Stdin(path.read_bytes()))
        found = list(read_table("ark:-", kind))
    assert [key for key, _ in found] == [key for key, _ in expected]
    for (_, one), (_, other) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("form", ["", ",t"])
def test_damage_has_the_same_place(tmp_path, form, monkeypatch):
    path = archive(tmp_path, "matrix", [5] * 40, form)
    data = bytearray(path.read_bytes())
    place = data.index(b"key30") + 8
    data[place : place + 3] = b"???"
    path.write_bytes(data)
    with pytest.raises(FormatError) as whole:
        list(read_table(f"ark:{path}", "matrix"))
    monkeypatch.setattr(tables, "_PIECE", 100)
    monkeypatch.setattr(sys, "stdin", Stdin(bytes(data)))
    keys = []
    with pytest.raises(FormatError) as streamed:
        for key, _ in read_table("ark:-", "matrix"):
            keys.append(key)
    assert keys == [f"key{number}" for number in range(30)]
    place = str(whole.value).rpartition("(")[2]
    assert str(streamed.value).endswith(place) and "standard input" in str(streamed.value)
    monkeypatch.setattr(sys, "stdin", Stdin(bytes(data)))
    assert len(list(read_table("ark,p:-", "matrix"))) == 30


def test_no_more_is_taken_than_needed(tmp_path, monkeypatch):
    path = archive(tmp_path, "matrix", [100] * 50, "")
    monkeypatch.setattr(tables, "_PIECE", 4000)
    stdin = Stdin(path.read_bytes())
    monkeypatch.setattr(sys, "stdin", stdin)
    entries = read_table("ark:-", "matrix")
    for _ in range(5):
        next(entries)
    assert stdin.buffer.tell() <= 3 * 4000


def test_commands(tmp_path):
    path = archive(tmp_path, "matrix", [3] * 5, "")
    command = f"ark:cat {path} |"
    assert len(list(read_table(command, "matrix", pipes=True))) == 5
    with pytest.raises(FormatError, match="OPSCOPE_PIPES"):
        read_table(command, "matrix", pipes=False)
    keys = []
    with pytest.raises(FormatError, match="status 3"):
        for key, _ in read_table(f"ark:cat {path}; exit 3 |", "matrix", pipes=True):
            keys.append(key)
    assert len(keys) == 5
    with pytest.raises(FormatError, match="status 4; .*key4|status 4; .*byte"):
        list(read_table(f"ark:head -c 250 {path}; exit 4 |", "matrix", pipes=True))
    first = next(iter(read_table(f"ark:cat {path} {path} |", "matrix", pipes=True)))
    assert first[0] == "key0"  # the rest may be left
