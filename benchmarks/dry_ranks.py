"""A step of nnet3 training on 1,024 ranks in one process: how long it takes, what ranks send.

    python benchmarks/dry_ranks.py [--ranks 1024] [--steps 1]

All ranks run, each in a thread, on an example of its own. Target: under 60 s, and one distinct log
of messages. Then one rank that stands for all, and what the messages cost over 100 Gbit/s.
"""

from __future__ import annotations

import argparse
import os
import resource
import time

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPSCOPE_THREADS"):
    os.environ.setdefault(_variable, "1")  # before any of the libraries loads

import numpy as np  # noqa: E402

from opscope.framework.base.communicator import Communicator, Message  # noqa: E402
from opscope.framework.parallel.cost import exchange_cost  # noqa: E402
from opscope.framework.parallel.dry import DryWorld, EchoCommunicator  # noqa: E402
from opscope.framework.parallel.link import Link  # noqa: E402
from opscope.kaldi.files.sparse import SparseMatrix  # noqa: E402
from opscope.nnet3.egs.merging import merge_examples  # noqa: E402
from opscope.nnet3.egs.rows import example_io  # noqa: E402
from opscope.nnet3.files.examples import NnetExample  # noqa: E402
from opscope.nnet3.network.nnet import Nnet  # noqa: E402
from opscope.nnet3.training import NnetTrainer, NnetTrainerOptions  # noqa: E402

CONFIG = """input-node name=input dim=10
component name=a type=NaturalGradientAffineComponent input-dim=30 output-dim=32
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component name=r type=RectifiedLinearComponent dim=32
component-node name=r component=r input=a
component name=b type=NaturalGradientAffineComponent input-dim=32 output-dim=10
component-node name=b component=b input=r
component name=s type=LogSoftmaxComponent dim=10
component-node name=s component=s input=b
output-node name=output input=s
"""
LINK = Link(latency=2e-6, bandwidth=12.5e9)


def log_of(ranks: Communicator, steps: int) -> tuple[Message, ...]:
    """The messages of a rank in so many steps, those of the first comparison included."""
    rng = np.random.default_rng(ranks.rank)
    options = NnetTrainerOptions(momentum=0.5)
    nnet = Nnet.from_config_text(CONFIG, 1)
    trainer = NnetTrainer(options, nnet, log=[].append, communicator=ranks)
    for _ in range(steps):
        features = rng.normal(size=(6, 10)).astype(np.float32)
        targets = np.eye(10, dtype=np.float32)[rng.integers(0, 10, 4)]
        io = [
            example_io("input", features, -1),
            example_io("output", SparseMatrix.from_dense(targets)),
        ]
        trainer.train(merge_examples([NnetExample(io)]))
    return tuple(ranks.messages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1)
    arguments = parser.parse_args()
    begin, before = time.perf_counter(), time.process_time()
    logs = DryWorld(arguments.ranks, LINK).run(lambda ranks: log_of(ranks, arguments.steps))
    wall, cpu = time.perf_counter() - begin, time.process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{arguments.ranks} ranks, {arguments.steps} steps: {wall:.1f} s, {cpu:.1f} s of CPU time,"
    )
    print(f"{memory:.0f} MiB, {len(set(logs))} distinct log of {len(logs[0])} messages")
    echo = EchoCommunicator(arguments.ranks, LINK)
    begin = time.perf_counter()
    same = log_of(echo, arguments.steps) == logs[0]
    word = "same" if same else "ANOTHER"
    print(f"one rank that stands for all: {time.perf_counter() - begin:.2f} s, the {word} log")
    nbytes = max(message.nbytes for message in logs[0] if message.kind == "all_reduce")
    for name in ("ring", "tree", "halving"):
        cost = exchange_cost("all_reduce", arguments.ranks, name)
        seconds = cost.messages * LINK.latency + cost.volume * nbytes / LINK.bandwidth
        print(f"{name:8s} {nbytes} B of gradients: {1000 * seconds:.3f} ms")


if __name__ == "__main__":
    main()
