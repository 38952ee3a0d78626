"""What programs load at their start: counted, since network file systems feel every file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

COUNT = """
import json, sys
from opscope.python_api.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
SLOW = {"importlib.metadata", "tempfile", "secrets", "html", "email"}
"""Of the standard library: what is needed seldom, and takes long."""
UNUSED = (
    *(f"opscope.{room}" for room in ("nnet3.chain", "kaldi.fst", "kaldi.lattices")),
    *(f"opscope.framework.passes.{name}" for name in ("all_reduce", "to_dtype", "verify")),
    "opscope.framework.parallel",
)
"""What training on one rank, in float32 and without LF-MMI has no use for."""


def modules(program: str) -> set[str]:
    """The modules that a program has loaded when it knows its options."""
    root = str(Path(opscope.__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, "-P", "-c", COUNT, program, "--help"],
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def own(loaded: set[str]) -> set[str]:
    """Those of the package that hold code: a folder's `__init__` is a line of text."""
    folders = {name.rpartition(".")[0] for name in loaded}
    return {name for name in loaded - folders if name.startswith("opscope.")}


@pytest.mark.parametrize("program", ["nnet3-copy-egs", "nnet3-shuffle-egs", "nnet3-merge-egs"])
def test_programs_for_examples_load_no_networks(program):
    loaded = modules(program)
    assert not {"opscope.nnet3.components", "google.protobuf", "opscope.framework.ir"} & loaded
    assert not SLOW & loaded
    assert len(own(loaded)) <= 55


@pytest.mark.parametrize("program", ["nnet3-copy", "nnet3-info", "nnet3-am-copy", "nnet3-average"])
def test_programs_for_models_load_no_compiler(program):
    loaded = modules(program)
    rooms = ("optimize", "xconfig", "chain", "lower", "training", "draw.svg")
    assert "google.protobuf" not in loaded
    assert not {f"opscope.nnet3.{room}" for room in rooms} & loaded
    assert not SLOW & loaded
    assert len(own(loaded)) <= 155


@pytest.mark.parametrize(("program", "most"), [("nnet3-train", 245), ("nnet3-chain-train", 265)])
def test_training_loads_nothing_for_pictures_plug_ins_or_loops(program, most):
    loaded = modules(program)
    assert not {"opscope.nnet3.draw.svg", "matplotlib", *SLOW} & loaded
    assert not {"opscope.framework.loops", "opscope.nnet3.training.compute_prob"} & loaded
    assert program == "nnet3-chain-train" or not set(UNUSED) & loaded
    assert len(own(loaded)) <= most


FROZEN = """
import gc, sys
from opscope.python_api.cli.main import main
main.owns_process = sys.argv[1] == "own"
before = gc.get_freeze_count()
try:
    main(["nnet3-copy-egs", "--help"])
except SystemExit:
    pass
print(gc.get_freeze_count() > before, gc.isenabled(), file=sys.stderr)
"""


@pytest.mark.parametrize("given", ["own", "shared"])
def test_modules_of_a_command_are_frozen_in_a_process_of_its_own(given):
    root = str(Path(opscope.__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, "-P", "-c", FROZEN, given],
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.split()[-2:] == [str(given == "own"), "True"]
