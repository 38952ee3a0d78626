"""The benchmarks run: both sides of a workload in turn, and another commit is not needed for it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parent.parent / "benchmarks" / "run.py"
# Sides are warmed as shortly as they are measured: no number of theirs is looked at.
SHORT = ("--only", "small", "--no-compile", "--rounds", "2", "--seconds", "0.01", "--warm", "0.01")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RUN), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=RUN.parent)


def test_every_workload_has_a_title():
    lines = run("--list").stdout.splitlines()
    assert len(lines) > 30 and all(re.match(r"[\w-]+ +\S", line) for line in lines)


def test_a_wrong_name_names_those_there_are():
    done = run("--only", "mpl")
    assert done.returncode == 2
    assert "unknown: mpl; there are mlp-step" in done.stderr


def test_sides_are_measured_in_turn(tmp_path):
    pytest.importorskip("torch")
    file, table = tmp_path / "r.json", tmp_path / "r.md"
    where = ["--threads", "1", "--where", "apart,together"]
    done = run(*SHORT, *where, "--json", str(file), "--markdown", str(table))
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["rows"]
    assert [row["where"] for row in rows] == ["apart", "together"]
    for row in rows:
        assert row["peer"] == "torch" and set(row["all_ms"]) == {"opscope", "torch"}
        assert row["ratio"] > 0 and row["ours_ms"] > 0
    assert rows[0]["peak_mb"][0] > 10 and rows[1]["peak_mb"] == [None, None]
    assert "| apart, 1 | together, 1 |" in table.read_text()


def test_programs_are_rows_of_their_cpu_time(tmp_path):
    file, table = tmp_path / "r.json", tmp_path / "r.md"
    short = ["--only", "start", "--rounds", "1", "--threads", "1", "--where", "apart"]
    done = run(*short, "--json", str(file), "--markdown", str(table))
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["rows"]
    assert row["peer"] == "limit" and row["peer_ms"] == 250 and row["target"] == 1
    assert 0 < row["cpu_ms"]["opscope"] <= row["ours_ms"]
    assert row["ratio"] == pytest.approx(250 / row["ours_ms"])
    assert row["first_s"][0] > 0
    assert "limit 250.000 ms" in re.sub(" +", " ", done.stdout)
    assert "start of nnet3-info" in table.read_text()


def test_a_run_that_ends_early_keeps_its_rows(tmp_path):
    file = tmp_path / "r.json"
    short = ["--rounds", "1", "--threads", "1", "--where", "apart", "--json", str(file)]
    command = [sys.executable, str(RUN), "--only", "start,start", *short]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=RUN.parent) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        running.kill()
    assert line.startswith("start ") and running.returncode != 0
    (row,) = json.loads(file.read_text())["rows"]
    assert row["workload"] == "start" and row["ours_ms"] > 0
    assert list(tmp_path.iterdir()) == [file]


def row_of(workload: str, threads: int, ours: float) -> dict[str, object]:
    return {
        **{"workload": workload, "title": f"the net {workload}", "threads": threads},
        **{"where": "apart", "target": 1.0, "ours_ms": ours, "peer": "torch", "peer_ms": 6.0},
        **{"ratio": 6 / ours, "spread": 0.0, "achieved": None, "products": None},
        **{"first_s": [0.0, 0.0], "peak_mb": [None, None]},
        **{"all_ms": {"opscope": ours, "torch": 6.0}},
    }


def write_run(path: Path, date: str, *rows: dict[str, object], cores: int = 2) -> str:
    machine = {"processor": "a processor", "cores": cores, "date": date}
    path.write_text(json.dumps({"machine": machine, "rows": rows}))
    return str(path)


def test_runs_are_put_together(tmp_path):
    early = [row_of("bert", 1, 2.0), row_of("resnet18", 1, 3.0), row_of("resnet18", 2, 5.0)]
    first = write_run(tmp_path / "a.json", "2026-11-29", *early)
    late = [row_of("shufflenet", 1, 4.0), row_of("resnet18", 2, 1.5)]
    second = write_run(tmp_path / "b.json", "2026-11-30", *late)
    table = tmp_path / "r.md"
    done = run("--again", first, second, "--markdown", str(table))
    assert done.returncode == 0, done.stderr
    text = table.read_text()
    assert text.startswith("a processor, 2 cores, 2026-11-29, 2026-11-30\n")
    assert [line for line in text.splitlines() if "the net" in line and line[0] == "|"] == [
        "| the net resnet18 | 3 / 1.5 | 2 / 4 | 2 / 4 |",
        "| the net shufflenet | 4 / – | 1.5 / – | 1.5 / – |",
        "| the net bert | 2 / – | 3 / – | 3 / – |",
    ]


def test_runs_of_several_machines_are_not_put_together(tmp_path):
    first = write_run(tmp_path / "a.json", "2026-11-29", row_of("bert", 1, 2.0))
    second = write_run(tmp_path / "b.json", "2026-11-30", row_of("bert", 2, 1.0), cores=8)
    done = run("--again", first, second)
    assert done.returncode == 2
    assert "runs of several machines: a processor, 2 cores; a processor, 8 cores" in done.stderr
    missing = tmp_path / "c.json"
    done = run("--again", first, str(missing))
    assert done.returncode == 2 and f"{missing}: no numbers of a run" in done.stderr


def test_less_of_a_machine(tmp_path):
    pytest.importorskip("torch")
    file, table = tmp_path / "r.json", tmp_path / "r.md"
    where = ["--threads", "1", "--where", "apart", "--without", "all,avx512+mkl+compiler"]
    done = run(*SHORT, *where, "--json", str(file), "--markdown", str(table))
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["rows"]
    assert [row["without"] for row in rows] == ["", "avx512+mkl+compiler"]
    assert "| apart, 1 | apart, 1, without avx512+mkl+compiler |" in table.read_text()


def test_what_nobody_can_be_without():
    done = run("--without", "amx+mlk")
    assert done.returncode == 2
    assert "unknown: mlk; there are all, amx, avx512, mkl, compiler" in done.stderr
    done = run("--without", "amx")
    assert done.returncode == 2 and "add --where apart" in done.stderr
