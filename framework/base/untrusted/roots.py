"""Folders that files named by other files must lie in: `--root DIR`, `OPSCOPE_ROOT`, `confined`.

Kaldi's lists and CNTK's configs may name any file, and without a root they do so here. Under one,
every file that is opened for reading or writing must lie below it, wherever its name comes from;
only what the user typed himself is excepted. A file is judged by where it really is: links, `..`,
absolute paths and `/proc/self/fd` lead nowhere else. It is judged by its name before it is opened,
so that no device is touched and nothing is created, and again by what was opened, so that a link
which changes in between opens nothing else. A hard link is the file itself and is not seen.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..errors import FormatError, OpscopeError, OutsideError
from ..options.settings import switch
from ..python.cached import new_lock

SWITCH = "OPSCOPE_ROOT"
_BETWEEN = re.compile(r"[\s;,:=+|\[\](){}\"'<>]+")  # what stands between the names in a word
_SPECIFIER = re.compile(r"[a-z]+(?:,[a-z]+)*:")
_PAIR = (".pb", ".safetensors")  # of a saved net: who names one file names both
_DESCRIPTORS = "/proc/self/fd"


@dataclass(frozen=True)
class Confinement:
    """What may be opened.

    Args:
        roots: real paths of folders; all below them may be opened.
        files: paths of files that may also be opened, as they were typed (made absolute) and
            really; and what lies beside them under their names and an extension.
        folders: real paths of folders; all below them may also be opened.
        outer: must also allow a file.
    """

    roots: tuple[str, ...]
    files: frozenset[str] = frozenset()
    folders: tuple[str, ...] = ()
    outer: Confinement | None = None

    def check(self, path: str, place: str = "") -> None:
        """Refuse a path that leads out; `place`, as `list.scp:3`, is where it stands.

        Raises:
            OutsideError: it does. FormatError: it is no path.
        """
        before = f"{place}: " if place else ""
        if not self._typed(path):
            try:
                real = os.path.realpath(path)
            except ValueError as error:  # a NUL, or characters that no name has
                raise FormatError(f"{before}{path!r} is no file name: {error}") from None
            self._check_real(path, real, before)
        if self.outer is not None:
            self.outer.check(path, place)

    def check_open(self, path: str, handle: int, place: str = "") -> None:
        """Refuse an open file that is another one than its path said before.

        Raises:
            OutsideError: it lies outside.
        """
        if not self._typed(path):
            self._check_real(path, _real_path(path, handle), f"{place}: " if place else "")
        if self.outer is not None:
            self.outer.check_open(path, handle, place)

    def check_beside(self, path: str, other: str, handle: int) -> None:
        """Refuse an open file, made beside `other`, whose folder has become another one.

        Args:
            path: of the open file. other: a real path that passed `check`.

        Raises:
            OutsideError: it has.
        """
        real = _real_path(path, handle)
        if os.path.dirname(real) != os.path.dirname(other):
            self.check(real)

    def open(self, path: str, flags: int, mode: int = 0o666, place: str = "") -> int:
        """As `os.open`: the handle of a file that may be opened; also the `opener` of `open`.

        Raises:
            OutsideError: it may not. OSError: it cannot be opened.
        """
        self.check(path, place)
        # Emptying waits for the second check: a name that has changed since the first one must not
        # cost another file its contents.
        handle = os.open(path, flags & ~os.O_TRUNC, mode)
        try:
            self.check_open(path, handle, place)
            if flags & os.O_TRUNC:
                os.truncate(handle, 0)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _typed(self, path: str) -> bool:
        # Not normalized: `link/../name` is another file than `name`.
        return os.path.join(os.getcwd(), path) in self.files

    def _check_real(self, path: str, real: str, before: str = "") -> None:
        if any(map(real.startswith, map(_below, (*self.roots, *self.folders)))):
            return
        if real in self.files or real in self.roots or real in self.folders:
            return
        folder, name = os.path.split(real)
        ends = [place + 1 for place, mark in enumerate(name) if mark == "." and place]
        stems = [name[: end - 1].removeprefix(dot) for end in ends for dot in (".", "")]
        if any(os.path.join(folder, stem) in self.files for stem in stems):
            return
        where = "" if real == path else f" (which is {real!r})" if real else " (which has changed)"
        roots = ", ".join(map(repr, self.roots))
        error = OutsideError(
            f"{before}{path!r}{where} lies outside of {roots}, where files that are named must lie"
            f" (--root, {SWITCH})"
        )
        error.path = path
        raise error


def _below(folder: str) -> str:
    return folder if folder.endswith(os.sep) else folder + os.sep


def _real_path(path: str, handle: int) -> str:
    """Where an open file is; empty where it is no longer at the path that led to it."""
    try:
        return os.readlink(f"{_DESCRIPTORS}/{handle}").removesuffix(" (deleted)")
    except OSError:  # a system without such a folder: look once more, and compare
        real = os.path.realpath(path)
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(real, follow_symlinks=False), os.fstat(handle)):
            return real
    return ""


class _OfThread(threading.local):
    confinement: Confinement | None = None


_lock = new_lock()
_inside: list[Confinement] = []
_of_thread = _OfThread()


def current() -> Confinement | None:
    """What confines files now; None: nothing."""
    if _of_thread.confinement is not None:
        return _of_thread.confinement
    if _inside:
        return _inside[-1]
    folders = switch(SWITCH)
    return _of_switch(folders) if folders else None


@lru_cache(maxsize=8)
def _of_switch(folders: str) -> Confinement:
    return Confinement(_folders(folders.split(os.pathsep)))


def _folders(folders: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    kept = []
    for folder in folders:
        if not os.path.isdir(folder):
            raise OpscopeError(f"root {os.fspath(folder)!r}: there is no such folder")
        kept.append(os.path.realpath(folder))
    return tuple(kept)


@contextlib.contextmanager
def confined(
    *roots: str | os.PathLike[str], trust: Iterable[str | os.PathLike[str]] = ()
) -> Iterator[None]:
    """A block in which only files below some folders are read and written.

        with opscope.confined("corpus", trust=["train.cntk"]):
            ...

    It holds for the process, in all its threads, and for every path: those that files name and
    those that the block itself gives. A block within another may open what both allow.

    Args:
        roots: the folders.
        trust: files and folders outside that may also be opened; of a file `NAME` also `NAME.*`,
            which is how programs call what they write beside it.

    Raises:
        OpscopeError: a root is no folder, or there is none.
        OutsideError: in the block, a file lies elsewhere.
    """
    if not roots:
        raise OpscopeError("confined wants at least one folder: confined('corpus')")
    words = [os.fspath(path) for path in trust]
    with _entered(Confinement(_folders(roots), *_typed_paths(words, words), current())):
        yield


@contextlib.contextmanager
def in_folder_of(path: str | os.PathLike[str]) -> Iterator[None]:
    """A block in which this thread opens only files that lie with a model, or below its folder.

    For models that bring their files along, `.pb` and ONNX: what they name lies in their folder, so
    users need not ask for it.

    Args:
        path: of the model.
    """
    before = _of_thread.confinement
    folder = os.path.realpath(os.path.dirname(os.fspath(path)))
    _of_thread.confinement = Confinement((folder,), outer=current())
    try:
        yield
    finally:
        _of_thread.confinement = before


@contextlib.contextmanager
def confined_command(roots: Sequence[str], words: Sequence[str]) -> Iterator[None]:
    """The confinement of a command line: `roots`, else the roots of the switch, else none.

    Args:
        roots: of its options `--root`.
        words: all the others; files and folders that they name are trusted.
    """
    given = switch(SWITCH)
    if not roots and given:
        roots = given.split(os.pathsep)
    if not roots:
        yield
        return
    whole: list[str] = []
    parts: list[str] = []
    for word in words:
        value = word.partition("=")[2]
        whole.append(word)
        whole += [value] if word.startswith("-") or os.sep in value else []
        parts += [value, *_BETWEEN.split(word), *_BETWEEN.split(value)]
        for name in (word, value):
            listed = _SPECIFIER.match(name)
            parts += [name[listed.end() :]] if listed else []
            parts.append(name.rpartition(":")[0])
    with _entered(Confinement(_folders(roots), *_typed_paths([*whole, *parts], whole))):
        yield


@contextlib.contextmanager
def _entered(confinement: Confinement) -> Iterator[None]:
    with _lock:
        _inside.append(confinement)
    try:
        yield
    finally:
        with _lock:
            _inside.remove(confinement)


def _typed_paths(
    files: Iterable[str], folders: Iterable[str]
) -> tuple[frozenset[str], tuple[str, ...]]:
    """The files and the folders of a `Confinement`, of what somebody typed."""
    trusted: set[str] = set()
    for path in files:
        if path and "\0" not in path:
            stem, ending = os.path.splitext(path)
            for name in (path, stem) if ending in _PAIR else (path,):
                trusted |= {os.path.join(os.getcwd(), name), os.path.realpath(name)}
    real = (os.path.realpath(path) for path in folders if path and "\0" not in path)
    return frozenset(trusted), tuple(path for path in real if not os.path.isfile(path))
