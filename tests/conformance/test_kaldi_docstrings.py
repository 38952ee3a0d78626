"""The examples in docstrings of computers, as they stand, on a network with batch norm: Kaldi's
numbers."""

from __future__ import annotations

import re
from inspect import getdoc

import numpy as np
import pytest

from kaldi_data import difference, need
from opscope import nnet3
from opscope.kaldi.tables.tables import read_table
from opscope.nnet3.inference.looped import compile_looped, looped_requests
from opscope.nnet3.network.for_inference import for_inference

MODEL = "tdnn"
LEFT, RIGHT = 6, 7  # its contexts
TOLERANCE = 1e-4
"""Relative norm of the difference from Kaldi's float32 results."""
NAMES = {name: getattr(nnet3, name) for name in nnet3.__all__}
NAMES |= {f.__name__: f for f in (compile_looped, looped_requests, for_inference)}


def example(thing) -> str:
    """The lines of code below `Example:`."""
    found = re.search(r"^Example:\n((?: {4}.*\n)+)", f"{getdoc(thing)}\n", re.MULTILINE)
    assert found is not None
    return re.sub("^ {4}", "", found[1], flags=re.MULTILINE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the network in an acoustic model."""
    whole = nnet3.AmNnetSimple.read(need("formats", "final.mdl"))
    whole.set_nnet(nnet3.Nnet.read(need("trained", MODEL, "model.raw")))
    monkeypatch.chdir(tmp_path)
    whole.write("final.mdl")
    return tmp_path


def table(*parts):
    return dict(read_table(f"ark:{need('trained', *parts)}", "matrix"))


def padded(features, left, right):
    """Features with copies of the first and last frame around them."""
    return np.pad(features, ((left, right), (0, 0)), mode="edge")


def pieces(features, size=20):
    """The frames that the segments of a loop take."""
    count = -(-len(features) // size)
    frames = padded(features, LEFT, RIGHT + count * size - len(features))
    first = LEFT + size + RIGHT
    return [frames[:first], *(frames[i : i + size] for i in range(first, len(frames), size))]


def run(thing, **given):
    names = {**NAMES, **given}
    exec(example(thing), names)  # our own docstring
    return names


def test_chunk_computer(folder, within):
    wanted = table(MODEL, "output.ark")
    errors = {}
    for key, features in table("feats.ark").items():
        errors[key] = difference(run(nnet3.ChunkComputer, features=features)["scores"], wanted[key])
    within(errors, TOLERANCE)


def test_looped_computer(folder, within):
    wanted = table(MODEL, "output_looped20.ark")
    errors = {}
    for key, features in table("feats.ark").items():
        microphone = np.array_split(features, 5)
        found = run(nnet3.LoopedComputer, microphone=microphone, scores=[])["scores"]
        errors[key] = difference(np.concatenate(found), wanted[key])
    within(errors, TOLERANCE)


def test_segment_computer(folder, within):
    wanted = table(MODEL, "output_looped20.ark")
    errors = {}
    for key, features in table("feats.ark").items():
        found = run(nnet3.SegmentComputer, pieces=pieces(features), scores=[])["scores"]
        errors[key] = difference(np.concatenate(found)[: len(features)], wanted[key])
    within(errors, TOLERANCE)


def test_nnet_computer(folder, within):
    """It computes 20 frames, here those in the middle of each utterance."""
    wanted = table(MODEL, "output.ark")
    errors = {}
    for key, features in table("feats.ark").items():
        begin = (len(features) - 20) // 2
        assert begin >= 0
        frames = padded(features, LEFT, RIGHT)[begin : begin + LEFT + 20 + RIGHT]
        found = run(nnet3.NnetComputer, frames=frames)["scores"]
        errors[key] = difference(found, wanted[key][begin : begin + 20])
    within(errors, TOLERANCE)


def test_compile_request(folder, within):
    wanted = table(MODEL, "output.ark")
    key, features = next(iter(table("feats.ark").items()))
    request = nnet3.simple_request("final.mdl", len(features))
    (folder / "request.txt").write_text(request.to_text())
    computer = nnet3.NnetComputer(run(nnet3.compile_request)["desc"], "final.mdl")
    computer.accept_input("input", padded(features, LEFT, RIGHT))
    computer.run()
    within({key: difference(computer.get_output("output"), wanted[key])}, TOLERANCE)
