"""The forms of descriptors, which nnet3's configs and xconfig lines share.

Source: Kaldi's `nnet3/nnet-descriptor.h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Form:
    """A form `NAME(...)`.

    Attributes:
        letters: what stands in the brackets: d a descriptor, * any more of them, f a float, i an
            integer, p a positive integer, v a variable (t or x), ? the rest may be left out.
        names: of the arguments, one for each letter but * and ?.
        doc: what it means.
        edge: what it means where rows that it reads are not there.
        example: of one column, with the node `in`.
    """

    letters: str
    names: tuple[str, ...]
    doc: str
    edge: str
    example: str

    @property
    def arguments(self) -> str:
        """What stands in the brackets, in words: `src, t-offset[, x-offset]`."""
        text = ""
        names = iter(self.names)
        for letter in self.letters:
            if letter == "*":
                text += ", ..."
            elif letter == "?":
                text += "["
            else:
                text += (", " if text else "") + next(names)
        return text + ("]" if "?" in self.letters else "")


FORMS: Final = {
    "Append": Form(
        "d*",
        ("part",),
        "The parts side by side, one after the other.",
        "Needs every part.",
        "Append(Offset(in, -1), in)",
    ),
    "Sum": Form(
        "d*",
        ("part",),
        "The sum of parts of equal dimension.",
        "Needs every part.",
        "Sum(in, Offset(in, 1))",
    ),
    "Switch": Form(
        "d*",
        ("part",),
        "The part number t modulo the number of parts; also for negative t, so that t = -1 takes "
        "the last.",
        "Needs the row of the chosen part alone.",
        "Switch(in, Offset(in, -1))",
    ),
    "Failover": Form(
        "dd",
        ("first", "second"),
        "The first where it can be computed, else the second.",
        "Needs one of the two.",
        "Failover(Offset(in, -1), in)",
    ),
    "IfDefined": Form(
        "d",
        ("src",),
        "src where it can be computed, else zeros.",
        "Needs nothing: zeros stand beyond the edge.",
        "IfDefined(Offset(in, -1))",
    ),
    "Scale": Form(
        "fd",
        ("factor", "src"),
        "src times the factor.",
        "As src.",
        "Scale(0.5, in)",
    ),
    "Const": Form(
        "fp",
        ("value", "dim"),
        "The value in each of dim columns.",
        "Needs nothing.",
        "Sum(in, Const(10, 1))",
    ),
    "Offset": Form(
        "di?i",
        ("src", "t-offset", "x-offset"),
        "Row t + t-offset (and x + x-offset) of src.",
        "Needs that row: without it the output cannot be computed. What nnet3-compute gives beyond "
        "an utterance is its first or last frame again.",
        "Offset(in, -1)",
    ),
    "Round": Form(
        "dp",
        ("src", "modulus"),
        "The row of src at t rounded down to a multiple of the modulus; -1 becomes -modulus.",
        "Needs that row.",
        "Round(in, 3)",
    ),
    "ReplaceIndex": Form(
        "dvi",
        ("src", "t or x", "value"),
        "The row of src whose t (or x) is the value, for every t (or x).",
        "Needs that row.",
        "ReplaceIndex(in, t, 0)",
    ),
}
"""All forms by name. A descriptor is one of them or the name of a node."""
