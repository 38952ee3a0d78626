"""nnet3 networks as `.pb` with `.safetensors`: the network itself, or a compiled request."""

from __future__ import annotations

import os

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.files.atomic import PathLike
from ...framework.base.scope import Scope
from ...framework.files.saved import load_parts, put_values, save
from ...framework.ir.op_list import OpList
from ..network.nnet import Nnet
from ..run.computer import NnetComputer


def save_nnet(nnet: Nnet, path: PathLike) -> None:
    """Save a network in the `nnet3.*` dialect; `load_nnet` reads it back, the same to the last bit.

    Args:
        path: `tdnn` or `tdnn.pb`; writes `tdnn.pb` and `tdnn.safetensors`.

    Raises:
        SaveError: the files cannot be written.
    """
    scope = Scope()
    put_values(nnet.arrays(), scope)
    save(nnet.to_desc(), scope, path)


def load_nnet(path: PathLike) -> Nnet:
    """The network that `save_nnet` saved.

    Raises:
        FormatError: a file is missing, damaged, or of something else.
        ShapeError: dimensions do not fit.
    """
    parts = load_parts(path)
    try:
        return Nnet.from_desc(*parts)
    except (FormatError, ShapeError) as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from error


def save_compiled(desc: OpList, nnet: Nnet, path: PathLike) -> None:
    """Save what `compile_request` made, with the parameters, to be run without the network.

    It is an ordinary net: `opscope.load` and `opscope run` take it. Inputs are called `input.NODE`,
    outputs `output.NODE`.

    Args:
        nnet: the network that `desc` was compiled for.
        path: as `save_nnet`.

    Raises:
        SaveError: the files cannot be written.
    """
    scope = Scope()
    NnetComputer(desc, nnet, shared=scope)  # puts the arrays of the network into the scope
    save(desc, scope, path)
