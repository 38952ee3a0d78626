"""Counts the words that models recognize: of each utterance the state with the highest sum.

    python count_words.py DATA MODEL ...

DATA holds test.scp, test.mlf and states.list; a model has inputs and outputs like those of
sequence.cntk.
"""

from __future__ import annotations

import sys

from opscope.cntk.config import parse_config
from opscope.cntk.models.open_model import open_model
from opscope.cntk.readers.catalog import create_reader
from opscope.cntk.run.runtime import CntkNet

READER = """reader = [
    readerType = "HTKDeserializers" ; frameMode = false ; readMethod = "none"
    features = [
        dim = 13 ; contextWindow = 11 ; scpFile = "{data}/test.scp" ; prefixPathInSCP = "{data}"
    ]
    labels = [
        mlfFile = "{data}/test.mlf" ; labelMappingFile = "{data}/states.list" ; labelDim = 10
    ]
]"""


def count(model: str, data: str) -> tuple[int, int]:
    """Words that are right, and all."""
    net = CntkNet(open_model(model, "float").network)
    right = total = 0
    with create_reader(parse_config(READER.format(data=data)).section("reader")) as reader:
        reader.start_minibatch_loop(2000, 0)
        while (minibatch := reader.get_minibatch()) is not None:
            labels = minibatch.streams["labels"]
            scores = net.forward(minibatch, ["ScaledLogLikelihood"])["ScaledLogLikelihood"]
            for first, rows in zip(labels.begin, scores.sequences(), strict=False):
                best = rows.reshape(len(rows), -1).sum(0).argmax()
                right += int(best == labels.indices[first])
                total += 1
    return right, total


if __name__ == "__main__":
    for path in sys.argv[2:]:
        right, total = count(path, sys.argv[1])
        print(f"{path}: {right} of {total} words, {100 * right / total:.1f}%")
