"""Lists, feature files, label files and lattices of HTK's readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from opscope.cntk.config import ConfigParameters
from opscope.cntk.lattices import Hmms, Lattice
from opscope.cntk.lattices.archive_writer import write_archive
from opscope.cntk.readers.base.htk_files import write_htk
from opscope.cntk.readers.base.sections import sections_with
from opscope.cntk.readers.htk.mlf import FRAME, HEADER
from opscope.cntk.readers.htk.options import FeatureOptions, LabelOptions

from .base import CLASSES, MadeData, write

STEPS = 6  # frames or words of a class in a row: sequences have several classes
FRAMES = 32  # of a minibatch
_WRONG = 0.15  # of the frames of an utterance


def states_of(utterance: int) -> np.ndarray:
    """The class of each frame of an utterance."""
    changes = 3 + utterance % 3
    return np.repeat((utterance + np.arange(changes)) % CLASSES, STEPS)


def utterances_of(made: MadeData) -> list[str]:
    return [f"made{number:03}" for number in range(max(made.count // 2, 8))]


def frames_of(made: MadeData, stream: str, dim: int, utterance: int) -> np.ndarray:
    """The frames of an utterance, float32, [frames, dim]."""
    random = np.random.default_rng(utterance)
    kinds = states_of(utterance)
    # Some frames sound like another state: there is something left to learn after an epoch.
    kinds = np.where(random.random(len(kinds)) < _WRONG, random.integers(CLASSES), kinds)
    rows = np.stack([made.row(stream, dim, kind) for kind in kinds.tolist()])
    return (rows + random.normal(scale=0.3, size=rows.shape)).astype(np.float32)


def htk(made: MadeData, section: ConfigParameters) -> None:
    """Lists, feature files, label files and lattices of HTKMLFReader and HTKDeserializers."""
    for name, part in sections_with(section, "scpFile"):
        htk_features(made, name, part)
    labels = sections_with(section, "mlfFile", "mlfFileList")
    for name, part in labels:
        htk_labels(made, name, part)
    lattices = sections_with(section, "denLatTocFile")
    if lattices:
        _lattices(made, section, labels[0][1], lattices[0][1])


def writer_lists(made: MadeData, section: ConfigParameters) -> None:
    """The lists of files that HTKMLFWriter writes, where none of a reader has their place."""
    for _, part in sections_with(section, "scpFile"):
        path = Path(part.string("scpFile"))
        if path not in made.lists:
            names = (f"{path}.{utterance}.out" for utterance in utterances_of(made))
            write(path, "".join(f"{name}\n" for name in names))


def htk_features(made: MadeData, name: str, part: ConfigParameters) -> None:
    """The list of a stream of features, and its files."""
    made.minibatch = FRAMES
    options = FeatureOptions.of(part, name)
    dim = options.stream.dim // (1 + options.left + options.right)
    path = Path(options.path)
    folder = Path(options.prefix) if options.prefix else path.parent
    lines = []
    for number, utterance in enumerate(utterances_of(made)):
        rows = frames_of(made, name, dim, number)[: 1 if options.expand else None]
        file = folder / f"{path.name}.{utterance}.htk"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_htk(file, rows)
        named = file.name if options.prefix else file.resolve()
        lines.append(f"{utterance}.htk={named}[0,{len(rows) - 1}]\n")
    made.lists.add(path)
    write(path, "".join(lines))


def htk_labels(made: MadeData, name: str, part: ConfigParameters) -> None:
    """A label file, with its lists of states and targets."""
    options = LabelOptions.of(part, name)
    dim = part.size("labelDim" if part.has("labelDim") else "dim")
    states = [f"s{number}" for number in range(dim)]
    if options.mapping:
        write(options.mapping, "".join(f"{state}\n" for state in states))
    if options.targets:
        targets = np.eye(dim, options.stream.dim, dtype=int)
        rows = ("".join(map(str, row)) for row in targets.tolist())
        write(
            options.targets,
            "".join(f"{state} {row}\n" for state, row in zip(states, rows, strict=True)),
        )
    lines = [f"{HEADER}\n"]
    for number, utterance in enumerate(utterances_of(made)):
        lines.append(f'"{utterance}.lab"\n')
        kinds = states_of(number)
        for begin in range(0, len(kinds), STEPS):
            kind = int(kinds[begin]) % dim
            times = f"{begin * FRAME:.0f} {(begin + STEPS) * FRAME:.0f}"
            word = f"s{kind} 0 p{kind}" if options.mapping else f"x {kind}"
            lines.append(f"{times} {word}\n")
        lines.append(".\n")
    path = part.string("mlfFile") if part.has("mlfFile") else ""
    if not path:
        listed = part.string("mlfFileList")
        path = f"{listed}.mlf"
        write(listed, f"{path}\n")
    write(path, "".join(lines))


def _lattices(
    made: MadeData, section: ConfigParameters, labels: ConfigParameters, part: ConfigParameters
) -> None:
    """Phones of one state each, and lattices of the words that were said and of others."""
    [(_, phones), *_] = sections_with(section, "phoneFile")
    dim = labels.size("labelDim")
    names = [f"s{number}" for number in range(dim)]
    lines = [f"p{number} T s{number}\n" for number in range(dim)]
    write(phones.string("phoneFile"), "".join(lines))
    write(phones.string("transPFile"), "T 1 1 0 1 1\n")
    hmms = Hmms.read(phones.string("phoneFile"), phones.string("transPFile"), names)
    given = []
    for number, utterance in enumerate(utterances_of(made)):
        said = states_of(number)[::STEPS]
        times = np.arange(len(said) + 1) * STEPS
        edges, units = [], []
        for at, kind in enumerate(said.tolist()):
            for other in (kind, (kind + 1) % CLASSES, (kind + 2) % CLASSES):
                edges.append((at, at + 1))
                units.append((hmms.numbers[f"p{other}"], STEPS))
        first = np.arange(len(edges) + 1)
        scores = np.zeros(len(edges))
        given.append((utterance, Lattice(times, edges, scores, np.array(units), first)))
    toc = Path(part.string("denLatTocFile").replace("*", "made"))
    write_archive(toc.with_suffix(""), hmms, given)


def deserialized(
    make: Callable[[MadeData, str, ConfigParameters], None],
) -> Callable[[MadeData, ConfigParameters], None]:
    """For a deserializer, whose only stream is in its `input`."""

    def maker(made: MadeData, section: ConfigParameters) -> None:
        inputs = section.section("input")
        (name,) = inputs.names()
        make(made, name, inputs.section(name))

    return maker
