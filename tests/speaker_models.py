"""A small folder of a speaker model: an x-vector network that was never trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from opscope.kaldi.files.kaldi_io import Writer
from opscope.nnet3.network.nnet import Nnet

INPUTS, XVECTOR, DIM = 20, 24, 12
MFCC = f"""--sample-frequency=16000
--frame-length=25
--low-freq=20
--high-freq=7600
--num-mel-bins=30
--num-ceps={INPUTS}
--snip-edges=false
--dither=0
"""
_NETWORK = """input-node name=input dim={inputs}
component name=a type=NaturalGradientAffineComponent input-dim={spliced} output-dim=32
component name=r type=RectifiedLinearComponent dim=32
component name=n type=BatchNormComponent dim=32 target-rms=1.0
component name=sums type=StatisticsExtractionComponent input-dim=32 input-period=1 \
output-period=1 include-variance=true
component name=pool type=StatisticsPoolingComponent input-dim=65 input-period=1 \
left-context=0 right-context=10000 num-log-count-features=0 output-stddevs=true
component name=b type=NaturalGradientAffineComponent input-dim=64 output-dim={outputs}
component-node name=a component=a input=Append(Offset(input, -2), input, Offset(input, 2))
component-node name=r component=r input=a
component-node name=n component=n input=r
component-node name=sums component=sums input=n
component-node name=pool component=pool input=Round(sums, 1)
component-node name=b component=b input=pool
output-node name=output input=b objective=linear
"""


def write_speaker_model(folder: Path, mfcc: str = MFCC) -> Path:
    """The folder, with random parameters."""
    folder.mkdir()
    rng = np.random.default_rng(3)
    text = _NETWORK.format(inputs=INPUTS, spliced=3 * INPUTS, outputs=XVECTOR)
    nnet = Nnet.from_config_text(text, 3)
    norm = nnet.components["n"]
    norm.count, norm.stats_sum, norm.stats_sumsq = 10.0, np.full(32, 4.0), np.full(32, 30.0)
    nnet.write(folder / "final.ext.raw")
    (folder / "mfcc.conf").write_text(mfcc)
    for name, values in (
        ("mean.vec", rng.normal(size=XVECTOR)),
        ("transform.mat", rng.normal(size=(DIM, XVECTOR))),
    ):
        (folder / name).write_bytes(array_file(values))
    return folder


def array_file(values: np.ndarray) -> bytes:
    """A vector or a matrix in a file."""
    writer = Writer()
    write = writer.write_vector if values.ndim == 1 else writer.write_matrix
    write(values.astype(np.float32))
    return writer.getvalue()
