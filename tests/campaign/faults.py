"""Faults of the system under work that reads and writes files: what lies there stays whole.

A fault is a call that fails, a limit of the bytes of a file, a signal, a folder that cannot be
written, a pipe that nobody reads. The work runs in a child. It must succeed, or end with one line
that says why; every file holds the old contents or the new ones; and the next run, without a
fault, makes the new ones and leaves nothing else behind.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import fcntl
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opscope.framework.base.errors import OpscopeError
from opscope.framework.base.files import leftovers

from .child import Ending, StarvedError, wait_for
from .kills import Kills, hidden
from .works import WORKS, Contents, Work

_NOBODY = 65534
_WRITING = (errno.ENOSPC, errno.EACCES, errno.EIO, errno.EROFS, errno.EDQUOT)
_READING = (errno.EACCES, errno.EIO, errno.EMFILE)
_PATHS = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.listdir", "os.utime", "os.chmod")
_ERROR = re.compile(r"^(error:|ERROR \(|EXCEPTION occurred|Aborted!|interrupted)", re.MULTILINE)
_FOREIGN, _INTERRUPTED = 99, 130


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    Attributes:
        kind: call, bytes, a signal's name, killed call, or one of `_SETTINGS`.
        at: the number of the call that fails or is not lived to see; how many bytes a file takes;
            when the signal comes, as a share of the time that the work takes.
        error: the errno of the call that fails. lasting: all later calls that write fail too.
    """

    kind: str
    at: float = 0
    error: int = 0
    lasting: bool = False


@dataclass
class Found:
    """What came of the faults of one work.

    Attributes:
        faults: how many there were. problems: a text for each that showed something wrong.
        starved: a text for each that the machine had no time for; these are not among the faults.
    """

    name: str
    faults: int = 0
    problems: list[str] = field(default_factory=list)
    starved: list[str] = field(default_factory=list)


class Calls:
    """Counts the system calls that a process makes on files of a folder, and lets one fail."""

    def __init__(self, folder: str, fault: Fault | None) -> None:
        self.folder, self.fault = folder, fault
        self.made: list[str] = []

    def watch(self) -> None:
        """Begin; there is no end."""
        sys.addaudithook(self._event)
        os.fsync = self._before(os.fsync, "fsync")
        os.write = self._before(os.write, "write")
        fcntl.flock = self._before(fcntl.flock, "flock")

    def _before(self, real: Callable[..., Any], name: str) -> Any:
        def checked(*args: Any) -> Any:
            self._count(name, writes=True)
            return real(*args)

        return checked

    def _event(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "open":
            path, mode, flags = args
            if self._is_ours(path):
                writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or set(mode or "") & {
                    *"wax+"
                }
                self._count("open to write" if writes else "open", writes=bool(writes))
        elif name in _PATHS and self._is_ours(args[0]):
            self._count(name, writes=name != "os.listdir")

    def _is_ours(self, path: Any) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self.folder)

    def _count(self, name: str, writes: bool) -> None:
        self.made.append(name)
        fault, number = self.fault, len(self.made) - 1
        if fault is not None and fault.kind == "killed call" and number == fault.at:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault is None or fault.kind != "call":
            return
        if number == fault.at or (fault.lasting and writes and number > fault.at):
            raise OSError(fault.error, os.strerror(fault.error))


# Faults that hold for a whole run


def _read_only() -> None:
    _give_up_rights()
    os.chmod(".", 0o555)


def _unreadable() -> None:
    for path in Path().iterdir():
        path.chmod(0)
    _give_up_rights()


def _give_up_rights() -> None:
    """Go on as a user who owns nothing but this folder."""
    if os.getuid() == 0:
        for path in (Path(), *Path().rglob("*")):
            os.chown(path, _NOBODY, _NOBODY)
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


def _close(number: int) -> Callable[[], None]:
    def close() -> None:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, number)

    return close


def _full_output() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def _homeless() -> None:
    os.environ.pop("XDG_CACHE_HOME", None)
    os.environ["HOME"] = "/nowhere/at/all"


def _compiler(script: str) -> Callable[[], None]:
    """Another C compiler."""

    def put() -> None:
        made = Path("cc").absolute()
        made.write_text(f"#!/bin/sh\n{script}\n")
        made.chmod(0o755)
        os.environ["OPSCOPE_CC"] = str(made)

    return put


def _no_compiler() -> None:
    os.environ["PATH"] = "/nowhere"


_TARGET = 'for word; do [ "$last" = -o ] && out=$word; last=$word; done'
_COMPILERS = {
    "no compiler": _no_compiler,
    "failing compiler": _compiler("echo no luck >&2; exit 1"),
    "killed compiler": _compiler("kill -9 $$"),
    "silent compiler": _compiler("exit 0"),
    "rubbish of a compiler": _compiler(f'{_TARGET}; echo rubbish > "$out"'),
    "half of a library": _compiler(
        f'cc "$@" && {_TARGET}; head -c 9000 "$out" > "$out.2" && mv "$out.2" "$out"'
    ),
}
_SETTINGS: dict[str, Callable[[], None]] = {
    "read-only folder": _read_only,
    "unreadable files": _unreadable,
    "closed output": _close(1),
    "closed errors": _close(2),
    "full output": _full_output,
    "no home": _homeless,
}
_ALL_SETTINGS = _SETTINGS | _COMPILERS


# One run


def run(work: Work, fault: Fault | None, report: Path | None = None, seconds: float = 1) -> Ending:
    """Do some work in a child in the current folder, under a fault.

    Args:
        report: takes the calls and the modules of a run without fault.
        seconds: how long the work takes.

    Raises:
        StarvedError: the machine had no time for it.
    """
    reader, writer = os.pipe()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until it can be caught
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(work, fault, writer, report)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    os.close(writer)
    signaled = None
    if fault and fault.kind.startswith("SIG"):
        signaled = signal.Signals[fault.kind], fault.at * seconds
    return wait_for(child, reader, signaled)


def _child(work: Work, fault: Fault | None, errors: int, report: Path | None) -> None:
    code = _FOREIGN
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number, to in ((0, nowhere), (1, nowhere), (2, errors)):
            os.dup2(to, number)
        if fault and fault.kind in _ALL_SETTINGS:
            _ALL_SETTINGS[fault.kind]()
        faulthandler.enable(2)
        sys.stdout = open(1, "w", closefd=False)
        sys.stderr = open(2, "w", closefd=False, buffering=1)
        leftovers._searched.clear()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = _worked(work, fault, report)
    except KeyboardInterrupt:  # before the work or behind it
        code = _INTERRUPTED
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def _worked(work: Work, fault: Fault | None, report: Path | None) -> int:
    calls = Calls(os.getcwd(), fault)
    calls.watch()
    if fault and fault.kind == "bytes":
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(fault.at), most))
    code = 0
    try:
        work.do()
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else int(done.code is not None)
    except OpscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = _INTERRUPTED
    except BaseException:
        with contextlib.suppress(OSError):
            traceback.print_exc()
        code = _FOREIGN
    if report is not None:
        names = [name for name in sys.modules if name != "__main__"]
        report.write_text(json.dumps({"calls": calls.made, "modules": names}))
    return code


# Many runs


def fail(work: Work, count: int, rng: random.Random, folder: Path) -> Found:
    """Let so many faults come to some work, each in a copy of the same folder."""

    def chosen(calls: list[str], sizes: list[int]) -> list[Fault]:
        compilers = [Fault(name) for name in _COMPILERS] if work.always else []
        return compilers + faults(calls, sizes, rng, count)

    return _under(work, chosen, folder)


def kill_work(work: Work, count: int, rng: random.Random, folder: Path) -> Kills:
    """Kill some work so often: half of the kills come at a call, the others at any time."""

    def chosen(calls: list[str], sizes: list[int]) -> list[Fault]:
        half = [Fault("killed call", rng.randrange(len(calls))) for _ in range(count // 2)]
        return half + [Fault("SIGKILL", rng.random()) for _ in range(count - len(half))]

    found = _under(work, chosen, folder)
    _tell(found)
    left = sum("leftovers: [" in line for line in found.problems)
    return Kills(work.name, found.faults, len(found.problems) - left, left)


def _under(
    work: Work, chosen: Callable[[list[str], list[int]], list[Fault]], folder: Path
) -> Found:
    found, base, report = Found(work.name), folder / "base", folder / "report.json"
    base.mkdir()
    os.chmod(folder, 0o711)
    try:
        with contextlib.chdir(base):
            old, _, _ = ({}, 0, None) if work.goes_on else _whole_run(work, 1, report)
            work.prepare(2)
        with _copy(base):
            new, seconds, told = _whole_run(work, 2, report)
    except StarvedError as error:
        found.starved.append(f"{work.name}: without a fault: {error}")
        return found
    for fault in chosen(told["calls"], told["sizes"]):
        with _copy(base):
            try:
                problem = _problem(work, fault, seconds, old, new)
            except StarvedError as error:
                found.starved.append(f"{work.name}: {fault}: {error}")
                continue
        found.faults += 1
        if problem:
            found.problems.append(f"{work.name}: {fault}: {problem}")
    return found


def faults(calls: list[str], sizes: list[int], rng: random.Random, count: int) -> list[Fault]:
    """At most so many faults of all that there are for some work, those of a whole run first.

    Args:
        calls: what it calls. sizes: of the files that it writes.
    """
    many: list[Fault] = []
    for number, name in enumerate(calls):
        known = _READING if name in ("open", "os.listdir") else _WRITING
        many.append(Fault("call", number, known[number % len(known)]))
        many.append(Fault("call", number, errno.EROFS, lasting=True))
    ends = {0, *sizes, *(size - 1 for size in sizes if size)}
    ends |= {rng.randrange(max(sizes, default=0) + 1) for _ in range(len(calls))}
    many += [Fault("bytes", size) for size in sorted(ends)]
    several = max(1, count // 8)
    many += [
        Fault(name, round(rng.uniform(0, 1), 3))
        for name in ("SIGINT", "SIGTERM")
        for _ in range(several)
    ]
    first = [Fault(name) for name in _SETTINGS]
    left = max(0, count - len(first))
    return (first + (many if len(many) <= left else rng.sample(many, left)))[:count]


def _tell(found: Found) -> None:
    for line in found.problems:
        print(line, flush=True)
    for line in found.starved:
        print(f"not counted: {line}", flush=True)


@contextlib.contextmanager
def _copy(base: Path) -> Iterator[None]:
    """A copy of a folder, of one name for all, as the current folder."""
    now = base.parent / "now"
    shutil.copytree(base, now)
    try:
        with contextlib.chdir(now):
            yield
    finally:
        shutil.rmtree(now)


def _whole_run(work: Work, value: int, report: Path) -> tuple[Contents, float, Any]:
    """What a run without a fault makes, how long it takes, and what it calls.

    Raises:
        ChildProcessError: it fails.
    """
    work.prepare(value)
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    for _ in range(2):  # the first one imports and compiles
        ending = run(work, None, report)
        if ending.code != 0:
            raise ChildProcessError(f"{work.name}: {ending}")
        told = json.loads(report.read_text())
        for name in told["modules"]:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        if work.goes_on:
            break
    told["sizes"] = [
        path.stat().st_size
        for path in Path().rglob("*")
        if path.is_file() and before.get(path) != path.stat().st_mtime_ns
    ]
    return work.result(), ending.seconds, told


def _problem(work: Work, fault: Fault, seconds: float, old: Contents, new: Contents) -> str:
    """What is wrong with a run under a fault, or with what it leaves; empty: nothing."""
    ending = run(work, fault, seconds=seconds)
    if fault.kind in ("read-only folder", "unreadable files"):
        os.chmod(".", 0o755)
        for path in (Path(), *Path().rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
            os.chown(path, os.getuid(), os.getgid())
    wrong = _ended_badly(work, fault, ending)
    if wrong:
        return f"{wrong}: {ending}"
    try:
        left = work.result()
    except Exception as error:
        if not work.goes_on:
            return f"broken: {type(error).__name__}: {error}"
        left = {}
    stops = fault.kind == "SIGINT" and work.goes_on  # a function that returns what it has so far
    if ending.code == 0 and left != new and not stops:
        return f"told of nothing, but {_difference(left, new)}"
    if not work.goes_on:
        lost = [name for name in old if name not in left]
        wrong = [name for name in left if left[name] not in (old.get(name), new.get(name))]
        if lost or wrong:
            return f"broken: lost {lost}, neither old nor new {wrong}"
    after = run(work, None)
    if after.code != 0:
        return f"does not go on: {after}"
    if work.result() != new:
        return f"goes on otherwise: {_difference(work.result(), new)}"
    if hidden():
        return f"leftovers: {[str(path) for path in hidden()]}"
    return ""


def _ended_badly(work: Work, fault: Fault, ending: Ending) -> str:
    if ending.code is None:
        return "did not end"
    killed = "SIGKILL" if fault.kind == "killed call" else fault.kind
    if killed.startswith("SIG") and ending.code == -signal.Signals[killed]:
        return ""
    if ending.code < 0:
        return "ended by another signal"
    ignored = fault.kind == "SIGINT"  # Python tells of a Ctrl-C in its own bookkeeping
    if ending.code == _FOREIGN or ("Traceback" in ending.told and not ignored):
        return "foreign"
    if ending.code in (0, _INTERRUPTED if fault.kind == "SIGINT" else 0):
        return ""
    if work.always and not fault.kind.startswith("SIG"):
        return "failed"
    if not fault.kind.startswith("closed") and len(_ERROR.findall(ending.told)) != 1:
        return "ended with an error and not one line"
    return ""


def _difference(one: Contents, other: Contents) -> str:
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return f"{', '.join(sorted(names))} differ"


def table(results: list[Found]) -> str:
    """What was found, a row for each work, in Markdown."""
    rows = ["| work | faults | problems |", "| --- | --- | --- |"]
    rows += [f"| {one.name} | {one.faults} | {len(one.problems)} |" for one in results]
    total = sum(one.faults for one in results), sum(len(one.problems) for one in results)
    return "\n".join([*rows, f"| all | {total[0]} | {total[1]} |"])


def main(count: int, seed: int, only: Sequence[str] | None = None) -> int:
    """Let so many faults come to each work, and print what came of it; 1 where something did."""
    results = []
    for work in WORKS:
        if only and work.name not in only:
            continue
        with tempfile.TemporaryDirectory(prefix="opscope-campaign-") as folder:
            results.append(fail(work, count, random.Random(f"{seed} {work.name}"), Path(folder)))
        print(f"{work.name}: {results[-1].faults} faults", flush=True)
        _tell(results[-1])
    print(table(results))
    return int(any(one.problems for one in results))
