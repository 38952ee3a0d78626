"""Tables: specifiers, archives, scripts, ranges, pipes, and Kaldi's own files byte by byte."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from damage import check_damaged
from kaldi_data import need
from opscope.framework.base.errors import FormatError, SaveError
from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.files.sparse import SparseMatrix
from opscope.kaldi.tables.kinds import cut_array, guess_kind, kind_of
from opscope.kaldi.tables.specifiers import ReadSpecifier, WriteSpecifier
from opscope.kaldi.tables.streams import open_output, open_reader
from opscope.kaldi.tables.tables import (
    RandomAccessTable,
    TableWriter,
    read_table,
)

FILES = {
    "ali.ark": ("int_vector", "ark"),
    "ali.text.ark": ("int_vector", "ark,t"),
    "egs.ark": ("example", "ark"),
    "egs.merged.ark": ("example", "ark"),
    "egs.merged.text.ark": ("example", "ark,t"),
    "egs.text.ark": ("example", "ark,t"),
    "feats.float.ark": ("matrix", "ark"),
    "feats.text.ark": ("matrix", "ark,t"),
    "post.ark": ("posterior", "ark"),
    "post.text.ark": ("posterior", "ark,t"),
}
FILES |= {f"feats.cm{method}.ark": ("general_matrix", "ark") for method in range(1, 8)}
FILES |= {f"feats.cm{m}.decompressed.ark": ("matrix", "ark") for m in range(1, 8)}


def write_table(wspecifier, kind, entries):
    with TableWriter(wspecifier, kind) as writer:
        for key, value in entries:
            writer.write(key, value)
    return writer


@pytest.fixture
def feats(tmp_path):
    """An archive of three matrices with its script, and the matrices."""
    rng = np.random.default_rng(0)
    values = {f"utt{i}": rng.normal(size=(5 + i, 4)).astype(np.float32) for i in range(3)}
    write_table(f"ark,scp:{tmp_path}/f.ark,{tmp_path}/f.scp", "matrix", values.items())
    return tmp_path, values


def same(found, wanted):
    found, wanted = dict(found), dict(wanted)
    assert list(found) == list(wanted)
    for key, value in found.items():
        np.testing.assert_array_equal(value, wanted[key])


@pytest.mark.parametrize("name", FILES)
def test_files_of_kaldi_are_written_back_byte_by_byte(name, tmp_path):
    kind, form = FILES[name]
    path = need("formats", name)
    write_table(f"{form}:{tmp_path}/out", kind, read_table(f"ark:{path}", kind))
    assert (tmp_path / "out").read_bytes() == path.read_bytes()


def test_the_script_of_kaldi(monkeypatch, tmp_path):
    monkeypatch.chdir(need("formats"))
    values = dict(read_table("ark:feats.float.ark", "matrix"))
    lines = need("formats", "feats.float.scp").read_text().splitlines()
    assert [line.split()[0] for line in lines] == list(values)
    write_table(f"ark,scp:{tmp_path}/a,{tmp_path}/s", "matrix", values.items())
    own = (tmp_path / "s").read_text().splitlines()
    assert [line.rpartition(":")[2] for line in own] == [line.rpartition(":")[2] for line in lines]
    same(read_table(f"scp:{tmp_path}/s", "matrix"), values)


@pytest.mark.parametrize("form", ["ark", "ark,t"])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [3, -4]),
        ("float", [0.5, -1e-9]),
        ("double", [0.5, 1e300]),
        ("bool", [True, False]),
        ("token", ["one", "two"]),
        ("token_vector", [["a", "b"], []]),
        ("int_vector", [[1, 2, 3], []]),
        ("int_vector_vector", [[[1, 2], [3, -4]], []]),
        ("int_pair_vector", [[[1, 2], [3, -4]], np.zeros((0, 2), int)]),
        ("float_pair_vector", [[[1, 2.5], [3, -4]], np.zeros((0, 2))]),
        ("vector", [np.array([1, 2.5], np.float32), np.zeros(0, np.float32)]),
        ("double_vector", [np.array([1, 2.5]), np.array([1e100])]),
        ("matrix", [np.eye(2, dtype=np.float32), np.zeros((0, 0), np.float32)]),
        ("double_matrix", [np.eye(2), np.ones((1, 3))]),
        ("general_matrix", [np.eye(2, dtype=np.float32), np.ones((1, 3), np.float32)]),
    ],
)
def test_every_kind_comes_back(form, kind, values, tmp_path):
    entries = {f"key{i}": value for i, value in enumerate(values)}
    write_table(f"{form}:{tmp_path}/t", kind, entries.items())
    found = dict(read_table(f"ark:{tmp_path}/t", kind))
    assert list(found) == list(entries)
    for key, value in entries.items():
        wanted = np.float32(value) if kind == "float" else value
        np.testing.assert_array_equal(found[key], wanted)
    table = RandomAccessTable(f"ark:{tmp_path}/t", kind)
    np.testing.assert_array_equal(table["key1"], found["key1"])


@settings(max_examples=30, deadline=None)
@given(
    matrix=hnp.arrays(
        np.float32, hnp.array_shapes(min_dims=2, max_dims=2), elements=st.floats(-9, 9, width=32)
    ),
    text=st.booleans(),
)
def test_what_is_written_is_written_again_the_same(matrix, text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("t")
    form = "ark,t" if text else "ark"
    write_table(f"{form}:{folder}/a", "matrix", [("x", matrix), ("y", matrix[:1])])
    write_table(f"{form}:{folder}/b", "matrix", read_table(f"ark:{folder}/a", "matrix"))
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()


def test_a_script_with_ranges(feats):
    folder, values = feats
    offset = (folder / "f.scp").read_text().split()[1]
    lines = [f"a {offset}[1:2]", f"b {offset}[0:1,2:3]", f"c {offset}[:,0:0]", f"d {offset}[3:7]"]
    (folder / "r.scp").write_text("\n".join(lines) + "\n")
    whole = values["utt0"]
    parts = {"a": whole[1:3], "b": whole[0:2, 2:4], "c": whole[:, :1], "d": whole[3:]}
    same(read_table(f"scp:{folder}/r.scp", "matrix"), parts)
    same(read_table(f"scp:{folder}/r.scp", "general_matrix"), parts)
    table = RandomAccessTable(f"scp:{folder}/r.scp", "matrix")
    np.testing.assert_array_equal(table["c"], parts["c"])


def test_ranges_of_vectors():
    vector = np.arange(10)
    assert cut_array(vector, "2:3").tolist() == [2, 3]
    assert cut_array(vector, "8:12").tolist() == [8, 9]
    assert cut_array(vector, ":").tolist() == vector.tolist()


@pytest.mark.parametrize(
    "span", ["", "1", "1:", "a:b", "2:1", "-1:2", "0:8", "5:5", "0:1,0:4", "0:1,2:1", "0:1,0:1,0:1"]
)
def test_ranges_that_are_refused(span):
    with pytest.raises(FormatError, match="range|beyond"):
        cut_array(np.zeros((5, 4)), span)


def test_ranges_of_what_has_none(tmp_path):
    write_table(f"ark,scp:{tmp_path}/a,{tmp_path}/s", "int", [("k", 3)])
    line = (tmp_path / "s").read_text().strip()
    (tmp_path / "s").write_text(line + "[0:1]\n")
    with pytest.raises(FormatError, match="a table of kind 'int' has no ranges"):
        dict(read_table(f"scp:{tmp_path}/s", "int"))


def test_values_by_key_in_any_order(feats):
    folder, values = feats
    for specifier in (f"ark:{folder}/f.ark", f"scp:{folder}/f.scp", f"ark,s,cs:{folder}/f.ark"):
        table = RandomAccessTable(specifier, "matrix")
        for key in ("utt1", "utt0", "utt2", "utt1"):
            assert key in table
            np.testing.assert_array_equal(table[key], values[key])
        assert "utt11" not in table and table.get("utt11") is None
        with pytest.raises(FormatError, match="there is no entry 'utt9'"):
            table["utt9"]


def test_values_by_speaker(feats):
    folder, values = feats
    (folder / "utt2spk").write_text("a-1 utt0\na-2 utt0\nb-1 utt7\n")
    table = RandomAccessTable(f"scp:{folder}/f.scp", "matrix", utt2spk=f"ark:{folder}/utt2spk")
    np.testing.assert_array_equal(table["a-2"], values["utt0"])
    assert "b-1" not in table
    with pytest.raises(FormatError, match="utt2spk: there is no entry 'c-1'"):
        table.get("c-1")


def test_a_sorted_archive_is_not_read_further_than_needed(tmp_path):
    (tmp_path / "a").write_bytes(b"a 1\nc 3\nd broken\n")
    table = RandomAccessTable(f"ark,s:{tmp_path}/a", "int")
    assert "b" not in table and table["c"] == 3
    with pytest.raises(FormatError, match="'broken'"):
        table.get("e")


def test_order_and_doubles(tmp_path):
    (tmp_path / "a").write_bytes(b"b 1\na 2\nb 3\n")
    with pytest.raises(FormatError, match="the keys are said to be sorted"):
        RandomAccessTable(f"ark,s:{tmp_path}/a", "int").get("z")
    with pytest.raises(FormatError, match="the key 'b' comes twice"):
        RandomAccessTable(f"ark:{tmp_path}/a", "int").get("z")
    assert [value for _, value in read_table(f"ark:{tmp_path}/a", "int")] == [1, 2, 3]


def test_permissive_tables_pass_over_what_cannot_be_read(feats):
    folder, values = feats
    script = (folder / "f.scp").read_text()
    (folder / "p.scp").write_text(f"gone {folder}/gone.ark:5\n{script}")
    with pytest.raises(FormatError, match="gone: .*No such file"):
        dict(read_table(f"scp:{folder}/p.scp", "matrix"))
    same(read_table(f"scp,p:{folder}/p.scp", "matrix"), values)
    assert "gone" not in RandomAccessTable(f"scp,p:{folder}/p.scp", "matrix")
    data = (folder / "f.ark").read_bytes()
    (folder / "cut.ark").write_bytes(data[:-5])
    with pytest.raises(FormatError, match="cut.ark: .*are left"):
        dict(read_table(f"ark:{folder}/cut.ark", "matrix"))
    assert list(dict(read_table(f"ark,p:{folder}/cut.ark", "matrix"))) == ["utt0", "utt1"]


def test_writing_where_a_script_says(feats):
    folder, values = feats
    (folder / "o.scp").write_text(f"utt0 {folder}/0.mat\nutt2 {folder}/2.mat\n")
    with pytest.raises(SaveError, match="no line for the key 'utt1'"):
        write_table(f"scp:{folder}/o.scp", "matrix", values.items())
    write_table(f"scp,p,t:{folder}/o.scp", "matrix", values.items())
    found = dict(read_table(f"scp:{folder}/o.scp", "matrix"))
    np.testing.assert_allclose(found["utt2"], values["utt2"], rtol=1e-6)
    assert open_reader(f"{folder}/0.mat").binary is False


def test_an_archive_that_was_not_finished_does_not_appear(tmp_path):
    with pytest.raises(FormatError, match="cannot be a token"):
        write_table(f"ark,scp:{tmp_path}/a,{tmp_path}/s", "int", [("k", 1), ("a b", 2)])
    assert list(tmp_path.iterdir()) == []


def test_standard_input_and_output(monkeypatch, feats):
    folder, values = feats
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", out)
    write_table("ark:-", "matrix", values.items())
    data = out.buffer.getvalue()
    assert data == (folder / "f.ark").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    same(read_table("ark:-", "matrix"), values)


def test_a_device_is_written_and_not_replaced():
    write_table(f"ark:{os.devnull}", "int", [("k", 1)])
    assert Path(os.devnull).read_bytes() == b""


def test_pipes_run_only_where_they_are_allowed(feats, monkeypatch):
    folder, values = feats
    monkeypatch.delenv("OPSCOPE_PIPES", raising=False)
    command = f"ark:cat {folder}/f.ark |"
    for refused in (
        lambda: read_table(command, "matrix"),
        lambda: RandomAccessTable(command, "matrix"),
        lambda: write_table(f"ark:| cat > {folder}/p.ark", "matrix", values.items()),
        lambda: open_reader(f"cat {folder}/f.ark |"),
    ):
        with pytest.raises(FormatError, match="would run a command, which is not allowed"):
            refused()
    assert not (folder / "p.ark").exists()
    same(read_table(command, "matrix", pipes=True), values)
    monkeypatch.setenv("OPSCOPE_PIPES", "1")
    same(read_table(command, "matrix"), values)
    write_table(f"ark:| cat > {folder}/p.ark", "matrix", values.items())
    assert (folder / "p.ark").read_bytes() == (folder / "f.ark").read_bytes()
    with pytest.raises(FormatError, match="ended with status 3"):
        list(read_table("ark:exit 3 |", "matrix"))
    with pytest.raises(SaveError, match="ended with status 3"):
        write_table("ark:| exit 3", "int", [])


def test_commands_in_lines_of_a_file_want_a_permission_of_their_own(feats, monkeypatch):
    folder, values = feats
    key, value = next(iter(values.items()))
    script = f"scp:{folder}/p.scp"
    (folder / "p.scp").write_text(f"{key} touch {folder}/touched |\n")
    (folder / "out.scp").write_text(f"{key} | cat > {folder}/touched\n")
    for told in ("0", "1"):
        monkeypatch.setenv("OPSCOPE_PIPES", told)
        for refused in (
            lambda: list(read_table(script, "matrix")),
            lambda: list(read_table(script, "matrix", pipes=True)),
            lambda: RandomAccessTable(script, "matrix")[key],
            lambda: write_table(f"scp:{folder}/out.scp", "matrix", [(key, value)]),
            lambda: list(read_table(f"scp:cat {folder}/p.scp |", "matrix", pipes=True)),
        ):
            with pytest.raises(FormatError, match="OPSCOPE_PIPES=files"):
                refused()
    assert not (folder / "touched").exists()
    write_table(f"ark:{folder}/one.ark", "matrix", [(key, value)])
    line = f"{key} tail -c +{len(key) + 2} {folder}/one.ark |\n"
    (folder / "p.scp").write_text(line)
    same(read_table(script, "matrix", pipes="files"), {key: value})
    monkeypatch.setenv("OPSCOPE_PIPES", "files")
    same(read_table(script, "matrix"), {key: value})
    write_table(f"scp:{folder}/out.scp", "matrix", [(key, value)])
    assert (folder / "touched").exists()


def test_specifiers_are_understood():
    assert ReadSpecifier.parse("ark:a b") == ReadSpecifier("ark", "a b")
    assert ReadSpecifier.parse("s,cs,o,t,bg,ark:-") == ReadSpecifier("ark", "-", True, True, True)
    assert ReadSpecifier.parse("scp, p:f:3") == ReadSpecifier("scp", "f:3", permissive=True)
    assert WriteSpecifier.parse("ark,t:-") == WriteSpecifier("-", None, binary=False)
    assert WriteSpecifier.parse("ark,scp,f:a,b") == WriteSpecifier("a", "b", flush=True)
    assert WriteSpecifier.parse("scp,p:s") == WriteSpecifier(None, "s", permissive=True)


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (ReadSpecifier.parse, "feats.ark", "begins with 'ark:' or 'scp:'"),
        (ReadSpecifier.parse, "ark,x:a", "unknown option 'x'"),
        (ReadSpecifier.parse, "ark,scp:a,b", "read from one of 'ark' and 'scp'"),
        (ReadSpecifier.parse, "t:a", "read from one of"),
        (ReadSpecifier.parse, "ark:a ", "ends with white space"),
        (WriteSpecifier.parse, "ark,s:a", "unknown option 's'"),
        (WriteSpecifier.parse, "ark,scp:a", "two file names with a comma"),
        (WriteSpecifier.parse, "scp,ark:a,b", "written to 'ark', 'scp' or 'ark,scp'"),
    ],
)
def test_specifiers_that_are_refused(parse, text, message):
    with pytest.raises(FormatError) as caught:
        parse(text)
    assert message in str(caught.value) and repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (" a", "white space"),
        ("| a", "cannot be read from"),
        ("a | b", "cannot be read from"),
        ("ark:a", "says how to find a table"),
        ("scp,p:a", "says how to find a table"),
        ("missing:17", "No such file"),
    ],
)
def test_file_names_that_are_refused(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FormatError, match=message):
        open_reader(name)


def test_output_names_that_are_refused(tmp_path):
    for name, message in ((f"{tmp_path}/a:17", "only be read"), ("cat |", "cannot be written to")):
        with pytest.raises(FormatError, match=message), open_output(name):
            pass
    with pytest.raises(SaveError, match="no/a"), open_output(f"{tmp_path}/no/a"):
        pass


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"key", "'key' is not followed by a space"),
        (b"key\x0b1\n", "the key 'key' is not followed by a space"),
        (b"a 1\nb x\n", "but this is 'x' (byte 6, line 2)"),
        (b"a 1 2\n", "the line ought to end here"),
        (b"a \0C", "neither binary nor text"),
    ],
)
def test_archives_that_are_refused(data, message, tmp_path):
    (tmp_path / "a.ark").write_bytes(data)
    with pytest.raises(FormatError) as caught:
        dict(read_table(f"ark:{tmp_path}/a.ark", "int"))
    assert message in str(caught.value) and "a.ark" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n", "a key and a file name (byte 0, line 1)"),
        ("a b\n\n", "a key and a file name (byte 4, line 2)"),
        ("a b[0:1\n", "No such file"),
        ("a b]\n", "does not end with a range"),
        ("a b:999999\n", "No such file"),
    ],
)
def test_scripts_that_are_refused(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.scp").write_text(text)
    with pytest.raises(FormatError) as caught:
        dict(read_table("scp:s.scp", "matrix"))
    assert message in str(caught.value)


def test_a_binary_script_and_a_place_beyond_the_file(tmp_path):
    (tmp_path / "b").write_bytes(b"\0Bab")
    (tmp_path / "s").write_text(f"a {tmp_path}/b:99\n")
    with pytest.raises(FormatError, match="a script file is text"):
        read_table(f"scp:{tmp_path}/b", "matrix")
    with pytest.raises(FormatError, match="has only 4 bytes"):
        dict(read_table(f"scp:{tmp_path}/s", "matrix"))


def test_an_unknown_kind():
    with pytest.raises(FormatError, match="no kind of table 'matrx' .did you mean matrix"):
        read_table("ark:a", "matrx")


@pytest.mark.parametrize("form", ["ark", "ark,t"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("array", np.array([1, 2.5], np.float32)),
        ("array", np.ones((2, 3))),
        ("general_matrix", SparseMatrix.from_dense(np.eye(3))),
        ("int_vector", [1, 2, 3]),
        ("posterior", Posterior.from_frames([[(1, 0.5)], [(2, 1)]])),
        ("token_vector", ["a", "b"]),
        ("token", "a"),
        ("bool", True),
    ],
)
def test_the_kind_of_a_value_is_guessed(form, kind, value, tmp_path):
    write_table(f"{form}:{tmp_path}/a", kind, [("k", value), ("l", value)])
    reader = open_reader(f"{tmp_path}/a:2")
    reader.offset = 2
    assert guess_kind(reader).name == kind
    assert reader.offset == 2


def test_what_is_of_no_kind():
    with pytest.raises(FormatError, match="no value of a known kind"):
        guess_kind(Reader(b"\0B<Nnet3> ", binary=False))


@pytest.mark.parametrize("form", ["ark", "ark,t"])
@pytest.mark.parametrize("kind", ["int_vector", "token_vector", "double", "matrix"])
def test_damage(form, kind, tmp_path):
    values = {
        "int_vector": [1, 2, 3],
        "token_vector": ["a", "b"],
        "double": 0.5,
        "matrix": np.eye(2, dtype=np.float32),
    }
    write_table(f"{form}:{tmp_path}/a", kind, [("k", values[kind]), ("l", values[kind])])

    def read(data):
        reader = Reader(data, binary=False)
        while not reader.at_end():
            reader.read_token()
            kind_of(kind).read_value(reader)
            reader.binary = False

    check_damaged((tmp_path / "a").read_bytes(), read, whole=False)
