"""matrix-sum, vector-sum, matrix-sum-rows: tables and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from opscope.kaldi.files.kaldi_io import Reader
from opscope.kaldi.tables.specifiers import is_specifier
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.python_api.cli.main import main

ARRAYS = {"a": [[1, 2], [3, 4]], "b": [[5, 6], [7, 8]], "c": [[0, 1]]}


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with TableWriter("ark:m.ark", "matrix") as m, TableWriter("ark:v.ark", "vector") as v:
        for key, value in ARRAYS.items():
            m.write(key, np.array(value, np.float32))
            v.write(key, np.array(value[0], np.float32))

    def run(*args, status=0):
        result = CliRunner().invoke(main, list(args))
        assert result.exit_code == status, result.stderr
        return result.stderr

    return run


def table(name, kind):
    return {key: value.tolist() for key, value in read_table(f"ark:{name}", kind)}


def test_tables_to_a_table(call):
    call("matrix-sum", "--scale1=2", "--scale2=-1", "ark:m.ark", "ark:m.ark", "ark:out.ark")
    assert table("out.ark", "matrix") == {k: v for k, v in ARRAYS.items()}
    call("vector-sum", "ark:v.ark", "ark:v.ark", "ark:v.ark", "ark,t:out.ark")
    assert table("out.ark", "vector")["b"] == [15, 18]
    with TableWriter("ark:other.ark", "matrix") as other:
        other.write("a", np.ones((3, 3), np.float32))
    err = call("matrix-sum", "ark:m.ark", "ark:other.ark", "ark:out.ark", status=1)
    assert "No matrix found for b" in err and "Dimension mismatch for a" in err


def test_a_table_to_a_file(call):
    err = call("matrix-sum", "ark:m.ark", "sum.mat")
    assert "Dimension mismatch for key c" in err
    assert Reader("sum.mat").read_matrix(np.float32).tolist() == [[6, 8], [10, 12]]
    call("vector-sum", "--average", "--binary=false", "ark:v.ark", "mean.vec")
    assert Path("mean.vec").read_text().split() == ["[", "2", "3", "]"]
    call("matrix-sum-rows", "ark:m.ark", "ark:rows.ark")
    assert table("rows.ark", "vector") == {"a": [4, 6], "b": [12, 14], "c": [0, 1]}


def test_files_to_a_file(call):
    call("matrix-sum", "ark:m.ark", "sum.mat")
    call("matrix-sum", "--average", "sum.mat", "sum.mat", "mean.mat")
    assert Reader("mean.mat").read_matrix(np.float32).tolist() == [[6, 8], [10, 12]]
    assert "some of the inputs" in call("matrix-sum", "sum.mat", "ark:m.ark", "x.mat", status=1)
    assert "--scale1" in call("matrix-sum", "--scale1=2", "sum.mat", "x.mat", status=1)


@pytest.mark.parametrize(
    "name, wanted",
    [("ark:x", True), ("ark,s,cs:-", True), ("scp,p:x", True), ("C:x.mat", False), ("x", False)],
)
def test_names_of_tables(name, wanted):
    assert is_specifier(name) == wanted
