"""Kaldi's programs for lattices that know words or models: best paths, determinization.

Source: Kaldi's `latbin/lattice-best-path.cc`, `lattice-determinize-phone-pruned.cc`,
`lattice-determinize-non-compact.cc`, and `ComputeAcousticScoresMap` in `lat/lattice-functions.cc`.
"""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace

from ....framework.base.errors import FormatError
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.lattices.determinize import DeterminiseOptions
from ....kaldi.lattices.lattice import Arc, CompactLattice, single, split, top_sorted
from ....kaldi.lattices.operations import best_path, connected, pruned
from ....kaldi.lattices.phone_determinize import determinized, phone_starts
from ....kaldi.lattices.plain import from_lattice
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import TableWriter, read_table
from ....nnet3.programs.base.options import UNUSED, errors_tell, shown
from ....nnet3.programs.base.program import Option, options_of, program
from ....nnet3.programs.base.saving import fail_unless
from ..decoding.acoustic_model import SpokenWords
from ..decoding.decoder_options import SYMBOLS, determinize_options
from ..decoding.whole_lattices import determinized_lattice

_COMPACT = "compact_lattice"
_SCALE = Option("acoustic-scale", 1.0, "Factor for acoustic costs, while paths are compared")
_BEAM = Option("beam", 10.0, "Costs above the best path's up to which paths are kept")
_Costs = dict[tuple[int, int], float]
"""The acoustic cost of a transition-id in a frame."""


@program(
    "lattice-best-path",
    "Write the words and the transition-ids of the best path of each lattice.",
    ("<lattice-rspecifier>", "[<transcriptions-wspecifier>]", "[<alignments-wspecifier>]"),
    Option("acoustic-scale", 1.0, "Factor for acoustic costs"),
    Option("lm-scale", 1.0, "Factor for graph costs"),
    SYMBOLS,
)
def lattice_best_path(options: SimpleNamespace, source: str, words: str, alignments: str) -> None:
    log = options.program.log
    spoken = SpokenWords(options.word_symbol_table)
    graph = acoustic = 0.0
    frames = done = failed = 0
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(TableWriter(name, "int_vector")) if name else None
            for name in (words, alignments)
        ]
        for key, lattice in shown(read_table(source, _COMPACT), "cut", "lattices"):
            with errors_tell(f"{source}: {key}"):
                path = best_path(lattice.scaled(options.lm_scale, options.acoustic_scale))
            if path.start < 0:
                options.program.warn(f"Best-path failed for key {key}")
                failed += 1
                continue
            arcs = [group[0] for group in path.arcs if group]
            weights = [arc.weight for arc in arcs] + [end for end in path.final if end is not None]
            said = [arc.label for arc in arcs if arc.label]
            ids = [number for weight in weights for number in weight.ids]
            costs = sum(w.graph for w in weights), sum(w.acoustic for w in weights)
            log(
                f"For utterance {key}, best cost {costs[0]:g} + {costs[1]:g} = {sum(costs):g} over"
                f" {len(ids)} frames."
            )
            for writer, values in zip(writers, (said, ids), strict=True):
                if writer is not None:
                    writer.write(key, values)
            spoken.tell(key, said)
            graph, acoustic = graph + costs[0], acoustic + costs[1]
            frames, done = frames + len(ids), done + 1
    each = [cost / frames if frames else math.nan for cost in (graph + acoustic, graph, acoustic)]
    log(
        "Overall cost per frame is {:g} = {:g} [graph] + {:g} [acoustic] over {} frames.".format(
            *each, frames
        )
    )
    log(f"Done {done} lattices, failed for {failed}")
    fail_unless(done)


@program(
    "lattice-determinize-phone-pruned",
    "Make lattices of words from lattices of states, with the best path for each sequence of"
    " words; phones keep the sets of states small.",
    ("<model>", "<lattice-rspecifier>", "<lattice-wspecifier>"),
    Option(
        "write-compact",
        True,
        "Write compact lattices; else plain ones, with the acoustic cost of each frame",
    ),
    _SCALE,
    _BEAM,
    *options_of(DeterminiseOptions),
)
def lattice_determinize_phone_pruned(
    options: SimpleNamespace, model: str, source: str, output: str
) -> None:
    scale = _inverted(options)
    passes = determinize_options(options)
    starts = phone_starts(TransitionModel.read_from(open_reader(model)))
    warned = 0
    kind = _COMPACT if options.write_compact else "lattice"
    with TableWriter(output, kind) as writer:
        for key, lattice in shown(read_table(source, "lattice"), "determinize", "lattices"):
            with errors_tell(f"{source}: {key}"):
                costs = None if options.write_compact else frame_costs(lattice)
                plain = from_lattice(lattice.scaled(acoustic=scale)).columns()
                found, complete = determinized_lattice(
                    plain, options.beam, starts, passes, options.program.warn
                )
                if costs is not None:
                    writer.write(key, with_frame_costs(found, costs))
                else:
                    writer.write(key, found.scaled(acoustic=1 / scale))
            if not complete:
                options.program.warn(
                    f"For key {key}, determinization did not succeed(partial output will be pruned"
                    " tighter than the specified beam.)"
                )
                warned += 1
        done = writer.count
    options.program.log(
        f"Done {done} lattices, determinization finished earlier than specified by the beam on"
        f" {warned} of these."
    )
    fail_unless(done)


@program(
    "lattice-determinize-non-compact",
    "Make lattices of words from lattices of states, and write plain ones, with the acoustic"
    " cost of each frame.",
    ("<lattice-rspecifier>", "<lattice-wspecifier>"),
    _SCALE,
    _BEAM,
    Option("prune", False, "Keep paths within the beam alone"),
    Option("minimize", False, "Push and minimize after determinization"),
    Option("delta", 1 / 1024, "Tolerance of costs in determinization"),
    Option("max-mem", 50_000_000, "About how much memory determinization may use, in bytes"),
    Option("max-loop", 500_000, UNUSED),
    Option("beam-ratio", 0.9, UNUSED),
    Option("num-loops", 20, UNUSED),
)
def lattice_determinize_non_compact(options: SimpleNamespace, source: str, output: str) -> None:
    scale = _inverted(options)
    passes = DeterminiseOptions(
        delta=options.delta,
        max_mem=max(options.max_mem, 0),
        phone_determinize=False,
        minimize=options.minimize,
    )
    failed = 0
    with TableWriter(output, "lattice") as writer:
        for key, lattice in shown(read_table(source, "lattice"), "determinize", "lattices"):
            if not connected(lattice).states:
                options.program.warn(f"Detected empty lattice, skipping {key}")
                failed += 1
                continue
            with errors_tell(f"{source}: {key}"):
                scaled = lattice.scaled(acoustic=scale)
                costs = frame_costs(scaled)
                found = determinized(
                    scaled,
                    options.beam if options.prune else math.inf,
                    None,
                    passes,
                    options.program.warn,
                ).lattice
                if options.prune:
                    found = pruned(found, options.beam)
                plain = with_frame_costs(found, costs)
            writer.write(key, plain.scaled(acoustic=1 / scale))
        done = writer.count
    options.program.log(f"Done {done} lattices, errors on {failed}")
    fail_unless(done)


def _inverted(options: SimpleNamespace) -> float:
    """The acoustic scale. Raises FormatError: it cannot be taken back, or there is no beam."""
    if options.acoustic_scale == 0:
        raise FormatError("Do not use a zero acoustic scale (cannot be inverted)")
    if not options.beam > 0:
        raise FormatError(f"--beam={options.beam:g} must be positive")
    return options.acoustic_scale


def _frames(lattice: CompactLattice) -> list[int]:
    """The frame in which a path is in each state of a plain lattice whose states are sorted."""
    frames = [0] * lattice.states
    for state, group in enumerate(lattice.arcs):
        for arc in group:
            frames[arc.target] = frames[state] + len(arc.weight.ids)
    return frames


def frame_costs(lattice: CompactLattice) -> _Costs:
    """The mean acoustic cost of each transition-id in each frame of a plain lattice.

    Raises:
        FormatError: an arc without a transition-id has an acoustic cost: costs no longer belong
            to frames.
        ShapeError: the lattice has a loop.
    """
    lattice = top_sorted(split(connected(lattice)))
    frames = _frames(lattice)
    sums: dict[tuple[int, int], tuple[float, int]] = {}
    for state, group in enumerate(lattice.arcs):
        end = lattice.final[state]
        if end is not None and end.acoustic:
            raise FormatError("an end has an acoustic cost: the lattice was determinized before")
        for _, weight, _ in group:
            if not weight.ids:
                if weight.acoustic:
                    raise FormatError(
                        "an acoustic cost belongs to no frame: the lattice was determinized before"
                    )
                continue
            key = frames[state], weight.ids[0]
            total, count = sums.get(key, (0.0, 0))
            sums[key] = single(total + weight.acoustic), count + 1
    return {key: single(total / count) for key, (total, count) in sums.items()}


def with_frame_costs(lattice: CompactLattice, costs: _Costs) -> CompactLattice:
    """The plain lattice of a compact one, whose arcs have the acoustic costs of their frames."""
    plain = top_sorted(split(lattice))
    frames = _frames(plain)

    def changed(state: int, arc: Arc) -> Arc:
        ids = arc.weight.ids
        cost = costs[frames[state], ids[0]] if ids else 0.0
        return arc._replace(weight=arc.weight._replace(acoustic=cost))

    arcs = [[changed(state, arc) for arc in group] for state, group in enumerate(plain.arcs)]
    return CompactLattice(
        plain.start, arcs, [end and end._replace(acoustic=0.0) for end in plain.final]
    )
