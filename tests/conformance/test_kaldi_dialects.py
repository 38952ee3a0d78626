"""Compiled commands of Kaldi's random networks as NetDescs: saved, read back, the same."""

from dataclasses import replace

import numpy as np
import pytest

from kaldi_data import FOLDER, need
from opscope.framework.ir.messages import parse_net, serialize_net, to_message
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.pipeline import compile_computation
from opscope.nnet3.lower.command_dialect import from_desc, to_desc
from opscope.nnet3.lower.commands import lower_computation
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize import optimize

CASES = sorted(path.parent.name for path in FOLDER.glob("random_nets/*/io.ark")) or ["case_0000"]


def plain(command):
    """With a list instead of an array, for comparing."""
    rows = command.rows
    return command if rows is None else replace(command, rows=np.asarray(rows).tolist())


@pytest.mark.parametrize("case", CASES)
def test_commands_there_and_back(case):
    folder = need("random_nets", case)
    nnet = Nnet.read(folder / "model.raw")
    request = ComputationRequest.parse((folder / "request.txt").read_text())
    compiled = compile_computation(nnet, request)
    for computation in (compiled, optimize(compiled)):
        desc = parse_net(serialize_net(to_desc(computation)))
        back = from_desc(desc, nnet.topology())
        assert back.to_kaldi() == computation.to_kaldi()
        assert back.submatrices == computation.submatrices
        assert list(map(plain, back.commands)) == list(map(plain, computation.commands))
        assert to_message(to_desc(back)) == desc
    assert serialize_net(lower_computation(back)) == serialize_net(lower_computation(computation))
