"""`opscope convert` and folders of PyTorch modules: what becomes of files that are there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import opscope
from format_nets import checked, nnet3
from opscope import FormatError, RunError
from opscope.nnet3.network.nnet import Nnet
from opscope.python_api.formats import of_torch


@pytest.fixture(autouse=True)
def _folder_of_a_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nnet3()
    opscope.to_torch("a.raw", "folder", frame_subsampling_factor=3)


def _hidden() -> list[str]:
    return [name for name in os.listdir() if name.startswith(".")]


def test_an_older_target_stays_where_the_result_would_be_another(monkeypatch):
    """The file gets its name after the comparison alone."""
    Path("old.raw").write_text("older")

    def refuse(job, made, folder):
        assert Nnet.read(made).num_parameters
        raise RunError("another")

    monkeypatch.setattr(of_torch, "_compare_modules", refuse)
    with pytest.raises(RunError, match="another"):
        opscope.convert("folder", "old.raw", original="a.raw", overwrite=True)
    assert Path("old.raw").read_text() == "older" and not _hidden()


def test_an_older_target_stays_where_the_original_does_not_fit():
    Path("old.raw").write_text("older")
    nnet = Nnet.read("a.raw")
    nnet.node("output").name = "other"
    nnet.write("renamed.raw")
    with pytest.raises(FormatError, match="renamed.raw is not what .*no output 'output'"):
        opscope.convert("folder", "old.raw", original="renamed.raw", overwrite=True)
    assert Path("old.raw").read_text() == "older" and not _hidden()


def test_frame_subsampling_and_a_source_that_was_changed():
    report = opscope.convert("folder", "b.raw", original="a.raw")
    checked(report)
    assert "by hand" not in str(report)
    with open("folder/model.py", "a") as file:
        file.write("# another line\n")
    assert "model.py was changed by hand" in str(
        opscope.convert("folder", "b.raw", original="a.raw", overwrite=True)
    )
    assert Path("b.raw").read_bytes() == Path("a.raw").read_bytes()
