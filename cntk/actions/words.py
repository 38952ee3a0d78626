"""The actions writeWordAndClass and createLabelMap: vocabularies made from data.

Source: CNTK's `ActionsLib/OtherActions.cpp`.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...framework.base.errors import FormatError, nearest
from ...framework.base.options.option_fields import option
from ...framework.base.options.plugins import call_plugin, owner_of
from ...framework.base.untrusted.opener import open_text
from ..base.text import located, reason
from ..base.write import write_text
from ..config.parameters import ConfigParameters
from ..readers.base.minibatches import minibatches
from ..readers.catalog import create_reader
from ..sgd.report import general
from .common import Run, refuse_overwriting

_OUTPUTS = ("outputmappingfile", "outputvocabfile", "outputword2cls", "outputcls2index")


@dataclass(frozen=True, kw_only=True)
class WordOptions:
    """The settings of writeWordAndClass.

    Attributes:
        size, classes: how many words and classes there are to be.
        source: the text.
        begin, end: words at the ends of lines.
        unknown: stands for rare words.
        cutoff: words that occur no more often are left out; 0: none.
        make: whether files that are newer than the text are left alone.
        outputs: files to write, by what they are.
    """

    size: int = option(name="vocabSize")
    classes: int
    source: str = option(name="inputFile")
    begin: str
    end: str
    unknown: str
    cutoff: int = option(1, name="cutoff")
    make: bool = option(True, name="makeMode")
    outputs: dict[str, str]

    @classmethod
    def of(cls, section: ConfigParameters) -> WordOptions:
        """The settings of a section.

        Raises:
            FormatError: a value is missing or wrong.
        """
        classes = section.int("nbrClass", 0)
        begin, end = section.string("beginSequence", ""), section.string("endSequence", "")
        if not begin or not end:
            raise located(
                FormatError,
                "Please specify parameters 'beginSequence' and 'endSequence'.",
                section.text.locate(),
            )
        outputs = {
            "Mapping file      ": section.string("outputMappingFile", ""),
            "Vocabulary file   ": section.string("outputVocabFile"),
        }
        section.only_if(classes > 0, "nbrClass is 0", "outputWord2Cls", "outputCls2Index", "unk")
        if classes > 0:
            outputs["Word-to-class map "] = section.string("outputWord2Cls")
            outputs["Class-to-index map"] = section.string("outputCls2Index")
        return cls(
            **section.options(cls),
            classes=classes,
            begin=begin,
            end=end,
            unknown=section.string("unk", "<unk>") if classes > 0 else "",
            outputs=outputs,
        )


def write_word_and_class(run: Run, section: ConfigParameters) -> None:
    """Write the vocabulary of a text, by falling frequency, and a class for each word: classes have
    about the same share of the square roots of frequencies.

    Source of the classes: Mikolov et al., "Extensions of recurrent neural network language model",
    ICASSP 2011.

    Raises:
        FormatError: a parameter is missing, or the text cannot be read or has no words left.
    """
    options = WordOptions.of(section)
    size, classes, source, outputs = options.size, options.classes, options.source, options.outputs
    for label, path in outputs.items():
        if path:
            run.say(f"{label} --> {path}\n")
    mapping, vocabulary, *maps = outputs.values()
    refuse_overwriting(section, filter(None, outputs.values()), _OUTPUTS)
    if options.make and _up_to_date([vocabulary, *maps], source):
        run.say("All output files up to date.\n")
        return
    run.say(f"Reading input file inputFile: {source}\n")
    counts = count_words(source, options.begin, options.end)
    run.say(f"Vocabulary size {len(counts)}.\n")
    size = _limit(run, counts, size, options.cutoff)
    if classes > 0:
        listed = most_frequent(counts, size, options.unknown)
        numbers = class_numbers([count for _, count in listed], classes)
    else:
        listed = sorted(counts.items())
        numbers = [0] * len(listed)
    if mapping:
        write_text(mapping, "".join(f"{word}\n" for word, _ in listed))
        run.say(f"Created label-mapping file with {len(counts)} entries.\n")
    lines = [
        f"     {index}\t     {general(count, 6)}\t{word}\t{number}\n"
        for index, ((word, count), number) in enumerate(zip(listed, numbers, strict=True))
    ]
    write_text(vocabulary, "".join(lines))
    run.say(f"Created vocabulary file with {len(counts)} entries.\n")
    if maps:
        firsts = [numbers.index(n) if n in numbers else 0 for n in range(classes)]
        write_text(maps[0], "".join(f"{number}\n" for number in numbers))
        run.say(f"Created word-to-class map with {len(numbers)} entries.\n")
        write_text(maps[1], "".join(f"{first}\n" for first in firsts))
        run.say(f"Created class-to-index map with {len(firsts)} entries.\n")


def count_words(path: str, begin: str, end: str) -> Counter[str]:
    """How often each word occurs; lines get `begin` and `end` where they lack them.

    Raises:
        FormatError: the file cannot be read.
    """
    counts: Counter[str] = Counter()
    try:
        with open_text(path, "surrogateescape") as file:
            for line in file:
                line = line.strip(" \n")
                line = line if f"{begin} " in line else f"{begin} {line}"
                line = line if f" {end}" in line else f"{line} {end}"
                words = line.split()
                counts.update(words[1:] if begin == end else words)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {reason(error)}") from None
    return counts


def _limit(run: Run, counts: Counter[str], size: int, cutoff: int) -> int:
    frequent = sum(count > cutoff for count in counts.values()) if cutoff > 0 else len(counts)
    if frequent <= 0:
        raise FormatError(f"No word remained after cutoff with threshold {cutoff}.")
    if size > frequent:
        run.say(
            "Warning: actual vocabulary size is less than required.\n"
            f"\t\tRequired vocabulary size:{size}\n"
            f"\t\tActual vocabulary size:{len(counts)}\n"
            f"\t\tActual vocabulary size after cutoff:{frequent}\n"
            f"\t\tWe will change to actual vocabulary size: {frequent}\n"
        )
        size = frequent
    return size


def most_frequent(counts: Counter[str], size: int, unknown: str) -> list[tuple[str, int]]:
    """The `size` - 1 most frequent words and `unknown`, which counts all others."""
    ranked = counts.most_common()
    room = size - 1
    if unknown in (word for word, _ in ranked[:size]):
        room += 1
    listed = dict(ranked[:room])
    listed[unknown] = listed.get(unknown, 0) + sum(count for _, count in ranked[room:])
    return sorted(listed.items(), key=lambda item: -item[1])


def class_numbers(counts: Iterable[float], classes: int) -> list[int]:
    """The class of each word of a list by falling frequency."""
    roots = [math.sqrt(count) for count in counts]
    total = sum(roots)
    done = 0.0
    number = 0
    numbers = []
    for root in roots:
        done = min(done + root / total, 1.0)
        if done > (number + 1) / classes and number < classes:
            number += 1
        numbers.append(number)
    return numbers


def _up_to_date(paths: Iterable[str], source: str) -> bool:
    try:
        newest = Path(source).stat().st_mtime_ns
        return all(Path(path).stat().st_mtime_ns >= newest for path in paths)
    except (OSError, ValueError):
        return False


def create_label_map(run: Run, section: ConfigParameters) -> None:
    """Write the labels that a reader finds in its data, one a line, as `labelMappingFile`.

    The section named `section` has the reader.

    Raises:
        FormatError: there is no such section, no file name, or the reader finds no labels.
    """
    part, files, size = label_files(section)
    part.insert("allowMapCreation", "true")
    for stream, path in files.items():
        if os.path.exists(path):
            run.say(
                f"CreateLabelMap: the label mapping file '{path}' already exists, no work to do.\n"
            )
            return
        run.say(f"CreateLabelMap: Creating the mapping file '{path}' \n")
        count = 0
        with create_reader(part) as reader:
            for minibatch in minibatches(reader, size):
                count += minibatch.samples
            labels = call_plugin(owner_of("reader", reader), reader.label_mapping, stream)
        if not labels:
            raise FormatError(f"CreateLabelMap: the reader finds no labels of {stream!r}")
        if not os.path.exists(path):  # some readers write it themselves
            write_text(path, "".join(f"{labels[number]}\n" for number in sorted(labels)))
        if section.int("traceLevel", 0) > 0:
            run.say(f"\nread {count} labels and produced {path}\n")


def label_files(
    section: ConfigParameters,
) -> tuple[ConfigParameters, dict[str, str], int]:
    """Of createLabelMap: the section of the reader, the file for each of its streams of labels, and
    the size of a minibatch.

    Raises:
        FormatError: there is no such section, or no file name.
    """
    value = section["section"]
    if str(value) not in section:
        known = [name for around in section.outwards() for name in around]
        raise value.error(f"there is no section {str(value)!r}{nearest(str(value), known)}")
    part = section.section(str(value)).section("reader")
    files = _mapping_files(part)
    if not files:
        raise located(
            FormatError, "CreateLabelMap: No labelMappingFile defined", part.text.locate()
        )
    return part, files, section.int("minibatchSize", 2048)


def _mapping_files(part: ConfigParameters) -> dict[str, str]:
    """The label sections of a reader, and the files of their mappings."""
    files = {}
    for name in part:
        if part.is_section(name):
            inner = part.section(name)
            if inner.has("labelMappingFile"):
                files[name] = inner.string("labelMappingFile")
            elif inner.has("labelDim") and part.has("labelMappingFile"):
                files[name] = part.string("labelMappingFile")
    return files
