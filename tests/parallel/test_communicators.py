"""Communicators: what every kind does alike, ends of ranks, and simulated links."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from mpi_runs import run_ranks
from opscope.framework.base.communicator import Message, SingleCommunicator
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import OpscopeError, RanksError
from opscope.framework.parallel.dry import DryWorld, EchoCommunicator
from opscope.framework.parallel.link import Link


def exchanges(c):
    """All exchanges of a communicator, with values that tell the ranks apart."""
    total = np.array([1.0, 10.0, 100.0]) * (c.rank + 1)
    c.all_reduce(total)
    large = np.arange(5003, dtype=np.float32) + c.rank
    other = np.full((41, 1000), 2.0**c.rank)
    first, second = c.start_all_reduce(large), c.start_all_reduce(other)
    second.wait()
    first.wait()
    gathered = np.empty((c.size, 2), np.int64)
    c.all_gather(np.array([c.rank, -c.rank]), gathered)
    rows = c.all_gather_rows(np.full((c.rank, 2), c.rank, np.float32))
    given = np.full((3, 2), c.rank, np.float64)
    c.broadcast(given, root=c.size - 1)
    c.barrier()
    shared = [sum_of_shared(c, kind, size) for kind, size in (("f", 7), ("d", 100000), ("f", 1))]
    return {
        "shared": shared,
        "total": total.tolist(),
        "large": [float(large[0]), float(large[-1])],
        "other": [float(other.min()), float(other.max())],
        "gathered": gathered.tolist(),
        "rows": [part.tolist() for part in rows],
        "given": given.tolist(),
        "bytes": [part.decode() for part in c.exchange(b"x" * c.rank)],
    }


def sum_of_shared(c, kind, size):
    """What an array is that each rank has added to ten times, in its own time."""
    shared = c.share(np.full(size, 2, kind))
    out = np.full(size, 2, kind)
    for _ in range(10):
        before = float(out.min())
        shared.start_add(np.full(size, c.rank + 1, kind), out).wait()
        assert out.min() >= before + c.rank + 1  # its own is in it, at least
    c.barrier()
    shared.start_add(np.zeros(size, kind), out).wait()
    shared.close()
    return [float(out.min()), float(out.max())]


def expected(size):
    return {
        "shared": [[2.0 + 5 * size * (size + 1)] * 2] * 3,
        "total": [base * size * (size + 1) / 2 for base in (1.0, 10.0, 100.0)],
        "large": [sum(range(size)), 5002 * size + sum(range(size))],
        "other": [2.0**size - 1] * 2,
        "gathered": [[rank, -rank] for rank in range(size)],
        "rows": [[[rank] * 2] * rank for rank in range(size)],
        "given": [[size - 1.0] * 2] * 3,
        "bytes": ["x" * rank for rank in range(size)],
    }


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_exchanges_of_dry_ranks(size):
    assert DryWorld(size).run(exchanges) == [expected(size)] * size


def test_exchanges_of_one_rank():
    assert exchanges(SingleCommunicator()) == expected(1)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_exchanges_under_mpiexec(size, tmp_path):
    here = str(Path(__file__).parent)
    program = f"""
        import json, sys
        sys.path.insert(0, {here!r})
        from test_communicators import exchanges
        from opscope.framework.parallel.mpi import MpiCommunicator
        with MpiCommunicator() as c:
            found = exchanges(c)
        open(f"{{c.rank}}.json", "w").write(json.dumps(found))
    """
    done = run_ranks(size, program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for rank in range(size):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == expected(size)


def test_sums_have_the_same_bits_everywhere(tmp_path):
    def values(rank, count):
        return np.random.default_rng(rank).standard_normal(count).astype(np.float32)

    for count in (100, 30011):
        by_hand = (values(0, count) + values(1, count)) + values(2, count)
        assert (by_hand != values(0, count) + (values(1, count) + values(2, count))).any()

        def sums(c, count=count):
            array = values(c.rank, count)
            c.all_reduce(array)
            return array.tobytes()

        assert DryWorld(3).run(sums) == [by_hand.tobytes()] * 3
        np.save(tmp_path / f"{count}.npy", by_hand)
    program = """
        import numpy as np
        from opscope.framework.parallel.mpi import MpiCommunicator
        with MpiCommunicator() as c:
            for count in (100, 30011):
                drawn = np.random.default_rng(c.rank).standard_normal(count)
                array = drawn.astype(np.float32)
                c.all_reduce(array)
                assert array.tobytes() == np.load(f"{count}.npy").tobytes()
    """
    done = run_ranks(3, program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_failing_rank_ends_all_dry_ranks():
    ends = {}

    def work(c):
        c.operator = "%3 all_reduce"
        try:
            if c.rank == 1:
                raise OpscopeError("%7 mul: x holds nan")
            c.all_reduce(np.ones(2))
        except OpscopeError as error:
            ends[c.rank] = str(error)
            raise

    with pytest.raises(OpscopeError, match="%7 mul: x holds nan"):
        DryWorld(3).run(work)
    assert sorted(ends) == [0, 1, 2]
    for rank in (0, 2):
        assert "rank 1 of 3 has ended the run: %7 mul: x holds nan" in ends[rank]
        assert f"%3 all_reduce of rank {rank} waits for rank 1" in ends[rank]


def test_a_rank_that_stops_early_ends_all_dry_ranks():
    def work(c):
        for _ in range(3 - c.rank):
            c.all_reduce(np.ones(2))

    with pytest.raises(RanksError, match="rank 1 of 2 has finished; all_reduce of rank 0 waits"):
        DryWorld(2).run(work)


def test_different_exchanges_are_refused():
    def work(c):
        if c.rank:
            c.all_reduce(np.ones(2))
        else:
            c.exchange(b"")

    with pytest.raises(RanksError, match="rank . wants .* where rank . wants"):
        DryWorld(2).run(work)


FAILING = """
    import os, signal, sys, time
    import numpy as np
    from opscope.framework.base.errors import OpscopeError
    from opscope.framework.parallel.mpi import MpiCommunicator
    with MpiCommunicator() as c:
        for count in (3, 30000):  # MPI connects processes when they first exchange something
            c.all_reduce(np.ones(count))
            c.barrier()
        if c.rank == 1:
            time.sleep(0.1)
            {action}
        c.operator = "%3 all_reduce"
        for _ in range(4):
            c.all_reduce(np.ones(30000))
"""


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("raise OpscopeError('%7 mul: x holds nan')", "rank 1 of 3 has ended the run: %7 mul: x"),
        ("raise ValueError('bad')", "rank 1 of 3 has ended the run: ValueError: bad"),
        ("raise KeyboardInterrupt", "rank 1 of 3 has ended the run: KeyboardInterrupt"),
        ("sys.exit(3)", "rank 1 of 3 has ended the run: SystemExit: 3"),
        ("sys.exit(0)", "rank 1 of 3 has finished; %3 all_reduce of rank"),
    ],
)
def test_an_end_of_one_rank_ends_all(action, message, tmp_path):
    done = run_ranks(3, FAILING.format(action=action), tmp_path)
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line.startswith("opscope: ")]
    assert message in "\n".join(told), done.stderr
    if "(0)" not in action:  # of an early end each rank tells that waits for the one that left
        assert len(told) == 1


_STOPPED = """with open(f"/proc/{os.getppid()}/stat") as file:
                launcher = file.read().split()[3]  # started the one that started the ranks
            import subprocess
            stops = f"kill -STOP {launcher}; sleep 1; kill -CONT {launcher}"
            nowhere = subprocess.DEVNULL
            subprocess.Popen(["sh", "-c", stops], stdout=nowhere, stderr=nowhere)
            time.sleep(0.2)
            raise ValueError('bad')"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists processes")
def test_an_end_is_told_by_a_launcher_that_has_no_time(tmp_path):
    done = run_ranks(3, FAILING.replace("{action}", _STOPPED), tmp_path)
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line.startswith("opscope: ")]
    assert told == ["opscope: rank 1 of 3 has ended the run: ValueError: bad"], done.stderr


def test_an_uncaught_exception_outside_a_with_block_ends_all(tmp_path):
    program = """
        import numpy as np
        from opscope.framework.parallel.mpi import MpiCommunicator
        c = MpiCommunicator()
        if c.rank == 0:
            [][1]
        c.all_reduce(np.ones(5))
    """
    done = run_ranks(2, program, tmp_path)
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line.startswith("opscope: ")]
    assert told == [
        "opscope: rank 0 of 2 has ended the run: IndexError: list index out of range"
    ], done.stderr


def test_a_rank_alone_fails_as_any_program(tmp_path):
    program = """
        from opscope.framework.parallel.mpi import MpiCommunicator
        with MpiCommunicator() as c:
            [][1]
    """
    done = run_ranks(1, program, tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback") and "opscope: " not in done.stderr
    assert done.stderr.rstrip().endswith("IndexError: list index out of range")


def test_a_killed_rank_ends_all(tmp_path):
    action = "os.kill(os.getpid(), signal.SIGKILL)"
    done = run_ranks(3, FAILING.format(action=action), tmp_path)
    assert done.returncode != 0


def test_a_process_that_is_gone_is_missed(tmp_path):
    """Where the launcher does not end the others itself, as MPICH's does."""
    program = """
        import subprocess, sys, time
        import numpy as np
        from opscope.framework.parallel import mpi
        gone = subprocess.Popen([sys.executable, "-c", "pass"])
        assert mpi.is_alive(gone.pid)
        while mpi.is_alive(gone.pid):  # also before it is collected
            time.sleep(0.01)
        gone.wait()
        assert not mpi.is_alive(gone.pid)
        with mpi.MpiCommunicator() as c:
            c._processes[1] = (c._processes[1][0], gone.pid)
            if c.rank == 1:
                time.sleep(1000)
            c.operator = "op 3 (all_reduce)"
            c.all_reduce(np.ones(3))
    """
    done = run_ranks(3, program, tmp_path)
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("opscope: ")]
    # Mostly rank 0, unless the machine keeps it from telling in time.
    told = re.match("opscope: rank ([02]) of 3 has ended the run: rank 1 of 3, process", line)
    assert told and f"is gone; op 3 (all_reduce) of rank {told[1]} waits for rank 1" in line


def test_a_rank_that_is_late_is_waited_for(tmp_path):
    """For longer than until the others look whether its process is there."""
    program = """
        import time
        from opscope.framework.parallel import mpi
        exchange = mpi.MpiCommunicator.exchange
        def late(c, data):
            if c.rank == 1:
                time.sleep(3 * mpi._LOOK_FOR_DEAD)
            return exchange(c, data)
        mpi.MpiCommunicator.exchange = late
        with mpi.MpiCommunicator() as c:
            c.barrier()
    """
    done = run_ranks(2, program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_rank_that_may_not_run_hears_that_a_lower_one_has_told(tmp_path):
    """Also where the others have waited for a long time by then."""
    program = """
        import time
        from pathlib import Path
        from types import SimpleNamespace
        from opscope.framework.base.errors import OpscopeError
        from opscope.framework.parallel import mpi
        listening, told = Path("listening"), Path("told")
        lower_tells, tell = mpi.MpiCommunicator._lower_tells, mpi.MpiCommunicator._tell
        def wait_for(path):
            while not path.exists():
                time.sleep(0.01)
        def sleep(seconds):
            listening.touch()
            wait_for(told)
            time.sleep(2)
        def listen(c):
            if c.rank:
                mpi.time = SimpleNamespace(sleep=sleep, perf_counter=time.perf_counter)
            found, mpi.time = lower_tells(c), time
            return found
        def note(c, why):
            tell(c, why)
            if c.rank == 0:
                told.touch()
        mpi.MpiCommunicator._lower_tells, mpi.MpiCommunicator._tell = listen, note
        with mpi.MpiCommunicator() as c:
            if c.rank == 0:
                wait_for(listening)
            raise OpscopeError(f"no data {c.rank}")
    """
    done = run_ranks(2, program, tmp_path)
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line.startswith("opscope: ")]
    assert told == ["opscope: rank 0 of 2 has ended the run: no data 0"], done.stderr


def test_a_ctrl_c_ends_all_with_one_message(tmp_path):
    program = """
        import time
        import numpy as np
        from opscope.framework.parallel.mpi import MpiCommunicator
        with MpiCommunicator() as c:
            while True:
                c.all_reduce(np.ones(3000))
                open("ready", "w").close()
                time.sleep(0.01)
    """
    done = run_ranks(3, program, tmp_path, interrupt_after=0.2)
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if "opscope: " in line]
    assert len(told) <= 1 and all("KeyboardInterrupt" in line for line in told), done.stderr


def test_a_rank_that_does_not_wait_is_ended_too(tmp_path):
    program = """
        import time
        from opscope.framework.base.errors import OpscopeError
        from opscope.framework.parallel.mpi import MpiCommunicator
        with MpiCommunicator() as c:
            if c.rank == 0:
                raise OpscopeError("no data")
            time.sleep(1000)
    """
    done = run_ranks(2, program, tmp_path)
    assert done.returncode != 0
    assert "opscope: rank 0 of 2 has ended the run: no data" in done.stderr


def test_messages_and_the_time_of_a_link_are_recorded():
    c = EchoCommunicator(8, Link(latency=1e-5, bandwidth=1e9))
    array = np.ones(1000)
    c.operator = "%4 all_reduce"
    c.all_reduce(array)
    assert (array == 8).all()
    assert c.messages == [Message("all_reduce", "%4 all_reduce", 8000)]
    assert c.seconds == pytest.approx(14 * (1e-5 + 1000 / 1e9))
    c.broadcast(array)
    assert c.seconds == pytest.approx(14 * (1e-5 + 1000 / 1e9) + 3 * (1e-5 + 8000 / 1e9))


def test_bad_arguments():
    with pytest.raises(RanksError, match="ranks of the kind 'echo' share no arrays"):
        EchoCommunicator(2).share(np.zeros(1))
    with pytest.raises(RanksError, match="no rank 2: the ranks are 0 to 1"):
        EchoCommunicator(2).broadcast(np.ones(1), root=2)
    with pytest.raises(RanksError, match="at least one rank, not 0"):
        DryWorld(0)
    with pytest.raises(OpscopeError, match="latency of at least 0"):
        Link(latency=-1)
    with pytest.raises(OpscopeError, match="communicator is MpiCommunicator"):
        OpContext(communicator="mpi")  # type: ignore[arg-type]
