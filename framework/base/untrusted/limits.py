"""Limits of what a file may ask for beyond its own size: one table, and the switch that changes it.

A file pays for its contents with its length. What it only names, a dimension, a repetition, a size
once unpacked, is held to these limits before any of it is made.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

from ..errors import FormatError, OpscopeError, nearest
from ..options.settings import switch

SWITCH = "OPSCOPE_LIMITS"


@dataclass(frozen=True)
class Limit:
    """The most of something that a file may ask for."""

    name: str
    default: int
    unit: str
    doc: str
    shown_default: str = ""  # in place of a number that depends on the machine


def known_memory() -> int | None:
    """The bytes of memory that the machine has; None where it does not tell."""
    try:
        # Windows has no sysconf.
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def physical_memory() -> int:
    """The bytes of memory that the machine has; a terabyte where it does not tell."""
    return known_memory() or 1 << 40


LIMITS = {
    limit.name: limit
    for limit in (
        Limit(
            "fill",
            1 << 30,
            "bytes",
            "arrays that a text or a message describes and does not hold, all of one file together:"
            " parameters of a config that are drawn, initial values of a net",
        ),
        Limit(
            "run",
            physical_memory() * 4 // 5,
            "bytes",
            "results and temporaries of one run of a net on the CPU",
            "four fifths of the machine's memory",
        ),
        Limit(
            "cpu",
            600,
            "seconds",
            "processor time, of all threads, of a command that looks at files, converts them or"
            " runs them once: `open`, `show`, `run`, `convert` and their like; training, scoring"
            " and Kaldi's and CNTK's programs are not held to it",
        ),
        Limit(
            "rounds",
            100_000,
            "rounds",
            "rounds of all loops of an ONNX model in one run (`Loop`, `Scan`, `SequenceMap`),"
            " besides one for each number that is fed",
        ),
        Limit(
            "carried",
            256 << 20,
            "bytes",
            "what the loops of an ONNX model carry from round to round and collect, besides as much"
            " as is fed",
        ),
        Limit(
            "cache",
            128 << 20,
            "bytes",
            "what all nets together keep for shapes other than their last: plans, bound operators,"
            " outputs; what was used least recently goes first, and is made again when needed",
        ),
        Limit(
            "unpack",
            256 << 20,
            "bytes",
            "what a compressed file holds, once unpacked: an image in a `.zip`; an `.npz` that"
            " holds more than a hundred times its size",
        ),
        Limit(
            "pixels",
            1 << 25,
            "pixels",
            "the pixels of one image of a CNTK reader, which is decoded whole",
        ),
        Limit(
            "stream",
            4 << 30,
            "bytes",
            "what is read whole from a pipe, a device or a command, of unknown size",
        ),
        Limit(
            "delay", 10_000, "steps", "steps that a memory of a recurrent net looks back in time"
        ),
        Limit(
            "steps",
            500_000,
            "steps",
            "steps in which one text of BrainScript is evaluated: operators, calls, elements of"
            " arrays, members of records",
        ),
        Limit(
            "elements",
            1_000_000,
            "elements",
            "elements of one array of a config or of BrainScript, which a count or a range makes",
        ),
        Limit(
            "text",
            1_000_000,
            "characters",
            "one string of BrainScript or one value of a config, once its variables are replaced",
        ),
        Limit(
            "nodes",
            20_000,
            "nodes",
            "nodes of a network that NDL or a `SimpleNetworkBuilder` makes, calls inside of macros"
            " included",
        ),
        Limit("nesting", 100, "levels", "nets, lists and trees inside one another"),
        Limit(
            "columns", 1_000_000, "columns", "columns of one node or component of an nnet3 network"
        ),
        Limit(
            "window",
            100_000,
            "frames",
            "frames that one output frame of an nnet3 component reads, as statistics do",
        ),
        Limit(
            "chunk",
            10_000_000,
            "frames",
            "frames of one chunk that an nnet3 network computes at once, and of the context beside"
            " it that options ask for",
        ),
        Limit("context", 1000, "phones", "phones of the window that a decision tree may ask about"),
        Limit(
            "period",
            1000,
            "frames",
            "frames after which an nnet3 network repeats itself: `Round`, `Switch`, statistics",
        ),
        Limit(
            "descriptor",
            200_000,
            "characters",
            "the input of a layer of an xconfig, with the descriptors of the layers in it",
        ),
        Limit(
            "alternatives",
            1_000_000,
            "combinations",
            "windows of phones that are tried for the outputs of a decision tree",
        ),
        Limit(
            "graph",
            physical_memory() * 4 // 5,
            "bytes",
            "a graph of phones or transitions while it is made of a lexicon and a grammar",
            "four fifths of the machine's memory",
        ),
        Limit(
            "lattice",
            200_000,
            "states",
            "states that the paths of one lattice unfold to: a phone-aligned lattice, the frames"
            " and the FST of a supervision",
        ),
    )
}


def limit(name: str) -> int:
    """The limit of this name, as the switch `OPSCOPE_LIMITS` sets it, else its default.

    Raises:
        OpscopeError: the switch names no limit of the table, or a value that is none.
    """
    return _set_limits(switch(SWITCH)).get(name, LIMITS[name].default)


def check_limit(name: str, wanted: int, what: str) -> None:
    """Refuse what goes beyond a limit, before it is made.

    Args:
        name: of the limit. wanted: how much, in its unit. what: needs it, for the message.

    Raises:
        FormatError: it is too much; the message says how the limit is raised.
    """
    most = limit(name)
    if wanted > most:
        raise FormatError(
            f"{what}: {shown_number(wanted)} {LIMITS[name].unit}, beyond the limit of {most};"
            f" where that is meant, set {SWITCH}={name}=NUMBER"
        )


def shown_number(number: int) -> str:
    """A number as text; of one with very many digits, how many bits it has."""
    bits = number.bit_length()
    return str(number) if bits <= 200 else f"a number of {bits} bits"


@functools.lru_cache(maxsize=8)
def _set_limits(text: str) -> dict[str, int]:
    limits: dict[str, int] = {}
    if not text:
        return limits
    from ..sizes.byte_sizes import read_bytes  # few processes set limits

    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = pair.partition("=")
        number = read_bytes(value)
        if name not in LIMITS:
            raise OpscopeError(
                f"{SWITCH}={text}: there is no limit {name!r}{nearest(name, LIMITS)}; there are"
                f" {', '.join(LIMITS)}"
            )
        if number is None:
            raise OpscopeError(f"{SWITCH}={text}: {name} wants a number such as 100 or 16G")
        limits[name] = number
    return limits
