"""Edits that CNTK made with MEL: the dumps of the models before and after."""

import shutil
from itertools import count

import numpy as np
import pytest

from cntk_data import need
from opscope.cntk.config import parse_command_line
from opscope.cntk.mel import edit_section
from opscope.cntk.models.v1 import read_model
from opscope.framework.base.errors import FormatError


def test_the_edited_model_is_that_of_cntk(tmp_path, monkeypatch):
    folder = need("04_mel_edit")
    for name in ("case.cntk", "edit.mel", "macros.ndl", "base.model"):
        shutil.copy(folder / name, tmp_path / name)
    shutil.copy(folder / "init.base.model", tmp_path / "base.model.0")
    monkeypatch.chdir(tmp_path)
    config = parse_command_line(["configFile=case.cntk"])
    session = edit_section(config.section("Edit"), seeds=count(3))  # 1 and 2 are those of Base
    assert session.warnings == []
    for name in ("base.structure.txt", "edited.structure.txt"):
        assert (tmp_path / name).read_text() == (folder / name).read_text()
    ours, theirs = read_model(tmp_path / "edited.model"), read_model(folder / "edited.model")
    assert sorted(ours.nodes) == sorted(theirs.nodes)
    assert {g: sorted(n.name for n in v) for g, v in ours.groups.items()} == {
        g: sorted(n.name for n in v) for g, v in theirs.groups.items()
    }
    for node in theirs.nodes.values():
        own = ours.find(node.name)
        assert [i.name for i in own.inputs] == [i.name for i in node.inputs]
        assert (own.shape, own.learning_rate) == (node.shape, node.learning_rate)
        if node.is_parameter:
            assert np.array_equal(own.value, node.value), node.name


def test_a_missing_model(monkeypatch):
    monkeypatch.chdir(need("bad_33_mel_unknown_model"))
    config = parse_command_line(["configFile=case.cntk"])
    with pytest.raises(FormatError) as caught:
        edit_section(config.section("Edit"))
    assert str(caught.value).startswith(
        "edit.mel:1:16: error opening file 'no_such.model': No such file or directory\n"
    )
