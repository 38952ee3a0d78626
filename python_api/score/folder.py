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
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from ...framework.base.atomic import write_atomically
from ...framework.base.errors import FormatError, SaveError
from ...framework.base.untrusted.values import json_value, open_file, read_text

_MANIFEST, _PARTS = "manifest.json", "parts"
_PIECE = 1 << 22
_SHOWN = 12  # digits of a checksum in a message


def digests(path: str, sizes: Sequence[int] = ()) -> list[str]:
    """SHA-256 of each of the first `sizes` bytes of a file in turn, and last of what is left of it,
    if anything is or there are no sizes; nothing where it cannot be read."""
    made: list[str] = []
    try:
        with open_file(path) as file:
            for size in sizes:
                made.append(_digest(file, size))
            if not sizes or file.read(1):
                made.append(_digest(file, sys.maxsize))
    except OSError:
        return []
    return made


def _digest(file: BinaryIO, size: int) -> str:
    found = hashlib.sha256()
    while size > 0 and (piece := file.read(min(size, _PIECE))):
        found.update(piece)
        size -= len(piece)
    return found.hexdigest()


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

    def describe(self, number: int, description: Mapping[str, Any]) -> None:
        """Write what a shard is, where another or nothing is written. Raises SaveError."""
        text = json.dumps(description)
        if self.description(number)[0] != text:
            write_atomically(self.part(number, "json"), text.encode())

    def description(self, number: int) -> tuple[str, dict[str, Any]]:
        """The text and the contents of what a shard is; empty where there is nothing."""
        try:
            text = read_text(self.part(number, "json"))
            return text, json_value(text, self.part(number, "json"))
        except OSError:
            return "", {}

    def finish(self, number: int, text: str, record: Mapping[str, Any]) -> None:
        """Note that a shard of this description is finished. Raises SaveError."""
        told = {"description": hashlib.sha256(text.encode()).hexdigest(), **record}
        write_atomically(self.part(number, "done"), json.dumps(told).encode())

    def finished(self, number: int, *, just_now: bool = False) -> dict[str, Any] | None:
        """The record of a shard whose archive is there, whole, and of the present description.

        `just_now`: by jobs of this run. They have summed the bytes that they wrote, which are not
        read again: their number must be right.
        """
        text = self.description(number)[0]
        path = self.part(number, "done")
        try:
            found = json_value(read_text(path), path)
        except (OSError, FormatError):
            return None
        wanted = hashlib.sha256(text.encode()).hexdigest()
        if not isinstance(found, dict) or found.get("description") != wanted:
            return None
        archive = self.archive(number)
        if just_now:
            return found if found.get("bytes") == _size(archive) else None
        return found if [found.get("sha256")] == digests(archive) else None

    def progress(self, number: int) -> int:
        """How many utterances of a shard are done, as far as is known."""
        try:
            told = read_text(self.part(number, "progress"))
        except OSError:
            return 0
        return int(told) if told.isdecimal() else 0

    def failure(self, number: int) -> str:
        """The error that a shard ended with, or nothing."""
        try:
            return read_text(self.part(number, "failed"))
        except OSError:
            return ""

    # The manifest

    def manifest(self) -> dict[str, Any]:
        """What the manifest holds; empty where there is none.

        Raises:
            SaveError: it is damaged.
        """
        path = self.at(_MANIFEST)
        try:
            found = json_value(read_text(path), path)
        except FileNotFoundError:
            return {}
        except (OSError, FormatError) as error:
            raise SaveError(f"{path}: the manifest cannot be read: {error}") from None
        if not isinstance(found, dict) or not isinstance(found.get("settings"), dict):
            raise SaveError(f"{path}: no manifest of a scoring")
        return found

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Raises SaveError: it cannot be written."""
        write_atomically(self.at(_MANIFEST), (json.dumps(manifest, indent=1) + "\n").encode())

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse to go on with something else than was begun here.

        Raises:
            SaveError: the settings differ; what differs is told.
        """
        manifest = self.manifest()
        before = manifest.get("settings", settings)
        names = [*settings, *(name for name in before if name not in settings)]
        changed = [
            _told(name, before.get(name), settings.get(name))
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


def _told(name: str, before: Any, now: Any) -> str:
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
    found = hashlib.sha256()
    for line in lines:
        found.update(f"{line}\n".encode("utf-8", "surrogateescape"))
    return [found.hexdigest(), len(lines)]
