"""Every program of Kaldi that the scripts of its recipes call is there, with every option passed.

`kaldi_scripts.json` lists programs and options; `kaldi_scripts.py` makes it of Kaldi's repository.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest

from kaldi_scripts import LISTED, walked
from opscope.nnet3.programs.base.program import KaldiCommand
from opscope.python_api.cli.main import kaldi_programs, main

CALLED = json.loads(LISTED.read_text())["programs"]
REPOSITORY = os.environ.get("OPSCOPE_KALDI_REPOSITORY", "")
DROPPED = {
    "compile-train-graphs": {"map-oov"},
    "nnet3-chain-combine": {"num-iters", "enforce-positive-weights", "enforce-sum-to-one"},
    "nnet3-combine": {"num-iters", "enforce-positive-weights", "enforce-sum-to-one"},
}
"""Options that old scripts pass and Kaldi's own programs refuse by now; or that stand for
`sym2int.pl` in a variable which makes the table of transcripts."""


def test_every_program_is_there() -> None:
    assert set(CALLED) <= set(kaldi_programs())


@pytest.mark.parametrize("name", sorted(CALLED))
def test_every_option_is_there(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert isinstance(command, KaldiCommand)
    known = {*command.options, "config", "help", "print-args", "verbose"}
    assert set(CALLED[name]["options"]) - known == DROPPED.get(name, set())


@pytest.mark.skipif(
    not Path(REPOSITORY).is_dir() or not REPOSITORY,
    reason="OPSCOPE_KALDI_REPOSITORY names no repository of Kaldi's",
)
def test_the_list_is_what_the_scripts_call() -> None:
    assert walked(REPOSITORY) == CALLED
