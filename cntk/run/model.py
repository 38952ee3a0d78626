"""A model file as a network that runs."""

from __future__ import annotations

from numpy.typing import DTypeLike

from ...framework.base.backend import Place
from ...framework.base.files.atomic import PathLike
from ..models.open_model import open_model
from .runtime import CntkNet


def load_model(
    path: PathLike, place: Place | None = None, dtype: DTypeLike | None = None
) -> CntkNet:
    """The model of a file, ready to `eval`.

    Args:
        path: of a binary model of versions 1 to 18, or of a model of CNTK 2.0's library.
        place: where it runs; the CPU by default.
        dtype: of all values; by default the file's.

    Raises:
        FormatError: the file is missing, damaged, or no model.
        ShapeError: the network in it does not fit together.
    """
    return CntkNet(open_model(path).network, place, dtype)
