"""Language models from SimpleNetworkBuilder: classes of words, and words of noise."""

import re
from pathlib import Path

import numpy as np
import pytest

from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.cntk.models.v1 import format_model, read_model

WORDS = ["</s>", *"abcdefghij", "<unk>"]
CONFIG = """
command = {command} ; deviceId = -1 ; traceLevel = 1 ; modelPath = "m.dnn" ; makeMode = false
Train = [
    action = trainRNN
    SimpleNetworkBuilder = [
        rnnType = {kind} ; lookupTableOrder = 1 ; vocabSize = 12 ; nbrClass = 4 ; noise_number = 5
        layerSizes = 12:8:10:12 ; recurrentLayer = 2 ; uniformInit = true ; initValueScale = 6
        trainingCriterion = {criterion} ; evalCriterion = {criterion}
    ]
    SGD = [
        maxEpochs = 9 ; minibatchSize = 20 ; learningRatesPerSample = 0.2 ; momentumPerMB = 0.5
    ]
    reader = [ {reader}
        features = [ dim = 0 ; mode = {mode} ; noise_number = 5 ]
        {labels} ]
]
Test = [
    action = test ; minibatchSize = 20
    reader = [ {reader}
        features = [ dim = 0 ; mode = {mode} ; noise_number = 5 ]
        {labels} ]
]
"""
READER = """readerType = LMSequenceReader ; file = "text.txt" ; wordclass = "vocab.txt"
        nbruttsineachrecurrentiter = 3"""
LABELS = """labelIn = [ labelDim = 12 ; labelMappingFile = "words.txt" ; endSequence = "</s>" ]
        labels = [ labelType = nextWord ; labelMappingFile = "words.txt" ]"""
MODES = {
    "CLASSLSTM": ("classCrossEntropyWithSoftmax", "class"),
    "NCELSTM": ("noiseContrastiveEstimation", "nce"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A text in which most words say what the next one is."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines, counts = [], np.ones(len(WORDS))
    for _ in range(60):
        words = [int(rng.integers(1, 11))]
        while len(words) < 6:
            words.append(words[-1] % 10 + 1 if rng.random() < 0.9 else int(rng.integers(1, 11)))
        np.add.at(counts, [0, *words], 1)
        lines.append(" ".join(["</s>", *(WORDS[word] for word in words), "</s>\n"]))
    Path("text.txt").write_text("".join(lines))
    rows = [f"{n}\t{int(counts[n])}\t{word}\t{n // 3}\n" for n, word in enumerate(WORDS)]
    Path("vocab.txt").write_text("".join(rows))
    return tmp_path


def run(kind, command):
    criterion, mode = MODES[kind]
    text = CONFIG.format(
        command=command, kind=kind, criterion=criterion, mode=mode, reader=READER, labels=LABELS
    )
    log = []
    run_commands(parse_config(text, "lm.cntk"), Run(say=log.append))
    return "".join(log)


@pytest.mark.parametrize("kind", MODES)
def test_a_language_model_learns_and_a_run_repeats(folder, kind):
    log = run(kind, "Train")
    first = Path("m.dnn").read_bytes()
    run(kind, "Train")
    assert Path("m.dnn").read_bytes() == first
    epochs = [float(v) for v in re.findall(r"\[Training\] \S+ = ([\d.]+)", log)]
    assert len(epochs) == 9 and epochs[-1] < 0.8 * epochs[0]
    network = read_model(Path("m.dnn"))
    for node in network.nodes.values():
        if node.operation == "NCEBasedCrossEntropyWithSoftmax":
            node.attributes["evalMode"] = 0  # the softmax over all words
    Path("m.dnn").write_bytes(format_model(network))
    (perplexity,) = re.findall(r"Final Results.*?perplexity = ([\d.]+)", run(kind, "Test"))
    assert float(perplexity) < 5  # of 11 words that a guess would have to choose from
