"""Training Kaldi's five networks on spoken digits: seconds an epoch, and where they go.

    python benchmarks/nnet3_training.py [--data shared/data] [--json training.json]

The share outside of matrix products is that of all operators which are no product; natural
gradient (`nnet3.precondition`), which is products but for an eigenvalue problem now and then, has a
column of its own. Target: under 35 % for tdnn and tdnnf.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
NETWORKS = {  # chunk length, left context besides the network's
    "tdnn": (8, 0),
    "tdnnf": (8, 0),
    "lstmp": (20, 40),
    "cnn": (8, 0),
    "stats": (40, 0),
}
PRODUCTS = (
    "matmul",
    "nnet3.scaled_product",
    "nnet3.tdnn",
    "nnet3.time_height_convolution",
)
NATURAL_GRADIENT = "nnet3.precondition"
TIMED = 12  # minibatches


def minibatches(data: pathlib.Path, nnet: Any, frames: int, extra: int) -> tuple[list[Any], int]:
    """The first minibatches of the training data, and how many there are in all."""
    import numpy as np

    from opscope.kaldi.files.posterior import Posterior
    from opscope.kaldi.tables.tables import read_table
    from opscope.nnet3.egs import generate
    from opscope.nnet3.egs.merging import ExampleMerger, MinibatchRule
    from opscope.nnet3.egs.splitting import ExampleGenerationOptions, UtteranceSplitter

    left, right = nnet.context()
    splitter = UtteranceSplitter(ExampleGenerationOptions((frames,), left + extra, right))
    labels = (data / "speech" / "train.labels").read_text().split()
    digits = dict(zip(labels[::2], labels[1::2], strict=True))
    made = []
    for key, features in read_table(f"ark:{data / 'speech' / 'train.ark'}", "general_matrix"):
        rows = features.shape[0]
        classes = np.full(rows, int(digits[key]), np.int32)
        post = Posterior(np.arange(rows + 1), classes, np.ones(rows, np.float32))
        targets = generate.posterior_targets(post, 10, 1)
        made += [e for _, e in generate.examples(key, features, targets, splitter)]
    count = len(made) // 64
    merged = ExampleMerger(MinibatchRule("64")).merge(made[: 64 * TIMED])
    return [example for _, example in merged], count


def measure(data: pathlib.Path, name: str) -> dict[str, float]:
    """Seconds an epoch, and shares of the operators' time."""
    from opscope import nnet3
    from opscope.framework.base.context import Hook
    from opscope.nnet3.training import NnetTrainer, NnetTrainerOptions

    nnet = nnet3.Nnet.read(data / "kaldi" / "trained" / name / "model.raw")
    batches, count = minibatches(data, nnet, *NETWORKS[name])
    trainer = NnetTrainer(NnetTrainerOptions(), nnet, log=lambda line: None)
    for example in batches:  # the steps are compiled, natural gradient has started
        trainer.train(example)
    start = time.perf_counter()
    for example in batches:
        trainer.train(example)
    epoch = (time.perf_counter() - start) / len(batches) * count
    spent: collections.Counter[str] = collections.Counter()

    class Clock(Hook):
        def before_op(self, frame: Any, index: int) -> None:
            self.start = time.perf_counter()

        def after_op(self, frame: Any, index: int) -> None:
            step = frame.plan.steps[index].operators
            spent[step[0].type.removesuffix("_grad")] += time.perf_counter() - self.start

    trainer._context.hooks.append(Clock())
    for example in batches:
        trainer.train(example)
    total = sum(spent.values())
    products = sum(spent[op] for op in PRODUCTS)
    natural = spent[NATURAL_GRADIENT]
    return {
        "seconds_an_epoch": epoch,
        "minibatch_ms": epoch / count * 1e3,
        "products": products / total,
        "natural_gradient": natural / total,
        "outside": 1 - (products + natural) / total,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="file for the numbers")
    args = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(args.threads)  # before any of the libraries loads
    results = {}
    for name in NETWORKS:
        result = results[name] = measure(args.data, name)
        print(
            f"{name:8} {result['seconds_an_epoch']:6.1f} s an epoch"
            f" ({result['minibatch_ms']:.1f} ms a minibatch):"
            f" products {result['products']:.0%},"
            f" natural gradient {result['natural_gradient']:.0%},"
            f" outside {result['outside']:.0%}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
