"""`opscope links`: Kaldi's names for the programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import opscope
from kaldi_models import done
from opscope.nnet3.network.nnet import Nnet
from opscope.python_api.cli.main import kaldi_programs


def test_links(call):
    out = done(call("links", "bin")).decode()
    assert sorted(os.listdir("bin")) == sorted(kaldi_programs())
    assert out.startswith(f"{len(kaldi_programs())} programs in bin: nnet3-init, ")
    done(call("links", "bin"))  # again: its own files are replaced


@pytest.mark.skipif(os.name == "nt", reason="the scripts are for Unix shells")
def test_links_run(call):
    done(call("links", "bin"))
    root = Path(opscope.__file__).resolve().parent
    package = Path("package")
    package.mkdir()
    (package / "opscope").symlink_to(root)
    environment = {**os.environ, "PYTHONPATH": str(package.resolve())}
    command = ["bin/nnet3-copy", "--edits=remove-orphans", "net.raw", "out file"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stderr.startswith("nnet3-copy --edits=remove-orphans net.raw 'out file' \n")
    assert Nnet.read("out file").config_lines() == Nnet.read("net.raw").config_lines()


@pytest.mark.skipif(os.name == "nt", reason="the scripts are for Unix shells")
def test_links_know_the_switches_that_were_set(call, monkeypatch):
    """Jobs of a cluster get PATH alone: the executables take what was set when they were made."""
    root = Path(opscope.__file__).resolve().parent.parent
    monkeypatch.setenv("OPSCOPE_PIPES", "1")
    monkeypatch.setenv("PYTHONPATH", str(root))
    done(call("links", "bin"))
    command = ["bin/nnet3-copy", "cat net.raw |", "out.raw"]
    bare = {"PATH": os.environ["PATH"]}
    found = subprocess.run(command, env=bare, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    found = subprocess.run(command, env=bare | {"OPSCOPE_PIPES": "0"}, capture_output=True)
    assert found.returncode == 1 and b"OPSCOPE_PIPES=1" in found.stderr


def test_links_spare_what_is_there(call):
    os.mkdir("bin")
    Path("bin/nnet3-info").write_text("the original\n")
    code, out, err = call("links", "bin")
    assert (code, out) == (1, b"") and "nnet3-info is there already" in err
    assert os.listdir("bin") == ["nnet3-info"]
    Path("original").write_text("the original\n")
    os.unlink("bin/nnet3-info")
    os.symlink("../original", "bin/nnet3-info")
    done(call("links", "--force", "bin"))
    assert Path("original").read_text() == "the original\n"
    assert "opscope links" in Path("bin/nnet3-info").read_text()


def test_links_without_a_folder(call):
    code, out, err = call("links", "net.raw")
    assert (code, out) == (1, b"") and "error: cannot make the folder net.raw" in err
