"""From recordings with texts to the folder of a recognizer: the stages of a training."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Any

from ...framework.base.files.atomic import atomic_file
from ...framework.base.python.cached import cached_property
from ...framework.base.untrusted.opener import PathLike, path_text, read_text
from ...framework.base.untrusted.values import shown
from ...nnet3.network.nnet import Nnet
from ...nnet3.training.progress import Log
from ..fst.graph import StaticGraph
from ..fst.words import Words
from ..graph_making.grammars import words_of
from ..graph_making.make import make_graph
from ..language_model.arpa import arpa_lines, read_arpa
from ..language_model.counting import text_of
from ..language_model.smoothing import METHODS
from ..lexicon.lang import write_lang
from ..scoring.edits import ErrorCounts
from . import aligned, chain, flat_start, networks, packing, preparing, report, speakers
from .checking import Checked, check, first_names
from .data import Corpus, plain_text, read_corpus
from .options import COURSE, FLAT_START, SPLIT, TDNNF, RecognizerOptions
from .stages import Plan, Stage
from .tuned_stages import STAGES, TUNED

_MANY_HOURS = 1.0
"""Of recordings without copies, from which on a tree by clustering has frames for its leaves."""


class Training:
    """A training of a recognizer: its data, its settings and its stages.

    Args:
        data: see `read_corpus`. out: the folder of the recognizer. work: the folder of the
            stages' results; None: `OUT.work`.
        options: the settings. log: takes lines on what happens.

    Raises:
        FormatError: the data, or a file of the options, cannot be read. SaveError: `out` is there
            and no model, or one of `out`, `work` and the model that is tuned lies in another one.
    """

    def __init__(
        self, data: str, out: str, work: str | None, options: RecognizerOptions, log: Log
    ) -> None:
        self.options = options
        self.log = log
        work = work or f"{os.path.normpath(out)}.work"
        packing.check_target(out)
        packing.check_apart(out, work, *filter(None, [options.base]))
        self.out = out
        self.corpus: Corpus = read_corpus(data)
        self._kind = TUNED if options.base else TDNNF if options.ivectors else options.model
        self._model = self._kind or FLAT_START
        self.plan = Plan(self._stages(), work, options, self.corpus.digest(), log)
        if not self._kind and self.plan.is_done(_DATA):
            self.choose(Checked.read(self.path("data", "checked.json")))

    @property
    def acoustic(self) -> str:
        """The stage whose acoustic model recognizes."""
        return "train" if self._model == FLAT_START else "tdnnf-train"

    def path(self, stage: str, *names: str) -> str:
        """A file among the results of a stage."""
        return self.plan.path(stage, *names)

    @cached_property
    def checked(self) -> Checked:
        """The outcome of the check."""
        return Checked.read(self.path("data", "checked.json"))

    @property
    def hours(self) -> float:
        """Of the examples: of all copies."""
        return self.checked.hours * self.options.copies

    def trained(self, epochs: int, stages: tuple[str, str, str], folder: str) -> Nnet:
        """Train a network.

        Args:
            stages: of examples, of outputs, and of the network at the start. folder: gets what an
                interrupted training continues from.
        """
        examples, graphs, network = map(self.path, stages)
        options = replace(self.options, epochs=epochs)
        first = os.path.join(network, "0.raw")
        course = chain.ChainTraining(examples, graphs, first, folder, options, self.log)
        course.run()
        return course.combined()

    def choose(self, checked: Checked) -> None:
        """Plan the stages of the model that suits the data, unless the options name one."""
        by_hours = FLAT_START if checked.hours < _MANY_HOURS else TDNNF
        self._model = self._kind or by_hours
        self.plan.set_stages(self._stages())

    def _stages(self) -> tuple[Stage, ...]:
        return stages_of(self._model, self.options.ivectors > 0)

    def run(self, begin: str = "", stop_after: str = "") -> ErrorCounts | None:
        """Do what is not done yet; the errors on what is held out, None if stopped before.

        Raises:
            FormatError: a recording cannot be used; see `check`. SaveError: a file cannot be
                written, or another run is under way. ArgumentError: there is no such stage.
        """
        if not self.plan.run(self, begin, stop_after):
            return None
        packing.install(self.path("model"), self.path("report", "report.html"), self.out)
        counts, _ = report.scored(self.path("decode"))
        return counts


def _data(training: Training, folder: str) -> None:
    words = {word for each in training.corpus.utterances for word in each.words}
    dictionary = preparing.dictionary_of(training.options, words)
    checked = check(training.corpus, dictionary, training.options)
    checked.write(os.path.join(folder, "checked.json"))
    for line in checked.lines():
        training.log(f"  {line}")
    training.choose(checked)


def _lang(training: Training, folder: str) -> None:
    words = {word for each in training.checked.utterances for word in each.words}
    dictionary = preparing.dictionary_of(training.options, words)
    write_lang(preparing.chain_lang(dictionary), folder)


def _features(training: Training, folder: str) -> None:
    checked = training.checked
    preparing.write_cepstra(checked.training, checked.rate, training.options, folder, training.log)


def _graphs(training: Training, folder: str) -> None:
    flat_start.write_graphs(
        training.checked.training, training.path("lang"), training.options, folder, training.log
    )


def _network(training: Training, folder: str) -> None:
    options = training.options
    width = options.width or networks.flat_start_size(training.hours).width
    _write_network(
        training, "graphs", options.network, lambda outputs: networks.tdnn(width, outputs), folder
    )


def _write_network(
    training: Training,
    graphs: str,
    file: str,
    layers: Callable[[int], str],
    folder: str,
    ivectors: int = 0,
) -> None:
    """Write the network of a file, or that of `layers`, for the outputs of a stage."""
    outputs = chain.read_transitions(training.path(graphs)).transitions().num_pdfs
    networks.write_network(
        read_text(file) if file else layers(outputs),
        file,
        outputs,
        training.path("features"),
        training.options.seed,
        folder,
        ivectors,
    )


def _examples(training: Training, folder: str) -> None:
    flat_start.write_examples(
        training.checked.training,
        training.path("graphs"),
        training.path("features"),
        training.path("network"),
        folder,
        training.log,
        training.options.copies,
    )


def _train(training: Training, folder: str) -> None:
    epochs = training.options.epochs or networks.flat_start_size(training.hours).epochs
    nnet = training.trained(epochs, ("examples", "graphs", "network"), folder)
    chain.write_acoustic_model(nnet, training.path("graphs"), os.path.join(folder, "am"))


def _align(training: Training, folder: str) -> None:
    graphs = training.path("graphs")
    fsts = chain.graph_of_texts(graphs)
    text_of = chain.text_of_copies(training.checked.training, training.options.copies)
    aligned.write_alignments(
        lambda key: StaticGraph.of(fsts[text_of[key]]),
        aligned.computer_of(training.path("train", "am", "final.mdl")),
        chain.read_transitions(graphs).transitions().pdf,
        training.path("features"),
        folder,
        training.log,
    )


def _tree(training: Training, folder: str) -> None:
    aligned.write_tree(
        training.path("align"),
        training.path("features"),
        training.path("graphs"),
        training.path("lang"),
        training.options.leaves or networks.tdnnf_size(training.hours).leaves,
        folder,
        training.log,
    )


def _tdnnf_network(training: Training, folder: str) -> None:
    options = training.options
    size = networks.tdnnf_size(training.hours)
    width = options.tdnnf_width or size.width
    _write_network(
        training,
        "tree",
        options.tdnnf_network,
        lambda outputs: networks.tdnnf(width, size.distant, outputs, options.ivectors > 0),
        folder,
        options.ivectors,
    )


def _chunks(training: Training, folder: str) -> None:
    aligned.write_chunks(
        training.path("align"),
        training.path("features"),
        training.path("graphs"),
        training.path("tree"),
        training.path("tdnnf-network"),
        training.options.chunks,
        training.options.seed,
        folder,
        training.log,
        training.path("ivectors") if training.options.ivectors else "",
    )


def _extractor(training: Training, folder: str) -> None:
    options = training.options
    features = training.path("features")
    speakers.write_extractor(features, options.ivectors, options.seed, folder, training.log)


def _ivectors(training: Training, folder: str) -> None:
    speakers.write_ivectors(training.path("features"), training.path("extractor"), folder)


def _train_tdnnf(training: Training, folder: str) -> None:
    epochs = training.options.tdnnf_epochs or networks.tdnnf_size(training.hours).epochs
    stages = ("tdnnf-examples", "tree", "tdnnf-network")
    nnet = training.trained(epochs, stages, folder)
    chain.write_acoustic_model(nnet, training.path("tree"), os.path.join(folder, "am"))


def _language_model(training: Training, folder: str) -> None:
    options = training.options
    if options.lm:
        model = read_arpa(options.lm)
    else:
        name = options.text or "the texts of the recordings"
        lines = [each.text for each in training.checked.training]
        known = words_of(Words.read(training.path("lang", "words.txt")))
        if options.text:
            lines = plain_text(options.text).splitlines()
            _log_unknown(lines, set(known), training.log)
        model = METHODS[options.method](text_of(lines, name, known), options.order)
    with atomic_file(os.path.join(folder, "lm.arpa")) as file:
        for part in arpa_lines(model):
            file.write(part.encode("utf-8", "surrogateescape"))


def _log_unknown(lines: Sequence[str], known: Set[str], log: Log) -> None:
    """Say how many words of sentences the lexicon lacks, and which."""
    unknown = Counter(word for line in lines for word in line.split() if word not in known)
    if unknown:
        names = first_names(list(map(shown, sorted(unknown))))
        log(f"  {unknown.total()} words of the sentences count as unknown: {names}")


def _graph(training: Training, folder: str) -> None:
    unknown = read_text(training.path("lang", "oov.txt")).strip()
    make_graph(
        training.path("lang"),
        training.path(training.acoustic, "am"),
        folder,
        arpa=training.path("language-model", "lm.arpa"),
        look_ahead=training.options.look_ahead,
        # What was never heard must not be recognized.
        remove_oov=all(unknown not in each.words for each in training.checked.training),
        skip_unknown=training.options.skip_bad,
    )


def _model(training: Training, folder: str) -> None:
    packing.pack(
        training.path(training.acoustic, "am"),
        training.path("graph"),
        training.path("features", "mfcc.conf"),
        folder,
        training.path("extractor") if training.options.ivectors else "",
    )


def _decode(training: Training, folder: str) -> None:
    report.recognize(
        training.checked.held_out, training.path("model"), folder, training.options.jobs
    )


def _report(training: Training, folder: str) -> None:
    rows = csv.DictReader(read_text(training.path(training.acoustic, "history.csv")).splitlines())
    counts = report.write_report(
        training.checked,
        [float(row["loss"]) for row in rows],
        training.plan.seconds(),
        training.path("decode"),
        os.path.join(folder, "report.html"),
    )
    for line in counts.lines():
        training.log(line)


def _words(options: RecognizerOptions) -> tuple[str, ...]:
    """The files that words come from; without a lexicon, all words are spelled."""
    return ("lexicon",) if options.lexicon else ("text", "lm")


_DATA = Stage("data", (), "checked.json", _data, SPLIT, _words)
_FIRST_PASS = (
    _DATA,
    Stage("lang", ("data",), "L.fst words.txt phones.txt topo", _lang, (), _words),
    Stage(
        "features",
        ("data",),
        "feats.ark moments.mat",
        _features,
        ("copies", "speed_step", "volumes", "seed"),
    ),
    Stage(
        "graphs",
        ("data", "lang"),
        "tree transitions.mdl den.fst graphs.ark",
        _graphs,
        ("context", "min_pairs", "copies", "seed"),
    ),
    Stage(
        "network",
        ("graphs", "features"),
        "0.raw",
        _network,
        ("network", "width", "seed", "copies"),
        lambda options: ("network",),
    ),
    Stage("examples", ("graphs", "features", "network"), "train.ark", _examples, ("copies",)),
    Stage(
        "train",
        ("examples",),
        "am/final.mdl history.csv",
        _train,
        ("epochs", *COURSE),
        resumes=True,
    ),
)
_SECOND_PASS = (
    Stage("align", ("graphs", "features", "train"), "ali.ark", _align, ("copies",)),
    Stage(
        "tree",
        ("lang", "features", "align"),
        "tree transitions.mdl den.fst",
        _tree,
        ("leaves", "copies"),
    ),
    Stage(
        "tdnnf-network",
        ("tree", "features"),
        "0.raw",
        _tdnnf_network,
        ("tdnnf_network", "tdnnf_width", "ivectors", "seed", "copies"),
        lambda options: ("tdnnf_network",),
    ),
)
_SPEAKERS = (
    Stage(
        "extractor",
        ("features",),
        "final.ie final.dubm final.mat",
        _extractor,
        ("ivectors", "seed"),
    ),
    Stage("ivectors", ("features", "extractor"), "ivectors.ark", _ivectors),
)


def _second_pass(ivectors: bool) -> tuple[Stage, ...]:
    """The stages from the alignments on."""
    speaker_stages = _SPEAKERS if ivectors else ()
    return (
        *_SECOND_PASS,
        *speaker_stages,
        Stage(
            "tdnnf-examples",
            ("align", "tree", "tdnnf-network", *(each.name for each in speaker_stages[-1:])),
            "train.ark",
            _chunks,
            ("chunks", "seed"),
        ),
        Stage(
            "tdnnf-train",
            ("tdnnf-examples",),
            "am/final.mdl history.csv",
            _train_tdnnf,
            ("tdnnf_epochs", *COURSE),
            resumes=True,
        ),
    )


def stages_of(model: str, ivectors: bool = False) -> tuple[Stage, ...]:
    """The stages of a training that ends with a kind of model, in their order.

    Args:
        ivectors: the second pass trains an extractor.
    """
    if model == TUNED:
        return STAGES
    acoustic = _FIRST_PASS if model == FLAT_START else _FIRST_PASS + _second_pass(ivectors)
    return (
        *acoustic,
        Stage(
            "language-model",
            ("data", "lang"),
            "lm.arpa",
            _language_model,
            ("order", "method"),
            lambda options: ("text", "lm"),
        ),
        Stage(
            "graph",
            ("lang", acoustic[-1].name, "language-model"),
            "HCLG.fst words.txt",
            _graph,
            ("look_ahead", "skip_bad"),
        ),
        Stage("model", (acoustic[-1].name, "graph"), "am graph conf", _model, ("ivectors",)),
        Stage("decode", ("data", "model"), "hyp.txt ref.txt", _decode),
        Stage("report", ("decode",), "report.html", _report),
    )


def train(
    data: PathLike,
    out: PathLike,
    *,
    work: PathLike | None = None,
    begin: str = "",
    stop_after: str = "",
    log: Log = print,
    **options: Any,
) -> ErrorCounts | None:
    """Train a recognizer on recordings with texts, and write it as a folder that Vosk also opens.

    What is done already is found in `work`: an interrupted training continues, bit for bit, and
    one with other settings does again what depends on them.

    Example:
        errors = opscope.speech.train("recordings", "model", lexicon="lexicon.txt")
        print(errors.word_error_rate)

    Args:
        data: a folder of recordings with texts beside them (`NAME.wav`, `NAME.txt`), in folders by
            speaker where these are known; a CSV or TSV file with the columns `path`, `text` and
            perhaps `speaker`; or a data folder of Kaldi's.
        out: the folder of the recognizer, which takes the place of one that is there.
        work: the folder of the stages' results; by default `OUT.work`.
        begin: a stage from which on all is done again. stop_after: the last stage that is done.
        log: takes lines on what happens.
        options: see `RecognizerOptions`; `base` is the folder of a model that is fine-tuned.

    Returns:
        The errors on the recordings that were held out; None where `stop_after` ended it before.

    Raises:
        FormatError: a recording cannot be used (all are named; `skip_bad=True` leaves them out), or
            a file cannot be read. ArgumentError: an option is out of range, or there is no such
            stage. SaveError: a file cannot be written, or another run is under way.
    """
    folder = path_text(out)
    chosen = RecognizerOptions(**options)
    place = None if work is None else path_text(work)
    return Training(path_text(data), folder, place, chosen, log).run(begin, stop_after)
