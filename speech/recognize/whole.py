"""Whole recordings as Kaldi's offline programs recognize them: nothing depends on blocks.

Source: Kaldi's `online2bin/online2-wav-nnet3-latgen-faster.cc` with `--online=false`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...kaldi.lattices.phone_determinize import determinized
from ...nnet3 import LoopedComputer
from ..features.cmvn import OnlineCmvnOptions
from ..features.computers import MelFeatures
from ..features.options import read_config
from ..features.pitch_processing import Pitch
from ..ivector.model import IvectorModel
from ..search.decoder import Decoder
from ..search.options import SearchOptions
from ..search.raw_lattice import raw_lattice
from .front_end import FrontEnd
from .model import Model
from .recognizer import graph_of
from .speaker_model import SpkModel
from .utterance import Utterance

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Parts:
    features: MelFeatures
    pitch: Pitch | None
    network: LoopedComputer
    ivectors: IvectorModel | None


def whole_utterance(
    model: Model,
    samples: np.ndarray,
    rate: float,
    grammar: Sequence[str] | None = None,
    speakers: SpkModel | None = None,
) -> Utterance:
    """A recording as one utterance, which all of it is known of before the first frame.

    The iVector is computed from the whole recording, with silence as much as anything else and
    without Vosk's option `cmn-min-energy`. The lattice is determinized at once, and graph costs
    count in full.

    Args:
        model: a folder of Kaldi or Vosk. samples: [count], on the scale of 16-bit integers.
        rate: in Hz. grammar: phrases that are the only ones to be recognized.
        speakers: tells the speaker by all that is no silence; None: nothing does.

    Raises:
        ShapeError: there are several channels.
        OpscopeError: samples are NaN or infinite, or the rate does not go with the model.
    """
    stream = speakers and speakers.stream(rate, model.features.options.frame_shift)
    parts = _Parts(model.features, model.pitch, model.network, _ivectors(model))
    front = FrontEnd(parts, rate, cmvn=model.cmvn(OnlineCmvnOptions.cmn_min_energy))
    front.accept(samples)
    front.finish()
    loglikes = front.loglikes()
    if not len(loglikes):
        return Utterance(model, None, [], 0.0)
    config = model.config
    search = replace(config.search, prune_scale=SearchOptions.prune_scale)
    outputs = model.network.output_dim
    decoder = Decoder(graph_of(model, grammar), model.pdfs, search, outputs=outputs)
    decoder.accept(loglikes)
    decoder.finalize()
    ids = decoder.best_path().transition_ids.tolist()
    beam, starts = search.lattice_beam, model.starts
    result = determinized(raw_lattice(decoder), beam, starts, config.lattice, _log.warning)
    speaker = None
    if stream is not None:
        stream.accept(samples)
        spoken = ~np.isin(model.phones[ids], config.endpoint.silence_phones)
        speaker = stream.vector(spoken.nonzero()[0], config.network.frame_subsampling_factor)
    return Utterance(model, result.lattice, ids, 0.0, graph_scale=1.0, speaker=speaker)


def _ivectors(model: Model) -> IvectorModel | None:
    known = model.ivectors
    if known is None:
        return None
    settings = replace(known.options, use_most_recent_ivector=True, greedy_ivector_extractor=True)
    cmvn = read_config(OnlineCmvnOptions, model.path / "ivector" / "online_cmvn.conf")
    return replace(known, options=settings, cmvn=cmvn)
