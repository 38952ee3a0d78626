"""Folders of `to-torch` as models: what is known of them while their source is not run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, cast

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.files.tensor_file import TensorFile
from ...framework.ir.op_list import OpList
from ..model.model import Asked, Model, Port
from .folder import STATE_FILE, config_in


class TorchFolder(Model):
    """A module that `to-torch` has written; its network is Python source, which is not read here.

    Attributes:
        config: what the folder's config.json holds.
    """

    family, what = "torch", "a PyTorch module folder"

    def __init__(self, path: str) -> None:
        super().__init__(path, os.path.basename(path.rstrip("/")))
        self.config = config_in(path)[0]

    @property
    def network(self) -> NoReturn:
        self._no_net()

    def _no_net(self) -> NoReturn:
        raise FormatError(
            f"{self.path}: PyTorch module folder: it holds Python source and no net that is read"
            " here; `opscope compare FILE FOLDER --run-code` runs it, `opscope from-torch` takes"
            " its weights back into the model file that it was made of"
        )

    @property
    def desc(self) -> OpList:
        self._no_net()

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        file = TensorFile(os.path.join(self.path, STATE_FILE))
        return {name: file.read(name) for name in file}

    @property
    def inputs(self) -> list[Port]:
        if "inputs" in self.config:
            return list(_ports(self.config["inputs"]))
        dims = (
            (n, self.config.get(k))
            for n, k in (("input", "feature_dim"), ("ivector", "ivector_dim"))
        )
        return [Port(name, (dim,)) for name, dim in dims if type(dim) is int and dim > 0]

    @property
    def outputs(self) -> list[Port]:
        return list(_ports(self.config.get("outputs")))


def _ports(given: object) -> Iterator[Port]:
    """Names with a dimension or several; what else a config may hold is passed over."""
    if not isinstance(given, dict):
        return
    for name, dims in cast("dict[str, Any]", given).items():
        listed = dims if isinstance(dims, list) else [dims]
        if all(type(dim) is int for dim in listed):
            yield Port(name, tuple(None if dim < 0 else dim for dim in listed))


def open_model(path: str, asked: Asked) -> TorchFolder:
    """The module in a folder.

    Raises:
        FormatError: its config cannot be read.
    """
    del asked
    return TorchFolder(path)
