"""How many threads: what is asked for, what the machine allows, what other processes leave."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.cpu import cores, threads
from opscope.framework.base.cpu.cores import Load, cgroup_quota, usable_cores
from opscope.framework.base.errors import OpscopeError
from opscope.framework.files.saved import persistent_values


@pytest.fixture
def setting(monkeypatch: Any) -> Iterator[Any]:
    """A setting of its own, on a machine of eight cores; nothing in the environment."""
    for name in ("OPSCOPE_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    before = tuple(threads.POOL)
    monkeypatch.setattr(threads, "_setting", threads._Setting())
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(threads, "Load", FakeLoad)
    FakeLoad.now, FakeLoad.others = 0, 0.0
    yield threads._setting
    threads.POOL[:] = before


class FakeLoad:
    """The load of a machine as a test sets it."""

    now: int | None = 0
    others: float | None = 0.0

    def runnable(self) -> int | None:
        return self.now

    def busy(self) -> float | None:
        return self.others


def look(setting: Any) -> int:
    """The number after one more look at the load."""
    setting.next = 0.0
    return threads.get_threads()


def test_all_cores_of_a_quiet_machine(setting: Any) -> None:
    assert threads.get_threads() == threads.most_threads() == 8


def test_the_first_guess_is_what_runs_now(setting: Any) -> None:
    FakeLoad.now = 5
    assert threads.get_threads() == 3
    assert threads.most_threads() == 8  # into so many parts work is cut, whatever the load


def test_busy_neighbors_take_their_cores(setting: Any) -> None:
    assert threads.get_threads() == 8
    FakeLoad.others = 3.0
    assert look(setting) == 5
    FakeLoad.others = 0.3  # the noise of an idle machine
    assert look(setting) == 5  # one quiet moment is not enough
    assert look(setting) == 8
    FakeLoad.others = 20.0
    assert look(setting) == 1


def test_a_load_that_nobody_knows(setting: Any) -> None:
    FakeLoad.now = FakeLoad.others = None
    assert threads.get_threads() == 8
    assert look(setting) == 8


def test_set_threads(setting: Any) -> None:
    threads.set_threads(3)
    FakeLoad.others = 7.0
    assert look(setting) == threads.most_threads() == 3
    threads.set_threads(None)
    assert threads.most_threads() == 8
    assert look(setting) == 1
    with pytest.warns(UserWarning, match="may use 8 cores"):
        threads.set_threads(100)
    assert threads.get_threads() == 8
    with threads.threads_set(2):
        assert threads.get_threads() == 2
    assert threads.get_threads() == 8


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True])
def test_wrong_numbers(setting: Any, wrong: Any) -> None:
    with pytest.raises(OpscopeError, match=f"whole number from 1 on, or None, not {wrong!r}"):
        threads.set_threads(wrong)


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("OPSCOPE_THREADS", "3", 3),
        ("OMP_NUM_THREADS", "2,1", 2),
        ("OMP_NUM_THREADS", "", 8),
        ("OPSCOPE_THREADS", "99", 8),
    ],
)
def test_the_environment(setting: Any, monkeypatch: Any, name: str, text: str, number: int) -> None:
    monkeypatch.setenv(name, text)
    assert threads.get_threads() == number


@pytest.mark.parametrize("text", ["0", "two", "-1", "²"])
def test_a_wrong_environment(setting: Any, monkeypatch: Any, text: str) -> None:
    monkeypatch.setenv("OPSCOPE_THREADS", text)
    with pytest.raises(OpscopeError, match=f"OPSCOPE_THREADS={text}: want a whole number"):
        threads.get_threads()


def test_followers_hear_of_changes(setting: Any) -> None:
    heard: list[tuple[int, bool]] = []
    threads.follow(lambda number, chosen: heard.append((number, chosen)))
    threads.set_threads(2)
    threads.set_threads(None)
    assert heard == [(8, False), (2, True), (8, False)]


def machine(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "150000 100000\n"}, 1.5),
        (  # that of the group around it is tighter
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
            },
            2.0,
        ),
        (  # a container sees its own group as the root
            {"proc/self/cgroup": "0::/elsewhere\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"},
            3.0,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/job\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            2.5,
        ),
        ({"proc/self/cgroup": "no such form", "sys/fs/cgroup/cpu.max": "many 1\n"}, None),
    ],
)
def test_limits_of_a_container(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    root = machine(tmp_path, files)
    assert cgroup_quota(root) == quota
    allowed = len(os.sched_getaffinity(0))
    assert usable_cores(root) == (allowed if quota is None else max(1, min(allowed, int(quota))))


def stat(user: int, nice: int, idle: int) -> str:
    return f"cpu  {user} {nice} 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n"


def test_the_load_of_others(tmp_path: Path, monkeypatch: Any) -> None:
    clock = {"wall": 100.0, "own": 5.0}
    monkeypatch.setattr(cores.time, "monotonic", lambda: clock["wall"])
    monkeypatch.setattr(cores.time, "process_time", lambda: clock["own"])
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    root = machine(tmp_path, {"proc/stat": stat(1000, 0, 50), "proc/loadavg": "0 0 0 4/90 7\n"})
    load = Load(root)
    assert load.runnable() == 3
    clock |= {"wall": 102.0, "own": 6.0}  # two seconds, of which this process ran one
    machine(tmp_path, {"proc/stat": stat(1250, 100, 60)})
    assert load.busy() == pytest.approx((2.5 + 0.25 - 1.0) / 2)
    (tmp_path / "proc/stat").unlink()
    assert load.busy() is None
    assert Load(str(tmp_path / "none")).runnable() is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_load_of_this_machine() -> None:
    began, load = time.monotonic(), Load()
    sum(range(3_000_000))
    busy = load.busy()
    ticks = 2 / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)  # each core counts in these
    assert busy is not None
    assert 0 <= busy <= (os.cpu_count() or 1) * (1 + ticks)


def test_the_faces_names() -> None:
    assert opscope.set_threads is threads.set_threads
    assert opscope.get_threads() >= 1


TWO_NETS = """
import threading, time
import numpy as np
from opscope import NetBuilder, Scope
from opscope.framework.base.cpu import threads
threads.usable_cores = lambda: 4
threads.set_threads(4)
seen = [0]
def work():
    b, scope = NetBuilder(), Scope()
    x = b.input("x", [-1, 600])
    y = b.tanh(b.fc(x, size=600))
    feed = {"x": np.ones((3000, 600), np.float32)}
    for _ in range(6):
        b.run(scope, feed=feed, fetch=[y], need_backward=False)
team = [threading.Thread(target=work) for _ in range(3)]
[one.start() for one in team]
while any(one.is_alive() for one in team):
    seen.append(threads.POOL[1])
    time.sleep(0.0005)
print(max(seen), threads.POOL[1])
"""


def test_nets_in_several_threads_share_the_pool() -> None:
    """Three nets at once take at most the four threads, and one for each caller besides."""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", TWO_NETS],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ, OMP_NUM_THREADS="4"),
    )
    most, left = map(int, done.stdout.split())
    assert most <= 4 + 2
    assert left == 0


def test_results_do_not_depend_on_the_threads_at_work(monkeypatch: Any) -> None:
    """Work is cut by the number of cores, and not by how many of them are free just now."""
    monkeypatch.setattr(threads, "_setting", threads._Setting())
    monkeypatch.setattr(threads, "usable_cores", lambda: 2)
    b, scope = NetBuilder(), Scope()
    x = b.input("x", [-1, 700])
    b.backward_from(b.mean(b.square(b.fc(b.gelu(b.fc(x, size=640)), size=3))))
    b.add_optimization(0.01, "adam")
    feed = {"x": np.random.default_rng(0).normal(size=(900, 700)).astype(np.float32)}
    with threads.threads_set(2):
        b.initialize(scope)
        start = {name: array.copy() for name, array in persistent_values(b.op_list, scope).items()}
        results = []
        for number in (1, 2):
            for name, value in start.items():
                scope.get(name).set(value)
            threads.POOL[0] = number
            for _ in range(3):
                b.run(scope, feed=feed)
            results.append({name: scope.get(name).numpy().copy() for name in start})
    assert start
    for name in start:
        np.testing.assert_array_equal(results[0][name], results[1][name])


def test_a_fork_keeps_one_thread() -> None:
    before = threading.active_count()
    child = os.fork()
    if child == 0:
        os._exit(0 if threads.get_threads() == 1 and threads.most_threads() == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert threading.active_count() == before


def test_the_command_line() -> None:
    program = "import opscope; print(opscope.get_threads())"
    code = (
        "import sys; from opscope.python_api.cli.main import main;"
        "main(['--threads', '1', 'version'], standalone_mode=False);" + program
    )
    env = {name: value for name, value in os.environ.items() if not name.endswith("THREADS")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.splitlines()[-1] == "1"
    wrong = [sys.executable, "-P", "-m", "opscope", "--threads", "0", "version"]
    refused = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "0 is not in the range x>=1" in refused.stderr


def test_every_kind_of_run_looks_at_the_load(setting: Any) -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 2])
    y = b.fc(x, size=2, name="y")
    scope, feed = Scope(), {"x": np.ones((1, 2), np.float32)}
    runs = [
        lambda: b.run(scope, feed=feed, fetch=y, need_backward=False),
        lambda: b.predict(feed, scope=scope),
        lambda: b.net.run(scope),
    ]
    for run in runs:
        run()
    for run in runs:
        setting.next = 0.0
        run()
        assert setting.next > 0
