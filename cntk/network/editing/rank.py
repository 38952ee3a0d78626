"""Matrices of a network as products of two smaller ones."""

from __future__ import annotations

import numpy as np

from ....framework.base.errors import ShapeError, VariableError
from ....framework.editing.low_rank import checked, cut
from ....framework.editing.operations import LowRank
from ..network import Network
from ..nodes import rules
from ..nodes.node import Node
from .names import new_parameter, parameters_of


def low_rank(network: Network, edit: LowRank) -> str:
    """Decompose parameters that are matrices, as CNTK's action SVD does: NAME becomes NAME_U and
    NAME_V."""
    done = []
    for node in parameters_of(network, checked(edit), edit.names):
        if node.value is None or min(rules.matrix(node)) < 2:
            continue
        factored = cut(edit, matrix_of(node))
        if factored is None:
            continue
        parts, rank = factored
        if edit.factors:
            left, right = parts.factors(rank)
            _check_place(network, node)
            shape = (rank, *node.value.shape[1:])
            put_product(network, node, left, right.reshape(shape, order="F"))
        else:
            nearest = parts.nearest(rank).astype(node.value.dtype)
            node.value = np.asfortranarray(nearest.reshape(node.value.shape, order="F"))
        done.append(f"{node.name} to rank {rank}")
    if not done and edit.must_match:
        raise VariableError(f"none of {', '.join(edit.names)} is a matrix that this makes smaller")
    return f"Decomposed {len(done)} parameters: {', '.join(done)}."


def matrix_of(node: Node) -> np.ndarray:
    """The value of a parameter [rows, columns], its first dimension against all others."""
    assert node.value is not None
    return np.asarray(node.value).reshape(rules.matrix(node), order="F")


def put_product(network: Network, node: Node, left: np.ndarray, right: np.ndarray) -> None:
    """Put the product of two new parameters in the place of a parameter.

    Where its one reader multiplies it with something, that is multiplied with the parts one after
    the other.

    Args:
        left, right: [rows, rank] and [rank, columns].
    """
    assert node.value is not None
    name = node.name
    dtype = node.value.dtype
    parts = [
        new_parameter(network, f"{name}_U", left.astype(dtype), node.learning_rate),
        new_parameter(network, f"{name}_V", right.astype(dtype), node.learning_rate),
    ]
    times = _only_product(network, node)
    if times is not None:  # W * x to U * (V * x); the outer product keeps the name
        inner = network.add("Times", f"{name}_SVD", [parts[1], times.inputs[1]])
        times.inputs = [parts[0], inner]
    else:
        product = network.add("Times", f"{name}_SVD", parts)
        network.replace_inputs(node, product)
    network.delete(node)


def _only_product(network: Network, node: Node) -> Node | None:
    """The product that alone reads a parameter, as its first factor; None where there is none."""
    readers = [reader for reader in network.nodes.values() if node in reader.inputs]
    is_one = len(readers) == 1 and readers[0].operation == "Times" and readers[0].inputs[0] is node
    return readers[0] if is_one else None


def _check_place(network: Network, node: Node) -> None:
    """Refuse tensors whose place the product of two matrices cannot take."""
    if len(node.shape or ()) > 2 and _only_product(network, node) is None:
        raise ShapeError(
            f"{node.name} is [{rules.text(node.shape)}], and something else than one product reads"
            " it: the product of two matrices cannot take its place"
        )
