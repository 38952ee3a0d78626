"""Kaldi's own `train_dnn.py`, `train_raw_rnn.py` and `chain/train.py`, from beginning to end, with
our executables, on this machine and on a Slurm of one node."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope

sys.path.insert(0, str(Path(__file__).parent))
import one_node
from digit_lattices import write_digits
from kaldi_source import missing, unpack, write_chain, write_data, write_features

from opscope.kaldi.files.sparse import to_dense
from opscope.kaldi.tables.tables import read_table
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.programs.base.graphs import open_fst
from opscope.python_api.cli.main import main
from reference_folders import DATA, KALDI

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
XCONFIG = """input dim=4 name=input
fixed-affine-layer name=lda input=Append(-1,0,1) affine-transform-file=exp/configs/lda.mat
relu-batchnorm-dropout-layer name=tdnn1 dim=16 dropout-proportion=0.1
output-layer name=output dim=3 max-change=1.5
"""
LSTM = """input dim=4 name=input
lstmp-layer name=lstm cell-dim=8 recurrent-projection-dim=4 non-recurrent-projection-dim=4 delay=-1
output-layer name=output dim=3
"""
CHAIN = """input dim=40 name=input
relu-batchnorm-layer name=tdnn1 dim=16 input=Append(-1,0,1)
relu-batchnorm-layer name=tdnn2 dim=16 input=Append(-2,0,2)
output-layer name=output include-log-softmax=false dim=20
output-layer name=output-xent input=tdnn2 dim=20
"""
COMMON = """--use-gpu=no --cleanup.remove-egs=false --trainer.optimization.num-jobs-initial=1
 --trainer.optimization.num-jobs-final=2 --trainer.optimization.initial-effective-lrate=0.01
 --trainer.optimization.final-effective-lrate=0.005 --dir=exp"""
DNN = """steps/nnet3/train_dnn.py --feat-dir=data --lang=data --ali-dir=ali --egs.frames-per-eg=2
 --feat.cmvn-opts=--norm-means=true --trainer.samples-per-iter=300 --trainer.num-epochs=1
 --trainer.optimization.minibatch-size=64,1:32 --trainer.dropout-schedule=0,0.2,0
 --trainer.num-jobs-compute-prior=2 --trainer.prior-subset-size=150 --stage=-10"""
RNN = """steps/nnet3/train_raw_rnn.py --feat-dir=data --targets-scp=targets.scp
 --use-dense-targets=false --egs.chunk-width=8 --egs.chunk-left-context=4 --stage=-10
 --trainer.samples-per-iter=60 --trainer.num-epochs=2 --trainer.rnn.num-chunk-per-minibatch=16,1:8
 --trainer.deriv-truncate-margin=4 --trainer.optimization.shrink-value=0.9"""
LF_MMI = """steps/nnet3/chain/train.py --feat-dir=data --tree-dir=ali --lat-dir=ali --egs.dir=egs
 --egs.chunk-width=60 --trainer.num-epochs=1 --trainer.num-chunk-per-minibatch=2,1 --stage=-6
 --chain.xent-regularize=0.1 --chain.leaky-hmm-coefficient=0.1 --feat.cmvn-opts="""
LM = "--ngram-order=3 --no-prune-ngram-order=2 --num-extra-lm-states=30"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The variables of a running Slurm, or why there is none."""
    if one_node.missing():
        yield one_node.missing()
        return
    with one_node.one_node_slurm(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture(params=["run.pl", "slurm.pl"])
def recipe(request, tmp_path, monkeypatch, slurm):
    """A recipe's folder with Kaldi's scripts, and what its commands get."""
    environment = dict(os.environ)
    if request.param == "slurm.pl":
        if isinstance(slurm, str):
            pytest.skip(f"no Slurm: {slurm}")
        environment |= slurm
    # The executables know PYTHONPATH and the switch; jobs get PATH alone from slurm.pl.
    monkeypatch.setenv("PYTHONPATH", str(Path(opscope.__file__).resolve().parent.parent))
    monkeypatch.setenv("OPSCOPE_PIPES", "1")
    programs = tmp_path / "bin"
    assert CliRunner().invoke(main, ["links", str(programs)]).exit_code == 0
    paths = [str(programs), str(Path(sys.executable).parent), environment["PATH"]]
    environment |= {"PATH": os.pathsep.join(paths)}
    for name in ("PYTHONPATH", "OPSCOPE_PIPES", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    return unpack(tmp_path), request.param, environment


def run(recipe, *words: str) -> str:
    folder, _, environment = recipe
    python = [] if words[0].endswith(".sh") else [sys.executable, "-W", "ignore"]
    done = subprocess.run(
        # as every recipe of Kaldi's begins; path.sh is Kaldi's own
        ["bash", "-c", '. ./path.sh; exec "$0" "$@"', *python, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    logs = "".join(
        f"\n== {log.name}\n{log.read_text(errors='replace')[-1500:]}"
        for log in sorted(folder.glob("exp/**/log/*.log"))
        if not re.search(r"with status 0|code 0\)", log.read_text(errors="replace"))
    )
    assert done.returncode == 0, done.stdout[-5000:] + logs
    return done.stdout


def train(recipe, script: str, xconfig: str, *options: str) -> Path:
    """Make the network of an xconfig and train it; returns the folder of the experiment."""
    folder, command, _ = recipe
    (folder / "net.xconfig").write_text(xconfig)
    configs = ["--xconfig-file", "net.xconfig", "--config-dir", "exp/configs"]
    run(recipe, "steps/nnet3/xconfig_to_configs.py", *configs)
    with (folder / "exp" / "configs" / "vars").open("a") as file:
        file.write("num_targets=3\n")  # which recipes do themselves for train_raw_rnn.py
    run(recipe, *script.split(), *COMMON.split(), *options, f"--cmd={command}")
    report = (folder / "exp" / "accuracy.report").read_text()
    assert re.search(r"^\s*0\s+-?\d", report, re.M), report
    return folder / "exp"


def test_train_dnn(recipe):
    write_data(recipe[0])
    made = train(recipe, DNN, XCONFIG, "--egs.opts=--num-utts-subset 4 --nj 2")
    model = AmNnetSimple.read(made / "final.mdl")
    assert model.priors.sum() == pytest.approx(1, rel=1e-5)
    assert (made / "log" / "train.1.2.log").exists()


def test_train_raw_rnn(recipe):
    write_data(recipe[0])
    made = train(recipe, RNN, LSTM, "--egs.opts=--num-utts-subset 4 --nj 2")
    assert Nnet.read(made / "final.raw").num_parameters > 100


def test_get_egs_with_online_cmvn(recipe):
    folder, command, _ = recipe
    write_data(folder)
    script = "steps/nnet3/get_egs.sh --online-cmvn true --cmvn-opts --cmn-window=100 --nj 2"
    options = f"--cmd {command} --num-utts-subset 4 --samples-per-iter 300"
    run(recipe, *script.split(), *options.split(), "data", "ali", "exp/egs")
    assert (folder / "exp" / "egs" / "global_cmvn.stats").exists()
    examples = dict(read_table(f"ark:{folder}/exp/egs/egs.1.ark", "example"))
    assert len(examples) > 10
    # the mean of 1 is gone
    frames = np.concatenate([to_dense(eg.io[0].features) for eg in examples.values()])
    assert abs(frames.mean()) < 0.5


def test_chain_train(recipe):
    if not KALDI.exists():
        pytest.skip(f"{KALDI} is missing")
    folder = recipe[0]
    write_data(folder)
    write_chain(folder / "egs", KALDI / "chain", folder / "ali", archives=1)
    for path in (folder / "data").iterdir():
        path.unlink()
    (folder / "data").rmdir()
    write_features(folder / "data", 40)
    made = train(recipe, LF_MMI, CHAIN, f"--chain.lm-opts={LM}")
    for name in ("phone_lm.fst", "den.fst", "normalization.fst"):
        found, wanted = (open_fst(str(folder / name)) for folder in (made, KALDI / "chain"))
        sizes = [(fst.states, len(fst.arcs), fst.start) for fst in (found, wanted)]
        assert sizes[0] == sizes[1]
        np.testing.assert_allclose(np.sort(found.weight), np.sort(wanted.weight), atol=1e-5)
    assert Nnet.read(made / "final.mdl").output_dim("output") == 20


def write_corpus(folder: Path) -> None:
    """Spoken digits with alignments and lattices."""
    for needed in (KALDI, DATA / "speech"):
        if not needed.exists():
            pytest.skip(f"{needed} is missing")
    write_digits(folder, DATA / "speech", KALDI / "chain")
    (folder / "exp").mkdir()


@pytest.mark.parametrize(
    "options",
    [
        "--left-tolerance 3 --right-tolerance 3",
        "--lattice-lm-scale 0.5 --lattice-prune-beam 8 --acwt 0.5 --generate-egs-scp true",
        "--constrained false --lattice-prune-beam 0 --online-cmvn true",
    ],
    ids=["tolerances", "lm-scale", "unconstrained"],
)
def test_chain_get_egs(recipe, options):
    folder, command, _ = recipe
    write_corpus(folder)
    for name in ("normalization.fst", "0.trans_mdl", "tree"):
        shutil.copyfile(KALDI / "chain" / name, folder / "exp" / name)
    if command == "run.pl" and "unconstrained" not in options:
        options += " --frames-per-iter 2000"
    script = "steps/nnet3/chain/get_egs.sh --num-utts-subset 8 --frames-per-eg 60 --cmd"
    run(recipe, *script.split(), command, *options.split(), "data", "exp", "lats", "exp/egs")
    egs = folder / "exp" / "egs"
    count = int((egs / "info" / "num_archives").read_text())
    assert count == 1 if "frames-per-iter" not in options else count > 1
    for name in ("train_diagnostic", "valid_diagnostic", "combine", "cegs.1"):
        found = egs / f"{name}.cegs" if "." not in name else egs / f"{name}.ark"
        examples = [eg for _, eg in read_table(f"ark:{found}", "chain_example")]
        supervision = examples[0].outputs[0].supervision
        assert supervision.label_dim == 20
        assert bool(supervision.e2e_fsts) == ("constrained false" in options)
    logs = [path.read_text() for path in (egs / "log").glob("get_egs.*.log")]
    assert len(logs) == 2
    for log in logs:
        assert re.search(r"Successfully aligned (1[0-9]|20) lattices; 0 had errors", log)
        assert re.search(r"supervision information for \d+ utterances, errors on 0", log)


def test_chain_train_from_lattices(recipe):
    """All stages: phone language model, denominator graph, examples, training."""
    folder = recipe[0]
    write_corpus(folder)
    script = LF_MMI.replace("--egs.dir=egs", "").replace("--lat-dir=ali", "--lat-dir=lats")
    script = script.replace("--stage=-6", "--stage=-10")
    script += " --chain.left-tolerance=3 --chain.right-tolerance=3"
    script += " --chain.lm-opts=--num-extra-lm-states=20"
    made = train(recipe, script, CHAIN, "--egs.opts=--num-utts-subset 8")
    assert Nnet.read(made / "final.mdl").output_dim("output") == 20
    for name in ("phone_lm.fst", "den.fst", "normalization.fst"):
        assert (made / name).stat().st_size > 100
