"""The start of a training: the network of an xconfig, and examples in three parts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.files.atomic import atomic_file
from ...framework.base.untrusted.opener import open_file, read_text
from ...kaldi.files.kaldi_io import Writer
from ...kaldi.files.posterior import Posterior
from ...kaldi.tables.specifiers import ReadSpecifier, WriteSpecifier
from ...kaldi.tables.tables import (
    RandomAccessTable,
    TableWriter,
    first_kind,
    read_table,
)
from ...nnet3.egs import generate
from ...nnet3.egs.merging import ExampleMerger, MinibatchRule
from ...nnet3.egs.rows import is_finite
from ...nnet3.egs.splitting import ExampleGenerationOptions, UtteranceSplitter
from ...nnet3.network.nnet import Nnet
from ...nnet3.training.lda import LdaAccumulator, TransformOptions, feature_transform
from ...nnet3.training.progress import Log
from ...nnet3.xconfig import xconfig_to_configs
from .nnet3_options import RecipeOptions

_FILE = re.compile(r"\b(matrix|vector|scales|bias)=(\S+)")
_LDA_EXAMPLES = 4000
PARTS = ("train", "valid", "diagnostic")


# The network


def make_network(options: RecipeOptions, path: str, lda: str, log: Log) -> None:
    """Write the initial network to `path`, unless it is there.

    Where an xconfig has a fixed-affine-layer whose file is missing, the transform is made of the
    features by LDA, and goes to `lda`.

    Raises:
        FormatError: the network's description cannot be read.
    """
    if os.path.exists(path):
        return
    source = options.network
    if _is_network(source):
        nnet = Nnet.read(source)
    else:
        nnet = Nnet.from_config_text(_config(options, lda, log), options.seed)
    nnet.write(path)
    log(f"Wrote {path}: {nnet.num_parameters} parameters, context {nnet.context()}")


def _is_network(path: str) -> bool:
    """Whether a file is a model, not a description."""
    with open_file(path) as file:
        head = file.read(24)
    return b"<Nnet3>" in head or b"<TransitionModel>" in head


def _config(options: RecipeOptions, lda: str, log: Log) -> str:
    """The text of the network's config, with files that can be found."""
    text = read_text(options.network, "surrogateescape")
    folder = os.path.dirname(os.path.abspath(options.network))
    if re.search(r"^\s*(component|component-node|input-node) ", text, re.M):
        return _with_files(text, folder, "")
    configs = xconfig_to_configs(options.network)
    out = os.path.dirname(os.path.abspath(lda))
    for name, matrix in configs.transforms.items():
        _write_matrix(os.path.join(out, name), matrix)
    final = _with_files(configs.final, folder, out)
    missing = [name for name in _files(final) if not os.path.exists(name)]
    if missing and configs.init:
        log(f"Making {lda} by LDA")
        _write_matrix(lda, _lda(options, configs.init, log))
        final = final.replace(missing[0], lda)
    return final


def _files(text: str) -> list[str]:
    return [match[2] for match in _FILE.finditer(text)]


def _with_files(text: str, *folders: str) -> str:
    """The config with the paths of files that are in one of the folders."""

    def moved(match: re.Match[str]) -> str:
        places = [os.path.join(folder, match[2]) for folder in folders if folder]
        path = next((place for place in places if os.path.exists(place)), match[2])
        return f"{match[1]}={path}"

    return _FILE.sub(moved, text)


def _write_matrix(path: str, matrix: np.ndarray) -> None:
    writer = Writer(binary=True)
    writer.write_matrix(np.asarray(matrix, np.float32))
    with atomic_file(path) as file:
        file.write(writer.getvalue())


def _lda(options: RecipeOptions, config: str, log: Log) -> np.ndarray:
    """The transform that decorrelates the spliced input."""
    nnet = Nnet.from_config_text(config, options.seed)
    accumulator = LdaAccumulator(nnet)
    source = _Source(options, nnet, classes=None)
    merger = ExampleMerger(MinibatchRule("1:256"))

    def some() -> Any:
        for number, (_, example) in enumerate(source.examples(source.utterances())):
            if number == _LDA_EXAMPLES:
                return
            yield example

    for _, merged in merger.merge(some()):
        accumulator.accumulate(merged)
    return feature_transform(accumulator.stats, TransformOptions(), log)


# Examples


def make_examples(options: RecipeOptions, nnet: Nnet, folder: str, log: Log) -> None:
    """Write the examples of all parts to a folder, unless they are there.

    Raises:
        FormatError: tables cannot be read, or have nothing in common.
        ShapeError: features or targets do not fit the network.
    """
    done = os.path.join(folder, "done")
    if os.path.exists(done):
        return
    source = _Source(options, nnet, nnet.output_dim("output"))
    utterances = source.utterances()
    rng = np.random.default_rng([options.seed, 1 << 20])
    order = rng.permutation(len(utterances))
    held = min(options.valid_utterances, len(utterances) // 2)
    valid = {utterances[i] for i in order[:held]}
    train = [name for name in utterances if name not in valid]
    some = {train[i] for i in rng.permutation(len(train))[: max(held, 1)]}
    chosen = {"train": train, "valid": list(valid), "diagnostic": list(some)}
    counts = {}
    for part in PARTS:
        if not chosen[part]:
            continue
        wanted = set(chosen[part])
        names = [name for name in utterances if name in wanted]
        archive, script = (os.path.join(folder, f"{part}.{end}") for end in ("ark", "scp"))
        with TableWriter(WriteSpecifier(archive, script), "example") as writer:
            for key, example in source.examples(names):
                writer.write(key, example)
        counts[part] = writer.count
    if not counts.get("train"):
        raise FormatError(f"{options.feats}: no utterance is long enough for an example")
    source.splitter.report(log)
    if source.skipped:
        log(f"{source.skipped} utterances were passed over: they hold NaN or infinity")
    log("Examples: " + ", ".join(f"{part} {count}" for part, count in counts.items()))
    with atomic_file(done) as file:
        file.write(b"")


class _Source:
    """Utterances with features and targets, and the examples that are made of them."""

    def __init__(self, options: RecipeOptions, nnet: Nnet, classes: int | None) -> None:
        self.options = options
        self.skipped = 0
        left, right = nnet.context()
        factor = options.frame_subsampling_factor
        cutting = ExampleGenerationOptions(
            ExampleGenerationOptions.parse_frames(options.num_frames),
            left + options.chunk_left_context,
            right + options.chunk_right_context,
            frame_subsampling_factor=factor,
        )
        self.rng = np.random.default_rng([options.seed, 1 << 21])
        self.splitter = UtteranceSplitter(cutting, self.rng)
        self.dim = nnet.input_dim("input")
        self.kind = _kind_of(options.targets)
        self.targets = RandomAccessTable(options.targets, self.kind)
        self.classes = classes if classes is not None else self._count_classes()
        self.ivectors = RandomAccessTable(options.ivectors, "matrix") if options.ivectors else None

    def _count_classes(self) -> int:
        """One more than the largest class in the targets."""
        most = 0
        for _, value in read_table(self.options.targets, self.kind):
            ids = value.ids if isinstance(value, Posterior) else value
            most = max(most, int(np.max(ids, initial=0)))
        return most + 1

    def utterances(self) -> list[str]:
        """Those with features and targets.

        Raises:
            FormatError: there are none, or a feature matrix cannot be used.
        """
        names = []
        for key, matrix in read_table(self.options.feats, "general_matrix"):
            if key not in self.targets:
                continue
            if matrix.shape[1] != self.dim:
                raise ShapeError(
                    f"{key}: features of {matrix.shape[1]} columns, the network's input has"
                    f" {self.dim}"
                )
            what = self._not_finite(key, matrix)
            if what and not self.options.skip_nan:
                raise FormatError(f"{key}: the {what} hold NaN or infinity")
            if what:
                self.skipped += 1
            else:
                names.append(key)
        if not names:
            raise FormatError(
                f"{self.options.feats} and {self.options.targets} have no utterance in common"
            )
        return names

    def _not_finite(self, key: str, features: Any) -> str:
        """Which part of an utterance holds NaN or infinity; empty if none does."""
        if not is_finite(features):
            return "features"
        if self.kind == "array" and not is_finite(self.targets[key]):
            return "targets"
        if self.ivectors is not None and not is_finite(self.ivectors[key]):
            return "iVectors"
        return ""

    def examples(self, names: list[str]) -> Any:
        """The examples of some utterances."""
        wanted = set(names)
        options = self.options
        for key, matrix in read_table(options.feats, "general_matrix"):
            if key not in wanted:
                continue
            targets = self._targets(key, matrix.shape[0])
            source = None
            if self.ivectors is not None:
                vectors = self.ivectors[key]
                period = options.online_ivector_period
                source = generate.IvectorSource(vectors, period, self.rng)
            try:
                yield from generate.examples(key, matrix, targets, self.splitter, source)
            except ShapeError as error:
                raise ShapeError(f"{key}: {error}") from error

    def _targets(self, key: str, rows: int) -> Callable[..., Any]:
        value = self.targets[key]
        factor = self.options.frame_subsampling_factor
        if not self.splitter.lengths_match(rows, len(value), 2):
            raise ShapeError(f"{key}: {len(value)} targets for {rows} frames")
        if self.kind == "array":
            if value.shape[1] != self.classes:
                raise ShapeError(
                    f"{key}: targets of {value.shape[1]} columns, the network's output has"
                    f" {self.classes}"
                )
            return generate.dense_targets(value, factor)
        if not isinstance(value, Posterior):
            ones = np.ones(len(value), np.float32)
            value = Posterior(np.arange(len(value) + 1), np.asarray(value, np.int32), ones)
        try:
            return generate.posterior_targets(value, self.classes, factor)
        except ShapeError as error:
            raise ShapeError(f"{key}: {error}") from error


def _kind_of(rspecifier: str) -> str:
    """The kind of a table of targets: int_vector, posterior or array.

    Raises:
        FormatError: it is none of these.
    """
    scanned = first_kind(ReadSpecifier.parse(rspecifier))
    kind = "nothing" if scanned is None else scanned.name
    if kind not in ("int_vector", "posterior", "array"):
        raise FormatError(
            f"{rspecifier}: targets are class ids, posteriors or matrices, not {kind}"
        )
    return kind
