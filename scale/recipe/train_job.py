"""One job of a training by jobs: what it does is in a JSON file, and so is what came of it.

A job gives the same bits as Kaldi's pipeline of programs does here: `nnet3-copy`, `nnet3-copy-egs`,
`nnet3-shuffle-egs` and `nnet3-merge-egs` into `nnet3-train`, or their brothers for chain examples.
It is one process, which has to start and to load once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...framework.base.backend import Place
from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.untrusted.records import json_file, record, typed
from ...framework.base.untrusted.values import shown
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.tables.streams import open_reader
from ...kaldi.tables.tables import read_table
from ...nnet3.cache.files import read_cache, write_cache
from ...nnet3.chain.denominator import DenominatorGraph
from ...nnet3.chain.objective import ChainOptions
from ...nnet3.egs import chain_changes, selecting
from ...nnet3.egs.merging import ExampleMerger, MinibatchRule
from ...nnet3.network import adjust
from ...nnet3.network.edits import apply_edits, parse_edits
from ...nnet3.network.nnet import Nnet
from ...nnet3.optimize import OptimizeOptions
from ...nnet3.programs.base.graphs import open_fst
from ...nnet3.programs.base.options import chosen_place, errors_tell
from ...nnet3.training import NnetTrainer, NnetTrainerOptions
from ...nnet3.training.chain_objectives import ChainObjectives
from ...nnet3.training.chain_prob import NnetChainComputeProb
from ...nnet3.training.combination import combine, has_batchnorm
from ...nnet3.training.compute_prob import NnetComputeProb, NnetComputeProbOptions
from ...nnet3.training.progress import Log, ratio
from ...nnet3.training.schedule import NO_OBJECTIVE


@dataclass(frozen=True)
class Chain:
    """LF-MMI: the denominator FST, and settings of the objective."""

    den_fst: str
    l2_regularize: float
    xent_regularize: float
    leaky_hmm_coefficient: float
    apply_deriv_weights: bool

    def graph(self, nnet: Nnet) -> DenominatorGraph:
        """For the pdfs of the network's output."""
        return DenominatorGraph.of_fst(open_fst(self.den_fst), nnet.node_dims()["output"])

    def options(self) -> ChainOptions:
        """The settings as the objective takes them."""
        return ChainOptions(
            l2_regularize=self.l2_regularize,
            xent_regularize=self.xent_regularize,
            leaky_hmm_coefficient=self.leaky_hmm_coefficient,
        )


@dataclass(frozen=True)
class TrainJob:
    """Train a network on one archive.

    Attributes:
        model, output: files of networks. result: the JSON file for the objective.
        archive: of examples. frame: the one to train on, -1 = all. shift: of the frames.
        learning_rate, scale, edits: what is changed before.
        minibatch, buffer, seed: of merging and shuffling; the trainer has the same seed.
        trainer: fields of `NnetTrainerOptions`. passes: fields of `OptimizeOptions`.
        read_cache, write_cache: files of compiled computations; empty = none.
        use_gpu: as `--use-gpu`. chain: for LF-MMI.
    """

    model: str
    output: str
    result: str
    archive: str
    frame: int
    shift: int
    learning_rate: float
    scale: float
    edits: str
    minibatch: str
    buffer: int
    seed: int
    trainer: dict[str, Any]
    passes: dict[str, Any] = field(default_factory=dict)
    read_cache: str = ""
    write_cache: str = ""
    use_gpu: str = "no"
    chain: Chain | None = None

    def __post_init__(self) -> None:
        self._options()  # or an error

    def _options(self) -> NnetTrainerOptions:
        """Of the trainer. Raises OpscopeError: there is no such option, pass or value."""
        options = record(self.trainer, NnetTrainerOptions, "'trainer'")
        if self.passes:
            options = replace(options, optimize=record(self.passes, OptimizeOptions, "'passes'"))
        return options

    def run(self, log: Log) -> None:
        """Do it.

        Raises:
            OpscopeError: an example does not fit the network, or a file cannot be read or written.
        """
        nnet = self._network(log)
        options = self._options()
        objective = None
        if self.chain is not None:
            objective = ChainObjectives(
                self.chain.graph(nnet), self.chain.options(), self.chain.apply_deriv_weights
            )
        place = chosen_place(self.use_gpu)
        seed = self.seed & 0xFFFFFFFF
        trainer = NnetTrainer(options, nnet, place, seed, log, objective)
        if self.read_cache:
            with contextlib.suppress(OpscopeError):  # what is missing is compiled
                read_cache(trainer.compiler, nnet, open_reader(self.read_cache))
        for number, example in enumerate(self._minibatches()):
            with errors_tell(f"{self.archive}: minibatch {number}"):
                trainer.train(example)
        if not trainer.print_total_stats():
            raise FormatError(f"{self.archive}: no examples to train on")
        trainer.store()
        nnet.write(self.output)
        if self.write_cache:
            writer = Writer(True)
            write_cache(trainer.compiler, nnet, writer)
            writer.save(self.write_cache)
        info = trainer.objectives.get("output")
        value = (
            NO_OBJECTIVE if info is None else ratio(info.objective + info.auxiliary, info.weight)
        )
        _write_result(self.result, {"objective": value})
        log(f"Wrote model to {self.output}")

    def _network(self, log: Log) -> Nnet:
        nnet = Nnet.read(self.model)
        adjust.set_learning_rate(nnet, self.learning_rate)
        adjust.scale(nnet, self.scale)
        for line in apply_edits(nnet, parse_edits(self.edits)) if self.edits else []:
            log(line)
        writer = Writer(True)  # through a file's float32, as between Kaldi's programs
        nnet.write_to(writer)
        return Nnet.read_any(Reader(writer.getvalue(), name=self.model))

    def _minibatches(self) -> Iterator[Any]:
        kind = "example" if self.chain is None else "chain_example"
        examples = self._chosen(example for _, example in read_table(f"ark:{self.archive}", kind))
        rng = np.random.default_rng(self.seed & 0xFFFFFFFF)
        yield from merged(selecting.shuffle(examples, rng, self.buffer), self.minibatch, kind)

    def _chosen(self, examples: Iterable[Any]) -> Iterator[Any]:
        for example in examples:
            if self.chain is not None:
                yield chain_changes.shifted(example, self.shift)
            elif self.frame < 0:
                yield example
            elif (chosen := selecting.selected(example, self.frame)) is not None:
                yield chosen


@dataclass(frozen=True)
class ProbJob:
    """Judge a network on examples of several parts.

    Attributes:
        model: a file. result: the JSON file for what is measured.
        parts: name -> archives.
    """

    model: str
    result: str
    parts: dict[str, list[str]]
    use_gpu: str = "no"
    chain: Chain | None = None

    def run(self, log: Log) -> None:
        """Do it. Raises OpscopeError: see `TrainJob.run`."""
        results: dict[str, dict[str, float]] = {}
        for part, archives in self.parts.items():
            nnet = Nnet.read(self.model)
            without = adjust.without_statistics(nnet)
            adjust.set_batchnorm_test_mode(nnet, True, but=without)
            adjust.set_dropout_test_mode(nnet, True)
            make = prob_maker(self.chain, nnet, chosen_place(self.use_gpu))
            prob = make(nnet, False)
            log(f"Examples of {part}")
            for example in read_merged(archives, "1:64", self.chain):
                prob.compute(example)
            prob.print_total_stats(log)
            results[part] = {"loss": -prob.objective_per_frame()}
            if isinstance(prob, NnetComputeProb):
                results[part]["accuracy"] = prob.accuracy_of()
        _write_result(self.result, results)


@dataclass(frozen=True)
class CombineJob:
    """Average the last models, as many as do best.

    Attributes:
        models: files, the last one first. output: the file of the mean. result: a JSON file.
        archives: of the examples to judge by. minibatch: their `--minibatch-size`.
        evaluations: how often to judge, at most.
    """

    models: list[str]
    output: str
    result: str
    archives: list[str]
    minibatch: str
    evaluations: int
    use_gpu: str = "no"
    chain: Chain | None = None

    def run(self, log: Log) -> None:
        """Do it. Raises OpscopeError: see `TrainJob.run`."""
        examples = list(read_merged(self.archives, self.minibatch, self.chain))
        first = Nnet.read(self.models[0])
        make = prob_maker(self.chain, first, chosen_place(self.use_gpu))
        models = (Nnet.read(name) for name in self.models)
        count = len(self.models)
        nnet = combine(models, count, examples, log, self.evaluations, make_prob=make)
        nnet.write(self.output)
        _write_result(self.result, {"batchnorm": has_batchnorm(nnet)})
        log(f"Finished combining neural nets, wrote model to {self.output}")


AnyJob = TrainJob | ProbJob | CombineJob
_KINDS: dict[str, type[AnyJob]] = {"train": TrainJob, "prob": ProbJob, "combine": CombineJob}
_PROGRAMS = {TrainJob: "train", ProbJob: "compute-prob", CombineJob: "combine"}


def program_of(job: AnyJob) -> str:
    """The program of Kaldi's that does the same, for the lines of logs."""
    return f"nnet3-{'' if job.chain is None else 'chain-'}{_PROGRAMS[type(job)]}"


def prob_maker(chain: Chain | None, nnet: Nnet, place: Place | None) -> Callable[..., Any]:
    """What makes the judges of networks like `nnet`; see `combination.MakeProb`."""
    if chain is None:

        def frames(nnet: Nnet, store_component_stats: bool) -> NnetComputeProb:
            options = NnetComputeProbOptions(store_component_stats=store_component_stats)
            return NnetComputeProb(nnet, options, place)

        return frames
    graph = chain.graph(nnet)
    settings = chain.options()

    def chains(nnet: Nnet, store_component_stats: bool) -> NnetChainComputeProb:
        return NnetChainComputeProb(
            nnet, graph, settings, place, store_component_stats=store_component_stats
        )

    return chains


def merged(examples: Iterable[Any], minibatch: str, kind: str) -> Iterator[Any]:
    """Minibatches of a stream of examples."""
    make = ExampleMerger if kind == "example" else chain_changes.ChainExampleMerger
    for _, example in make(MinibatchRule(minibatch)).merge(examples):
        yield example


def read_merged(archives: list[str], minibatch: str, chain: Chain | None) -> Iterator[Any]:
    """Minibatches of the examples in several archives."""
    kind = "example" if chain is None else "chain_example"
    examples = (eg for name in archives for _, eg in read_table(f"ark:{name}", kind))
    yield from merged(examples, minibatch, kind)


def _write_result(path: str, results: Any) -> None:
    write_atomically(path, json.dumps(results).encode())


def write_job(path: str, job: AnyJob) -> None:
    """Write what a job does. Raises SaveError: the file cannot be written."""
    kind = next(name for name, kind_class in _KINDS.items() if isinstance(job, kind_class))
    values = dict(vars(job))
    if job.chain is not None:
        values["chain"] = vars(job.chain)
    write_atomically(path, (json.dumps({"do": kind, **values}, indent=1) + "\n").encode())


def read_job(path: str) -> AnyJob:
    """The job that a file describes. Raises FormatError: it cannot be read, or is no such file."""
    values = typed(json_file(path), dict[str, Any], path)
    kind = typed(values.pop("do", ""), str, f"{path}: 'do'")
    if kind not in _KINDS:
        raise FormatError(f"{path}: 'do' is {shown(kind)}, not one of {', '.join(_KINDS)}")
    return record(values, _KINDS[kind], path)
