"""The actions test, eval and cv.

Source: CNTK's `ActionsLib/EvalActions.cpp`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from ...framework.base.errors import RunError
from ...framework.base.options.option_fields import option
from ..config.parameters import ConfigParameters
from ..network.network import Network
from ..parallel.options import ParallelOptions
from ..parallel.ranks import Ranks
from ..readers.base.reader import DataReader
from ..run.tracing import names_of, trace
from ..sgd.evaluate import Evaluator, evaluation_nodes
from ..sgd.report import Total, general
from .common import Run, build_or_load, load, minibatch_size, net_of, reader_of, whole


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """The settings of test, eval and cv.

    Attributes:
        names: of the nodes to evaluate; none: the network's groups.
        size, epoch_size: of a minibatch and of the data, in samples; None: all there are.
        show_every, show_first, trace_level, sub_minibatches, samples_in_memory: see `Evaluator`.
        traced: nodes whose values are shown, and how.
    """

    names: list[str]
    size: int
    epoch_size: int | None
    show_every: int = option(100, name="numMBsToShowResult")
    show_first: int = option(0, name="firstMBsToShowResult")
    trace_level: int = option(0, name="traceLevel")
    sub_minibatches: int
    samples_in_memory: int | None
    traced: dict[str, str]

    @classmethod
    def of(cls, section: ConfigParameters) -> EvalOptions:
        """The settings of a section.

        Raises:
            FormatError: a value is wrong.
        """
        most = section.size("maxSamplesInRAM", 2**64 - 1)
        return cls(
            **section.options(cls),
            names=section.array("evalNodeNames", "").strings(),
            size=minibatch_size(section, 40960),
            epoch_size=whole(section.int("epochSize", 0)),
            sub_minibatches=max(section.int("numSubminibatches", 1), 1),
            samples_in_memory=None if most >= 2**63 else most,
            traced=names_of(section),
        )


def evaluate(run: Run, section: ConfigParameters) -> list[Total]:
    """Evaluate the criteria of a model; their sums and samples.

    Raises:
        OpscopeError: the config, the model or the data are wrong.
    """
    options = EvalOptions.of(section)
    network = build_or_load(run, section, options.names)
    with reader_of(section, in_order="default") as reader:
        return _evaluate(run, section, network, options, reader)


def _evaluate(
    run: Run,
    section: ConfigParameters,
    network: Network,
    options: EvalOptions,
    reader: DataReader,
) -> list[Total]:
    known = [name for name in options.names if name in network]
    if not known:
        run.say(
            "evalNodeNames are not specified, using all the default evalnodes and training "
            "criterion nodes.\n"
        )
    net = net_of(section, network, run)
    trace(net, options.traced, run.say)
    evaluator = Evaluator(
        net,
        show_every=options.show_every,
        show_first=options.show_first,
        trace_level=options.trace_level,
        sub_minibatches=options.sub_minibatches,
        samples_in_memory=options.samples_in_memory,
        say=run.say,
        ranks=_ranks(run, section),
    )
    nodes = evaluation_nodes(network, known)
    return evaluator.evaluate(reader, nodes, options.size, options.epoch_size)


def _ranks(run: Run, section: ConfigParameters) -> Ranks | None:
    """The ranks that evaluate together, if there are several."""
    if run.communicator is None:
        return None
    shares = None
    if section.has("distributedMBReading"):
        shares = section.bool("distributedMBReading", False)
    return Ranks(run.communicator, ParallelOptions(distributed=shares), 0)


def cross_validate(run: Run, section: ConfigParameters) -> list[tuple[str, list[Total]]]:
    """Evaluate the models of several epochs, and tell the best.

    `crossValidationInterval` is first : step : last; a model that is missing is passed over, the
    final model takes the place of the first of them.

    Raises:
        RunError: there was no model.
    """
    path, numbers, pause = models_to_compare(section)
    options = EvalOptions.of(section)
    results: list[tuple[str, list[Total]]] = []
    final = False
    with reader_of(section) as reader:
        for number in numbers:
            model = path.with_name(f"{path.name}.{number}")
            if not os.path.exists(model):
                run.say(f"Model {model} does not exist.\n")
                if final or not os.path.exists(path):
                    continue
                model = path
                final = True
            run.say(f"Model {model} --> \n")
            network = load(section, model)
            results.append((str(model), _evaluate(run, section, network, options, reader)))
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


def models_to_compare(section: ConfigParameters) -> tuple[Path, range, int]:
    """Of cv: the path of the final model, the numbers of the epochs, and the seconds between two.

    Raises:
        FormatError: a value is missing or wrong.
    """
    path = Path(section.string("modelPath"))
    if not path.name:
        raise section["modelPath"].error(f"it names a file, which {str(path)!r} is not")
    interval = section.array("crossValidationInterval").ints()
    if len(interval) != 3:
        raise section["crossValidationInterval"].error(
            f"the interval is first : step : last, not {len(interval)} numbers"
        )
    numbers = range(interval[0], interval[2] + 1, max(interval[1], 1))
    return path, numbers, section.int("sleepTimeBetweenRuns", 0)
