"""A Slurm of one node, this machine, in a folder of its own: for the tests.

    python tests/slurm/one_node.py FOLDER COMMAND...

starts munged, slurmctld and slurmd, runs COMMAND with `SLURM_CONF` set, and ends them. It needs
neither systemd nor control groups; munged and slurmd want root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
_START = 60.0
_PATHS = os.pathsep.join(["/usr/sbin", "/sbin"])
_CONFIG = """ClusterName=tests
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2
ReturnToService=2
SlurmctldTimeout=30
MinJobAge=30
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory} State=UNKNOWN
PartitionName=shared Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why no Slurm can be started here; empty if one can."""
    absent = [name for name in _PROGRAMS if _find(name) is None]
    if absent:
        return f"no {', '.join(absent)}: install Debian's slurm-wlm and munge"
    if os.geteuid() != 0:
        return "munged and slurmd run as root here"
    return ""


def _find(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_PATHS)


@contextlib.contextmanager
def one_node_slurm(folder: Path, cores: int = 4) -> Iterator[dict[str, str]]:
    """A running Slurm; gives the variables that its commands need.

    Raises:
        RuntimeError: it does not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    for name in ("state", "spool"):
        (folder / name).mkdir(exist_ok=True)
    host = socket.gethostname().partition(".")[0]
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in sockets]
    config = folder / "slurm.conf"
    # Kaldi's scripts ask for 8G a job, which no job of the tests takes: memory is only promised
    values = {"host": host, "folder": folder, "ports": ports, "cores": cores, "memory": 16000}
    config.write_text(_CONFIG.format(**values))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    environment = {"SLURM_CONF": str(config)}
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        daemons.append(
            _start(
                *("munged", "--foreground", "--force", f"--key-file={key}", "--num-threads=2"),
                *(f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid"),
                *(f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"),
                output=folder / "munged.out",
            )
        )
        _wait(lambda: (folder / "munge.socket").exists(), folder, daemons)
        for name in ("slurmctld", "slurmd"):
            daemons.append(_start(name, "-D", "-f", str(config), output=folder / f"{name}.out"))
        _wait(lambda: _is_idle(environment), folder, daemons)
        yield environment
        _ask("scancel", "--user=root", "--quiet", environment=environment)
    finally:
        for daemon in reversed(daemons):
            with contextlib.suppress(ProcessLookupError):
                daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _start(name: str, *words: str, output: Path) -> subprocess.Popen[bytes]:
    program = _find(name)
    assert program is not None
    with output.open("wb") as file:
        return subprocess.Popen(
            [program, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )


def _is_idle(environment: dict[str, str]) -> bool:
    return _ask("sinfo", "--noheader", "--format=%T", environment=environment) == "idle"


def _ask(*words: str, environment: dict[str, str]) -> str:
    variables = os.environ | environment
    return subprocess.run(
        words, env=variables, capture_output=True, text=True, timeout=30
    ).stdout.strip()


def _wait(ready, folder: Path, daemons: list[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + _START
    while not ready():
        dead = [daemon.args for daemon in daemons if daemon.poll() is not None]
        if dead or time.monotonic() > end:
            logs = [*folder.glob("*.log"), *folder.glob("*.out")]
            told = "\n".join(
                f"{log.name}: {log.read_text(errors='replace')[-800:]}" for log in logs
            )
            raise RuntimeError(f"Slurm does not come up ({dead}):\n{told}")
        time.sleep(0.2)


def main() -> None:
    """Run a command on such a Slurm."""
    with one_node_slurm(Path(sys.argv[1]).resolve()) as environment:
        code = subprocess.call(sys.argv[2:], env=os.environ | environment)
    sys.exit(code)


if __name__ == "__main__":
    main()
