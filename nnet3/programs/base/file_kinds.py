"""Which kind of file of Kaldi's a file is, by its beginning."""

from __future__ import annotations

import os
import re

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.opener import open_file

TABLE = re.compile(r"(ark|scp)[a-z, ]*:")
"""How the names of tables begin."""
_REQUEST = re.compile(
    r"(input|output) [^=\s]+( has_deriv=| -?\d+[,:@]|$)"
    r"|(need_model_derivative|store_component_stats)="
)
_CONFIG = re.compile(r"\s*(component|(input|output|component|dim-range)-node)\s[^=\n]+=", re.M)
_NAMED = re.compile(r"([a-z][-a-z0-9]+) [^=]+=")
_SNIFFED = 1 << 12


def kind_of_file(name: str) -> str:
    """`table`, `value`, `request`, `config` or `xconfig`; empty for anything else."""
    if TABLE.match(name):
        return "table"
    try:
        with open_file(name) as file:
            start = file.read(_SNIFFED)
    except (OSError, FormatError):
        return ""
    if start.removeprefix(b"\0B").startswith(b"<ComputationRequest>"):
        return "request"
    if start.startswith(b"\0B"):
        return "value"
    lines = start.decode("utf-8", "replace").splitlines()
    line = next((line for line in map(str.strip, lines) if line and line[0] != "#"), "")
    named = _NAMED.match(line)
    if _REQUEST.match(line):
        return "request"
    if named and _is_layer_type(named[1]):
        return "xconfig"
    if b"\0" not in start and _CONFIG.search("\n".join(lines)):
        return "config"
    if line.startswith("["):
        return "value"
    if os.path.splitext(name)[1] in (".ark", ".scp") or re.match(rb"[!-~]+ \0B", start):
        return "table"
    return ""


def _is_layer_type(name: str) -> bool:
    from ...xconfig import layer_types  # slow to load, seldom needed

    return name in layer_types()
