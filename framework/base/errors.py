"""The package's own exceptions. Bad input gives exactly one of these, never a bare KeyError.

Every message names what is at hand: operator index and type, slot=variable, shapes and dtypes, and
where the thing was written (file:line of a Python call, or line:column of a config).
"""

from __future__ import annotations

import difflib
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from numbers import Integral, Real
from os.path import commonprefix
from types import NoneType
from typing import Any, get_args

_LONGEST_LINE = 500
_LONGEST_NAME = 100  # characters of a name that others are suggested for
_SHORTEST_BEGINNING = 3  # and of one that may be short for others
_MOST_NAMES, _MOST_COMPARED = 10_000, 100  # names to suggest: looked at, compared letter by letter
_COMPARISON = 20  # looks at a name that take as long as one comparison letter by letter
_MOST_LOOKS = 200_000  # at names, for all messages of one list: some half a second
_LOOKS_LEFT: ContextVar[list[int] | None] = ContextVar("looks", default=None)


_MARKS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
ESCAPES = {
    **{code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))},
    **{code: f"\\u{code:04x}" for code in _MARKS},
}
"""For `str.translate`: characters that command a terminal, or turn the order of what is read there.

Line ends and tabs are not among them; the other line separators of Unicode are.
"""


class OpscopeError(Exception):
    """Base of all errors that opscope raises on purpose.

    Its text has no line of more than 500 characters, whatever a file or a caller brought in: of a
    longer one the middle is left out. Control characters in it are escaped.

    Attributes:
        told: whether its text has been written already, by the one rank of several that reports it.
    """

    told = False

    def __str__(self) -> str:
        text = super().__str__().translate(ESCAPES)
        if len(text) <= _LONGEST_LINE:
            return text
        return "\n".join(map(_shortened, text.split("\n")))


def _shortened(line: str) -> str:
    kept = (_LONGEST_LINE - len(" [...] ")) // 2
    return line if len(line) <= _LONGEST_LINE else f"{line[:kept]} [...] {line[-kept:]}"


class UnknownOperatorError(OpscopeError):
    """An operator type that is not registered."""


class SlotError(OpscopeError):
    """A slot that is missing, unknown, or holds the wrong number of variables."""


class AttributeTypeError(OpscopeError):
    """An attribute that is missing, unknown, of the wrong type or out of its bounds."""


class ShapeError(OpscopeError):
    """Shapes or dtypes that an operator cannot take."""


class VariableError(OpscopeError):
    """A variable that is undefined, overwritten, doubly defined or holds no value."""


class TreeError(OpscopeError):
    """A tree with a cycle, several roots or a node with too many children."""


class CycleError(VariableError):
    """Operators that wait for each other's outputs."""


class GradientError(OpscopeError):
    """A gradient that cannot be built."""


class FormatError(OpscopeError):
    """A file that is truncated, damaged, of a newer format, or lacks something."""


class SaveError(OpscopeError):
    """A file that could not be written; what was there before is untouched."""


class OutsideError(FormatError, SaveError):
    """A file that was neither read nor written, as it lies outside of the folders for it.

    Attributes:
        path: of the file, as it was named.
    """

    path = ""


class RunError(OpscopeError):
    """An operator failed while running, or met values that it cannot take."""


class NotFiniteError(RunError):
    """A NaN or an infinity, found by the checking hook."""


class RanksError(RunError):
    """Ranks that do not fit together, or one that failed or ended while another waits for it.

    Attributes:
        on_all: whether all ranks have found the same, so that one of them may tell for all.
    """

    def __init__(self, text: str, *, on_all: bool = False) -> None:
        super().__init__(text)
        self.on_all = on_all


class ArgumentError(OpscopeError):
    """An argument of a native function of the wrong dtype or layout, too small or out of bounds."""


class DeviceError(OpscopeError):
    """A device or backend that is not present."""


def check_kind(value: object, kind: Any, what: str) -> None:
    """Refuse an object of the wrong class; `what` names it in the message. True is no number.

    Args:
        value: the object.
        kind: a class, or several with `|` between them; `int` and `float` take NumPy's numbers as
            well, and `float` whole numbers.
        what: the object is.

    Raises:
        AttributeTypeError: it is none of `kind`.
    """
    number = _NUMBERS.get(kind)
    fits = isinstance(value, number or kind)
    if not fits or (number and isinstance(value, bool)):
        shown = repr(value)
        shown = f": {shown}" if len(shown) <= 60 and "\n" not in shown else ""
        kinds = [one for one in get_args(kind) or (kind,) if one is not NoneType]
        wanted = " or ".join(dict.fromkeys(_article(one.__name__) for one in kinds))
        raise AttributeTypeError(
            f"{what}: want {wanted}, not {_article(type(value).__name__)}{shown}"
        )


_NUMBERS: dict[Any, Any] = {int: Integral, float: Real}


def _article(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"


@contextmanager
def one_list() -> Iterator[None]:
    """While a list of messages is made: what all its suggestions together cost has an end.

    The first messages have suggestions, the thousandth has none. A list inside another is part of
    it. Also works as a decorator.
    """
    if _LOOKS_LEFT.get() is not None:
        yield
        return
    token = _LOOKS_LEFT.set([_MOST_LOOKS])
    try:
        yield
    finally:
        _LOOKS_LEFT.reset(token)


def suggestions_ended() -> bool:
    """Whether the list of messages that is being made (see `one_list`) has no looks at names left:
    who tells only of names near to known ones has not named all."""
    left = _LOOKS_LEFT.get()
    return left is not None and left[0] <= 0


def doubled(names: Iterable[str]) -> list[str]:
    """The names that come more than once, in the order in which they come first."""
    return [name for name, times in Counter(names).items() if times > 1]


def nearest(name: str, names: Iterable[str]) -> str:
    """` (did you mean a, b?)` with the closest of `names`, or an empty string.

    Capitals count, unless nothing is near then; where nothing is at all, names that begin so are
    meant: `acc` is short for `accuracy`. Names without end cost nothing: of very many the first are
    looked at, of many that may fit those whose two ends are most similar to the ends of `name`; and
    of a list of messages (see `one_list`) the first have suggestions.
    """
    if suggestions_ended():
        return ""
    close = near_names(name, names, _LOOKS_LEFT.get())
    return f" (did you mean {', '.join(close)}?)" if close else ""


def near_names(name: str, names: Iterable[str], left: list[int] | None = None) -> list[str]:
    """The closest of `names`, at most three, as `nearest` suggests them.

    Args:
        left: the looks at names that are left, from which these are taken.
    """
    given = str(name)
    if len(given) > _LONGEST_NAME:
        return []
    first = list(dict.fromkeys(islice(names, _MOST_NAMES)))
    # difflib's ratio is 2M / (a + b), at most 2 min / (a + b): below the cutoff by length alone, a
    # name need not be compared.
    known = [word for word in first if _is_as_long(given, word)]
    if len(known) > _MOST_COMPARED:
        known = heapq.nlargest(_MOST_COMPARED, known, lambda word: _equal_ends(given, word))
    if left is not None:
        left[0] -= len(first) + _COMPARISON * len(known)
    close = _close(given, known)
    if not close:
        # Reversed: where names differ only in case, the first one wins.
        spelt = {word.lower(): word for word in reversed(known)}
        close = [spelt[word] for word in _close(given.lower(), spelt)]
    if not close and len(given) >= _SHORTEST_BEGINNING:
        close = sorted((w for w in first if w.lower().startswith(given.lower())), key=len)[:3]
    return close


def _close(given: str, words: Iterable[str]) -> list[str]:
    """The words that `difflib` finds near, without its search for most of those that are not.

    It adds up parts that stand in both words in the same order: no more characters than the longest
    common subsequence has, whose length takes one pass over a word (Hyyrö 2004).
    """
    masks: dict[str, int] = {}
    for place, letter in enumerate(given):
        masks[letter] = masks.get(letter, 0) | 1 << place
    whole = (1 << len(given)) - 1

    def may_be(word: str) -> bool:
        unmatched = whole
        for letter in word:
            found = unmatched & masks.get(letter, 0)
            unmatched = ((unmatched + found) | (unmatched - found)) & whole
        common = len(given) - unmatched.bit_count()
        return 10 * common >= 3 * (len(given) + len(word))  # 2 common / (both lengths) >= 0.6

    return difflib.get_close_matches(given, filter(may_be, words), n=3, cutoff=0.6)


def spelled(typed: str, names: Iterable[str]) -> str:
    """The one of `names` that somebody has typed, whatever the case and the separators.

    `AdamW` and `adam-w` are `adamw`. A name that is none of them, or could be several, is itself.
    """
    names = list(names)
    if typed in names:
        return typed
    letters = _letters(typed)
    same = [name for name in names if _letters(name) == letters] if letters else []
    return same[0] if len(same) == 1 else typed


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def _is_as_long(given: str, word: str) -> bool:
    """Whether two names may be near for their lengths, as `difflib` reckons it."""
    return 3 * abs(len(given) - len(word)) <= 4 * min(len(given), len(word))


def _equal_ends(given: str, word: str) -> int:
    """How many characters two names share at their beginning and at their end."""
    first, second = given.lower(), word.lower()
    return len(commonprefix((first, second))) + len(commonprefix((first[::-1], second[::-1])))


def format_shape(shape: tuple[int, ...] | None) -> str:
    """`[?, 784]` for `(-1, 784)`; `[...]` where even the rank is unknown."""
    if shape is None:
        return "[...]"
    return "[" + ", ".join("?" if d < 0 else str(d) for d in shape) + "]"
