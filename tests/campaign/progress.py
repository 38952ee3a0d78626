"""What campaigns found so far, in a file, so that a run that was stopped goes on; and the table."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from opscope.framework.base.files.atomic import write_atomically

from .inputs import Generator, Target
from .limits import KINDS, Found

HEAD = ("reader or generator", "inputs", "a second", "refused", "accepted", "ran")
HEAD += ("foreign", "wrong", "over 2 s", "over 1 GiB", "crashes")
_SAVED = 2.0  # seconds between two states of the file
_COUNTS = ("inputs", "refused", "ran", "seconds", "rounds")


class Progress:
    """The counts and finds of every seed and reader, in `progress.json` of a folder.

    The files of finds lie beside it, in a folder for each reader. Which state of the code was
    tested is not told: a find stays until its seed is forgotten.

    Args:
        folder: made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / "progress.json"
        self._lock, self._saved = threading.Lock(), 0.0
        self._seeds: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            self._seeds = json.loads(self._path.read_text())

    def found(self, seed: int, reader: str) -> Found:
        """What runs with a seed found with a reader."""
        kept = self._seeds.get(str(seed), {}).get(reader)
        found = Found(reader)
        if kept is not None:
            for name in _COUNTS:
                setattr(found, name, kept.get(name, 0))  # a state of earlier code lacks some
            found.counts.update({kind: kept["counts"].get(kind, 0) for kind in KINDS})
            for what, name in kept["finds"].items():
                path = self._folder / folder_of(reader) / name
                found.finds[what] = path.read_bytes() if path.exists() else b""
        return found

    def joined(self) -> list[Found]:
        """What the runs with all seeds found, by reader."""
        sums: dict[str, Found] = {}
        for seed, readers in self._seeds.items():
            for reader in readers:
                sums.setdefault(reader, Found(reader)).add(self.found(int(seed), reader))
        return list(sums.values())

    def forget(self, seed: int, readers: Iterable[str]) -> None:
        """What these readers found with a seed is looked for anew."""
        for reader in readers:
            self._seeds.get(str(seed), {}).pop(reader, None)

    def take(
        self, seed: int, target: Target | Generator, found: Found, *, now: bool = False
    ) -> None:
        """Keep what was found; it is written every two seconds, and `now` where that is asked."""
        with self._lock:
            finds = {what: self._keep(target, data) for what, data in found.finds.items()}
            kept = {name: getattr(found, name) for name in _COUNTS}
            kept |= {"counts": dict(found.counts), "finds": finds}
            self._seeds.setdefault(str(seed), {})[target.name] = kept
            if now or time.monotonic() - self._saved > _SAVED:
                self._folder.mkdir(parents=True, exist_ok=True)
                text = json.dumps(self._seeds, indent=1, sort_keys=True)
                write_atomically(self._path, text.encode())
                self._saved = time.monotonic()

    def _keep(self, target: Target | Generator, data: bytes) -> str:
        folder = self._folder / folder_of(target.name)
        name = f"{folder.name}-{hashlib.sha256(data).hexdigest()[:12]}{target.suffix}"
        if not (folder / name).exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return name

    def lines(self, seed: int, reader: str) -> Iterator[str]:
        """What was found, and how to see it again."""
        kept = self._seeds.get(str(seed), {}).get(reader, {"finds": {}})
        for what, name in sorted(kept["finds"].items()):
            path = self._folder / folder_of(reader) / name
            yield f"{reader}: {what}\n    python build.py campaign --read {path}"


def folder_of(reader: str) -> str:
    """The folder of a reader's files."""
    return reader.replace(" ", "-")


def table(results: Iterable[Found]) -> str:
    """What was found, a row for each reader, in Markdown."""
    rows, total = [f"| {' | '.join(HEAD)} |", "|" + " --- |" * len(HEAD)], Found("all")
    for result in results:
        total.add(result)
        rows.append(_row(result))
    return "\n".join([*rows, _row(total)])


def _row(found: Found) -> str:
    rate = found.inputs / found.seconds if found.seconds else 0.0
    depths = (found.inputs, round(rate), found.refused, found.accepted, found.ran)
    counts = (f"{n:,}" for n in (*depths, *found.counts.values()))
    return f"| {' | '.join([found.name, *counts])} |"
