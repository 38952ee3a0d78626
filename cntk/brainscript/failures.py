"""Errors of an evaluation on their way out: the place in the text, and the calls that led there."""

from __future__ import annotations

from collections.abc import Sequence

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.untrusted.limits import check_limit
from ..base.text import Location, is_located, located
from .language.depth import MAX_SHOWN
from .language.syntax import Expression, LibrarySource, Member

# A place for an error: in the text itself, or the place of a part of the tree.
Where = Expression | Member | Location | None


class Failure(Exception):
    """An error on its way out; `error` makes the package's error that the user sees.

    `others` are errors of other members of a network, which do not come from this one.
    """

    def __init__(
        self,
        message: str,
        where: Where,
        error_class: type[OpscopeError] = FormatError,
        chain: Sequence[tuple[str, Location | None]] = (),
    ):
        super().__init__(message)
        self.message = message
        self.location = where if where is None or isinstance(where, Location) else where.location
        self.error_class = error_class
        self.chain = list(chain)
        self.others: list[Failure] = []

    def error(self) -> OpscopeError:
        """The error with its place and chain; it has the attribute `others`, a list of errors.

        What fails inside the library is reported at the place that called it.
        """
        message, location, chain = self.message, self.location, self.chain
        if _in_library(location):
            number = next(
                (n for n, (_, at) in enumerate(chain) if at and not _in_library(at)), None
            )
            if number is not None:
                called, location = chain[number]
                message = f"{message}, {called.removesuffix(', called at')}"
                chain = chain[number + 1 :]
        error = located(self.error_class, message, location, chain)
        vars(error)["others"] = [other.error() for other in self.others]
        return error


def _in_library(location: Location | None) -> bool:
    return location is not None and isinstance(location.source, LibrarySource)


class LimitFailure(Failure):
    """Evaluation went too deep or took too long; trying another member would do so again."""


def too_nested(names: Sequence[str], where: Where) -> LimitFailure:
    """The error for a value of more than `MAX_SHOWN` levels; `names` lead inwards."""
    shown = " -> ".join([*names[:4], "...", *names[-2:]])
    return LimitFailure(f"more than {MAX_SHOWN} records and arrays in one another: {shown}", where)


def refuse_beyond(name: str, wanted: int, what: str, where: Where) -> None:
    """Refuse what goes beyond a limit of the package's table.

    Raises:
        LimitFailure: it does; the message says how the limit is raised.
    """
    try:
        check_limit(name, wanted, what)
    except FormatError as error:
        raise LimitFailure(str(error), where) from None


def as_failure(error: OpscopeError, where: Where) -> Failure:
    """An error of another part of the package; `where` unless it has a place itself."""
    place = None if is_located(error) else where
    return Failure(str(error), place, type(error))
