"""Many threads run the same nets at once; each must get what one thread gets alone.

    python -m campaign.sharing RUNS

`sanitised.py` runs it with the generated C under the sanitisers of gcc.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

# gcc must not run under the sanitiser that this process was started with.
os.environ.pop("LD_PRELOAD", None)

import numpy as np

from opscope import NetBuilder, OpContext, Scope, Sequences, load, save
from opscope.nnet3.inference.chunks import ChunkComputer
from opscope.nnet3.inference.looped_computer import LoopedComputer
from opscope.nnet3.network.nnet import Nnet

THREADS = 8
Work = Callable[[], Mapping[str, np.ndarray]]


def _mlp() -> Work:
    b, scope = NetBuilder("mlp"), Scope()
    x = b.input("x", [-1, 64])
    b.softmax(b.fc(b.fc(x, 300, activation="tanh"), 10), name="y")
    b.initialize(scope)
    rows = np.random.default_rng(0).normal(size=(256, 64)).astype(np.float32)
    return _predict(b, scope, {"x": rows}, "y")


def _predict(b: NetBuilder, scope: Scope, feed: Mapping[str, Any], name: str) -> Work:
    """A net that all threads run at once; it is saved and loaded for that."""
    with tempfile.TemporaryDirectory() as folder:
        save(b, scope, f"{folder}/net")
        loaded = load(f"{folder}/net")

    def predict() -> Mapping[str, np.ndarray]:
        value = loaded.predict(feed, name)[name]
        return {name: getattr(value, "data", value)}

    return predict


def _training() -> Work:
    """Each thread trains parameters of its own, from the same beginning."""
    b = NetBuilder("training")
    x, label = b.input("x", [-1, 64]), b.input("label", [-1], "int64")
    scores = b.fc(b.fc(x, 200, activation="relu"), 5)
    cost = b.mean(b.softmax_cross_entropy(scores, label), name="cost")
    b.backward_from(cost)
    b.add_optimization(0.01, "adam")
    rng = np.random.default_rng(1)
    feed = {
        "x": rng.normal(size=(300, 64)).astype(np.float32),
        "label": rng.integers(0, 5, 300),
    }

    def train() -> Mapping[str, np.ndarray]:
        scope = Scope()
        b.initialize(scope, OpContext(seed=3), share=True)
        for _ in range(3):
            found = b.run(scope, feed=feed, fetch=["cost"])
        return found

    return train


def _recurrent() -> Work:
    b, scope = NetBuilder("recurrent"), Scope()
    b.lstm(b.input("x", [-1, 16], levels=1), 32, name="h")
    b.initialize(scope)
    rows = np.random.default_rng(2).normal(size=(90, 16)).astype(np.float32)
    fed = Sequences(rows, (np.array([0, 40, 60, 90]),))
    return _predict(b, scope, {"x": fed}, "h")


_TDNN = """input-node name=input dim=40
component name=a type=NaturalGradientAffineComponent input-dim=120 output-dim=256
component name=r type=RectifiedLinearComponent dim=256
component name=b type=AffineComponent input-dim=512 output-dim=100
component name=s type=LogSoftmaxComponent dim=100
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=r component=r input=a
component-node name=b component=b input=Append(Offset(r, -3), r)
component-node name=s component=s input=b
output-node name=output input=s
"""


def _chunks() -> Work:
    computer = ChunkComputer(Nnet.from_config_text(_TDNN, 1))
    rows = np.random.default_rng(3).normal(size=(130, 40)).astype(np.float32)
    return lambda: {"output": computer.compute(rows)}


def _looped() -> Work:
    computer = LoopedComputer(Nnet.from_config_text(_TDNN, 1))
    rows = np.random.default_rng(4).normal(size=(70, 40)).astype(np.float32)
    return lambda: {"output": computer.compute(rows)}


def main(runs: int) -> int:
    """Run everything in all threads at once; the number of results that differ."""
    works = [make() for make in (_mlp, _training, _recurrent, _chunks, _looped)]
    wanted = [dict(work()) for work in works]
    wrong = [0] * THREADS
    begin = threading.Barrier(THREADS)

    def repeat(me: int) -> None:
        begin.wait()
        for number in range(runs):
            at = (number + me) % len(works)
            try:
                found = works[at]()
                same = all(np.array_equal(found[name], value) for name, value in wanted[at].items())
            except Exception:
                traceback.print_exc()
                same = False
            wrong[me] += not same

    threads = [threading.Thread(target=repeat, args=(me,)) for me in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{THREADS} threads, {runs} runs each, {sum(wrong)} results differ")
    return sum(wrong)


if __name__ == "__main__":
    sys.exit(1 if main(int(sys.argv[1])) else 0)
