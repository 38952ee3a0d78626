"""Kaldi's programs that write posteriors of chain models: of features, and into examples.

Source: Kaldi's `chainbin/nnet3-chain-compute-post.cc`, `nnet3-chain-add-post-to-egs.cc`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError, ShapeError
from ....kaldi.files.sparse import to_dense
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import TableWriter, read_table
from ...cache.computers import ComputerCache
from ...chain.denominator import denominator
from ...chain.examples import NnetChainExample
from ...egs.rows import example_io
from ...inference.chunks import ChunkComputer
from ...network.for_inference import for_inference
from ...training import NnetTrainerOptions
from ...training.chain_request import POSTERIORS, chain_request
from ..base.options import ALLOCATOR, DEBUG, GPU, UNUSED, chosen_place, errors_tell, shown
from ..base.passes import chosen_passes, optimization_options
from ..base.program import Option, options_of, program
from ..base.saving import fail_unless
from ..compute import IVECTORS, Utterances, chunk_options, chunked, tell_chunk
from .chain import CHAIN, read_graph
from .train import CACHE, COMPILER, read_raw, set_test_modes

_SUBSAMPLING = 3
"""The frames from one posterior to the next that Kaldi's program takes for granted."""


@program(
    "nnet3-chain-compute-post",
    "Compute posteriors of pdfs by the denominator graph of a chain model, or with --transform-mat"
    " those of phones.",
    ("<nnet-in>", "<den-fst>", "<features-rspecifier>", "<matrix-wspecifier>"),
    *chunk_options(),
    *IVECTORS,
    GPU,
    Option("leaky-hmm-coefficient", 0.1, "The smaller, the more certain posteriors tend to be"),
    Option("transform-mat", "", "Matrix of posteriors of phones by pdfs, a row for each phone"),
    *DEBUG,
    *optimization_options(),
)
def nnet3_chain_compute_post(
    options: SimpleNamespace, model: str, fst: str, features: str, output: str
) -> None:
    nnet = read_raw(model)
    with errors_tell(model):
        how = chosen_place(options.use_gpu), chosen_passes(options)
        computer = ChunkComputer(nnet, chunked(options), None, *how)
    tell_chunk(options, computer)
    graph = read_graph(fst, nnet)
    transform = None
    if options.transform_mat:
        transform = open_reader(options.transform_mat).read_matrix(np.float32)
        if transform.shape[1] != graph.num_pdfs:
            raise ShapeError(
                f"{options.transform_mat}: {transform.shape[1]} columns for {graph.num_pdfs} pdfs"
            )
    inputs = Utterances(options, features)
    total = 0.0
    frames = done = 0
    with TableWriter(output, "matrix") as writer:
        for key, logs in computer.compute_all(inputs):
            every = denominator(graph, logs, 1, options.leaky_hmm_coefficient)
            if not (every.consistent and math.isfinite(every.log_prob)):
                inputs.fail(
                    f"Something went wrong for utterance {key}; forward-prob ="
                    f" {every.log_prob:g}, num-frames = {len(logs)}"
                )
                continue
            post = np.ascontiguousarray(every.posterior)
            writer.write(key, post if transform is None else post @ transform.T)
            options.program.vlog(
                1,
                f"For utterance {key}, log-prob per frame was {every.log_prob / len(logs):g} over"
                f" {len(logs)} frames.",
            )
            total += every.log_prob
            frames += len(logs)
            done += 1
    log = options.program.log
    log(f"Done {done} utterances, failed for {inputs.failed}")
    mean = total / frames if frames else math.nan
    log(f"Overall log-prob per (output) frame was {mean:g} over {frames} frames.")
    fail_unless(done)


@program(
    "nnet3-chain-add-post-to-egs",
    "Put the outputs of a chain model, or its posteriors, into chain examples, so that a training"
    " with --lwf-scale does not forget that model.",
    ("<nnet-chain-model>", "<denominator-fst>", "<egs-rspecifier>", "<egs-wspecifier>"),
    GPU,
    Option("type", "raw", "raw: outputs of the network; den: posteriors by the denominator graph"),
    Option("clip-threshold", 0.0, "With --type=den, posteriors below this become 0"),
    Option("apply-exp", True, "With --type=raw, write the exponential function of the output"),
    Option("batchnorm-test-mode", False, "Test mode of batch-norm components"),
    Option("dropout-test-mode", False, "Test mode of dropout components"),
    *(
        replace(option, doc=UNUSED)
        for option in (
            *options_of(NnetTrainerOptions),
            Option("apply-deriv-weights", True, UNUSED),
            *CACHE,
            *ALLOCATOR,
        )
    ),
    *CHAIN,
    *DEBUG,
    *COMPILER,
    *optimization_options(),
)
def nnet3_chain_add_post_to_egs(
    options: SimpleNamespace, model: str, fst: str, source: str, output: str
) -> None:
    if options.type not in ("raw", "den"):
        raise FormatError(f"--type={options.type} is neither raw nor den")
    nnet = read_raw(model)
    set_test_modes(options, nnet)
    graph = read_graph(fst, nnet)
    cache = ComputerCache(
        for_inference(nnet, test_mode=False, collapse=False),
        chosen_place(options.use_gpu),
        chosen_passes(options),
        options.compiler_cache_capacity,
        options.compiler_use_shortcut,
    )
    kind = "chain_example"
    with TableWriter(output, kind) as writer:
        for key, example in shown(read_table(source, kind), "compute", "examples"):
            with errors_tell(f"{source}: {key}"):
                logs = _output(cache, example, options.xent_regularize != 0)
                if options.type == "raw":
                    added = np.exp(logs) if options.apply_exp else logs
                else:
                    every = denominator(graph, logs, 1, options.leaky_hmm_coefficient)
                    if not every.consistent:
                        raise FormatError("the posteriors by the denominator graph do not add up")
                    added = np.array(every.posterior)
                    added[np.abs(added) < options.clip_threshold] = 0
                posteriors = example_io(POSTERIORS, added, step=_SUBSAMPLING)
            writer.write(key, NnetChainExample([*example.inputs, posteriors], example.outputs))
        done = writer.count
    options.program.log(f"Read {done} neural-network training examples, wrote {done}")
    fail_unless(done)


def _output(cache: ComputerCache, example: NnetChainExample, xent: bool) -> np.ndarray:
    """The output for a single example.

    Raises:
        FormatError: it is merged already, or its output is another one.
    """
    if [each.name for each in example.outputs] != ["output"]:
        raise FormatError("an example with the one output 'output' is wanted")
    if example.outputs[0].supervision.num_sequences != 1:
        raise FormatError("posteriors are put into examples before these are merged")
    computer = cache.computer(chain_request(cache.nnet, example, xent=xent))
    for io in example.inputs:
        if not io.name.startswith("__"):
            computer.accept_input(io.name, to_dense(io.features))
    computer.run()
    return computer.get_output("output")
