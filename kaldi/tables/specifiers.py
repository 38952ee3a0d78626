"""Specifiers: how to find a table, as `ark:feats.ark`, `scp,p:feats.scp`, `ark,scp:a.ark,a.scp`.

Source: Kaldi's `util/kaldi-table.cc`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...framework.base.errors import FormatError

_READ_OPTIONS = {
    "b": {},
    "t": {},
    "bg": {},
    "o": {"once": True},
    "no": {"once": False},
    "p": {"permissive": True},
    "np": {"permissive": False},
    "s": {"sorted": True},
    "ns": {"sorted": False},
    "cs": {"called_sorted": True},
    "ncs": {"called_sorted": False},
}
_WRITE_OPTIONS = {
    "b": {"binary": True},
    "t": {"binary": False},
    "f": {"flush": True},
    "nf": {"flush": False},
    "p": {"permissive": True},
}


@dataclass(frozen=True)
class ReadSpecifier:
    """An rspecifier such as `ark,s,cs:feats.ark`.

    Attributes:
        source: `ark` or `scp`.
        name: the file.
        once, sorted, called_sorted: each key is asked for at most once; keys are sorted; they are
            asked for in sorted order.
        permissive: entries that cannot be read count as missing.
    """

    source: str
    name: str
    once: bool = False
    sorted: bool = False
    called_sorted: bool = False
    permissive: bool = False

    @classmethod
    def parse(cls, text: str) -> ReadSpecifier:
        """Raises FormatError: this is no specifier for reading."""
        name, sources, options = _parse(text, _READ_OPTIONS, "reading")
        if len(sources) != 1:
            raise FormatError(f"{text!r}: a table is read from one of 'ark' and 'scp'")
        return cls(sources[0], name, **options)


@dataclass(frozen=True)
class WriteSpecifier:
    """A wspecifier such as `ark,scp,t:feats.ark,feats.scp`.

    Attributes:
        archive, script: the files, or None where there is none. With a script alone, that file
            is there already and says where each value goes.
        binary: the form of the values.
        flush: after each value; plain files appear as a whole at the end all the same.
        permissive: values whose keys the script lacks are left out.
    """

    archive: str | None
    script: str | None
    binary: bool = True
    flush: bool = False
    permissive: bool = False

    @classmethod
    def parse(cls, text: str) -> WriteSpecifier:
        """Raises FormatError: this is no specifier for writing."""
        name, sources, options = _parse(text, _WRITE_OPTIONS, "writing")
        if sources == ["ark", "scp"]:
            archive, comma, script = name.partition(",")
            if not comma:
                raise FormatError(f"{text!r}: 'ark,scp' wants two file names with a comma")
            return cls(archive, script, **options)
        if len(sources) != 1:
            raise FormatError(f"{text!r}: a table is written to 'ark', 'scp' or 'ark,scp'")
        return cls(name, None, **options) if sources == ["ark"] else cls(None, name, **options)


def is_specifier(text: str) -> bool:
    """Whether a name says how to find a table, as `ark:feats.ark` does; else it is a file's."""
    words = re.split("[, ]+", text.partition(":")[0]) if ":" in text else []
    return any(word in ("ark", "scp") for word in words) and all(
        word in ("ark", "scp") or word in _READ_OPTIONS or word in _WRITE_OPTIONS for word in words
    )


def _parse(text: str, known: dict[str, dict], use: str) -> tuple[str, list[str], dict[str, bool]]:
    """The file name, `ark` and `scp` as they come, and the options."""
    head, colon, name = text.partition(":")
    if not colon:
        raise FormatError(f"{text!r} is no table: for {use} it begins with 'ark:' or 'scp:'")
    if text[-1].isspace():
        raise FormatError(f"{text!r} ends with white space")
    sources: list[str] = []
    options: dict[str, bool] = {}
    for word in re.split("[, ]+", head):
        if word in ("ark", "scp"):
            sources.append(word)
        elif word in known:
            options |= known[word]
        else:
            raise FormatError(
                f"{text!r}: unknown option {word!r}; for {use} there are: {', '.join(known)}"
            )
    return name, sources, options
