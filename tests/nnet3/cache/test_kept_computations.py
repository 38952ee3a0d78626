"""Computations kept on disk: the same when they come back, and what is not taken from there."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opscope
from nnet3_runs import random_net, request_for
from opscope import nnet3
from opscope.framework.base.errors import FormatError
from opscope.framework.ir.messages import serialize_net
from opscope.nnet3.cache import on_disk
from opscope.nnet3.cache.computations import CachingCompiler
from opscope.nnet3.cache.encoded import decode, encode
from opscope.nnet3.inference.looped import loop_computation, looped_requests
from opscope.nnet3.lower.commands import lower_computation

CONFIG = """
input-node name=input dim=4
component name=a type=AffineComponent input-dim=12 output-dim=6
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 2))
component name=r type=RectifiedLinearComponent dim=6
component-node name=r component=r input=a
component name=t type=TdnnComponent input-dim=6 output-dim=5 time-offsets=-3,0
component-node name=t component=t input=r
output-node name=output input=Sum(t, Offset(t, 1))
"""
PROCESS = """
import sys
import numpy as np
from opscope import nnet3
from opscope.nnet3.cache import on_disk
on_disk.WORTH = 0.0
nnet = nnet3.Nnet.from_config_text(sys.argv[1], 0)
rng = np.random.default_rng(0)
rows = rng.standard_normal((40, 4)).astype("f")
for _ in range(5):
    whole = nnet3.ChunkComputer(nnet, nnet3.ChunkOptions(frames_per_chunk=9)).compute(rows)
    looped = nnet3.LoopedComputer(nnet, nnet3.LoopedOptions(frames_per_chunk=5)).compute(rows)
print(whole.tobytes().hex(), looped.tobytes().hex())
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A cache folder of its own, where everything is kept."""
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPSCOPE_VERIFY", "0")
    monkeypatch.setattr(on_disk, "WORTH", 0.0)
    yield tmp_path / "cache"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was encoded, so compiled anew."""
    made: list[str] = []

    def counted(computation: object) -> bytes:
        made.append("one")
        return encode(computation)  # type: ignore[arg-type]

    monkeypatch.setattr(on_disk, "encode", counted)
    return made


def small_net(seed: int = 0) -> nnet3.Nnet:
    return nnet3.Nnet.from_config_text(CONFIG, seed)


def outputs(nnet: nnet3.Nnet) -> list[np.ndarray]:
    rows = np.random.default_rng(0).standard_normal((40, 4)).astype("f")
    chunks = nnet3.ChunkComputer(nnet, nnet3.ChunkOptions(frames_per_chunk=9))
    looped = nnet3.LoopedComputer(nnet, nnet3.LoopedOptions(frames_per_chunk=5))
    return [chunks.compute(rows), looped.compute(rows)]


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.computation"))


@pytest.mark.parametrize("seed", range(8))
def test_the_same_computation_comes_back(seed: int, folder: Path, compilations: list[str]) -> None:
    nnet = random_net(seed)
    for count in (1, 3):
        request = request_for(nnet, sequences=count)
        cold = CachingCompiler(nnet).compile(request)
        assert len(compilations) == 1
        warm = CachingCompiler(nnet).compile(request)
        assert len(compilations) == 1, "compiled again"
        assert warm.to_kaldi() == cold.to_kaldi()
        ops = [serialize_net(lower_computation(one)) for one in (cold, warm)]
        assert ops[0] == ops[1]
        compilations.clear()


def test_equal_numbers_cold_and_warm(folder: Path, compilations: list[str]) -> None:
    nnet = small_net()
    cold = outputs(nnet)
    count = len(compilations)
    assert count == len(files(folder)) >= 3
    for before, after in zip(cold, outputs(nnet), strict=True):
        assert before.tobytes() == after.tobytes()
    assert len(compilations) == count
    for before, after in zip(outputs(small_net(1)), outputs(small_net(1)), strict=True):
        assert before.tobytes() == after.tobytes()
    assert len(compilations) == count, "other numbers, and the same structure"


def test_the_switch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_KEEP_COMPUTATIONS", "0")
    before = outputs(small_net())
    assert not files(folder)
    monkeypatch.setenv("OPSCOPE_KEEP_COMPUTATIONS", "1")
    for a, b in zip(before, outputs(small_net()), strict=True):
        assert a.tobytes() == b.tobytes()
    assert files(folder)


def test_quick_compilations_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_disk, "WORTH", 1e9)
    outputs(small_net())
    assert not files(folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:-9] + b"\0" * 9),
        lambda path: path.write_bytes(b"\0" * path.stat().st_size),
        lambda path: path.chmod(0o666),
    ],
)
def test_damaged_and_foreign_files_are_written_anew(
    damage: object, folder: Path, compilations: list[str]
) -> None:
    cold = outputs(small_net())
    whole = {path: path.read_bytes() for path in files(folder)}
    for path in whole:
        damage(path)  # type: ignore[operator]
    compilations.clear()
    for before, after in zip(cold, outputs(small_net()), strict=True):
        assert before.tobytes() == after.tobytes()
    assert len(compilations) == len(whole)
    assert {path: path.read_bytes() for path in files(folder)} == whole
    if os.name == "posix":
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in whole)


def test_a_file_under_another_name_is_not_taken(folder: Path, compilations: list[str]) -> None:
    outputs(small_net())
    first, second, *_ = files(folder)
    second.write_bytes(first.read_bytes())
    compilations.clear()
    outputs(small_net())
    assert len(compilations) == 1


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links")
def test_a_link_is_replaced_and_not_followed(folder: Path, tmp_path: Path) -> None:
    outputs(small_net())
    path = files(folder)[0]
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(other)
    before = other.read_bytes()
    outputs(small_net())
    assert not path.is_symlink() and other.read_bytes() == before


def test_the_folder_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_disk, "MOST_FILES", 6)
    nnet = small_net()
    compiler = CachingCompiler(nnet)
    names = []
    for count in range(1, 12):
        compiler.compile(nnet3.simple_request(nnet, 10 + count))
        for path in files(folder):
            if path.name not in names:
                names.append(path.name)
                os.utime(path, (len(names), len(names)))
        assert len(files(folder)) <= 6
    left = {path.name for path in files(folder)}
    assert names[-1] in left and names[0] not in left
    monkeypatch.setattr(on_disk, "MOST_FILES", 1000)
    monkeypatch.setattr(on_disk, "MOST_SIZE", 1)
    compiler.compile(nnet3.simple_request(nnet, 30))
    assert len(files(folder)) <= len(left) // 2 + 1


def test_other_structures_passes_and_requests_are_other_files(folder: Path) -> None:
    nnet = small_net()
    request = nnet3.simple_request(nnet, 8)
    told = [
        (nnet, request, {}),
        (nnet, nnet3.simple_request(nnet, 9), {}),
        (nnet, nnet3.simple_request(nnet, 8, derivatives=True), {}),
        (nnet, request, {"optimize": False}),
        (nnet, request, {"shortcut": False}),
        (nnet3.Nnet.from_config_text(CONFIG.replace("-3,0", "-2,0"), 0), request, {}),
    ]
    for count, (net, wanted, how) in enumerate(told, 1):
        CachingCompiler(net, **how).compile(wanted)
        assert len(files(folder)) == count


def test_two_processes_at_once(folder: Path) -> None:
    root = str(Path(opscope.__file__).resolve().parent.parent)
    environment = os.environ | {"PYTHONPATH": root}
    command = [sys.executable, "-P", "-c", PROCESS, CONFIG]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    told = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert len(told) == 1 and len(told.pop()) > 100
    assert files(folder) and not list(folder.glob(".*"))


def _example() -> tuple[bytes, nnet3.Nnet]:
    nnet = random_net(0)
    return encode(CachingCompiler(nnet).compile(request_for(nnet))), nnet


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_changed_bytes_give_an_error_or_a_computation(data: st.DataObject) -> None:
    """What no checksum guards: the reader itself holds to its own forms."""
    whole, nnet = _example()
    plain = bytearray(zlib.decompress(whole))
    place = data.draw(st.integers(0, len(plain) - 1))
    plain[place] ^= data.draw(st.integers(1, 255))
    try:
        decode(zlib.compress(bytes(plain)), nnet.topology(), "changed")
    except FormatError:
        pass


def test_a_loop_comes_back() -> None:
    nnet = small_net()
    made = loop_computation(nnet.topology(), looped_requests(6, *nnet.context()))
    again = decode(encode(made), nnet.topology(), "loop")
    assert again.to_kaldi() == made.to_kaldi()
    assert serialize_net(lower_computation(again)) == serialize_net(lower_computation(made))
