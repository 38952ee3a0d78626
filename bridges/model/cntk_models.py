"""CNTK's networks: models, configs, network descriptions."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from ...cntk.models.open_model import open_model as read_model
from ...cntk.network.dialect import DIALECT, from_desc, parameter_arrays, to_desc
from ...cntk.network.network import Network
from ...cntk.network.nodes.analysis import depth_first
from ...framework.base.errors import FormatError, nearest
from ...framework.base.scope import Scope
from ...framework.base.untrusted.roots import in_folder_of
from ...framework.editing.operations import Edit
from ...framework.files.saved import put_values, save
from ...framework.ir.op_list import OpList
from .model import Asked, Feed, Model, Port, chosen


class CntkModel(Model):
    """A network of CNTK's.

    Attributes:
        network: it. format: of its file, for people; "" where it is no model file.
    """

    family, what = "cntk", "a network of CNTK's"

    def __init__(self, network: Network, path: str = "", title: str = "", format: str = "") -> None:
        super().__init__(path, title or network.name or "CNTK network")
        self._network = network
        self.format = format

    @property
    def network(self) -> Network:
        return self._network

    @property
    def desc(self) -> OpList:
        return to_desc(self._network)

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        return parameter_arrays(self._network)

    @property
    def facts(self) -> list[tuple[str, str | int]]:
        count = self.network.parameter_count()
        return [("nodes", str(len(self.network.nodes))), ("parameters", count)]

    @property
    def dialect(self) -> str:
        return DIALECT

    @property
    def inputs(self) -> list[Port]:
        roles = {
            node.name: role for role in ("feature", "label") for node in self.network.groups[role]
        }
        nodes = [node for node in self.network.nodes.values() if node.is_input]
        return [
            Port(node.name, tuple(node.shape or ()), roles.get(node.name, "")) for node in nodes
        ]

    @property
    def outputs(self) -> list[Port]:
        return [
            Port(node.name, tuple(node.shape or ()), role)
            for role in ("output", "criterion", "evaluation")
            for node in self.network.groups[role]
        ]

    def run(self, feed: Feed, fetch: Sequence[str] = ()) -> dict[str, Any]:
        """The values of nodes for one sequence, [samples, dk, ..., d1] for samples [d1 x ... x dk].

        Args:
            feed: an array for each input that the nodes need, a row a sample.
            fetch: names of nodes; without any the output nodes.
        """
        from ...cntk.run.runtime import CntkNet

        names = list(fetch) or [node.name for node in self.network.groups["output"]]
        known = self.network.nodes
        chosen(self.name, {}, (), names, known)
        below = depth_first([self.network.find(name) for name in names])
        needed = [node.name for node in below if node.is_input]
        chosen(self.name, feed, needed, names, known)
        data = {name: [np.asarray(array)] for name, array in feed.items()}
        outputs = CntkNet(self.network).eval(data, names)
        values = [outputs[self.network.find(name).name] for name in names]
        arrays = [np.asarray(v[0] if isinstance(v, list) else v) for v in values]
        return dict(zip(names, arrays, strict=True))

    def copy(self) -> CntkModel:
        copied = CntkModel(copy.deepcopy(self.network), self.path, self.title, self.format)
        copied.notes = list(self.notes)
        return copied

    def perform(self, edit: Edit) -> str:
        from ...cntk.network.editing.perform import perform

        return perform(self.network, edit)

    def check(self) -> None:
        self.network.validate()

    def save(self, path: str) -> None:
        if path.endswith(".pb"):
            scope = Scope()
            put_values(self.arrays, scope)
            save(self.desc, scope, path)
        else:
            from ...cntk.models.v1 import write_model

            write_model(self.network, path)


def open_model(path: str, asked: Asked) -> CntkModel:
    """The network in a model file.

    Raises:
        FormatError: it is damaged. ShapeError: it does not fit together.
    """
    del asked
    network, described = read_model(path)
    model = CntkModel(network, path, os.path.basename(path), described)
    if "protobuf" in described:
        model.notes.append(f"{path} is a {described}; a CNTK binary model is written")
    return model


def open_script(path: str, asked: Asked) -> CntkModel:
    """The network that a config or a network description describes; of several the one wanted.

    Raises:
        FormatError: there is none, or there are several, or none of that name.
    """
    from ...cntk.programs.files import networks_of

    networks = networks_of(path)
    wanted = asked.network
    names = ", ".join(networks) or "none"
    if wanted:
        if wanted not in networks:
            hint = nearest(wanted, networks)
            raise FormatError(f"{path}: has no network {wanted!r}{hint}; it has {names}")
        networks = {wanted: networks[wanted]}
    if len(networks) != 1:
        several = f" ({names}): say which" if networks else ", one is needed"
        raise FormatError(f"{path}: describes {len(networks)} networks{several}")
    return CntkModel(next(iter(networks.values())), path, os.path.basename(path))


def of_saved(net: OpList, arrays: Mapping[str, np.ndarray], path: str, title: str) -> CntkModel:
    """The network of a saved net in the dialect `cntk`.

    Raises:
        OpscopeError: it is damaged, or its parts do not fit together.
    """
    network = from_desc(net, arrays)
    with in_folder_of(path) if path else nullcontext():
        network.validate()
    return CntkModel(network, path, title)
