"""What online2-wav-nnet3-latgen-faster computes with: features, CMVN, iVectors, by its options.

Source: Kaldi's `online2/online-nnet2-feature-pipeline.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError
from ....kaldi.tables.streams import open_reader
from ....nnet3 import LoopedComputer
from ...features.cmvn import OnlineCmvn, OnlineCmvnOptions, OnlineCmvnState, checked_stats
from ...features.computers import Fbank, MelFeatures, Mfcc, Plp
from ...features.options import read_config
from ...features.pitch_processing import Pitch
from ...ivector.model import IvectorModel
from ...ivector.online import AdaptationState, OnlineIvector
from ...recognize.config import pitch_beside
from ...recognize.front_end import FrontEnd

FEATURES = {"mfcc": Mfcc, "plp": Plp, "fbank": Fbank}


@dataclass(frozen=True)
class OnlineParts:
    """What a front end is made of.

    Attributes:
        features, pitch, network, ivectors: see `FrontParts`.
        cmvn: options of it for the network's features; None: there is none.
        global_stats: of all speakers, for it.
    """

    features: MelFeatures
    pitch: Pitch | None
    network: LoopedComputer
    ivectors: IvectorModel | None
    cmvn: OnlineCmvnOptions | None
    global_stats: np.ndarray | None


@dataclass
class Speaker:
    """What is known of a speaker after some utterances.

    Attributes:
        ivector, cmvn: None where the parts have none.
    """

    ivector: AdaptationState | None
    cmvn: OnlineCmvnState | None

    @classmethod
    def unknown(cls, parts: OnlineParts) -> Speaker:
        """One who was not heard yet."""
        ivector = cmvn = None
        if parts.ivectors is not None:
            ivector = AdaptationState.empty(parts.ivectors)
        if parts.cmvn is not None and parts.global_stats is not None:
            cmvn = OnlineCmvnState(parts.global_stats)
        return cls(ivector, cmvn)


class SpeakerFront:
    """The front end of an utterance of a speaker.

    Args:
        parts: what computes. speaker: what is known. rate: of the samples, in Hz.

    Attributes:
        front: see `FrontEnd`. ivectors: of the utterance; None: there are none.

    Raises:
        OpscopeError: the sampling rate does not go with the features.
    """

    def __init__(self, parts: OnlineParts, speaker: Speaker, rate: float) -> None:
        self.ivectors = self._cmvn = None
        if parts.ivectors is not None:
            self.ivectors = OnlineIvector(parts.ivectors, speaker.ivector)
        if parts.cmvn is not None and speaker.cmvn is not None:
            self._cmvn = OnlineCmvn(parts.cmvn, speaker.cmvn)
        self.front = FrontEnd(parts, rate, self.ivectors, self._cmvn)

    def speaker(self) -> Speaker:
        """What is known after the utterance."""
        self.front.gather()
        return Speaker(
            None if self.ivectors is None else self.ivectors.adaptation_state(),
            None if self._cmvn is None else self._cmvn.next_state(),
        )


def read_features(options: SimpleNamespace) -> tuple[MelFeatures, Pitch | None]:
    """The features that are computed, and the features of the pitch beside them; None: no pitch.

    Raises:
        FormatError: there are no such features, or the config cannot be read.
    """
    kind = options.feature_type
    warn = options.program.warn
    if kind not in FEATURES:
        raise FormatError(
            f"Invalid feature type: {kind}. Supported feature types: {', '.join(FEATURES)}."
        )
    configs = {each: getattr(options, f"{each}_config") for each in FEATURES}
    for name, path in configs.items():
        if path and name != kind:
            warn(f"--{name}-config option has no effect since feature type is set to {kind}.")
    features = FEATURES[kind](config=configs[kind] or None)
    if options.add_pitch:
        return features, pitch_beside(features, options.online_pitch_config or None)
    if options.online_pitch_config:
        warn(
            "--online-pitch-config option has no effect since you did not supply --add-pitch"
            " option."
        )
    return features, None


def read_parts(
    options: SimpleNamespace,
    features: MelFeatures,
    pitch: Pitch | None,
    network: LoopedComputer,
) -> OnlineParts:
    """The features with what normalizes them and the iVectors beside them.

    Raises:
        FormatError: a file is missing or damaged, or does not go with the network.
    """
    columns = features.dim + (pitch.dim if pitch else 0)
    if columns != network.input_dim:
        raise FormatError(
            f"Input feature dimension mismatch: got {columns} but network expects"
            f" {network.input_dim}"
        )
    cmvn = stats = None
    name = options.global_cmvn_stats
    if options.cmvn_config:
        if not name:
            raise FormatError(
                "--global-cmvn-stats option is required  when --cmvn-config is specified."
            )
        cmvn = read_config(OnlineCmvnOptions, options.cmvn_config)
        stats = checked_stats(open_reader(name).read_matrix(np.float64), name)
        if stats.shape[1] != columns + 1:
            raise FormatError(
                f"{name}: statistics of {stats.shape[1] - 1} features, but there are {columns}"
            )
    elif name:
        options.program.warn("--global-cmvn-stats has no effect without --cmvn-config")
    ivectors = None
    if options.ivector_extraction_config:
        ivectors = IvectorModel.from_config(options.ivector_extraction_config)
        options.program.log("Computing derived variables for iVector extractor")
        options.program.log("Done.")
        if not options.online:
            settings = replace(
                ivectors.options, use_most_recent_ivector=True, greedy_ivector_extractor=True
            )
            ivectors = replace(ivectors, options=settings)
        if ivectors.feature_dim != features.dim:
            raise FormatError(
                f"{options.ivector_extraction_config}: iVectors of {ivectors.feature_dim} features,"
                f" but there are {features.dim}"
            )
    dim = ivectors.dim if ivectors is not None else -1
    wanted = network.ivector_dim or -1
    if dim != wanted:
        raise FormatError(
            f"Ivector feature dimension mismatch: got {dim} but network expects {wanted} (-1:"
            " none; see --ivector-extraction-config)"
        )
    return OnlineParts(features, pitch, network, ivectors, cmvn, stats)
