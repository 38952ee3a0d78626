"""Ready-made hooks: timing and memory, a check for NaN and infinity, dumps of values.

    profiler = Profiler()
    net.run(scope, OpContext(hooks=[profiler]))
    print(profiler.table())

A step of the loop is one operator, or several that are fused into one kernel; variables that live
only inside a fused kernel have no array and are passed over.
"""

from __future__ import annotations

import io
import json
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.backend import to_host
from ..base.context import Hook
from ..base.dtypes import is_float
from ..base.errors import NotFiniteError, SaveError, VariableError, nearest
from ..base.files.atomic import write_atomically
from ..base.python.cached import new_lock
from ..base.untrusted.opener import file_path
from ..ir.names import EMPTY
from ..ir.op_list import OpList
from .executor import Frame
from .plans.plan import PlanStep


def step_label(step: PlanStep) -> str:
    """`%3 affine`; `%3 relu+scale` for fused operators."""
    types = "+".join(op.type for op in step.operators)
    return f"%{step.operators[0].index} {types}"


def _wait(frame: Frame) -> None:
    """Let a GPU finish what it was given; a host has finished already."""
    if frame.place.kind != "cpu":
        frame.xp.cuda.get_current_stream().synchronize()


def _host(array: Any) -> np.ndarray:
    return np.array(to_host(array))


@dataclass
class StepTimes:
    """Measurements of one step. Times are in nanoseconds, memory is in bytes."""

    label: str
    count: int = 0
    total: int = 0
    fastest: int = 0
    slowest: int = 0
    memory: int = 0  # of the outputs, in the latest run

    def add(self, nanoseconds: int, memory: int) -> None:
        self.fastest = min(self.fastest, nanoseconds) if self.count else nanoseconds
        self.slowest = max(self.slowest, nanoseconds)
        self.count += 1
        self.total += nanoseconds
        self.memory = memory


@dataclass
class _Open:
    """A step that runs.

    Attributes:
        start: when it began. inner: nanoseconds of the steps of nets that it runs itself.
    """

    frame: Frame
    step: PlanStep
    label: str
    start: int
    inner: int = 0

    def runs_nets(self) -> bool:
        """Whether it may run nets."""
        attrs = (value for op in self.step.operators for value in op.attrs.values())
        return any(isinstance(value, OpList) for value in attrs)


class Profiler(Hook):
    """Time, number of calls and output memory of every step. Several threads may share one.

    Steps of a net that an operator runs (with `OPSCOPE_RECURRENT=steps`, say) have rows of their
    own, `%3 recurrent / %0 affine`; their time is not counted again for the operator.
    """

    def __init__(self, *, max_events: int = 1_000_000) -> None:
        """
        Args:
            max_events: calls recorded for `chrome_trace`; later ones count in `table` only.
        """
        self.steps: dict[str, StepTimes] = {}
        self.runs = 0
        self._max_events = max_events
        self._events: list[tuple[str, int, int, int, int]] = []
        self._origin = time.perf_counter_ns()
        self._lock = new_lock()
        self._local = threading.local()

    def before_run(self, frame: Frame) -> None:
        opened = self._opened()
        if opened and (opened[-1].frame is frame or not opened[-1].runs_nets()):
            opened.clear()  # it has ended by an error

    def before_op(self, frame: Frame, index: int) -> None:
        _wait(frame)
        opened = self._opened()
        step = frame.plan.steps[index]
        label = step_label(step)
        if opened:
            label = f"{opened[-1].label} / {label}"
        opened.append(_Open(frame, step, label, time.perf_counter_ns()))

    def after_op(self, frame: Frame, index: int) -> None:
        _wait(frame)
        opened = self._opened()
        one = opened.pop()
        # After the wait: a GPU's call returns long before its work is done.
        spent = time.perf_counter_ns() - one.start
        if opened:
            opened[-1].inner += spent
        arrays = [frame.array(name) for name in dict.fromkeys(one.step.writes)]
        memory = sum(int(array.nbytes) for array in arrays if array is not None)
        with self._lock:
            self.steps.setdefault(one.label, StepTimes(one.label)).add(spent - one.inner, memory)
            if len(self._events) < self._max_events:
                thread = threading.get_ident()
                event = one.label, one.start - self._origin, spent, memory, thread
                self._events.append(event)

    def after_run(self, frame: Frame) -> None:
        if not self._opened():
            with self._lock:
                self.runs += 1

    def _opened(self) -> list[_Open]:
        """The steps that run in this thread, the innermost last."""
        if not hasattr(self._local, "opened"):
            self._local.opened = []
        return self._local.opened

    def table(self) -> str:
        """One line a step, the costliest first: calls, total and mean time, share, memory."""
        with self._lock:
            rows = sorted(self.steps.values(), key=lambda step: (-step.total, step.label))
            whole = sum(step.total for step in rows)
            width = max([len(step.label) for step in rows] + [len("operator")])
            lines = [
                f"{'operator':{width}}  {'calls':>7}  {'total ms':>10}  {'mean us':>10}"
                f"  {'min us':>10}  {'max us':>10}  {'share':>6}  {'out KiB':>10}"
            ]
            for step in rows:
                lines.append(
                    f"{step.label:{width}}  {step.count:7d}  {step.total / 1e6:10.3f}"
                    f"  {step.total / step.count / 1e3:10.2f}  {step.fastest / 1e3:10.2f}"
                    f"  {step.slowest / 1e3:10.2f}  {step.total / max(whole, 1):6.1%}"
                    f"  {step.memory / 1024:10.1f}"
                )
            calls = sum(step.count for step in rows)
            lines.append(f"{'all':{width}}  {calls:7d}  {whole / 1e6:10.3f}  in {self.runs} runs")
        return "\n".join(lines) + "\n"

    def chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write all calls in Chrome's trace format (open in chrome://tracing or Perfetto).

        Raises:
            SaveError: the file cannot be written.
        """
        with self._lock:
            events = [
                {
                    "name": label,
                    "cat": "op",
                    "ph": "X",
                    "ts": start / 1e3,
                    "dur": spent / 1e3,
                    "pid": os.getpid(),
                    "tid": thread,
                    "args": {"output_bytes": memory},
                }
                for label, start, spent, memory, thread in self._events
            ]
        trace = {"traceEvents": events, "displayTimeUnit": "ms"}
        write_atomically(path, json.dumps(trace).encode())


class FiniteCheck(Hook):
    """Stops at the first operator whose output holds a NaN or an infinity.

    Args:
        inputs: also check the values that the net is given, before its first operator.
        ignore: variables that may hold such values (a mask of minus infinities, say).

    Raises (from the run):
        NotFiniteError: with operator, slot=variable, the first index and the value there.
    """

    def __init__(self, *, inputs: bool = True, ignore: Iterable[str] = ()) -> None:
        self.inputs = inputs
        self.ignore = frozenset(ignore)

    def before_run(self, frame: Frame) -> None:
        if not self.inputs:
            return
        for name in frame.plan.externals:
            problem = self._look(frame, name)
            # What the run writes before it reads may hold anything: memory is not cleared.
            if problem and self._read_before_written(frame, name):
                raise NotFiniteError(f"variable {name!r} was given to the net with {problem}")

    def after_op(self, frame: Frame, index: int) -> None:
        step = frame.plan.steps[index]
        for op in step.operators:
            for slot, names in op.outputs.items():
                for name in names:
                    problem = "" if name == EMPTY else self._look(frame, name)
                    if problem:
                        fused = f", fused in {step_label(step)}" if len(step.operators) > 1 else ""
                        why = f"output {slot}={name} holds {problem}{fused}"
                        raise NotFiniteError(op.describe(why, frame.plan.specs))

    @staticmethod
    def _read_before_written(frame: Frame, name: str) -> bool:
        return any(name in op.value_reads() for op in frame.plan.operators)

    def _look(self, frame: Frame, name: str) -> str:
        """`nan at [3, 2]` for the first bad element; "" where all is well."""
        array = frame.array(name)
        if array is None or not is_float(array.dtype) or name in self.ignore:
            return ""
        bad = ~frame.xp.isfinite(array)
        if not bad.any():
            return ""
        flat = int(bad.argmax())
        at = [int(number) for number in np.unravel_index(flat, array.shape)]
        return f"{float(array[tuple(at)])} at {at}, {int(bad.sum())} of {array.size} elements"


class Dump(Hook):
    """Gives the values of chosen variables away, each right after the operator that writes it.

    Args:
        names: variables to dump. One that the net only reads is dumped before its first operator.
        target: a folder, or a function `(name, array, op index, run)`; the array is a copy on the
            host, the index -1 for a variable that the net only reads.
        packed: one file `run_000000.npz` a run instead of a folder `run_000000` of `.npy` files.

    A variable that is written several times in one run is `h`, then `h#2`, `h#3`.

    Raises (from the run):
        VariableError: a name that the net does not have, or that lives inside a fused kernel.
        SaveError: a file cannot be written.
    """

    def __init__(
        self,
        names: Iterable[str],
        target: str | os.PathLike[str] | Callable[[str, np.ndarray, int, int], Any],
        *,
        packed: bool = False,
    ) -> None:
        self.names = [names] if isinstance(names, str) else list(names)
        self.target = target
        self.packed = packed
        self.run = -1
        self._seen: dict[str, int] = {}
        self._pack: dict[str, Any] = {}  # arrays by title

    def before_run(self, frame: Frame) -> None:
        self.run += 1
        self._seen = {}
        self._pack = {}
        written = {name for op in frame.plan.operators for name in op.output_vars()}
        for name in self.names:
            if name not in frame.plan.specs:
                hint = nearest(name, frame.plan.specs)
                raise VariableError(f"dump: the net has no variable {name!r}{hint}")
            if frame.array(name) is None:
                raise VariableError(
                    f"dump: {name!r} lives inside a fused kernel; keep it (OpContext.live_out), or"
                    " switch fusing off (OPSCOPE_FUSE=0)"
                )
            if name not in written:
                self._give(frame, name, -1)

    def after_op(self, frame: Frame, index: int) -> None:
        for op in frame.plan.steps[index].operators:
            for name in op.output_vars():
                if name in self.names and frame.array(name) is not None:
                    self._give(frame, name, op.index)

    def after_run(self, frame: Frame) -> None:
        if self._pack:
            buffer = io.BytesIO()
            np.savez(buffer, **self._pack)
            write_atomically(self._path(f"run_{self.run:06d}.npz"), buffer.getvalue())

    def _give(self, frame: Frame, name: str, op: int) -> None:
        array = _host(frame.array(name))
        if callable(self.target):
            self.target(name, array, op, self.run)
            return
        count = self._seen[name] = self._seen.get(name, 0) + 1
        title = name if count == 1 else f"{name}#{count}"
        if self.packed:
            self._pack[title] = array
            return
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        file = urllib.parse.quote(title, safe="@#") + ".npy"  # names may hold slashes
        write_atomically(self._path(f"run_{self.run:06d}", file), buffer.getvalue())

    def _path(self, *parts: str) -> str:
        """A file in the folder of the dump; folders on the way are made."""
        assert not callable(self.target)
        path = os.path.join(os.fspath(self.target), *parts)
        try:
            os.makedirs(os.path.dirname(file_path(path)), exist_ok=True)
        except OSError as error:
            raise SaveError(f"cannot write {path}: {error.strerror or error}") from error
        return path
