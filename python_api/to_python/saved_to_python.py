"""Saved nets of operators as NetBuilder code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ...framework.base.dtypes import is_float
from ...framework.ir.desc import PARAMETER, STATE
from ...framework.ir.op_list import OpList
from .cntk_to_python import PythonCode
from .module_text import module_text
from .net_to_python import Style, Writer


def saved_to_python(
    net: OpList,
    arrays: Mapping[str, np.ndarray],
    outputs: Iterable[str],
    source: str = "",
    params: str = "",
) -> PythonCode:
    """NetBuilder code that builds a net of forward operators.

    Args:
        net: plain operators, as `inference_form` gives them.
        arrays: its parameters and states by name.
        outputs: names of variables that keep their names.
        source: where the code says that it comes from.
        params: the name of the file with the values, which the code then loads.
    """
    kinds = {var.dtype for var in net.vars if var.kind == PARAMETER and var.dtype is not None}
    doubles = bool(kinds) and all(np.dtype(kind) == np.float64 for kind in kinds)
    own = np.dtype(np.float64 if doubles else np.float32)
    held = {var.name: var for var in net.vars if var.kind in (PARAMETER, STATE)}
    levels = {var.name: var.sequence_levels for var in net.vars if var.sequence_levels}

    def init(name: str) -> dict[str, object]:
        dtype = np.dtype(held[name].dtype or own)
        given: dict[str, object] = {} if dtype == own else {"dtype": dtype}
        return {"init": 0.0 if is_float(dtype) else 0, **given}

    keep = list(outputs)
    writer = Writer(net, keep, Style(init=init, levels=levels))
    body = writer.write()
    values = {name: np.asarray(arrays[name]) for name in held if name in arrays}
    text = module_text(
        net.name, source, params, writer.functions, body, keep, "float64" if doubles else ""
    )
    return PythonCode(text, values, {name: name for name in keep})
