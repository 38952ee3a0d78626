"""UCIFastReader: tables of numbers and labels, epochs, shuffling, what is wrong and where."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htk_files import epoch
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.readers.uci import format as uci_format
from opscope.cntk.readers.uci.format import Columns, read_table
from opscope.framework.base.errors import FormatError, OpscopeError


def config(
    folder, more="", labels='labelType = "category" ; labelDim = 3', head="prefetch = false"
):
    return ConfigParameters(
        f"""readerType = "UCIFastReader" ; file = "{folder}/a.txt" ; {head} ; {more}
        features = [ start = 1 ; dim = 2 ]
        labels = [ start = 0 ; dim = 1 ; {labels} ; labelMappingFile = "{folder}/labels" ]"""
    )


def table(folder, count=10, labels=("no", "yes", "2")):
    lines = [f"{labels[n % 3]} {n} {-n / 2}e0 junk\n" for n in range(count)]
    (folder / "a.txt").write_text("".join(lines))
    (folder / "labels").write_text("no\nyes\n2\n")


def rows(batches):
    return [row for b in batches for row in b.streams["features"].values[:, 0].astype(int).tolist()]


def test_records_in_order(tmp_path):
    table(tmp_path)
    with create_reader(config(tmp_path, "randomize = none")) as reader:
        for number in range(2):
            batches = epoch(reader, 4, number)
            assert [batch.samples for batch in batches] == [4, 4, 2]
            assert rows(batches) == list(range(10))
            assert batches[-1].end_of_epoch and not batches[0].end_of_epoch
        assert batches[0].streams["features"].values[3].tolist() == [3, -1.5]
        labels = batches[0].streams["labels"]
        assert labels.dense(3).argmax(1).tolist() == [0, 1, 2, 0]
        assert reader.label_mapping("labels") == {0: "no", 1: "yes", 2: "2"}


def test_epochs_go_on_where_the_last_one_ended(tmp_path):
    table(tmp_path)
    with create_reader(config(tmp_path, "randomize = none")) as reader:
        assert rows(epoch(reader, 4, 0, 8)) == list(range(8))
        assert rows(epoch(reader, 4, 1, 8)) == [8, 9, 0, 1, 2, 3, 4, 5]


def test_whole_minibatches_begin_the_data_anew(tmp_path):
    table(tmp_path)
    more = 'randomize = none ; minibatchMode = "full"'
    with create_reader(config(tmp_path, more)) as reader:
        batches = epoch(reader, 4)
        assert [batch.samples for batch in batches] == [4, 4, 4]
        assert rows(batches)[-2:] == [0, 1]


@pytest.mark.parametrize(("window", "reach"), [("auto", 10), ("5", 5)])
def test_shuffled(tmp_path, window, reach):
    table(tmp_path)
    with create_reader(config(tmp_path, f"randomize = {window}")) as reader:
        first, second = (rows(epoch(reader, 5, number)) for number in (1, 2))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second and first != list(range(10))
    assert all(r // reach == place // reach for place, r in enumerate(first))


def test_a_window_that_does_not_fit(tmp_path):
    table(tmp_path)
    with create_reader(config(tmp_path, "randomize = 5")) as reader:
        with pytest.raises(FormatError, match="multiple of the minibatch size 4"):
            epoch(reader, 4)


def test_regression(tmp_path):
    table(tmp_path, labels=("1", "0.5", "-2"))
    with create_reader(
        config(tmp_path, "randomize = none", 'labelType = "regression"', "precision = double")
    ) as reader:
        values = epoch(reader, 3)[0].streams["labels"].values
    assert values.dtype == np.float64 and values[:, 0].tolist() == [1, 0.5, -2]


def test_other_delimiters(tmp_path):
    (tmp_path / "a.txt").write_text("yes;1,5;2\r\n\r\nno;3;4,25")
    (tmp_path / "labels").write_text("no\nyes\n2\n")
    more = 'randomize = none ; customDelimiter = ";" ; customDecimalPoint = ","'
    with create_reader(config(tmp_path, more)) as reader:
        (batch,) = epoch(reader, 4)
    assert batch.streams["features"].values.tolist() == [[1.5, 2], [3, 4.25]]
    assert batch.streams["labels"].indices.tolist() == [1, 0]


def test_a_file_of_labels_is_made_where_allowed(tmp_path):
    table(tmp_path)
    (tmp_path / "labels").unlink()
    with pytest.raises(FormatError, match="no file .*labels; the action createLabelMap makes it"):
        create_reader(config(tmp_path))
    with create_reader(config(tmp_path, "allowMapCreation = true")) as reader:
        assert reader.label_mapping("labels") == {0: "no", 1: "yes", 2: "2"}
    assert (tmp_path / "labels").read_text() == "no\nyes\n2\n"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("yes 4 -2.0e0 junk", "yes 4", r"a.txt:5: 2 columns; at least 3 were expected"),
        ("yes 4 ", "yes 4x ", r"a.txt:5:5: a number was expected for features, not '4x'"),
        ("yes 4 ", "yes .5 ", r"a.txt:5:5: a number was expected"),
        ("yes 4 ", "maybe 4 ", r"a.txt:5: the label 'maybe' is not in"),
    ],
)
def test_wrong_tables(tmp_path, old, new, why):
    table(tmp_path)
    text = (tmp_path / "a.txt").read_text()
    assert old in text
    (tmp_path / "a.txt").write_text(text.replace(old, new))
    with pytest.raises(FormatError, match=why):
        create_reader(config(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("dim = 2", "dim = 0", "cannot have 0 values"),
        ('"category"', '"class"', "category, regression or none"),
        ("a.txt", "b.txt", "No such file"),
        ("start = 1 ; dim = 2", "start = 1", "no stream with a dim"),
    ],
)
def test_wrong_configs(tmp_path, old, new, why):
    table(tmp_path)
    text = config(tmp_path).text.string
    with pytest.raises(FormatError, match=why):
        create_reader(ConfigParameters(text.replace(old, new)))


def test_blocks_are_put_together(tmp_path, monkeypatch):
    table(tmp_path, 50)
    whole = read_table(tmp_path / "a.txt", [Columns("x", 1, 2), Columns("y", 0, 1, True)])
    monkeypatch.setattr(uci_format, "BLOCK", 40)
    parts = read_table(tmp_path / "a.txt", [Columns("x", 1, 2), Columns("y", 0, 1, True)])
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


@given(st.lists(st.lists(st.sampled_from(["1", "-2.5", "3e2", "a", "", "."]), max_size=4)))
@settings(max_examples=100, deadline=None)
def test_any_table(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("uci") / "a.txt"
    path.write_text("\n".join(" ".join(line) for line in lines))
    try:
        (values,) = read_table(path, [Columns("x", 0, 2)])
    except OpscopeError as error:
        assert "a.txt" in str(error)
        return
    words = [[word for word in line if word] for line in lines]
    assert values.tolist() == [[float(w) for w in line[:2]] for line in words if line]
