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
