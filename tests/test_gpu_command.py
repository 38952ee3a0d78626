"""`build.py gpu`: what it says without a GPU, and the table that it writes."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"script_{Path(path).stem}", ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT))  # as for a script that is run
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT))
    return module


build, bench = script("build.py"), script("benchmarks/gpu.py")


def driver(count: int, version: int, failure: int = 0) -> Any:
    def fill(value: int) -> Any:
        def call(target: Any) -> int:
            target._obj.value = value
            return 0

        return call

    functions = {"cuDeviceGetCount": fill(count), "cuDriverGetVersion": fill(version)}
    return SimpleNamespace(cuInit=lambda flags: failure, **functions)


def test_without_a_driver_it_ends_with_one_error(monkeypatch, capsys):
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert build.main(["gpu"]) == 1
    assert capsys.readouterr().err == (
        "build.py: error: gpu: this machine has no NVIDIA driver; `build.py test` checks without"
        " one what can be checked so\n"
    )


@pytest.mark.parametrize(
    "found, why",
    [
        (driver(0, 12080), "finds no GPU"),
        (driver(1, 12080, failure=100), "finds no GPU"),
        (driver(1, 11080), "for CUDA 11.8; 12.0 or newer"),
    ],
)
def test_a_driver_that_does_not_serve(found, why, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: found)
    with pytest.raises(build.StepError, match=why):
        build.cuda_extra()


@pytest.mark.parametrize("version, extra", [(12040, "gpu-cuda12"), (13000, "gpu-cuda13")])
def test_cupy_suits_the_driver(version, extra, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(2, version))
    assert build.cuda_extra() == extra
    assert f"\n{extra} = " in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_table_takes_its_place_on_the_page():
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    once = bench.replaced(page, "| a table |")
    assert "| a table |" in once and "never run on a GPU" in page
    assert "never run on a GPU" not in once.partition("## Profile")[0]
    assert bench.replaced(once, "| b |") == once.replace("| a table |", "| b |")
    with pytest.raises(ValueError, match="has no"):
        bench.replaced("# Performance", "")


def test_sides_take_turns_and_the_least_time_counts(monkeypatch):
    monkeypatch.setattr(bench, "CALLS", 2)
    order: list[str] = []
    sides = {name: lambda name=name: order.append(name) for name in "ab"}
    found = bench.least(sides, lambda: order.append("wait"), 2)
    assert order == ["a", "a", "wait", "b", "b", "wait"] * 3
    assert all(0 <= found[name] < 1e3 for name in sides)
