"""Every public function that reads a file takes its path as text or as a path object, and tells
what else it was given."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opscope
from opscope import cntk, nnet3, speech

READERS: dict[str, Callable[[Any], object]] = {
    "load": opscope.load,
    "load_parameters": lambda path: opscope.load_parameters(path, opscope.NetBuilder("n")),
    "load_nnet": opscope.load_nnet,
    "from_onnx": opscope.from_onnx,
    "to_onnx": lambda path: opscope.to_onnx(path, "out.onnx"),
    "open": opscope.open,
    "edit": opscope.edit,
    "convert": lambda path: opscope.convert(path, "out.onnx"),
    "compare": lambda path: opscope.compare(path, path),
    "to_torch": lambda path: opscope.to_torch(path, "out"),
    "weights_from_torch": lambda path: opscope.weights_from_torch(path, path, "out.raw"),
    "Nnet.read": nnet3.Nnet.read,
    "Nnet.from_configs": nnet3.Nnet.from_configs,
    "AmNnetSimple.read": nnet3.AmNnetSimple.read,
    "ComputationRequest.read": nnet3.ComputationRequest.read,
    "xconfig_to_config": nnet3.xconfig_to_config,
    "load_model": cntk.load_model,
    "open_model": cntk.open_model,
    "build_ndl_file": cntk.build_ndl_file,
    "check_file": lambda path: cntk.check_file(path).problems,
    "Hmms.read": lambda path: cntk.Hmms.read(path, path, ["a"]),
    "LatticeArchive": lambda path: cntk.LatticeArchive([path], cntk.Hmms.__new__(cntk.Hmms)),
    "read_wav": speech.read_wav,
    "read_audio": speech.read_audio,
    "IvectorModel": speech.IvectorModel.from_config,
    "IvectorModel.from_folder": speech.IvectorModel.from_folder,
    "load_graph": speech.load_graph,
    "WordBoundaries": speech.WordBoundaries.read,
    "AlignLexicon": speech.AlignLexicon.read,
    "Model": speech.Model,
    "SpkModel": speech.SpkModel,
    "transcribe": lambda path: speech.transcribe(path, path),
}


@pytest.mark.parametrize("name", ["file.pb", "gone.pb"])
@pytest.mark.parametrize("reader", READERS)
def test_text_or_path_object(reader, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file.pb").write_bytes(b"\0\1nothing")
    told = []
    for path in (name, Path(name), os.path.join(".", name)):
        try:
            told.append(str(READERS[reader](path)))
        except opscope.OpscopeError as error:
            told.append(str(error))
    assert told[0] == told[1] and len(told) == 3


@pytest.mark.parametrize("path", [7, None, ["x"]], ids=str)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_path(reader, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(opscope.OpscopeError, match="7|int|None|list|x|wants the|given"):
        READERS[reader](path)
