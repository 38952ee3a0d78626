"""Texts and lists of words of LMSequenceReader and LUSequenceReader."""

from __future__ import annotations

import numpy as np

from opscope.cntk.config import ConfigParameters
from opscope.cntk.readers.base.sections import tagged_text_sections

from .base import CLASSES, MadeData, write

_SPOKEN, _LINE = 400, 20  # words of a text, and of a line of it


def language(made: MadeData, section: ConfigParameters) -> None:
    """Text and lists of words of LMSequenceReader."""
    _, labels = tagged_text_sections(section)
    dim = max(part.size("labelDim", 0) for _, part in labels)
    words = ["</s>", "<unk>", *(f"w{number}" for number in range(dim - 2))]
    end = labels[0][1].string("endSequence", "</s>") or "</s>"
    made.minibatch = 1 << 20  # as the config has it: it is cut by sentences
    path = section.string("file")
    if path not in made.vocabularies:
        sentences(made, path, _SPOKEN, end)
    files = {part.string("labelMappingFile", "") for _, part in labels} - {""}
    for file in files:
        write(file, "".join(f"{word}\n" for word in words))
    listed = section.string("wordclass", "")
    if listed:
        each = -(-dim // made.classes_of_words)
        rows = (f"{n}\t{dim - n}\t{word}\t{n // each}\n" for n, word in enumerate(words))
        write(listed, "".join(rows))


def sentences(made: MadeData, path: str, words: int, end: str = "</s>") -> None:
    """A text with all words, those of the first ones often."""
    names = ["</s>", "<unk>", *(f"w{number}" for number in range(words - 2))]
    random = np.random.default_rng(1)
    lines = []
    made.vocabularies.add(path)
    for begin in range(2, words, _LINE):
        frequent = random.integers(2, 2 + CLASSES, 2).tolist()
        chosen = [*frequent, *range(begin, min(begin + _LINE, words)), *frequent]
        lines.append(" ".join([end, *(names[n] for n in chosen), end]) + "\n")
    write(path, "".join(lines))


def understanding(made: MadeData, section: ConfigParameters) -> None:
    """Tagged text and lists of words of LUSequenceReader."""
    features, labels = tagged_text_sections(section)
    parts = dict(labels)
    (in_name, _), (out_name, _) = labels
    if section.has("inputLabel"):
        in_name, out_name = section.string("inputLabel"), section.string("outputLabel")
    context = len(list(section.array("wordContext", "0").ints()))
    stream = features[0][0] if features else in_name
    size = int(np.prod(made.meaning(stream).shape)) // context
    tags = int(np.prod(made.meaning(out_name).shape))
    unknown = section.string("unk", "<unk>")
    words = _words([unknown, *_ends(parts[in_name])], "w", size)
    marks = _words(_ends(parts[out_name]), "t", tags)
    classes = parts[out_name].match("mode", "class")
    listed = [f"{mark} {n // 10}\n" if classes else f"{mark}\n" for n, mark in enumerate(marks)]
    write(parts[in_name].string("token"), "".join(f"{word}\n" for word in words))
    write(parts[out_name].string("token"), "".join(listed))
    if section.string("wordmap", ""):
        write(section.string("wordmap"), "".join(f"{word} {word}\n" for word in words))
    lines = []
    for number in range(made.count):
        for step in range(4 + number % 3):
            kind = (number + step) % CLASSES
            lines.append(f"w{kind} t{kind}\n")
        lines.append("\n")
    write(section.string("file"), "".join(lines))


def _ends(part: ConfigParameters) -> list[str]:
    """The words that begin and end the sentences of a section, where it names some."""
    return [part.string(f"{end}Sequence", "") for end in ("begin", "end")]


def _words(special: list[str], prefix: str, count: int) -> list[str]:
    """A list of words, special ones first."""
    first = list(dict.fromkeys(filter(None, special)))
    return [*first, *(f"{prefix}{number}" for number in range(count - len(first)))]
