"""Tables of Kaldi: values by key, in archives and script files.

An archive holds, for each entry, the key, a space and the value. A script file has a line `key
file` for each entry, where the file may be a place in an archive, `feats.ark:1234`, and may end
with a range of rows and columns, `feats.ark:1234[0:99,0:12]`. Specifiers say how to find a table:
`ark:feats.ark`, `scp:feats.scp`, `ark,t:-`, `ark,scp:feats.ark,feats.scp`.
Source: Kaldi's `util/kaldi-table.cc`, `util/kaldi-table-inl.h`.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from ...framework.base.errors import FormatError, OutsideError, SaveError, check_kind
from ...framework.base.files.copying import copy_contents
from ...framework.base.untrusted.limits import check_limit
from ..files.kaldi_io import Reader, Writer
from .kinds import Kind, guess_kind, kind_of
from .specifiers import ReadSpecifier, WriteSpecifier
from .streams import (
    Files,
    Pipes,
    SetAside,
    check_there,
    is_regular,
    is_stream,
    open_output,
    open_stream,
    place_in_file,
)

_log = logging.getLogger(__name__)
_STRICT = ReadSpecifier("ark", "")
_PIECE = 1 << 20  # bytes of a stream that are read at a time
_RANGE = re.compile(r"([^\[]+)\[([^\[]+)\]")


@dataclass(frozen=True)
class ScriptLine:
    """One line of a script file: where the value of `key` is, and which part of it is meant."""

    key: str
    name: str
    range: str | None
    place: str  # of the line, for messages


def read_script(files: Files, name: str) -> list[ScriptLine]:
    """The lines of a script file.

    Raises:
        FormatError: it is binary, or a line has no key and name.
    """
    reader = files.reader(name)
    if reader.read_header():
        raise FormatError(f"{name}: this is binary, but a script file is text")
    lines = []
    while reader.offset < reader.size:
        start = reader.offset
        words = reader.read_line().split(None, 1)
        if len(words) < 2:
            raise reader.error("a line of a script file is a key and a file name", start)
        rest = words[1].strip()
        match = _RANGE.fullmatch(rest) if rest.endswith("]") else None
        if rest.endswith("]") and not match:
            raise reader.error(f"{rest!r} does not end with a range like [0:9]", start)
        rxname, span = (match[1], match[2]) if match else (rest, None)
        place = f"{reader.name}:{len(lines) + 1}: {words[0]}"
        lines.append(ScriptLine(words[0], rxname, span, place))
    return lines


def read_table(
    rspecifier: str, kind: str | Kind, *, pipes: Pipes = None
) -> Iterator[tuple[str, Any]]:
    """The entries of a table in their order, as pairs of key and value.

    Args:
        rspecifier: e.g. `ark:feats.ark` or `scp,p:feats.scp`.
        kind: of the values, by its name in `table_kinds.KINDS`, e.g. `matrix`.
        pipes: which commands may run; None: as the switch `OPSCOPE_PIPES` says.

    Raises:
        FormatError: the specifier is wrong, or (while reading) an entry is.
    """
    check_kind(rspecifier, str, "rspecifier")
    specifier = ReadSpecifier.parse(rspecifier)
    kind = kind_of(kind)
    files = Files(pipes)
    if specifier.source == "scp":
        return _script_values(read_script(files, specifier.name), kind, files, specifier)
    if is_stream(specifier.name, pipes=pipes):
        return _values(streamed_entries(specifier, kind, pipes))
    path, offset = place_in_file(specifier.name)
    check_there(path)
    if offset:
        return _values(_entries(files.reader(specifier.name), kind, specifier))
    return _values(streamed_entries(specifier, kind, pipes))


def first_kind(specifier: ReadSpecifier, pipes: Pipes = None) -> Kind | None:
    """The kind of the first value of a table; None where there is none. See `guess_kind`.

    Raises:
        FormatError: it cannot be read, or is of no kind that is known.
    """
    files = Files(pipes)
    if specifier.source == "scp":
        lines = read_script(files, specifier.name)
        return files.read(lines[0].name, guess_kind, listed=True) if lines else None
    return files.read(specifier.name, _kind_after_key)


def _kind_after_key(reader: Reader) -> Kind | None:
    if reader.at_end():
        return None
    reader.read_token()
    return guess_kind(reader)


class RandomAccessTable:
    """Values by key, in any order. An archive is read no further than it has to be.

    Args:
        rspecifier: e.g. `scp:feats.scp`.
        kind: of the values, by its name in `table_kinds.KINDS`.
        utt2spk: another table, of kind `token`, that says which key to take in place of the one
            asked for; empty: none.
        pipes: which commands may run; None: as the switch `OPSCOPE_PIPES` says.

    Raises:
        FormatError: a specifier is wrong; the table is said to be sorted, and is not; a key comes
            twice; `utt2spk` lacks a key that is asked for.
    """

    def __init__(
        self, rspecifier: str, kind: str | Kind, *, utt2spk: str = "", pipes: Pipes = None
    ) -> None:
        self._specifier = ReadSpecifier.parse(rspecifier)
        self._kind = kind_of(kind)
        self._files = Files(pipes)
        self._map = RandomAccessTable(utt2spk, "token", pipes=pipes) if utt2spk else None
        self._places: dict[str, int | ScriptLine] = {}
        self._last: tuple[str, Any] = ("", None)
        self._entries: Iterator[tuple[str, int, Any]] = iter(())
        self._reader: Reader | None = None  # of an archive that can be read once only
        if self._specifier.source == "scp":
            for line in read_script(self._files, self._specifier.name):
                self._note(line.key, line)
        elif is_regular(self._specifier.name):
            self._entries = streamed_entries(self._specifier, self._kind, pipes)
        else:
            self._reader = self._files.reader(self._specifier.name)
            self._entries = _entries(self._reader, self._kind, self._specifier)

    def __contains__(self, key: str) -> bool:
        return self._find(key)

    def __getitem__(self, key: str) -> Any:
        """The value of `key`.

        Raises:
            FormatError: there is none, or it cannot be read.
        """
        if not self._find(key):
            raise FormatError(f"{self._specifier.name}: there is no entry {self._mapped(key)!r}")
        return self._last[1]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default` where there is none."""
        return self[key] if key in self else default

    def _mapped(self, key: str) -> str:
        return key if self._map is None else self._map[key]

    def _find(self, key: str) -> bool:
        """Whether `key` is there; its value is then in `_last`."""
        key = self._mapped(key)
        if key == self._last[0]:
            return True
        if key not in self._places:
            self._scan(key)
        if key not in self._places:
            return False
        if key != self._last[0]:
            try:
                self._last = (key, self._load(self._places[key]))
            except FormatError as error:
                if self._specifier.permissive and not isinstance(error, OutsideError):
                    return False
                raise
        return True

    def _scan(self, wanted: str) -> None:
        """Go on in the archive until `wanted` is passed; of the values only places are noted."""
        for key, offset, value in self._entries:
            self._note(key, offset)
            self._last = (key, value)
            if key == wanted or (self._specifier.sorted and key > wanted):
                return

    def _note(self, key: str, place: int | ScriptLine) -> None:
        if key in self._places:
            raise FormatError(f"{self._specifier.name}: the key {key!r} comes twice")
        if self._specifier.sorted and self._places and key < next(reversed(self._places)):
            raise FormatError(
                f"{self._specifier.name}: the keys are said to be sorted ('s'), but {key!r} comes "
                f"after {next(reversed(self._places))!r}"
            )
        self._places[key] = place

    def _load(self, place: int | ScriptLine) -> Any:
        if isinstance(place, ScriptLine):
            return script_value(place, self._kind, self._files)
        if self._reader is None:
            return self._files.read(f"{self._specifier.name}:{place}", self._kind.read_value)
        before = self._reader.offset
        self._reader.offset = place
        try:
            return self._kind.read_value(self._reader)
        finally:
            self._reader.offset = before


def key_bytes(key: str) -> bytes:
    """A key as it stands in an archive, with the space after it.

    Raises:
        FormatError: it is empty or holds white space.
    """
    head = Writer(binary=False)
    head.write_token(key)
    return head.getvalue()


def value_bytes(kind: str | Kind, value: Any, binary: bool) -> bytearray:
    """A value as it stands in an archive, with its header.

    Raises:
        FormatError: it is not of the kind.
    """
    kind = kind_of(kind)
    body = kind.writer(binary)
    kind.write(body, value)
    return body.take()


class TableWriter:
    """Writes a table, entry by entry; to be used in a `with` block.

    Args:
        wspecifier: e.g. `ark,t:out.ark` or `ark,scp:out.ark,out.scp`; or what it stands for, where
            names of files may have commas.
        kind: of the values, by its name in `table_kinds.KINDS`.
        pipes: which commands may run; None: as the switch `OPSCOPE_PIPES` says.

    Raises:
        FormatError: the specifier is wrong.
        SaveError: a file cannot be written.
    """

    def __init__(
        self, wspecifier: str | WriteSpecifier, kind: str | Kind, *, pipes: Pipes = None
    ) -> None:
        is_text = isinstance(wspecifier, str)
        self.specifier = WriteSpecifier.parse(wspecifier) if is_text else wspecifier
        self.count = 0
        self._kind = kind_of(kind)
        self._pipes: Pipes = pipes
        self._stack = contextlib.ExitStack()
        self._archive: IO[bytes] | None = None
        self._script: IO[bytes] | None = None
        self._offset = 0
        self._targets: dict[str, ScriptLine] = {}

    def __enter__(self) -> TableWriter:
        archive, script = self.specifier.archive, self.specifier.script
        if archive is None:
            lines = read_script(Files(self._pipes), script or "")
            self._targets = {line.key: line for line in lines}
            return self
        with contextlib.ExitStack() as stack:
            aside = SetAside(script, archive) if script not in (None, "", "-") else None
            if aside:
                stack.push(aside.end)
            if script is not None:  # closed last: its lines point into a whole archive
                self._script = stack.enter_context(open_output(script, pipes=self._pipes))
            self._archive = stack.enter_context(open_output(archive, pipes=self._pipes))
            if aside:
                stack.push(aside.begin)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def write(self, key: str, value: Any) -> None:
        """Write one entry.

        Raises:
            FormatError: the key holds white space, or the value is not of the kind.
            SaveError: it cannot be written, or the script file has no such key.
        """
        self.write_encoded(key, value_bytes(self._kind, value, self.specifier.binary))

    def write_encoded(self, key: str, data: bytes | bytearray) -> None:
        """Write one entry whose value is there as `value_bytes` gives it, of the writer's form.

        Raises:
            FormatError, SaveError: as `write`.
        """
        head = key_bytes(key)
        if self._archive is None:
            self._write_alone(key, data)
        else:
            self._offset += len(head)
            if self._script is not None:
                line = f"{key} {self.specifier.archive}:{self._offset}\n"
                self._put(self._script, line.encode("utf-8", "surrogateescape"))
            self._put(self._archive, head, data)
            self._offset += len(data)
        self.count += 1

    def append_archive(self, archive: IO[bytes], entries: Iterable[tuple[str, int]]) -> None:
        """Write a whole archive of the writer's form and kind, without looking into it.

        Args:
            archive: open at its beginning.
            entries: its keys, and where the value of each stands in it.

        Raises:
            FormatError: the table has no archive. SaveError: it cannot be written.
        """
        if self._archive is None:
            raise FormatError("an archive is appended to another one: the table has none")
        begin = self._offset
        for key, offset in entries:
            self.count += 1
            if self._script is not None:
                line = f"{key} {self.specifier.archive}:{begin + offset}\n"
                self._put(self._script, line.encode("utf-8", "surrogateescape"))
        with self._naming():
            copy_contents(archive, self._archive)
        self._offset = begin + archive.tell()

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            name = self.specifier.archive or self.specifier.script
            raise SaveError(f"cannot write {name}: {error.strerror or error}") from error

    def _put(self, file: IO[bytes], *parts: bytes | bytearray) -> None:
        with self._naming():
            for part in parts:
                file.write(part)
            if self.specifier.flush:
                file.flush()

    def _write_alone(self, key: str, data: bytes | bytearray) -> None:
        if (line := self._targets.get(key)) is not None:
            try:
                with open_output(line.name, pipes=self._pipes, listed=True) as file:
                    file.write(data)
            except OutsideError as error:
                raise OutsideError(f"{line.place}: {error}") from None
        elif not self.specifier.permissive:
            raise SaveError(f"{self.specifier.script}: there is no line for the key {key!r}")


def _entries(
    reader: Reader, kind: Kind, specifier: ReadSpecifier
) -> Iterator[tuple[str, int, Any]]:
    """Key, offset of the value, and value, for all entries of an archive."""
    while True:
        reader.binary = False
        if reader.at_end():
            return
        try:
            key = _read_key(reader)
            offset = reader.offset
            value = kind.read_value(reader)
        except FormatError as error:
            if not specifier.permissive:
                raise
            _log.warning("%s; what is left of the archive is passed over", error)
            return
        yield key, offset, value


def _values(entries: Iterator[tuple[str, int, Any]]) -> Iterator[tuple[str, Any]]:
    for key, _, value in entries:
        yield key, value


def streamed_entries(
    specifier: ReadSpecifier, kind: Kind, pipes: Pipes
) -> Iterator[tuple[str, int, Any]]:
    """Key, offset of the value, and value, for all entries of an archive; few bytes of it are in
    memory at a time.

    What has come is read as far as it goes. An entry counts if something comes after it, or the
    end: in text, one that ends where the bytes do might go on.
    """
    name = specifier.name or "-"
    with open_stream(name, pipes=pipes) as file:
        piece = _PIECE
        ended = False
        reader = Reader(b"", name=name if name != "-" else "standard input", binary=False)
        while not ended:
            begin = reader.offset
            more = _read(file, piece, name)
            ended = len(more) < piece
            check_limit("stream", reader.size - begin + len(more), f"{reader.name}: one entry")
            piece = _PIECE if begin else 2 * piece  # a long entry is not read again and again
            lines = reader.lines_before
            if lines is not None:  # in an archive of binary values lines mean nothing
                is_text = reader.data.find(b"\0", 0, begin) < 0
                lines = lines + reader.data.count(b"\n", 0, begin) if is_text else None
            reader = Reader(
                reader.data[begin:] + more,
                name=reader.name,
                binary=False,
                before=reader.before + begin,
                lines_before=lines,
            )
            entries = _entries(reader, kind, specifier if ended else _STRICT)
            while True:
                start = reader.offset
                try:
                    entry = next(entries, None)
                except FormatError:
                    if ended:
                        raise
                    entry = None
                if entry is None or (reader.offset == reader.size and not ended):
                    reader.offset = start
                    break
                yield entry[0], reader.before + entry[1], entry[2]


def _read(file: IO[bytes], count: int, name: str) -> bytes:
    try:
        return file.read(count)
    except OSError as error:
        raise FormatError(f"{name}: {error.strerror}") from error


def _read_key(reader: Reader) -> str:
    """A key and the space or tab after it; a line end is left, for values that are lines."""
    key = reader.read_token()
    after = reader.data[reader.offset - 1 : reader.offset]
    if after == b"\n":
        reader.offset -= 1
    elif after not in (b" ", b"\t"):
        raise reader.error(f"the key {key!r} is not followed by a space")
    return key


def _script_values(
    lines: list[ScriptLine], kind: Kind, files: Files, specifier: ReadSpecifier
) -> Iterator[tuple[str, Any]]:
    for line in lines:
        try:
            value = script_value(line, kind, files)
        except FormatError as error:
            if not specifier.permissive or isinstance(error, OutsideError):
                raise
            _log.warning("%s; the entry is passed over", error)
            continue
        yield line.key, value


def script_value(line: ScriptLine, kind: Kind, files: Files) -> Any:
    """The value, or the part of one, that a line of a script file names.

    Raises:
        FormatError: it cannot be read; the line is named.
    """
    try:
        value = files.read(line.name, kind.read_value, listed=True)
        return value if line.range is None else kind.part(value, line.range)
    except OutsideError as error:
        raise OutsideError(f"{line.place}: {error}") from error
    except FormatError as error:
        raise FormatError(f"{line.place}: {error}") from error
