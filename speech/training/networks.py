"""The networks of a training: a TDNN for the flat start, a factorized one for its alignments."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...framework.base.errors import FormatError
from ...kaldi.files.kaldi_io import Reader, Writer
from ...nnet3.network.nnet import Nnet
from ...nnet3.xconfig import xconfig_to_config
from .preparing import MOMENTS


class Size(NamedTuple):
    """How large a network is, and how long it is trained.

    Attributes:
        hours: of examples, copies among them, up to which it is meant.
        width: columns of its layers. epochs: passes over the examples.
        leaves: most outputs of the tree by clustering.
        distant: how many layers join frames that are 3 apart.
    """

    hours: float
    width: int
    epochs: int
    leaves: int = 0
    distant: int = 0


_FLAT_START = (Size(1, 256, 15), Size(10, 512, 10), Size(100, 1024, 6), Size(np.inf, 1536, 4))
_TDNNF = (
    Size(1, 256, 20, 300, 3),
    Size(10, 512, 12, 1200, 5),
    Size(100, 768, 8, 3500, 7),
    Size(np.inf, 1536, 6, 7000, 9),
)
TUNING_EPOCHS = 3
"""Passes over the examples of fine-tuning: each shifts the input to other frames."""
_NEAR = (1, 1, 1, 0)
"""Frames between the two that the first factorized layers join."""
_TRAINED, _TRAINED_OUTPUT = "l2-regularize=0.01", "l2-regularize=0.005"
"""Kaldi's settings of end-to-end LF-MMI."""
XENT_SCALE = 0.1
"""Scale of the cross-entropy objective beside LF-MMI."""
_XENT_RATE = 0.5 / XENT_SCALE
"""Learning rate of the cross-entropy branch, as a multiple of the others: its gradient is small."""


def flat_start_size(hours: float) -> Size:
    """The size of the flat start's network, for so many hours of examples."""
    return next(size for size in _FLAT_START if hours <= size.hours)


def tdnnf_size(hours: float) -> Size:
    """The size of the factorized network, for so many hours of examples."""
    return next(size for size in _TDNNF if hours <= size.hours)


def tdnn(width: int, outputs: int) -> str:
    """The lines of an xconfig: a TDNN that looks 14 frames to each side."""
    inputs = ["Append(-1,0,1)", "Append(-1,0,1)", *["Append(-3,0,3)"] * 4]
    layers = "".join(
        f"relu-batchnorm-layer name=tdnn{number} dim={width} input={each} {_TRAINED}\n"
        for number, each in enumerate(inputs, 1)
    )
    tail = f"include-log-softmax=false {_TRAINED_OUTPUT}"
    return layers + f"output-layer name=output dim={outputs} {tail}\n"


def tdnnf(width: int, distant: int, outputs: int, ivectors: bool) -> str:
    """The lines of an xconfig: a factorized TDNN with a branch for cross-entropy.

    It looks 4 frames to each side, and 3 more for each `distant` layer.

    Args:
        ivectors: the first layer reads an iVector as well.
    """
    frames = "-1,0,1,ReplaceIndex(ivector, t, 0)" if ivectors else "-1,0,1"
    lines = [f"relu-batchnorm-layer name=tdnn1 dim={width} input=Append({frames}) {_TRAINED}"]
    for number, stride in enumerate((*_NEAR, *[3] * distant), 2):
        lines.append(
            f"tdnnf-layer name=tdnnf{number} dim={width} bottleneck-dim={width // 8}"
            f" time-stride={stride} {_TRAINED}"
        )
    small = width // 4
    lines.append(f"linear-component name=prefinal dim={small} orthonormal-constraint=-1 {_TRAINED}")
    for name, tail in (
        ("output", "include-log-softmax=false"),
        ("output-xent", f"learning-rate-factor={_XENT_RATE}"),
    ):
        lines += [
            f"prefinal-layer name=prefinal-{name} input=prefinal big-dim={width} small-dim={small}"
            f" {_TRAINED}",
            f"output-layer name={name} dim={outputs} {tail} {_TRAINED}",
        ]
    return "".join(f"{line}\n" for line in lines)


def write_network(
    layers: str, name: str, outputs: int, features: str, seed: int, folder: str, ivectors: int = 0
) -> None:
    """Write `0.raw`, a network at its start; the columns of its input are brought to mean 0, and
    all together to deviation 1.

    Columns keep their proportions: cepstra are liftered, so that those of the spectrum's envelope
    vary most. With deviation 1 for each, a flat start learns more slowly, and errs more on voices
    that it has not heard.

    Args:
        layers: the lines of an xconfig after the input. name: of their file, for messages.
        outputs: that are wanted. features: the folder of `write_features`.
        ivectors: elements of the iVectors, the network's input `ivector`; 0: there is none.

    Raises:
        FormatError: the xconfig is damaged, or its output has another width.
    """
    mean, deviation = Reader(os.path.join(features, MOMENTS)).read_matrix(np.float64)
    factor = 1 / np.sqrt(np.mean(deviation**2))
    scale = factor * np.hstack([np.eye(len(mean)), -mean[:, None]])
    # A line of an xconfig refuses characters that the name of the user's folder may have.
    with tempfile.TemporaryDirectory() as place:
        matrix = Path(place, "scale.mat").as_posix()
        writer = Writer(True)
        writer.write_matrix(scale.astype(np.float32))
        writer.save(matrix)
        text = f"input dim={ivectors} name=ivector\n" if ivectors else ""
        text += (
            f"input dim={len(mean)} name=input\n"
            f"fixed-affine-layer name=scaled affine-transform-file={matrix}\n"
        )
        nnet = Nnet.from_config_text(xconfig_to_config(text + layers), seed)
    if nnet.output_dim("output") != outputs:
        raise FormatError(
            f"{name}: an output of {nnet.output_dim('output')} columns, {outputs} are wanted"
        )
    nnet.write(os.path.join(folder, "0.raw"))
