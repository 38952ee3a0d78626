"""Rows of the conformance page: a claim of a founding document, and the check that it holds."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np

from opscope.framework.base.errors import OpscopeError

SOURCE_LINE = re.compile(r"[\w./-]+\.(?:cc|cpp|h):[0-9]+")


@dataclass(frozen=True)
class Claim:
    """What one line of a document says.

    Attributes:
        line: of the document, from 1.
        text: the claim, in our words.
        check: whether the package does so: gives True, or else something it does not do.
        differs: why the package does something else here, which `check` looks for.
        source: file and line of the original that does so too, where it differs.
        absent: why the package has nothing of the kind; `check` looks for what takes its place.
    """

    line: int
    text: str
    check: Callable[[], Any]
    differs: str = ""
    source: str = ""
    absent: str = ""

    @property
    def verdict(self) -> str:
        """works, differs or absent."""
        return "differs" if self.differs else "absent" if self.absent else "works"

    @property
    def reason(self) -> str:
        """Why it differs or is absent."""
        return self.differs or self.absent

    @property
    def told(self) -> str:
        """The verdict as the page tells it."""
        source = f" ({self.source})" if self.source else ""
        return f"{self.verdict}: {self.reason}{source}" if self.reason else self.verdict

    def problem(self) -> str:
        """What the row itself lacks; "" for a whole one."""
        if not callable(self.check):
            return "has no check"
        code = getattr(self.check, "__code__", None)
        inner = [const for const in code.co_consts if isinstance(const, CodeType)] if code else []
        if code is not None and not (code.co_names or code.co_freevars or inner):
            return "has a check that looks at nothing"
        if self.differs and not SOURCE_LINE.search(self.source):
            return "differs, but names no source line of the original"
        if self.differs and self.absent:
            return "has two verdicts"
        return "" if self.line > 0 and self.text.strip() else "has no line or no text"


@dataclass(frozen=True)
class Document:
    """A founding document and the claims made of it.

    Attributes:
        key: the first characters of its file's name.
        title: what it is about.
    """

    key: str
    title: str
    claims: Sequence[Claim]


# -- what checks are made of


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function with their defaults; `inspect.Parameter.empty` is none."""
    found = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in found if p.name not in ("self", "cls", "builder")}


def fails(function: Callable[[], Any], message: str, kind: type[Exception] = OpscopeError) -> bool:
    """Whether a call is refused with this message, a regular expression."""
    try:
        function()
    except kind as error:
        return re.search(message, str(error), re.DOTALL) is not None
    return False


def near(found: Any, wanted: Any, tolerance: float = 1e-5) -> bool:
    """Whether two arrays have one shape and are equal up to rounding."""
    left, right = np.asarray(found), np.asarray(wanted)
    return left.shape == right.shape and bool(np.allclose(left, right, atol=tolerance))
