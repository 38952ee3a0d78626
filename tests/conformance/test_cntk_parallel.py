"""Data-parallel training on 4 ranks against the lines that CNTK's own tests hold.

`cntk_parallel_training.json` has criterion and error of each line of rank 0, which are those of the
others: ParallelTraining/NoQuantization, {Double,Single}Precision/baseline.cpu.txt.
"""

import json
import re
from pathlib import Path

import pytest

from cntk_data import need
from opscope.cntk.actions.common import Run
from opscope.cntk.actions.run import run_commands
from opscope.cntk.config import parse_config
from opscope.framework.parallel.dry import DryWorld

CONFIG = """
command = Train ; deviceId = -1 ; traceLevel = 1 ; precision = {precision} ; parallelTrain = true
modelPath = "{folder}/simple.dnn"
Train = [
    action = train
    SimpleNetworkBuilder = [
        layerSizes = 2:50*2:2 ; layerTypes = Sigmoid ; initValueScale = 1 ; uniformInit = true
        trainingCriterion = CrossEntropyWithSoftmax ; evalCriterion = ClassificationError
        applyMeanVarNorm = true ; needPrior = true ]
    SGD = [
        minibatchSize = 25 ; maxEpochs = 4 ; learningRatesPerMB = 0.5:0.2 ; momentumPerMB = 0.9
        ParallelTrain = [ parallelizationMethod = DataParallelSGD ; distributedMBReading = true
            DataParallelSGD = [ gradientBits = {bits} ] ] ]
    reader = [ readerType = CNTKTextFormatReader ; file = "{data}" ; randomize = false
        input = [ features = [ dim = 2 ; format = dense ]
                  labels = [ dim = 2 ; format = dense ] ] ] ]
"""
LINE = re.compile(r"CrossEntropyWithSoftmax = ([\d.]+) \* \d+; EvalClassificationError = ([\d.]+)")


@pytest.mark.parametrize(
    ("precision", "bits", "tolerance"), [("double", 64, 1e-7), ("float", 32, 1e-4)]
)
def test_every_line_of_four_ranks(precision, bits, tolerance, tmp_path, within):
    data = need("..", "cntk", "SimpleDataTrain_cntk_text.txt").resolve()
    text = CONFIG.format(precision=precision, bits=bits, folder=tmp_path, data=data)
    logs: list[list[str]] = [[] for _ in range(4)]
    DryWorld(4).run(
        lambda c: run_commands(
            parse_config(text, "simple.cntk"), Run(say=logs[c.rank].append, communicator=c)
        )
    )
    wanted = json.loads(Path(__file__).with_name("cntk_parallel_training.json").read_text())
    errors = {}
    for rank, log in enumerate(logs):
        found = LINE.findall("".join(log))
        for number, (line, known) in enumerate(zip(found, wanted[precision], strict=True)):
            pairs = zip(map(float, line), known, strict=True)
            errors[f"rank {rank}, line {number}"] = max(abs(a / b - 1) for a, b in pairs)
    assert len(errors) == 4 * 164
    within(errors, tolerance)
