"""Small HTK features, lists and label files for tests."""

from __future__ import annotations

import numpy as np

from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.base.htk_files import write_htk

STATES = ["zero", "one", "two"]
IN_ORDER = 'readMethod = "rollingWindow" ; randomize = "none"'


def frames(utterance: int, count: int, dim: int = 2) -> np.ndarray:
    """Frames that tell where they come from: (utterance, time, 0 ...)."""
    values = np.zeros((count, dim), np.float32)
    values[:, 0] = utterance
    values[:, 1] = np.arange(count)
    return values


def corpus(folder, lengths, dim=2, missing=()):
    """Feature files u0, u1 ... of these lengths, with the list `a.scp`, labels `a.mlf` (state:
    time // 2 % 3) and the states. Utterances in `missing` have no labels."""
    mlf, scp = ["#!MLF!#"], []
    for number, length in enumerate(lengths):
        write_htk(folder / f"u{number}.fea", frames(number, length, dim))
        scp.append(f"u{number}.fea={folder}/u{number}.fea[0,{length - 1}]")
        if number in missing:
            continue
        mlf.append(f'"u{number}.lab"')
        for begin in range(0, length, 2):
            end = min(begin + 2, length)
            state = STATES[begin // 2 % 3]
            mlf.append(f"{begin * 100000} {end * 100000} {state}")
        mlf.append(".")
    (folder / "a.scp").write_text("\n".join(scp) + "\n")
    (folder / "a.mlf").write_text("\n".join(mlf) + "\n")
    (folder / "states").write_text("\n".join(STATES) + "\n")


def section(folder, more="", features="dim = 2", labels="labelDim = 3"):
    """A section of HTKMLFReader over that corpus."""
    return ConfigParameters(
        f"""readerType = "HTKMLFReader" ; {more}
        features = [ {features} ; scpFile = "{folder}/a.scp" ]
        labels = [ mlfFile = "{folder}/a.mlf" ; labelMappingFile = "{folder}/states" ; {labels} ]
        """
    )


def epoch(reader, size, number=0, epoch_size=None):
    """All minibatches of an epoch."""
    reader.start_minibatch_loop(size, number, epoch_size)
    return list(iter(reader.get_minibatch, None))
