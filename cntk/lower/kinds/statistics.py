"""Statistics of the whole data, which are computed before training and constants from then on."""

from __future__ import annotations

from ...network.nodes.node import Node
from ..emitter import STATE, Emitter, dims
from ..table import lowers


@lowers("Mean", "InvStdDev")
def lower_mean(e: Emitter, node: Node) -> str:
    return e.var(node.name, dims(node), STATE, stop_gradient=True)


@lowers("PerDimMeanVarNormalization")
def lower_per_dim_mean_var_normalization(e: Emitter, node: Node) -> str:
    x, mean, scale = e.aligned(*node.inputs)
    return e.op("mul", {"x": e.op("sub", {"x": x, "y": mean}), "y": scale})


@lowers("PerDimMeanVarDeNormalization")
def lower_per_dim_mean_var_de_normalization(e: Emitter, node: Node) -> str:
    x, mean, scale = e.aligned(*node.inputs)
    return e.op("add", {"x": e.op("div", {"x": x, "y": scale}), "y": mean})
