"""The models that the commands of a config make, in memory, for the commands after them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from ...network.network import Network
from ...network.nodes.node import Node

_EPOCH = re.compile(r"\.\d+$")


class Models:
    """Networks by the names of the files that a run would write."""

    def __init__(self) -> None:
        self._networks: dict[str, Network] = {}
        self._expected: set[str] = set()

    def expect(self, name: str | Path) -> None:
        """Note that a command writes a file, though its network is not known."""
        self._expected.add(_key(name))

    def is_expected(self, name: str | Path) -> bool:
        """Whether a command writes a file whose network is not known."""
        key = _key(name)
        return key in self._expected or _EPOCH.sub("", key) in self._expected

    def store(self, name: str | Path, network: Network) -> None:
        """Keep the network that a command would write to a file."""
        self._networks[_key(name)] = network

    def find(self, name: str | Path) -> Network | None:
        """A copy of a model, if an earlier command makes it; an epoch's model (`name.3`) is the
        model itself."""
        key = _key(name)
        network = self._networks.get(key) or self._networks.get(_EPOCH.sub("", key))
        return None if network is None else copy_of(network)

    def started(self, name: str | Path) -> Network | None:
        """A copy of the model of an epoch that is there already, where a training would go on."""
        key = _key(name)
        earlier = [other for other in self._networks if _EPOCH.sub("", other) == key != other]
        if not earlier:
            return None
        network = copy_of(self._networks[max(earlier)])
        network.validate()
        return network


def _key(name: str | Path) -> str:
    return os.path.abspath(str(name).replace("\\", "/")).lower()


def copy_of(network: Network) -> Network:
    """A copy whose parameters are zeros: their values do not matter for a check."""
    copy = Network(network.name)
    copy.precision = network.precision
    copies = copy.copy_nodes([(node, node.name) for node in network.nodes.values()])
    for node in copies.values():
        if node.is_parameter:
            node.value = np.broadcast_to(np.float32(0), node.shape)
        axis = node.attributes.get("dynamicAxis")
        if isinstance(axis, Node):
            node.attributes["dynamicAxis"] = copies.get(axis, axis)
    for group, nodes in network.groups.items():
        copy.groups[group] = [copies[node] for node in nodes]
    return copy
