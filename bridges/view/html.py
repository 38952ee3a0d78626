"""The page: one HTML document with style, script and data, and a policy that forbids all else."""

from __future__ import annotations

import base64
import hashlib
import html
import zlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from .data import to_json

_PACKED_FROM = 1 << 20
"""Bytes of data from which they are compressed, to about a sixth; small pages stay readable."""

_SCRIPTS = ("model.js", "scene.js", "draw.js", "panel.js", "main.js")


@cache
def _file(name: str) -> str:
    return (resources.files(str(__package__)) / "page" / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    parts = "\n".join(_file(name) for name in _SCRIPTS)
    return f'(async () => {{\n"use strict";\n{parts}\n}})();\n'


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _policy() -> str:
    """Only this style and this script; nothing is loaded, sent or embedded."""
    return (
        f"default-src 'none'; style-src {_hash(_file('page.css'))};"
        f" script-src {_hash(_script())}; base-uri 'none'; form-action 'none'"
    )


def document(data: Mapping[str, Any]) -> str:
    """The HTML of a page."""
    title = "".join(c if c.isprintable() else " " for c in str(data["title"]))
    title = title.encode("utf-8", "replace").decode("utf-8")
    parts = {
        "POLICY": _policy(),
        "TITLE": html.escape(title),
        "STYLE": _file("page.css"),
        "SCRIPT": _script(),
    }
    parts |= dict(zip(("FORM", "DATA"), _written(data), strict=True))
    pieces = _file("page.html").split("@@")  # every second one is the name of a part
    return "".join(parts[piece] if at % 2 else piece for at, piece in enumerate(pieces))


def _written(data: Mapping[str, Any]) -> tuple[str, str]:
    """The type of the element that holds the data, and its text: JSON, or compressed in base64."""
    text = to_json(data)
    plain = text.encode()
    if len(plain) < _PACKED_FROM:
        return "application/json", text
    return "application/zlib", base64.b64encode(zlib.compress(plain, 6)).decode()
