"""Initial values of parameters: their kinds, and values from a text file or a literal.

Source: InputAndParamNodes.cpp (InitFromArray), File.cpp (LoadMatrixFromTextFile).
"""

from __future__ import annotations

import math

import numpy as np

from ....framework.base.errors import FormatError, OutsideError
from ....framework.base.untrusted.opener import read_file
from . import rules
from .attributes import Dims
from .node import Node

RANDOM = (
    "uniform",
    "uniform1",
    "gaussian",
    "normal",
    "xavier",
    "glorotUniform",
    "glorotNormal",
    "heUniform",
    "heNormal",
)
_OTHERS = ("zero", "fromValue", "fixedValue", "fromFile", "fromLiteral", "bilinear")


def kind_of_values(node: Node) -> str:
    """How a parameter gets its values: a name of `init`, found from the other attributes where that
    is empty.

    Raises:
        FormatError: `init` is unknown.
    """
    values = node.attributes
    given = values["init"]
    if not given:
        if values["initFromFilePath"]:
            return "fromFile"
        if values["initFromLiteral"]:
            return "fromLiteral"
        return "uniform" if values["initValue"] in ("", None) else "fromValue"
    for known in (*RANDOM, *_OTHERS):
        if known.lower() == given.lower():
            return known
    known = ", ".join((*RANDOM, *_OTHERS))
    raise node.error(f"init {given!r} is none of {known}", FormatError)


def has_own_shape(node: Node) -> bool:
    """Whether the values come with dimensions that the parameter's shape may lack."""
    return node.is_parameter and kind_of_values(node) in ("fromFile", "fromLiteral")


def parse_matrix(text: str, name: str, dtype: np.dtype) -> np.ndarray:
    """A matrix written as text: a row a line, numbers between spaces.

    Raises:
        FormatError: something is no number, rows differ in length, or there are none.
    """
    rows: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        try:
            rows.append([float(word) for word in words])
        except ValueError:
            raise FormatError(f"{name}:{number}: not a row of numbers: {line[:60]!r}") from None
        if len(rows[-1]) != len(rows[0]):
            raise FormatError(
                f"{name}:{number}: {len(rows[-1])} numbers, but the first row has {len(rows[0])}"
            )
    if not rows:
        raise FormatError(f"{name}: there are no numbers")
    return np.array(rows, dtype, order="F")


def read_matrix(path: str, dtype: np.dtype) -> np.ndarray:
    """A matrix of a text file.

    Raises:
        FormatError: it cannot be read, or holds something else.
    """
    try:
        data = read_file(path)
    except OutsideError:
        raise
    except FormatError as error:
        raise FormatError(f"cannot be read: {error}") from None
    return parse_matrix(data.decode("utf-8", "replace"), path, dtype)


def _own_shape(node: Node, matrix: np.ndarray) -> Dims:
    """The parameter's shape, unknown dimensions from a matrix: rows from the first, columns from
    the one that is unknown among the others."""
    rows, columns = matrix.shape
    shape = list(node.attributes["shape"])
    if not shape or 0 in shape:
        shape = shape or [0]
        if len(shape) == 1 and columns != 1:
            shape.append(0)
        shape[0] = shape[0] or rows
        unknown = [k for k, dim in enumerate(shape) if dim == 0]
        if len(unknown) > 1:
            raise node.error(f"too many unknown dimensions in [{rules.text(tuple(shape))}]")
        if unknown:
            known = math.prod(d for d in shape[1:] if d)
            shape[unknown[0]] = columns // known
    if shape[0] != rows or math.prod(shape[1:]) != columns:
        wanted = rules.text(node.attributes["shape"])
        raise node.error(f"[{wanted}] cannot hold a matrix of {rows} x {columns}")
    return tuple(shape)


def load_initial_value(node: Node, dtype: np.dtype) -> None:
    """Set value and shape of a parameter that has them in a file or a literal.

    Raises:
        FormatError, ShapeError: the file cannot be read, or its shape does not fit.
    """
    values = node.attributes
    if kind_of_values(node) == "fromLiteral":
        matrix = parse_matrix(values["initFromLiteral"], f"{node.name}: initFromLiteral", dtype)
    elif not values["initFromFilePath"]:
        raise node.error("initFromFilePath must be given with init=fromFile", FormatError)
    else:
        matrix = read_matrix(values["initFromFilePath"].strip('"'), dtype)
    shape = _own_shape(node, matrix)
    node.value = np.array(matrix.reshape(shape, order="F"), order="F")
    node.shape = shape
