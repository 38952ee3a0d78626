"""A small model, graph and utterances for programs that decode, the same on every machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ivector_models import DIM, IVECTOR, write_model
from kaldi_models import one_state_model
from opscope.kaldi.fst.fst import Fst
from opscope.kaldi.tables.tables import TableWriter
from opscope.nnet3.network.model import AmNnetSimple
from opscope.nnet3.network.nnet import Nnet
from opscope.speech import Audio
from opscope.speech.audio.wav import WAVE
from speech_graphs import arc_fst, vector_bytes

PHONES = 4  # the first is silence
WORDS = {1: (2, 3), 2: (3, 4), 3: (4, 2), 4: (2, 3), 5: (3, 2)}
COSTS = {1: 1.5, 2: 1.25, 3: 2.0, 4: 2.75, 5: 1.75}
LENGTHS = {"a": 40, "b": 25, "c": 61}
_CONFIG = """
input-node name=input dim={dim}
input-node name=ivector dim={ivector}
component name=a type=AffineComponent input-dim={inputs} output-dim=6
component name=t type=TanhComponent dim=6
component name=b type=AffineComponent input-dim=6 output-dim={phones}
component name=l type=LogSoftmaxComponent dim={phones}
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1), \
ReplaceIndex(ivector, t, 0))
component-node name=t component=t input=a
component-node name=b component=b input=t
component-node name=l component=l input=b
output-node name=output input=l
"""
MFCC = f"--num-ceps={DIM}\n--num-mel-bins=10\n--use-energy=false\n--dither=0\n"


def waves(*shape: int, step: float = 1.7) -> np.ndarray:
    """Numbers between -1 and 1, float32."""
    count = int(np.prod(shape))
    return np.sin(step * np.arange(1, count + 1) ** 1.3).astype(np.float32).reshape(shape)


def decoding_graph() -> Fst:
    """Words with two phones each, in any order, and silence between them."""
    rows: list[list[tuple[int, int, float, int]]] = [[]]

    def chain(at: int, phone: int, word: int, cost: float) -> int:
        rows.append([])
        new = len(rows) - 1
        rows[at].append((2 * phone, word, cost, new))
        rows[new].append((2 * phone - 1, 0, 0.25, new))
        return new

    for word, phones in WORDS.items():
        at = 0
        for place, phone in enumerate(phones):
            at = chain(at, phone, 0 if place else word, 0.125 if place else COSTS[word])
        rows[at].append((0, 0, 0.5, 0))
    rows[chain(0, 1, 0, 1.0)].append((0, 0, 0.25, 0))
    return arc_fst(rows, {0: 0.75})


def recordings() -> dict[str, Audio]:
    """Sounds whose pitch goes up and down, at 16 kHz."""
    found = {}
    for place, (key, frames) in enumerate(LENGTHS.items()):
        time = np.arange(160 * frames + 240) / 16000
        pitch = 300 + 200 * place + 250 * np.sin(9 * time)
        samples = 3000 * np.sin(2 * np.pi * pitch * time) * (1.1 + np.sin(23 * time))
        samples = samples + 40 * np.sin(1.9 * np.arange(len(time)) ** 1.5)
        found[key] = Audio(samples.round().astype(np.float32)[None], 16000.0)
    return found


def write_network(dim: int) -> None:
    """final.mdl of a network that takes features of `dim` columns."""
    sizes = {"dim": dim, "ivector": IVECTOR, "inputs": 3 * dim + IVECTOR, "phones": PHONES}
    nnet = Nnet.from_config_text(_CONFIG.format(**sizes), 1)
    nnet.unvectorize(2.0 * waves(nnet.num_parameters))
    model = AmNnetSimple(nnet, one_state_model(PHONES).encode(), binary=False)
    model.set_context()
    model.set_priors(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    model.write("final.mdl", binary=False)


def write_decoding() -> None:
    """All files of it in the current folder."""
    write_model(Path())
    write_network(DIM)
    Path("HCLG.fst").write_bytes(vector_bytes(decoding_graph()))
    words = [f"w{word} {word}" for word in WORDS]
    Path("words.txt").write_text("\n".join(["<eps> 0", *words]) + "\n")
    with (
        TableWriter("ark:feats.ark", "matrix") as features,
        TableWriter("ark:ivectors.ark", "vector") as ivectors,
        TableWriter("ark:online.ark", "matrix") as online,
    ):
        for place, (key, frames) in enumerate(LENGTHS.items()):
            features.write(key, 2 * waves(frames, DIM, step=0.9 + place / 10))
            ivectors.write(key, waves(IVECTOR, step=1.1 + place))
            online.write(key, waves(frames // 10 + 1, IVECTOR, step=2.1 + place))
    Path("mfcc.conf").write_text(MFCC)
    with TableWriter("ark,scp:wav.ark,wav.scp", WAVE) as writer:
        for key, audio in recordings().items():
            writer.write(key, audio)
    Path("spk2utt").write_text("s a b\nt c\n")
