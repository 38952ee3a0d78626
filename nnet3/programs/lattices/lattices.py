"""Kaldi's programs for lattices that its scripts for examples call: copied, aligned, pruned.

Source: Kaldi's `latbin/lattice-copy.cc`, `lattice-scale.cc`, `lattice-align-phones.cc`,
`lattice-1best.cc`, `lattice-prune.cc`.
"""

from __future__ import annotations

from types import SimpleNamespace

from ....framework.base.errors import FormatError
from ....kaldi.files.transition_model import TransitionModel
from ....kaldi.lattices.lattice import CompactLattice, Weight, single, top_sorted
from ....kaldi.lattices.operations import best_path, pruned
from ....kaldi.lattices.phone_align import PhoneAlignOptions, phone_aligned
from ....kaldi.lattices.transition_ids import TransitionIds
from ....kaldi.tables.specifiers import ReadSpecifier
from ....kaldi.tables.streams import open_reader
from ....kaldi.tables.tables import TableWriter, read_table
from ..base.options import errors_tell, shown
from ..base.program import Option, from_values, options_of, program
from ..base.saving import fail_unless
from ..base.table_copies import first_words, write_table

KIND = "compact_lattice"


@program(
    "lattice-copy",
    "Copy lattices: to text, to plain lattices, or some of them.",
    ("<lattice-rspecifier>", "<lattice-wspecifier>"),
    Option("write-compact", True, "Write compact lattices; else plain ones"),
    Option("include", "", "Text file whose lines begin with the keys that are copied"),
    Option("exclude", "", "Text file whose lines begin with the keys that are not copied"),
    Option("ignore-missing", False, "Exit with status 0 even if nothing is copied"),
)
def lattice_copy(options: SimpleNamespace, source: str, output: str) -> None:
    if options.include and options.exclude:
        raise FormatError("should not have both --exclude and --include option!")
    listed = options.include or options.exclude
    keys = first_words(listed) if listed else set[str]()
    is_sorted = ReadSpecifier.parse(source).sorted
    kind = KIND if options.write_compact else "lattice"
    log = options.program.log
    total = 0
    with TableWriter(output, kind) as writer:
        for key, lattice in shown(read_table(source, kind), "copy", "lattices"):
            if options.include and is_sorted and keys and key > max(keys):
                log(
                    f"The utterance {key} is larger than the last key in the include list. Not"
                    " reading further."
                )
                break
            total += 1
            if not listed or (key in keys) == bool(options.include):
                writer.write(key, lattice)
        done = writer.count
    log(f"Wrote {done} out of {total} utterances." if listed else f"Done copying {done} lattices.")
    fail_unless(done or options.ignore_missing)


@program(
    "lattice-align-phones",
    "Make lattices whose arcs are phones, each with its transition-ids. Their labels are still"
    " words, unless --replace-output-symbols=true.",
    ("<model>", "<lattice-rspecifier>", "<lattice-wspecifier>"),
    Option("output-error-lats", True, "Write lattices that could not be aligned rightly as well"),
    *options_of(PhoneAlignOptions),
)
def lattice_align_phones(options: SimpleNamespace, model: str, source: str, output: str) -> None:
    transitions = TransitionIds.of(TransitionModel.read_from(open_reader(model)))
    wanted = from_values(PhoneAlignOptions, vars(options))
    log, warn = options.program.log, options.program.warn
    failed = done = 0
    with TableWriter(output, KIND) as writer:
        for key, lattice in shown(read_table(source, KIND), "align", "lattices"):
            with errors_tell(f"{source}: {key}"):
                aligned, right = phone_aligned(lattice, transitions, wanted, warn)
                aligned = top_sorted(aligned)
            if right and aligned.start >= 0:
                done += 1
                options.program.vlog(2, f"Aligned lattice for {key}")
                writer.write(key, aligned)
                continue
            failed += 1
            if right:
                warn(f"Lattice was empty for key {key}")
            elif not options.output_error_lats:
                warn(f"Lattice for {key} did not align correctly")
            elif aligned.start >= 0:
                log(f"Outputting partial lattice for {key}")
                writer.write(key, aligned)
    log(f"Successfully aligned {done} lattices; {failed} had errors.")
    fail_unless(done > failed)


@program(
    "lattice-1best",
    "Cut lattices to their best path.",
    ("<lattice-rspecifier>", "<lattice-wspecifier>"),
    Option("acoustic-scale", 1.0, "Factor for acoustic costs"),
    Option("lm-scale", 1.0, "Factor for graph costs"),
    Option("word-ins-penalty", 0.0, "Graph cost that each word has besides"),
)
def lattice_1best(options: SimpleNamespace, source: str, output: str) -> None:
    graph, acoustic, penalty = options.lm_scale, options.acoustic_scale, options.word_ins_penalty
    if graph == 0 or acoustic == 0:
        raise FormatError("Do not use exactly zero acoustic or LM scale (cannot be inverted)")
    if penalty < 0:
        options.program.warn(f"--word-ins-penalty={penalty:g} has no effect: it is not positive")
        penalty = 0.0
    failed = 0
    with TableWriter(output, KIND) as writer:
        for key, lattice in shown(read_table(source, KIND), "cut", "lattices"):
            lattice = lattice.scaled(graph, acoustic)
            with errors_tell(f"{source}: {key}"):
                path = best_path(_penalized(lattice, penalty))
            if path.start < 0:
                options.program.warn(f"Possibly empty lattice for utterance-id {key}(no output)")
                failed += 1
                continue
            writer.write(key, _penalized(path, -penalty).scaled(1 / graph, 1 / acoustic))
        done = writer.count
    options.program.log(f"Done converting {done} to best path, {failed} had errors.")
    fail_unless(done)


def _penalized(lattice: CompactLattice, penalty: float) -> CompactLattice:
    """With a graph cost added to each word."""
    if not penalty:
        return lattice
    more = Weight(penalty)
    arcs = [
        [arc._replace(weight=arc.weight.times(more)) if arc.label else arc for arc in group]
        for group in lattice.arcs
    ]
    return CompactLattice(lattice.start, arcs, lattice.final)


@program(
    "lattice-add-penalty",
    "Add a graph cost to each word of lattices.",
    ("<lattice-rspecifier>", "<lattice-wspecifier>"),
    Option("word-ins-penalty", 0.0, "Graph cost that each word has besides"),
)
def lattice_add_penalty(options: SimpleNamespace, source: str, output: str) -> None:
    lattices = shown(read_table(source, KIND), "change", "lattices")
    penalty = options.word_ins_penalty
    done = write_table(output, KIND, ((key, _penalized(each, penalty)) for key, each in lattices))
    options.program.log(f"Done adding word insertion penalty to {done} lattices.")
    fail_unless(done)


@program(
    "lattice-scale",
    "Multiply the costs of lattices with factors.",
    ("<lattice-rspecifier>", "<lattice-wspecifier>"),
    Option("write-compact", True, "Write compact lattices; else plain ones"),
    Option("acoustic-scale", 1.0, "Factor for acoustic costs"),
    Option("inv-acoustic-scale", 1.0, "The inverse of that factor, in its place"),
    Option("lm-scale", 1.0, "Factor for graph costs"),
    Option("acoustic2lm-scale", 0.0, "Graph costs get the acoustic ones besides, times this"),
    Option("lm2acoustic-scale", 0.0, "Acoustic costs get the graph's ones besides, times this"),
)
def lattice_scale(options: SimpleNamespace, source: str, output: str) -> None:
    acoustic = _acoustic_scale(options)
    graph, to_graph, to_acoustic = (
        getattr(options, f"{name}_scale") for name in ("lm", "acoustic2lm", "lm2acoustic")
    )

    def mixed(weight: Weight) -> Weight:
        return Weight(
            single(graph * weight.graph + to_graph * weight.acoustic),
            single(to_acoustic * weight.graph + acoustic * weight.acoustic),
            weight.ids,
        )

    kind = KIND if options.write_compact else "lattice"
    lattices = shown(read_table(source, kind), "scale", "lattices")
    done = write_table(output, kind, ((key, each.with_weights(mixed)) for key, each in lattices))
    options.program.log(f"Done {done} lattices.")
    fail_unless(done)


def _acoustic_scale(options: SimpleNamespace) -> float:
    """The factor for acoustic costs. Raises FormatError: it is given twice."""
    if options.acoustic_scale != 1 and options.inv_acoustic_scale != 1:
        raise FormatError("--acoustic-scale and --inv-acoustic-scale say the same: give one")
    if options.inv_acoustic_scale == 0:
        raise FormatError("Do not use a zero acoustic scale (cannot be inverted)")
    if options.inv_acoustic_scale != 1:
        return 1 / options.inv_acoustic_scale
    return options.acoustic_scale


@program(
    "lattice-prune",
    "Take from lattices the arcs that are on no path within a beam of the best one.",
    ("<lattice-rspecifier>", "<lattice-wspecifier>"),
    Option("acoustic-scale", 1.0, "Factor for acoustic costs"),
    Option("inv-acoustic-scale", 1.0, "The inverse of that factor, in its place"),
    Option("beam", 10.0, "How much worse than the best path others may be, after scaling"),
)
def lattice_prune(options: SimpleNamespace, source: str, output: str) -> None:
    scale = _acoustic_scale(options)
    if scale == 0:
        raise FormatError("Do not use a zero acoustic scale (cannot be inverted)")
    if not options.beam > 0:
        raise FormatError(f"--beam={options.beam:g} must be positive")
    log = options.program.log
    before, after = [0, 0], [0, 0]
    with TableWriter(output, KIND) as writer:
        for key, lattice in shown(read_table(source, KIND), "prune", "lattices"):
            with errors_tell(f"{source}: {key}"):
                kept = pruned(lattice.scaled(acoustic=scale), options.beam)
            if not kept.states:
                options.program.warn(f"Error pruning lattice for utterance {key}")
            sizes = (lattice.states, lattice.num_arcs), (kept.states, kept.num_arcs)
            before = [a + b for a, b in zip(before, sizes[0], strict=True)]
            after = [a + b for a, b in zip(after, sizes[1], strict=True)]
            log(
                f"For utterance {key}, pruned #states from {sizes[0][0]} to {sizes[1][0]} and"
                f" #arcs from {sizes[0][1]} to {sizes[1][1]}"
            )
            writer.write(key, kept.scaled(acoustic=1 / scale))
        done = writer.count
    states, arcs = (
        (a / max(done, 1), b / max(done, 1)) for a, b in zip(before, after, strict=True)
    )
    log(
        f"Overall, pruned from on average {states[0]:g} to {states[1]:g} states, and from"
        f" {arcs[0]:g} to {arcs[1]:g} arcs, over {done} utterances."
    )
    log(f"Done {done} lattices.")
    fail_unless(done)
