"""The campaign's readers of opscope's own files: nets, arrays, checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import opscope
from opscope import NetBuilder, OpContext, Scope
from opscope.framework.files.array_files import read_arrays
from opscope.framework.files.checkpoint import read_checkpoint, write_checkpoint
from opscope.framework.files.saved import load_desc, persistent_values
from opscope.framework.files.tensor_file import TensorFile
from opscope.framework.passes.verify.verifier import verify
from opscope.proto.net_pb2 import NetDesc

from ..inputs import Target
from .mutate import BYTES, flip, message, word


def trained() -> tuple[NetBuilder, Scope]:
    b, scope = NetBuilder("n"), Scope()
    x, t = b.input("x", [-1, 4]), b.input("t", [-1], dtype="int64")
    hidden = b.fc(x, 6, activation="relu")
    loss = b.softmax_cross_entropy(b.fc(b.reshape(hidden, shape=[-1, 6]), 3), t, name="loss")
    b.backward_from(b.mean(loss))
    b.add_optimization(0.01, "adam")
    b.initialize(scope, OpContext(seed=1))  # a file that was kept fits the arrays of a later run
    return b, scope


def _recurrent() -> tuple[NetBuilder, Scope]:
    b, scope = NetBuilder("r"), Scope()
    b.lstm(b.input("x", [-1, 3], levels=1), 4, name="h")
    b.initialize(scope)
    return b, scope


def _nets(folder: Path) -> Sequence[bytes]:
    """A description; its arrays lie beside what is damaged."""
    opscope.save(*trained(), folder / "seed")
    for target in ("net", "net message"):
        shutil.copy(folder / "seed.safetensors", folder / f"{target}-last.safetensors")
    return [(folder / "seed.pb").read_bytes()]


def _descriptions(folder: Path) -> Sequence[bytes]:
    found = []
    for make in (_recurrent, trained):
        opscope.save(*make(), folder / "seed")
        found.append((folder / "seed.pb").read_bytes())
    return found


def _load(path: Path) -> None:
    loaded = opscope.load(path)
    str(loaded.net)
    loaded.predict({"x": np.ones((2, 4), np.float32), "t": np.zeros(2, np.int64)})


def _look(path: Path) -> None:
    desc = load_desc(path)
    verify(desc, "campaign", undeclared=True)


def _arrays(folder: Path) -> Sequence[bytes]:
    opscope.save(*trained(), folder / "seed")
    return [(folder / "seed.safetensors").read_bytes()]


def _read_arrays(path: Path) -> None:
    file = TensorFile(path)
    for name in file:
        file.read(name)


def _checkpoints(folder: Path) -> Sequence[bytes]:
    b, scope = trained()
    state = {"epoch": 2, "history": [{"loss": 0.5}], "random": {"seed": [1, 2]}}
    write_checkpoint(folder / "seed", b.op_list, persistent_values(b.op_list, scope), state)
    return [(folder / "seed.checkpoint").read_bytes()]


def _tables(folder: Path) -> Sequence[bytes]:
    arrays = {"x": np.arange(12.0, dtype=np.float32).reshape(3, 4), "n": np.arange(3)}
    np.savez(folder / "a.npz", **arrays)
    np.savez_compressed(folder / "b.npz", **arrays)
    return [(folder / f"{name}.npz").read_bytes() for name in "ab"]


def _read_npz(path: Path) -> None:
    dict(read_arrays(str(path)))


def _read_folder(path: Path) -> None:
    folder = path.with_suffix(".folder")
    folder.mkdir(exist_ok=True)
    shutil.copyfile(path, folder / "x.npy")
    dict(read_arrays(str(folder)))


def _npy(folder: Path) -> Sequence[bytes]:
    found = []
    for value in (np.arange(12.0).reshape(3, 4).T, np.arange(3, dtype="<i2"), np.zeros((), "?")):
        np.save(folder / "seed.npy", value)
        found.append((folder / "seed.npy").read_bytes())
    return found


TARGETS = (
    Target("net", ".pb", _nets, _load, BYTES),
    Target("net message", ".pb", _nets, _load, (message(NetDesc),)),
    Target("description", ".pb", _descriptions, _look, (message(NetDesc), flip)),
    Target("safetensors", ".safetensors", _arrays, _read_arrays, (*BYTES, word)),
    Target("checkpoint", ".checkpoint", _checkpoints, read_checkpoint, (*BYTES, word)),
    Target("folder of npy", ".npy", _npy, _read_folder, (*BYTES, word)),
    Target("npz", ".npz", _tables, _read_npz, BYTES),
)
