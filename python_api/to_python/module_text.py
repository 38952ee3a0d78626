"""The module around the statements that build a net: its imports, `build`, and `load`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from .python_text import call, prose, string, wrapped


def module_text(
    name: str,
    source: str,
    params: str,
    functions: Collection[str],
    body: Sequence[str],
    results: Sequence[str],
    dtype: str = "",
) -> str:
    """A module with `build()`, and with `load(scope)` where values lie in a file.

    Args:
        name: of the net. source: what it was made of, "" for nothing that has a name.
        params: the name of the file with the values, or "".
        functions: names that the body needs, see `Writer`.
        body: the statements. results: the names of its outputs.
        dtype: of the builder, where it is not float32.
    """
    origin = f" of {prose(source)}" if source else ""
    lines = [f'"""The network{origin} as NetBuilder code."""', ""]
    imports = []
    if "np" in functions:
        imports.append("import numpy as np")
    if params:
        imports.append("from safetensors.numpy import load_file")
    if imports:
        lines += [*imports, ""]
    taken = "NetBuilder, Scope" if params else "NetBuilder"
    lines.append(f"from opscope import {taken}")
    if "lookup" in functions:
        lines.append("from opscope.framework.ir.registry import lookup")
    lines += ["", "", "def build() -> NetBuilder:", *_docstring([prose(each) for each in results])]
    precision = {"dtype": string(dtype)} if dtype else {}
    expr = call("NetBuilder", *([string(name)] if name else []), **precision)
    lines += wrapped("b = ", expr, "    ")
    lines += ["", *body]
    while not lines[-1]:
        lines.pop()
    if lines[-1].startswith("        "):  # a `with` block
        lines.append("")
    lines.append("    return b")
    if params:
        path = os.path.basename(params)
        lines += ["", "", f"def load(scope: Scope, path: str = {string(path).text}) -> None:"]
        lines.append('    """Put the values of parameters and statistics into a scope."""')
        lines.append("    for name, value in load_file(path).items():")
        lines.append("        scope.var(name).set(value)")
    return "\n".join(lines) + "\n"


def _docstring(names: list[str]) -> list[str]:
    """The docstring that names the results."""
    line = f'    """Results: {", ".join(names)}."""'
    if len(line) <= 100:
        return [line]
    lines = ['    """Results:', ""]
    lines += [f"    {name}" for name in names]
    return [*lines, '    """']
