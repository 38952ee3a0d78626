"""nnet3-chain-train and nnet3-chain-compute-prob on a small network, and their mistakes."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from chain_graphs import random_hmm, random_supervision
from opscope.nnet3.chain.examples import NnetChainExample, NnetChainSupervision
from opscope.nnet3.examples import NnetIo
from opscope.nnet3.kaldi_io import Writer
from opscope.nnet3.nnet import Nnet
from opscope.nnet3.tables import TableWriter
from opscope.python_api.cli import main

CONFIG = """
input-node name=input dim=2
component name=affine type=NaturalGradientAffineComponent input-dim=2 output-dim=3
component-node name=affine component=affine input=input
output-node name=output input=affine
component name=xent type=NaturalGradientAffineComponent input-dim=2 output-dim=3
component-node name=xent component=xent input=input
component name=logs type=LogSoftmaxComponent dim=3
component-node name=logs component=logs input=xent
output-node name=output-xent input=logs
"""


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    nnet = Nnet.from_config_text(CONFIG, 0)
    nnet.write(str(tmp_path / "0.raw"))
    writer = Writer(header=False)
    random_hmm(rng).write(writer)
    writer.save(tmp_path / "den.fst")
    indexes = np.array([[0, t, 0] for t in range(4)], np.int32)
    with TableWriter(f"ark:{tmp_path}/egs.ark", "chain_example") as table:
        for number in range(12):
            features = rng.normal(size=(4, 2)).astype(np.float32)
            supervision = random_supervision(rng, frames=4)
            output = NnetChainSupervision("output", indexes, supervision)
            table.write(
                f"eg{number}", NnetChainExample([NnetIo("input", indexes, features)], [output])
            )
    return tmp_path


def run(folder, program, *args, code=0):
    result = CliRunner().invoke(main, [program, *args])
    assert result.exit_code == code, result.output
    return result.output


def test_training_improves_the_objective(files):
    options = ["--leaky-hmm-coefficient=0.1", "--xent-regularize=0.1"]
    graph, examples = str(files / "den.fst"), f"ark:{files}/egs.ark"
    models = [str(files / f"{number}.raw") for number in range(4)]
    for before, after in zip(models[:-1], models[1:], strict=True):
        output = run(files, "nnet3-chain-train", *options, before, graph, examples, after)
        assert "Overall average objective function for 'output-xent'" in output
    found = []
    for model in (models[0], models[-1]):
        output = run(files, "nnet3-chain-compute-prob", *options, model, graph, examples)
        line = [x for x in output.splitlines() if "'output' is" in x][0]
        found.append(float(line.split(" is ")[1].split()[0]))
        assert "over 48 frames" in line
    assert found[1] > found[0]


def test_a_graph_for_another_network(files):
    config = CONFIG.replace("output-dim=3", "output-dim=2").replace("dim=3", "dim=2")
    Nnet.from_config_text(config).write(str(files / "0.raw"))
    args = (
        str(files / "0.raw"),
        str(files / "den.fst"),
        f"ark:{files}/egs.ark",
        str(files / "1.raw"),
    )
    output = run(files, "nnet3-chain-train", *args, code=1)
    assert "labels 1 to 3, the network 2 outputs" in output
    assert not (files / "1.raw").exists()


def test_examples_for_another_network(files):
    config = CONFIG.replace("input-node name=input dim=2", "input-node name=input dim=4")
    Nnet.from_config_text(config.replace("input-dim=2", "input-dim=4")).write(str(files / "0.raw"))
    args = (
        str(files / "0.raw"),
        str(files / "den.fst"),
        f"ark:{files}/egs.ark",
        str(files / "1.raw"),
    )
    output = run(files, "nnet3-chain-train", *args, code=1)
    assert "eg0" in output and "2 columns" in output and "4" in output
