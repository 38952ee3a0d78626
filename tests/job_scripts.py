"""Fake commands of schedulers, and commands for jobs that count how often they run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from opscope.framework.base.cpu.threads import threads_set
from opscope.scale.jobs.job import Job, Resources, Script
from opscope.scale.jobs.local import LocalRunner
from opscope.scale.recipe.train_job import read_job

QSUB = """#!/bin/sh
for last; do :; done
while [ $# -gt 1 ]; do
  case $1 in -o) out=$2;; -N) name=$2;; esac
  shift
done
echo "qsub $name" >> {state}/calls
[ -e {state}/refuse ] && {{ echo "Unable to run job: denied" >&2; exit 1; }}
number=$(($(ls {state}/jobs | wc -l) + 100))
setsid sh "$last" > "$out" 2>&1 < /dev/null & echo $! > {state}/jobs/$number
echo $number
"""
QSTAT = """#!/bin/sh
echo "job-ID  prior   name  user  state submit/start at  queue"
echo "--------------------------------------------------------"
[ -e {state}/down ] && {{ touch {state}/asked; echo "error: commlib error" >&2; exit 1; }}
for number in $(ls {state}/jobs); do
  state=r; [ -e {state}/error.$number ] && state=Eqw
  kill -0 $(cat {state}/jobs/$number) 2>/dev/null &&
    echo "$number 0.5 jx user $state 01/01/2026 10:00:00 all.q@host 1"
done
exit 0
"""
QDEL = """#!/bin/sh
echo "qdel $1" >> {state}/calls
kill -- -$(cat {state}/jobs/$1) 2>/dev/null
exit 0
"""
KUBECTL = """#!{python} -P
import json, os, subprocess, sys
words = sys.argv[1:]
if words[:1] == ["--namespace"]:
    words = words[2:]
with open("{state}/calls", "a") as calls:
    calls.write("kubectl " + " ".join(words) + "\\n")
jobs = "{state}/jobs"
if words[0] == "create":
    made = json.load(sys.stdin)
    name = made["metadata"]["name"]
    assert len(name) <= 63 and name == name.lower(), name
    pod = made["spec"]["template"]["spec"]
    process = subprocess.Popen(
        pod["containers"][0]["command"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )
    made["pid"] = process.pid
    json.dump(made, open(f"{{jobs}}/{{name}}", "w"))
    print(f"job.batch/{{name}} created")
elif words[0] == "get":
    items = []
    for name in os.listdir(jobs):
        made = json.load(open(f"{{jobs}}/{{name}}"))
        try:
            os.kill(made["pid"], 0)
            status = {{"active": 1}}
        except ProcessLookupError:
            status = {{"conditions": [{{"type": "Complete", "status": "True"}}]}}
        items.append({{"metadata": {{"name": name}}, "status": status}})
    print(json.dumps({{"items": items}}))
elif words[0] == "delete":
    try:
        os.killpg(json.load(open(f"{{jobs}}/{{words[2]}}"))["pid"], 9)
    except ProcessLookupError:
        pass
"""


def install(folder: Path) -> Path:
    """Put the fake commands into `folder/bin`; returns the folder of their state."""
    state, programs = folder / "state", folder / "bin"
    (state / "jobs").mkdir(parents=True)
    programs.mkdir()
    texts = {"qsub": QSUB, "qstat": QSTAT, "qdel": QDEL, "kubectl": KUBECTL}
    for name, text in texts.items():
        path = programs / name
        path.write_text(text.format(state=state, python=sys.executable))
        path.chmod(0o755)
    return state


def counted(folder: Path, name: str, *lines: str) -> Job:
    """A job of shell lines that notes each of its runs in `folder/runs`."""
    text = "\n".join([f"echo {name} >> {folder}/runs", *lines])
    return Job(name, ("/bin/sh", "-c", text), str(folder / f"{name}.log"))


def runs(folder: Path) -> list[str]:
    """The names of the jobs that have begun to run, sorted."""
    path = folder / "runs"
    return sorted(path.read_text().split()) if path.exists() else []


def first_time(folder: Path, what: str) -> str:
    """Shell: do something in the first run of a job only."""
    return f"[ -e {folder}/again ] || {{ touch {folder}/again; {what}; }}"


def once_there(path: Path) -> str:
    """Shell: wait for a file, some minutes at most."""
    return f"n=0; while [ ! -e {path} ] && [ $n -lt 2000 ]; do sleep 0.1; n=$((n + 1)); done"


def with_path(folder: Path) -> str:
    """A PATH on which the fake commands come first."""
    return os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])


class InProcess(LocalRunner):
    """Runs jobs here, one after the other, which saves their start; notes their names."""

    def __init__(self):
        super().__init__(Resources())
        self.ran: list[str] = []

    def submit(self, script: Script) -> str:
        name = script.name.rpartition(".")[0]
        self.ran.append(name)
        folder = Path(script.path).parent
        with threads_set(1):  # as many as the jobs of the other runners have here
            read_job(str(folder / f"{name}.job")).run(lambda line: None)
        (folder / f"{script.name}.status").write_text("0")
        return "0@"
