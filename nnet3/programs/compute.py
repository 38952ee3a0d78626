"""Kaldi's programs that compute with nnet3 models.

Source: Kaldi's `nnet3bin/nnet3-compute.cc`, `nnet3-compute-batch.cc`, `nnet3-xvector-compute.cc`,
`nnet3-xvector-compute-batched.cc`, `nnet3-compute-from-egs.cc`,
`nnet3/nnet-am-decodable-simple.h`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TypeVar

import numpy as np

from ...framework.base.errors import FormatError
from ...kaldi.files.kaldi_io import Writer
from ...kaldi.files.sparse import to_dense
from ...kaldi.tables.streams import open_output, open_reader
from ...kaldi.tables.tables import RandomAccessTable, TableWriter, read_table
from ..cache.computers import ComputerCache
from ..cache.files import read_cache, write_cache
from ..files.examples import NnetIo
from ..graph.request import ComputationRequest
from ..inference.batches import BatchComputer, BatchOptions
from ..inference.chunk_lengths import KALDIS_CHUNK, of_programs
from ..inference.chunks import ChunkComputer, UtteranceComputer
from ..inference.looped_computer import LoopedComputer
from ..inference.pieces import ChunkOptions, LoopedOptions, Utterance
from ..inference.xvector import XvectorBatches, xvector
from ..network.for_inference import for_inference, read_model
from ..network.nnet import Nnet
from ..run.input_arrays import warn_of_nan
from ..training.example_request import example_request
from .base.options import DEBUG, GPU, UNUSED, chosen_place, errors_tell, shown
from .base.passes import chosen_passes, optimization_options
from .base.program import Option, from_values, options_of, program
from .base.saving import fail_unless

Chunks = TypeVar("Chunks", bound=ChunkOptions)

_LENGTH = Option(
    "frames-per-chunk", KALDIS_CHUNK, "Frames computed in one piece, before any subsampling"
)


def chunk_options(
    scale: float = 1.0, kind: type[ChunkOptions] = ChunkOptions
) -> tuple[Option, ...]:
    """The options of `ChunkOptions` or another kind, with the default of the acoustic scale."""
    return _LENGTH, *options_of(kind(acoustic_scale=scale))


IVECTORS = (
    Option("ivectors", "", "Rspecifier of iVectors: one vector for each utterance (or speaker)"),
    Option("utt2spk", "", "Rspecifier of the speaker of each utterance, for --ivectors"),
    Option("online-ivectors", "", "Rspecifier of iVectors estimated online, as matrices"),
    Option("online-ivector-period", 0, "Frames between two iVectors of --online-ivectors"),
)
COMPUTING = (
    *IVECTORS,
    GPU,
    *DEBUG,
    *optimization_options(),
    Option("apply-exp", False, "Write the exponential function of the output"),
    Option("use-priors", False, "Subtract the logarithms of the priors in the model, an .mdl file"),
)


@program(
    "nnet3-compute",
    "Compute the output of an nnet3 network for features, utterance by utterance.",
    ("<nnet-in>", "<features-rspecifier>", "<matrix-wspecifier>"),
    *chunk_options(),
    Option("looped", False, "Compute every frame once, chunk after chunk, as online decoding does"),
    *COMPUTING,
)
def nnet3_compute(options: SimpleNamespace, model: str, features: str, output: str) -> None:
    start = time.perf_counter()
    place = chosen_place(options.use_gpu)
    how = options.use_priors, place, chosen_passes(options)
    read = read_model(open_reader(model))
    cut = (_looped if options.looped else chunked)(options)
    with errors_tell(model):
        if isinstance(cut, LoopedOptions):
            computer = LoopedComputer(read, cut, *how)
        else:
            computer = ChunkComputer(read, cut, *how)
    inputs = Utterances(options, features)
    done = _compute_all(options, computer, inputs, output)
    _tell_time(options, time.perf_counter() - start, inputs)
    _finish(options, done, inputs)


@program(
    "nnet3-compute-batch",
    "Compute the output of an nnet3 network for features, chunks of many utterances at once.",
    ("<nnet-in>", "<features-rspecifier>", "<matrix-wspecifier>"),
    *chunk_options(kind=BatchOptions),
    *COMPUTING,
)
def nnet3_compute_batch(options: SimpleNamespace, model: str, features: str, output: str) -> None:
    start = time.perf_counter()
    place = chosen_place(options.use_gpu)
    read = read_model(open_reader(model))
    cut = chunked(options, BatchOptions)
    with errors_tell(model):
        computer = BatchComputer(read, cut, options.use_priors, place, chosen_passes(options))
    inputs = Utterances(options, features)
    done = _compute_all(options, computer, inputs, output)
    options.program.log(f"Time taken {time.perf_counter() - start:g}s")
    try:
        _finish(options, done, inputs)
    finally:
        tell_batches(options, computer)


def tell_batches(options: SimpleNamespace, computer: BatchComputer) -> None:
    """Log the sizes of minibatches, those first that took longest."""
    counts = sorted(computer.counts.items(), key=lambda entry: -entry[1].seconds)
    listed = [
        f"{count.seconds:.2f},{shape.input_frames}:{shape.output_frames}*{size}={count.done}"
        f"({100 * count.chunks // (size * count.done)}%)"
        for (shape, size), count in counts[:_MOST_SIZES]
    ]
    options.program.log(
        "Minibatch stats: seconds-taken,frames-in:frames-out*minibatch-size=num-done(percent-full%)"
        f"  {' '.join(listed)}{' ...' if len(counts) > len(listed) else ''}"
    )
    chunks, batches = (sum(getattr(c, n) for _, c in counts) for n in ("chunks", "done"))
    seconds = sum(count.seconds for _, count in counts)
    options.program.log(f"Did {chunks} tasks in {batches} minibatches, taking {seconds:g} seconds.")


_MOST_SIZES = 10


def _compute_all(
    options: SimpleNamespace, computer: UtteranceComputer, inputs: Utterances, output: str
) -> int:
    """Write the outputs for all utterances; how many there were."""
    tell_chunk(options, computer)
    done = 0
    with TableWriter(output, "matrix") as writer:
        for key, matrix in computer.compute_all(inputs):
            if options.apply_exp:
                with np.errstate(over="ignore"):
                    matrix = np.exp(matrix)
            writer.write(key, matrix)
            done += 1
    return done


@program(
    "nnet3-xvector-compute",
    "Compute one vector for each utterance with an x-vector network.",
    ("<raw-nnet-in>", "<features-rspecifier>", "<vector-wspecifier>"),
    *(replace(option, doc=UNUSED) for option in chunk_options()),
    GPU,
    *DEBUG,
    *optimization_options(),
    Option("chunk-size", -1, "If set, the mean of vectors of pieces of so many frames is written"),
    Option("min-chunk-size", 100, "Frames that a piece must have"),
    Option("pad-input", True, "Repeat the first and last frames of pieces that are too short"),
    Option("cache-capacity", 64, "How many compiled computations are kept"),
    Option("use-shortcut", True, "Compile for two sequences where there are many, and expand"),
    Option("cached-compiler-in", "", "File with computations that were compiled before"),
    Option("cached-compiler-out", "", "File to which compiled computations are written at the end"),
)
def nnet3_xvector_compute(options: SimpleNamespace, model: str, features: str, output: str) -> None:
    start = time.perf_counter()
    read = read_model(open_reader(model))
    with errors_tell(model):
        nnet = for_inference(read)
    place = chosen_place(options.use_gpu)
    passes = chosen_passes(options)
    cache = ComputerCache(nnet, place, passes, options.cache_capacity, options.use_shortcut)
    if options.cached_compiler_in:
        read_cache(cache.compiler, nnet, open_reader(options.cached_compiler_in))
    inputs = Utterances(options, features)
    done = 0
    with TableWriter(output, "vector") as writer:
        for utterance in inputs:
            utterance.warn_of_nan()
            with errors_tell(f"{utterance.key}: {len(utterance.features)} rows"):
                vector = xvector(
                    cache,
                    utterance.features,
                    options.chunk_size,
                    options.min_chunk_size,
                    options.pad_input,
                )
            if vector is None:
                inputs.fail(
                    f"Minimum chunk size of {options.min_chunk_size} is greater than the number of"
                    f" rows in utterance: {utterance.key}"
                )
                continue
            writer.write(utterance.key, vector)
            done += 1
    if options.cached_compiler_out:
        kept = Writer()
        write_cache(cache.compiler, nnet, kept)
        with open_output(options.cached_compiler_out) as file:
            file.write(kept.getvalue())
    _tell_time(options, time.perf_counter() - start, inputs)
    _finish(options, done, inputs)


@program(
    "nnet3-xvector-compute-batched",
    "Compute one vector for each utterance with an x-vector network: the mean of those of chunks,"
    " many of which are computed at once.",
    ("<raw-nnet-in>", "<features-rspecifier>", "<vector-wspecifier>"),
    Option("chunk-size", 150, "Frames of a chunk, with the network's context"),
    Option("batch-size", 32, "Chunks that are computed at once"),
    Option(
        "pad-input",
        True,
        "Repeat the last frame of utterances that are shorter than a chunk; else they are left out",
    ),
    Option("debug", False, UNUSED),
    *optimization_options(prefix=""),
    Option("cache-capacity", 64, UNUSED),
    Option("use-shortcut", True, "Compile for two chunks where there are more, and expand"),
    GPU,
)
def nnet3_xvector_compute_batched(
    options: SimpleNamespace, model: str, features: str, output: str
) -> None:
    start = time.perf_counter()
    read = read_model(open_reader(model))
    with errors_tell(model):
        nnet = for_inference(read)
    passes = chosen_passes(options, prefix="")
    place = chosen_place(options.use_gpu)
    cache = ComputerCache(nnet, place, passes, shortcut=options.use_shortcut)
    with errors_tell(model):
        sizes = options.chunk_size, options.batch_size
        batches = XvectorBatches(cache, *sizes, options.pad_input)
    log = options.program.log
    log("Left/right context is {}, {}".format(*batches.context))
    inputs = Utterances(options, features)
    count = written = 0
    with TableWriter(output, "vector") as writer:
        for key, vector in batches.compute_all((each.key, each.features) for each in inputs):
            count += 1
            if vector is None:
                inputs.fail(f"{key} is shorter than --chunk-size={options.chunk_size}")
                continue
            writer.write(key, vector)
            written += 1
    _tell_time(options, time.perf_counter() - start, inputs)
    log(f"Read {count} utterances, wrote {written} xvectors.")
    fail_unless(written > count // 2)


def tell_chunk(options: SimpleNamespace, computer: UtteranceComputer) -> None:
    """Log it where chunks are longer than `--frames-per-chunk` says."""
    if computer.frames_per_chunk != options.frames_per_chunk:
        factor = options.frame_subsampling_factor
        modulus = computer.nnet.modulus()
        why = f"to make it a multiple of --frame-subsampling-factor={factor}"
        if modulus > 1:
            why = (
                f"due to --frame-subsampling-factor={factor} and nnet shift-invariance modulus ="
                f" {modulus}"
            )
        options.program.log(
            f"Increasing --frames-per-chunk from {options.frames_per_chunk} to"
            f" {computer.frames_per_chunk} {why}"
        )


def _tell_time(options: SimpleNamespace, seconds: float, inputs: Utterances) -> None:
    factor = seconds * 100 / (inputs.frames or 1)
    options.program.log(
        f"Time taken {seconds:g}s: real-time factor assuming 100 frames/sec is {factor:g}"
    )


def _finish(options: SimpleNamespace, done: int, inputs: Utterances) -> None:
    """Log the counts; exit with code 1 if no utterance was done."""
    options.program.log(f"Done {done} utterances, failed for {inputs.failed}")
    fail_unless(done)


def chunked(options: SimpleNamespace, kind: type[Chunks] = ChunkOptions) -> Chunks:
    """How the options of chunks cut utterances."""
    length = of_programs(options.frames_per_chunk)
    return from_values(kind, vars(options), frames_per_chunk=length)


def _looped(options: SimpleNamespace) -> LoopedOptions:
    for name, default in _NOT_LOOPED.items():
        if getattr(options, name) != default:
            option = name.replace("_", "-")
            raise FormatError(f"--{option} has no meaning with --looped=true")
    first = max(options.extra_left_context_initial, 0)
    return from_values(LoopedOptions, vars(options), extra_left_context_initial=first)


_NOT_LOOPED = {"extra_left_context": 0, "extra_right_context": 0, "extra_right_context_final": -1}


class Utterances:
    """Features with their iVectors; counts frames, and utterances that cannot be computed."""

    def __init__(self, options: SimpleNamespace, features: str):
        self._program = options.program
        self._features = features
        self._period = 0
        self._ivectors = self._online = None
        self.frames = self.failed = 0
        if "ivectors" in vars(options):
            self._open(options)

    def _open(self, options: SimpleNamespace) -> None:
        """Open the tables of iVectors."""
        self._period = options.online_ivector_period
        if options.ivectors and options.online_ivectors:
            raise FormatError("--ivectors and --online-ivectors exclude each other")
        if options.ivectors:
            self._ivectors = RandomAccessTable(options.ivectors, "vector", utt2spk=options.utt2spk)
        if options.online_ivectors:
            if self._period < 1:
                raise FormatError("--online-ivectors wants --online-ivector-period above 0")
            self._online = RandomAccessTable(options.online_ivectors, "matrix")

    def __iter__(self) -> Iterator[Utterance]:
        for key, features in read_table(self._features, "matrix"):
            utterance = self.utterance(key, features)
            if utterance is not None:
                yield utterance

    def utterance(self, key: str, features: np.ndarray) -> Utterance | None:
        """The utterance with its iVectors; None: it has failed."""
        if not len(features):
            self.fail(f"Zero-length utterance: {key}")
            return None
        ivector = online = None
        if self._ivectors is not None:
            ivector = self._ivectors.get(key)
            if ivector is None:
                self.fail(f"No iVector available for utterance {key}")
                return None
        if self._online is not None:
            online = self._online.get(key)
            if online is None:
                self.fail(f"No online iVector available for utterance {key}")
                return None
        self.frames += len(features)
        return Utterance(key, features, ivector, online, self._period)

    def fail(self, message: str) -> None:
        """Note an utterance that cannot be computed."""
        self._program.warn(message)
        self.failed += 1


_FROM_EXAMPLES = (
    Option("binary", True, UNUSED),
    Option("apply-exp", False, "Write the exponential function of the output"),
    GPU,
)


@program(
    "nnet3-compute-from-egs",
    "Compute an output of a raw nnet3 network for each example.",
    ("<raw-nnet-in>", "<training-examples-in>", "<matrices-out>"),
    *_FROM_EXAMPLES,
    Option("output-name", "output", "The output node"),
)
def nnet3_compute_from_egs(
    options: SimpleNamespace, model: str, examples: str, output: str
) -> None:
    entries = (
        (key, example.io, partial(example_request, example=example))
        for key, example in read_table(examples, "example")
    )
    _compute_from(options, model, entries, examples, output)


@program(
    "nnet3-discriminative-compute-from-egs",
    "Compute the output of a raw nnet3 network for each discriminative example.",
    ("<raw-nnet-in>", "<training-examples-in>", "<matrices-out>"),
    *_FROM_EXAMPLES,
)
def nnet3_discriminative_compute_from_egs(
    options: SimpleNamespace, model: str, examples: str, output: str
) -> None:
    from ..training.chain_request import chain_request

    options.output_name = "output"
    entries = (
        (key, example.inputs, partial(chain_request, example=example))
        for key, example in read_table(examples, "discriminative_example")
    )
    _compute_from(options, model, entries, examples, output)


def _compute_from(
    options: SimpleNamespace,
    model: str,
    entries: Iterable[tuple[str, list[NnetIo], Callable[[Nnet], ComputationRequest]]],
    source: str,
    output: str,
) -> None:
    """Compute an output for examples: their keys, inputs, and what makes requests of them."""
    nnet = Nnet.read_any(open_reader(model))
    cache = ComputerCache(nnet, chosen_place(options.use_gpu))
    inputs = {node.name for node in nnet.inputs()}
    done = 0
    with TableWriter(output, "matrix") as writer:
        for key, ios, request in shown(entries, "compute", "examples"):
            with errors_tell(f"{source}: {key}"):
                computer = cache.computer(request(nnet))
                for io in ios:
                    if io.name in inputs:
                        rows = to_dense(io.features)
                        warn_of_nan(rows, f"{key}: the input '{io.name}'")
                        computer.accept_input(io.name, rows, quiet=True)
                computer.run()
                matrix = computer.get_output(options.output_name)
            writer.write(key, np.exp(matrix) if options.apply_exp else matrix)
            done += 1
    options.program.log(f"Processed {done} examples.")
