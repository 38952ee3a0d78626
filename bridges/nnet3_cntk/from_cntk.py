"""From CNTK's feed-forward networks to Kaldi's nnet3.

    network = read_model("final.dnn")
    nnet = to_nnet3(network, context={"features": (5, 5)})
    nnet.write("final.raw")

A sample tensor becomes a row of columns, its first dimension the fastest. What does not depend on
data is computed now and becomes parameters. A window of frames, which CNTK's reader puts side by
side, becomes offsets in time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...cntk.network.network import Network
from ...cntk.network.nodes.node import Node
from ...framework.base.errors import VariableError
from ...kaldi.files.kaldi_io import Writer
from ...kaldi.files.transition_model import TransitionModel
from ...nnet3.network.model import AmNnetSimple
from ...nnet3.network.nnet import Nnet
from . import cntk_rules  # noqa: F401  fills the table of rules
from .cntk_walk import Context, Conversion, size

_LEAST_PRIOR = 1e-37  # CNTK's logarithm takes nothing smaller


def to_nnet3(network: Network, outputs: Sequence[str] = (), context: Context | None = None) -> Nnet:
    """The nnet3 network that computes what nodes of a network of CNTK compute.

    Args:
        network: validated, with values; feed-forward from its inputs to the outputs.
        outputs: names of nodes; by default the network's output group. The first becomes
            nnet3's `output`, the others keep their names.
        context: for an input by name the frames before and after that its samples hold side by
            side, oldest first, as HTKMLFReader's contextWindow gives them. The nnet3 input is then
            one frame. The only input, or the one called `features`, becomes nnet3's `input`; one
            called `ivector` is read at frame 0, as Kaldi's programs give it.

    Raises:
        UnknownOperatorError: a node has no counterpart in nnet3; it is named, with its place.
        ShapeError: a context does not divide an input.
        VariableError: there is no such output or input, or a parameter has no value.
    """
    return Conversion(network, context or {}).nnet(_roots(network, outputs))


def to_acoustic_model(
    network: Network,
    transitions: TransitionModel,
    output: str = "",
    context: Context | None = None,
    binary: bool = True,
) -> AmNnetSimple:
    """An acoustic model of Kaldi: a transition model, and this network.

    Where the output is a node minus a constant, as CNTK's ScaledLogLikelihood is, the constant
    becomes the priors (as logarithms), which Kaldi's decoders subtract.

    Args:
        output: name of a node; by default the first of the network's output group.
        binary: the form in which the model can be written.

    Raises:
        UnknownOperatorError, ShapeError, VariableError: as `to_nnet3`, or the transition model has
            other outputs than the network.
    """
    root = _roots(network, [output] if output else ())[0]
    conversion = Conversion(network, context or {})
    priors = np.zeros(0, np.float32)
    if root.operation == "Minus" and root.axis is not None and root.inputs[1].axis is None:
        root, logs = root.inputs
        values = np.exp(conversion.constants([logs])[logs].reshape(-1).astype(np.float64))
        priors = np.maximum(values, _LEAST_PRIOR).astype(np.float32)
    pdfs = int(transitions.tuples[:, 2:].max(initial=-1)) + 1
    if size(root) != pdfs:
        raise root.error(f"it has {size(root)} elements, the transition model {pdfs} outputs")
    writer = Writer(binary, header=False)
    transitions.write_to(writer)
    model = AmNnetSimple(conversion.nnet([root]), writer.getvalue(), binary)
    model.set_context()
    model.set_priors(priors)
    return model


def _roots(network: Network, outputs: Sequence[str]) -> list[Node]:
    roots = [network.find(name) for name in outputs] or network.groups["output"]
    if not roots:
        raise VariableError(f"network {network.name!r} has no output nodes; name one")
    return list(dict.fromkeys(roots))
