"""The actions test, eval and cv.

Source: CNTK's `ActionsLib/EvalActions.cpp`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from ...framework.base.errors import RunError
from ..config.parameters import ConfigParameters
from ..network.network import Network
from ..readers.base.reader import DataReader
from ..run.tracing import names_of, trace
from ..sgd.evaluate import Evaluator, evaluation_nodes
from ..sgd.report import Total, general
from .common import Run, build_or_load, load, net_of, reader_of, whole


def evaluate(run: Run, section: ConfigParameters) -> list[Total]:
    """Evaluate the criteria of a model; their sums and samples.

    Raises:
        OpscopeError: the config, the model or the data are wrong.
    """
    names = section.array("evalNodeNames", "").strings()
    network = build_or_load(run, section, names)
    with reader_of(section, in_order="default") as reader:
        return _evaluate(run, section, network, names, reader)


def _evaluate(
    run: Run,
    section: ConfigParameters,
    network: Network,
    names: list[str],
    reader: DataReader,
) -> list[Total]:
    known = [name for name in names if name in network]
    if not known:
        run.say(
            "evalNodeNames are not specified, using all the default evalnodes and training "
            "criterion nodes.\n"
        )
    most = section.size("maxSamplesInRAM", 2**64 - 1)
    net = net_of(section, network, run)
    trace(net, names_of(section), run.say)
    evaluator = Evaluator(
        net,
        show_every=section.int("numMBsToShowResult", 100),
        show_first=section.int("firstMBsToShowResult", 0),
        trace_level=section.int("traceLevel", 0),
        sub_minibatches=max(section.int("numSubminibatches", 1), 1),
        samples_in_memory=None if most >= 2**63 else most,
        say=run.say,
    )
    size = section.array("minibatchSize", "40960").ints()[0]
    nodes = evaluation_nodes(network, known)
    return evaluator.evaluate(reader, nodes, size, whole(section.int("epochSize", 0)))


def cross_validate(run: Run, section: ConfigParameters) -> list[tuple[str, list[Total]]]:
    """Evaluate the models of several epochs, and tell the best.

    `crossValidationInterval` is first : step : last; a model that is missing is passed over, the
    final model takes the place of the first of them.

    Raises:
        RunError: there was no model.
    """
    path = Path(section.string("modelPath"))
    if not path.name:
        raise section["modelPath"].error(f"it names a file, which {str(path)!r} is not")
    interval = section.array("crossValidationInterval").ints()
    pause = section.int("sleepTimeBetweenRuns", 0)
    names = section.array("evalNodeNames", "").strings()
    results: list[tuple[str, list[Total]]] = []
    final = False
    with reader_of(section) as reader:
        for number in range(interval[0], interval[2] + 1, max(interval[1], 1)):
            model = path.with_name(f"{path.name}.{number}")
            if not os.path.exists(model):
                run.say(f"Model {model} does not exist.\n")
                if final or not os.path.exists(path):
                    continue
                model, final = path, True
            run.say(f"Model {model} --> \n")
            network = load(section, model)
            results.append((str(model), _evaluate(run, section, network, names, reader)))
            time.sleep(pause)
    if not results:
        raise RunError("No model is evaluated.")
    run.say("Best models:\n------------\n")
    for number in range(len(results[0][1])):
        name, totals = min(results, key=lambda result: result[1][number].average)
        run.say(
            f"Based on Err[{number}]: Best model = {name} with min err "
            f"{general(totals[number].average)}\n"
        )
    return results
