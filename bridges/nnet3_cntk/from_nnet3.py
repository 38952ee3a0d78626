"""From Kaldi's feed-forward nnet3 networks to CNTK.

    network, context = to_cntk(Nnet.read("final.raw"))
    write_model(network, "final.dnn")      # context: {"features": (6, 7)}

A recurrent layer, statistics pooling or a descriptor that reads other frames here than there has
no counterpart in a network that is computed frame by frame.
"""

from __future__ import annotations

import numpy as np

from ...cntk.network.network import Network
from ...framework.base.errors import ShapeError
from ...nnet3.network.nnet import Nnet
from . import nnet3_rules  # noqa: F401  fills the table of rules
from .nnet3_walk import Unrolling


def to_cntk(
    nnet: Nnet, priors: np.ndarray | None = None
) -> tuple[Network, dict[str, tuple[int, int]]]:
    """The network of CNTK that computes what an nnet3 network computes in test mode.

    Args:
        priors: of an acoustic model; the network then has the output `ScaledLogLikelihood`, its
            first output minus their logarithms.

    Returns:
        The network, validated, and for each input the frames before and after that its samples
        hold side by side: contextWindow of CNTK's readers. nnet3's `input` is called `features`.
        Nodes keep their names; at another frame than that which is computed `.m3` (three before)
        or `.p3` (three after) is added.

    Raises:
        UnknownOperatorError: a node has no counterpart; it is named.
        ShapeError: the priors are not as many as the output is wide.
    """
    unrolling = Unrolling(nnet)
    outputs = unrolling.outputs()
    network = unrolling.network
    if priors is not None and priors.size:
        values = unrolling.constant("Prior", priors)
        logs = unrolling.add("Log", "LogOfPrior", [values])
        outputs.insert(0, unrolling.add("Minus", "ScaledLogLikelihood", [outputs[0], logs]))
    for node in outputs:
        network.add_to_group("output", node)
    network.validate()
    if priors is not None and outputs[0].shape != outputs[-1].shape:
        raise ShapeError(f"{priors.size} priors for an output of {outputs[-1].shape[0]}")
    return network, unrolling.context
