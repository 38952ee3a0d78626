"""Kaldi's programs that make decision trees.

Source: Kaldi's `bin/acc-tree-stats.cc`, `sum-tree-stats.cc`, `cluster-phones.cc`,
`compile-questions.cc`, `build-tree.cc`.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.files.context_dependency import ContextDependency
from ....kaldi.files.transition_model import TransitionModel, read_topology
from ....kaldi.tables.streams import open_output, open_reader
from ....kaldi.tables.tables import RandomAccessTable, read_table
from ....nnet3.programs.base.options import BINARY, errors_tell, shown
from ....nnet3.programs.base.program import Option, from_values, options_of, program
from ....nnet3.programs.base.saving import write_model
from ...ivector.kaldi_random import c_rand
from ...trees.building import GrowingOptions, Told
from ...trees.building import build_tree as grown
from ...trees.questions import (
    Questions,
    check_disjoint,
    classes_of,
    clustered_questions,
    questions_of,
    read_integer_lists,
    read_phone_sets,
    sums_of_sets,
)
from ...trees.statistics import Event, TreeAccumulator, TreeStats, same_floor
from ...trees.stubs import Roots, pdf_classes

_WINDOW = (
    Option("context-width", 3, "Phones in the window"),
    Option("central-position", 1, "Place of the phone that a state belongs to, from 0 on"),
)


def check_window(options: SimpleNamespace) -> None:
    """Raises FormatError: the central place is none of the window."""
    if not 0 <= options.central_position < options.context_width:
        raise FormatError(
            f"--central-position={options.central_position} is no place in a window of"
            f" --context-width={options.context_width}"
        )


def integers(text: str, name: str, least: int) -> list[int]:
    """The integers of an option, between colons, rising.

    Raises:
        FormatError: it holds something else, an integer below `least`, or one twice.
    """
    words = text.split(":") if text else []
    values = sorted(int(word) for word in words if word.isdecimal())
    if len(set(values)) != len(words) or values and values[0] < least:
        raise FormatError(f"--{name}={text}: integers from {least} on, between colons, are wanted")
    return values


@program(
    "acc-tree-stats",
    "Accumulate statistics for building decision trees, of features and their alignments.",
    ("<model-in>", "<features-rspecifier>", "<alignments-rspecifier>", "<tree-accs-out>"),
    BINARY,
    *_WINDOW,
    Option("ci-phones", "", "Phones without context, after --phone-map: integers between colons"),
    Option("phone-map", "", "File of lines: old phone, new phone"),
    Option("var-floor", 0.01, "Least variance of clusters"),
)
def acc_tree_stats(
    options: SimpleNamespace, model: str, features: str, alignments: str, output: str
) -> None:
    check_window(options)
    program = options.program
    accumulator = TreeAccumulator(
        TransitionModel.read_from(open_reader(model)),
        options.context_width,
        options.central_position,
        integers(options.ci_phones, "ci-phones", 1),
        _phone_map(options.phone_map) if options.phone_map else None,
    )
    aligned = RandomAccessTable(alignments, "int_vector")
    done = missing = other = 0
    for key, matrix in shown(read_table(features, "matrix"), "accumulate", "utterances"):
        ids = aligned.get(key)
        if ids is None:
            missing += 1
        elif len(ids) != len(matrix):
            program.warn(f"{key}: an alignment of {len(ids)} frames for {len(matrix)} of features")
            other += 1
        else:
            with errors_tell(f"{features}: {key}"):
                used = accumulator.accumulate(ids, matrix)
            if not used:
                program.warn(f"{key}: the alignment begins or ends within a phone, it is not used")
            done += 1
    if not accumulator.rows:
        raise FormatError(f"no statistics: {missing} without alignment, {other} for other reasons")
    stats = TreeStats.of(accumulator.rows, float(np.float32(options.var_floor)))
    write_model(stats, output, options.binary)
    program.log(
        f"Accumulated stats for {done} files, {missing} failed due to no alignment, {other} failed"
        " for other reasons."
    )
    program.log(f"Number of separate stats (context-dependent states) is {len(stats.events)}")


def _phone_map(path: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for number, pair in enumerate(read_integer_lists(path), 1):
        if len(pair) != 2 or min(pair) <= 0 or pair[0] in found:
            raise FormatError(f"{path}:{number}: an old phone, once, and a new one are wanted")
        found[pair[0]] = pair[1]
    return found | {0: 0}


@program(
    "sum-tree-stats",
    "Add statistics for building decision trees.",
    ("<tree-accs-out>", "<tree-accs-in>..."),
    BINARY,
)
def sum_tree_stats(options: SimpleNamespace, output: str, *files: str) -> None:
    rows: dict[Event, np.ndarray] = {}
    first: TreeStats | None = None
    for name in files:
        stats = TreeStats.read(open_reader(name))
        first = first or stats
        same = same_floor(stats.floor, first.floor)
        if not same or stats.rows.shape[1] != first.rows.shape[1]:
            raise FormatError(f"{name}: another variance floor or dimension than {files[0]}")
        for event, row in zip(stats.events, stats.rows, strict=True):
            rows[event] = rows[event] + row if event in rows else row
    assert first is not None
    total = TreeStats.of(rows, first.floor)
    write_model(total, output, options.binary)
    options.program.log(f"Wrote summed accs ( {len(total.events)} individual stats)")


@program(
    "cluster-phones",
    "Cluster phones, or sets of phones, into sets: questions for decision trees, or classes.",
    ("<tree-stats-in>", "<phone-sets-in>", "<clustered-phones-out>"),
    *_WINDOW,
    Option("mode", "questions", "questions, or k-means: --num-classes sets without common phones"),
    Option("num-classes", -1, "How many classes --mode=k-means makes"),
    Option("pdf-class-list", "1", "Classes of states to look at: integers between colons"),
)
def cluster_phones(options: SimpleNamespace, source: str, sets_in: str, output: str) -> None:
    program = options.program
    classes = integers(options.pdf_class_list, "pdf-class-list", 0)
    sets = read_phone_sets(sets_in)
    check_disjoint(sets, sets_in)
    stats = TreeStats.read(open_reader(source))
    sums = sums_of_sets(stats, sets, classes, options.central_position)
    for phones, row in zip(sets, sums, strict=True):
        if row[0] == 0:
            program.warn(f"no stats available for phone set: {' '.join(map(str, phones))}")
    numbers = c_rand()
    if options.mode == "questions":
        if options.num_classes != -1:
            raise FormatError("--num-classes does not go with --mode=questions")
        found = clustered_questions(sums, sets, stats.floor, numbers.__next__)
    elif options.mode == "k-means":
        if not 1 < options.num_classes <= len(sets):
            raise FormatError(f"--num-classes={options.num_classes} for {len(sets)} sets of phones")
        gain, found = classes_of(sums, sets, options.num_classes, stats.floor, numbers.__next__)
        frames = sums[:, 0].sum()
        program.log(
            "ClusterKMeans: objf change from clustering [versus single set] is"
            f" {gain / frames:.6g} over {frames:.6g} frames."
        )
    else:
        raise FormatError(f"--mode={options.mode}: questions or k-means")
    with open_output(output) as file:
        file.write("".join(" ".join(map(str, phones)) + "\n" for phones in found).encode())
    program.log(f"Wrote questions to {output}")


@program(
    "compile-questions",
    "Turn lists of phones into the questions of decision trees.",
    ("<topo>", "<questions-text-file>", "<questions-out>"),
    BINARY,
    *_WINDOW,
    Option("num-iters-refine", 0, "How often questions are refined at each node; 0: not at all"),
)
def compile_questions(options: SimpleNamespace, topology: str, source: str, output: str) -> None:
    check_window(options)
    program = options.program
    phones, entry_of, entries = read_topology(open_reader(topology))
    sets = read_phone_sets(source)
    doubles = len(sets) - len(set(map(tuple, sets)))
    if doubles:
        program.warn(f"{doubles} duplicate questions present in {source}")
    asked = {phone for question in sets for phone in question}
    if asked != set(phones):
        program.warn(
            f"phones seen in questions differ from those in topology: {sorted(asked)} vs. {phones}"
        )
        if not asked <= set(phones):
            raise FormatError(
                f"{source}: phones {sorted(asked - set(phones))} are not in {topology}"
            )
    most = max(pdf_classes(phones, entry_of, entries).values(), default=0)
    program.log(f"Max # pdf classes is {most}")
    questions = questions_of(sets, options.context_width, most, options.num_iters_refine)
    write_model(questions, output, options.binary)
    program.log(f"Wrote questions to {output}")


@program(
    "build-tree",
    "Build a decision tree of statistics.",
    ("<tree-stats-in>", "<roots-file>", "<questions-file>", "<topo-file>", "<tree-out>"),
    BINARY,
    *_WINDOW,
    *options_of(GrowingOptions),
)
def build_tree(
    options: SimpleNamespace, source: str, roots_in: str, questions: str, topology: str, output: str
) -> None:
    check_window(options)
    program = options.program
    roots = Roots.read(roots_in)
    check_disjoint(roots.phones, roots_in)
    phones, entry_of, entries = read_topology(open_reader(topology))
    stats = TreeStats.read(open_reader(source))
    program.log(f"Number of separate statistics is {len(stats.events)}")
    rooted = {phone for each in roots.phones for phone in each}
    seen = set(stats.required(options.central_position).tolist())
    if seen - rooted:
        raise FormatError(f"{roots_in}: no root for the phones {sorted(seen - rooted)} of {source}")
    if rooted != set(phones):
        program.warn(f"{roots_in} and {topology} do not have the same phones")
    if rooted - seen:
        program.warn(f"Saw no stats for following phones: {' '.join(map(str, rooted - seen))}")
    tree = grown(
        stats,
        roots,
        Questions.read(open_reader(questions)),
        pdf_classes(phones, entry_of, entries),
        options.central_position,
        from_values(GrowingOptions, vars(options)),
        Told(program.log, lambda line: program.vlog(1, line), program.warn),
    )
    write_model(
        ContextDependency(options.context_width, options.central_position, tree),
        output,
        options.binary,
    )
    program.log("Wrote tree")
