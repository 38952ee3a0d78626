"""The file of an acoustic model: what stands around its network.

Source: Kaldi's `nnet3/am-nnet-simple.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from ...framework.base.errors import ShapeError
from ...kaldi.files.kaldi_io import Reader

_END = re.compile(rb"</TransitionModel>\s+(?=<Nnet3>\s)")


class _Network(Protocol):
    def output_dim(self, name: str) -> int:
        """The columns of an output node."""
        ...


NetworkT = TypeVar("NetworkT", bound=_Network)


@dataclass
class ModelFile(Generic[NetworkT]):
    """The content of a file, see `AmNnetSimple`."""

    transition_model: bytes
    nnet: NetworkT
    left_context: int
    right_context: int
    priors: np.ndarray


def read_model_file(reader: Reader, read_nnet: Callable[[Reader], NetworkT]) -> ModelFile[NetworkT]:
    """Read an acoustic model from the opening token of its transition model on.

    Args:
        reader: of the file.
        read_nnet: reads the network.

    Raises:
        FormatError: it is damaged.
    """
    begin = reader.offset
    reader.expect_token("<TransitionModel>")
    end = _END.search(reader.data, reader.offset)
    if end is None:
        raise reader.error("no </TransitionModel> with a network after it", begin)
    transition_model = bytes(reader.data[begin : end.end()])
    reader.offset = end.end()
    nnet = read_nnet(reader)
    reader.expect_token("<LeftContext>")
    left_context = reader.read_int32()
    reader.expect_token("<RightContext>")
    right_context = reader.read_int32()
    reader.expect_token("<Priors>")
    start = reader.offset
    priors = reader.read_vector(np.float32)
    try:
        check_priors(priors, nnet)
    except ShapeError as error:
        raise reader.error(str(error), start) from error
    return ModelFile(transition_model, nnet, left_context, right_context, priors)


def check_priors(priors: np.ndarray, nnet: _Network) -> None:
    """Check that there are no priors, or one for each column of the output.

    Raises:
        ShapeError: there is another number of them.
    """
    wanted = nnet.output_dim("output")
    if priors.size not in (0, wanted):
        raise ShapeError(f"{priors.size} priors for an output of dimension {wanted}")
