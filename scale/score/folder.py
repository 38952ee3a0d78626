"""The folder of a scoring: what lies where, what it was begun with, which shards are finished.

manifest.json     what was asked for, and each finished shard with its checksum
scores.N.ark      the scores of shard N
parts/N.json      the utterances of shard N
parts/N.done      written last: the checksum of its archive, and where each score stands in it
parts/N.failed    an error that running the shard again would give again
parts/N.progress  how many of its utterances are done
jobs/, log/       of the jobs that run shards
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from ...framework.base.errors import FormatError, SaveError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.untrusted.opener import open_file, read_file
from ...framework.base.untrusted.records import json_file, record, record_file
from ...framework.base.untrusted.values import json_value, whole_number

_MANIFEST, _PARTS = "manifest.json", "parts"
_PIECE = 1 << 22
_SHOWN = 12  # digits of a checksum in a message


def digests(path: str, sizes: Sequence[int] = ()) -> list[str]:
    """SHA-256 of each of the first `sizes` bytes of a file in turn, and last of what is left of it,
    if anything is or there are no sizes; nothing where it cannot be read."""
    hexes: list[str] = []
    try:
        with open_file(path) as file:
            for size in sizes:
                hexes.append(_digest(file, size))
            if not sizes or file.read(1):
                hexes.append(_digest(file, sys.maxsize))
    except (OSError, FormatError):
        return []
    return hexes


def _digest(file: BinaryIO, size: int) -> str:
    sha = hashlib.sha256()
    while size > 0 and (piece := file.read(min(size, _PIECE))):
        sha.update(piece)
        size -= len(piece)
    return sha.hexdigest()


@dataclass(frozen=True)
class Description:
    """What a shard is.

    Attributes:
        model: checksum of the model. shards: how many there are. options: of the computing.
        permissive: utterances that cannot be read are left out. binary: the form of scores.
        groups: utterances that are computed together, as lines of a script file.
    """

    model: str
    shards: int
    options: dict[str, Any]
    permissive: bool
    binary: bool
    groups: list[list[tuple[str, str, str | None, str]]]


@dataclass(frozen=True)
class Finished:
    """What is known of a finished shard.

    Attributes:
        description: checksum of the text that says what it is. sha256, bytes: of its archive.
        entries: key, place and size of each score in the archive. cpu_seconds: of its process.
        skipped: key of each utterance without a score, and why it has none.
    """

    description: str
    sha256: str
    bytes: int
    entries: list[tuple[str, int, int]]
    skipped: list[tuple[str, str]]
    cpu_seconds: float

    def __post_init__(self) -> None:
        for key, place, size in self.entries:
            if not (0 <= place and 0 <= size and place + size <= self.bytes):
                raise FormatError(f"'entries': {key!r} lies outside of the archive")
            if not key or len(key.split()) != 1:
                raise FormatError(f"'entries': {key!r} is no key")


@dataclass(frozen=True)
class ShardNote:
    """What the manifest says of a shard: how much it is, and what is known once it is finished."""

    name: str
    utterances: int
    rows: int
    sha256: str | None = None
    bytes: int | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class Written:
    """The output as it was written: what the user named, and the checksum of its script file. The
    shards hold the checksums of the parts of its archive."""

    name: str
    script: str


@dataclass(frozen=True)
class Manifest:
    """What was asked for, what is known of each shard, and the output where it is written."""

    settings: dict[str, Any]
    shards: list[ShardNote]
    output: Written | None


class ScoreFolder:
    """Paths of a scoring's folder, and the small files in it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def at(self, *names: str) -> str:
        """A path in the folder."""
        return os.path.join(self.path, *names)

    def make(self) -> None:
        """Make the folder and those in it. Raises SaveError: that is not possible."""
        try:
            for name in (_PARTS, "jobs", "log"):
                os.makedirs(self.at(name), exist_ok=True)
        except OSError as error:
            raise SaveError(f"cannot make the folder {self.path}: {error.strerror}") from error

    def archive(self, number: int) -> str:
        """Of the scores of a shard."""
        return self.at(f"scores.{number}.ark")

    def part(self, number: int, what: str) -> str:
        """A small file of a shard: `json`, `done`, `failed` or `progress`."""
        return self.at(_PARTS, f"{number}.{what}")

    def remove(self, path: str) -> None:
        """Remove a file or a folder of this folder, if it is there."""
        with contextlib.suppress(OSError):
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def remove_shards(self, count: int) -> None:
        """Remove what is needed no more when all scores are in one table."""
        for number in range(1, count + 1):
            self.remove(self.archive(number))
        for name in (_PARTS, "jobs"):
            self.remove(self.at(name))

    # Shards

    def describe(self, number: int, description: Description) -> None:
        """Write what a shard is, where another or nothing is written. Raises SaveError."""
        text = json.dumps(vars(description))
        if self._text(number) != text:
            write_atomically(self.part(number, "json"), text.encode())

    def description(self, number: int) -> tuple[str, Description]:
        """The text and the contents of what a shard is.

        Raises:
            SaveError: there is no such shard. FormatError: the file says something else.
        """
        path = self.part(number, "json")
        text = self._text(number)
        if not text:
            raise SaveError(f"{path}: there is no such shard")
        return text, record(json_value(text, path), Description, path)

    def _text(self, number: int) -> str:
        """The text that says what a shard is; empty where there is none."""
        try:
            return read_file(self.part(number, "json")).decode()
        except (FormatError, UnicodeDecodeError):
            return ""

    def finish(self, number: int, text: str, results: Mapping[str, Any]) -> None:
        """Note that a shard of this description is finished. Raises SaveError."""
        fields = {"description": hashlib.sha256(text.encode()).hexdigest(), **results}
        write_atomically(self.part(number, "done"), json.dumps(fields).encode())

    def finished(self, number: int, *, just_now: bool = False) -> Finished | None:
        """The record of a shard whose archive is there, whole, and of the present description.

        `just_now`: by jobs of this run. They have summed the bytes that they wrote, which are not
        read again: their number must be right.
        """
        try:
            done = record_file(self.part(number, "done"), Finished)
        except FormatError:
            return None
        if done.description != hashlib.sha256(self._text(number).encode()).hexdigest():
            return None
        archive = self.archive(number)
        if just_now:
            return done if done.bytes == _size(archive) else None
        return done if [done.sha256] == digests(archive) else None

    def progress(self, number: int) -> int:
        """How many utterances of a shard are done, as far as is known."""
        path = self.part(number, "progress")
        try:
            return whole_number(read_file(path).decode(), path, 0)
        except (FormatError, UnicodeDecodeError):
            return 0

    def failure(self, number: int) -> str:
        """The error that a shard ended with, or nothing."""
        try:
            message = read_file(self.part(number, "failed"))
        except FormatError:
            return ""
        return message.decode("utf-8", "surrogateescape") or f"shard {number} failed"

    # The manifest

    def manifest(self) -> Manifest | None:
        """What the manifest holds, where there is one.

        Raises:
            SaveError: it is damaged.
        """
        path = self.at(_MANIFEST)
        try:
            content = json_file(path, missing=None)
            return None if content is None else record(content, Manifest, path)
        except FormatError as error:
            raise SaveError(f"{error}; this is no manifest of a scoring") from None

    def write_manifest(self, manifest: Manifest) -> None:
        """Raises SaveError: it cannot be written."""
        text = json.dumps(dataclasses.asdict(manifest), indent=1) + "\n"
        write_atomically(self.at(_MANIFEST), text.encode())

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse to continue with something else than was begun here.

        Raises:
            SaveError: the settings differ; what differs is reported.
        """
        manifest = self.manifest()
        before = settings if manifest is None else manifest.settings
        names = [*settings, *(name for name in before if name not in settings)]
        changed = [
            _change(name, before.get(name), settings.get(name))
            for name in names
            if before.get(name) != settings.get(name)
        ]
        if changed:
            raise SaveError(
                f"{self.path} holds a scoring of something else: {'; '.join(changed)}. Remove it,"
                " or choose another folder"
            )


def _size(path: str) -> int:
    """Of a file; -1 where it is not there."""
    try:
        return os.path.getsize(path)
    except OSError:
        return -1


def _change(name: str, before: Any, now: Any) -> str:
    if name == "model":
        then, today = str(before)[:_SHOWN], str(now)[:_SHOWN]
        return f"the model has changed (SHA-256 {then}... then, {today}... now)"
    if name == "list":
        counts = [
            each[1] if isinstance(each, list) and len(each) == 2 else "?" for each in (before, now)
        ]
        return f"the list of utterances has changed ({counts[0]} then, {counts[1]} now)"
    return f"--{name.replace('_', '-')} was {before!r}, is {now!r}"


def list_settings(lines: Sequence[str]) -> list[Any]:
    """What is kept of a list of utterances to know it again: a checksum, and how many there are."""
    sha = hashlib.sha256()
    for line in lines:
        sha.update(f"{line}\n".encode("utf-8", "surrogateescape"))
    return [sha.hexdigest(), len(lines)]
