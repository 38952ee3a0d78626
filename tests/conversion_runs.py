"""Running a network of CNTK and one of nnet3 on the same frames."""

from __future__ import annotations

import numpy as np

from opscope.cntk.network.network import Network
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.run.runtime import CntkNet
from opscope.nnet3.inference.chunks import ChunkComputer
from opscope.nnet3.inference.pieces import ChunkOptions, Utterance
from opscope.nnet3.network.nnet import Nnet


def windows(frames: np.ndarray, left: int, right: int) -> np.ndarray:
    """Each frame with those around it side by side; beyond the edges copies of them."""
    count = len(frames)
    index = np.clip(np.arange(count)[:, None] + np.arange(-left, right + 1), 0, count - 1)
    return frames[index].reshape(count, -1)


def run_nnet3(nnet: Nnet, frames: np.ndarray, ivector: np.ndarray | None = None) -> np.ndarray:
    """The output for one utterance, in test mode."""
    utterance = Utterance("a", frames, ivector)
    return dict(ChunkComputer(nnet, ChunkOptions()).compute_all([utterance]))["a"]


def run_cntk(network: Network, node: str = "", **streams: np.ndarray) -> np.ndarray:
    """A node's rows, by default the first output's, for one sequence."""
    name = node or network.groups["output"][0].name
    length = len(next(iter(streams.values())))
    samples = {key: Samples(np.array([0, length]), rows) for key, rows in streams.items()}
    data = CntkNet(network).forward(Minibatch(samples), [name])[network.find(name).name].data
    return data.reshape(length, -1)
