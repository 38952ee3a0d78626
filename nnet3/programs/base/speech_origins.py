"""Where Kaldi's programs for speech print each message from; see `log_origins`."""

from __future__ import annotations

_LATTICES, _ONLINE = "nnet3-latgen-faster", "online2-wav-nnet3-latgen-faster"
_ALIGN = "nnet3-align-compiled"

MAIN: dict[str, dict[str, int]] = {
    " Done {} out of {} utterances.": {
        "compute-mfcc-feats": 185,
        "compute-fbank-feats": 185,
        "compute-spectrogram-feats": 157,
    },
    "Processed {} utterances": {
        "compute-mfcc-feats": 181,
        "compute-fbank-feats": 181,
        "compute-spectrogram-feats": 153,
    },
    "Processed features for key": {
        "compute-mfcc-feats": 182,
        "compute-fbank-feats": 182,
        "compute-spectrogram-feats": 154,
    },
    "File: {} is too short": {
        "compute-mfcc-feats": 111,
        "compute-fbank-feats": 111,
        "compute-spectrogram-feats": 95,
    },
    "Channel not specified but": {
        "compute-mfcc-feats": 122,
        "compute-fbank-feats": 122,
        "compute-spectrogram-feats": 106,
    },
    "File with id {} has": {
        "compute-mfcc-feats": 126,
        "compute-fbank-feats": 126,
        "compute-spectrogram-feats": 110,
    },
    "Failed to compute features": {
        "compute-mfcc-feats": 151,
        "compute-fbank-feats": 151,
        "compute-spectrogram-feats": 123,
    },
    "Could not find recording": {"extract-segments": 125},
    "Successfully processed {} lines": {"extract-segments": 194},
    "Empty feature matrix": {"apply-cmvn-sliding": 62},
    "Applied sliding-window": {"apply-cmvn-sliding": 75},
    "No fMLLR transform available": {"transform-feats": 87},
    "Transform matrix for utterance": {"transform-feats": 110},
    "Matrix has bad logdet": {"transform-feats": 149},
    "Overall average {}logdet": {"transform-feats": 158},
    "Applied transform to": {"transform-feats": 161},
    "Did not find audio": {"ivector-extract-online2": 106},
    "Feature dimension is too large": {"ivector-extract-online2": 115},
    "Did not find weights": {"ivector-extract-online2": 132},
    "For utterance {} of speaker": {"ivector-extract-online2": 174},
    "Estimated iVectors": {"ivector-extract-online2": 188},
    "Average objective-function": {"ivector-extract-online2": 190},
    "Average iVector length": {"ivector-extract-online2": 193},
    "No features for utterance": {_ALIGN: 142},
    "Zero-length utterance": {_LATTICES: 149, _ALIGN: 153},
    "No iVector available": {_LATTICES: 157, _ALIGN: 162},
    "No online iVector available": {_LATTICES: 166, _ALIGN: 171},
    "Not decoding utterance": {_LATTICES: 199},
    "Time taken": {_LATTICES: 256},
    "Done {} utterances, failed for": {_LATTICES: 259},
    "Overall log-likelihood per frame": {_LATTICES: 261, _ALIGN: 198},
    "Retried {} out of": {_ALIGN: 201},
    "Done {}, errors on": {_ALIGN: 203},
    "Did not find audio for": {_ONLINE: 210},
    "Decoded utterance": {_ONLINE: 296},
    "Decoded {} utterances, {} with errors": {_ONLINE: 302},
    "Overall likelihood per frame": {_ONLINE: 304},
}
"""How a message begins ({}: anything), and by program the line in its `main`."""

FUNCTIONS: dict[tuple[str, str, str], dict[str, int]] = {
    (_LATTICES, "DecodeUtteranceLatticeFaster", "decoder-wrappers.cc"): {
        "Failed to decode utterance": 304,
        "Outputting partial output": 309,
        "Not producing output": 312,
        "Determinization finished earlier": 363,
        "Log-like per frame": 375,
        "Cost for utterance": 378,
    },
    (_ALIGN, "AlignUtteranceWrapper", "decoder-wrappers.cc"): {
        "Empty decoding graph": 599,
        "Retrying utterance": 617,
        "Did not successfully decode": 626,
    },
    ("", "DeterminizeLatticePhonePruned", "determinize-lattice-pruned.cc"): {
        "Both --phone-determinize and": 1424,
    },
    (_ONLINE, "GetDiagnosticsAndPrintOutput", "online2-wav-nnet3-latgen-faster.cc"): {
        "Empty lattice.": 40,
        "Likelihood per frame for": 59,
    },
    (_ONLINE, "Print", "online-timing.cc"): {
        "Timing stats: real-time factor was": 36,
        "Average delay was": 38,
        "Percentage of time spent idling": 42,
        "Longest delay was": 44,
        "Timing stats: real-time factor for offline": 55,
    },
    (_ONLINE, "OutputStats", "online-timing.cc"): {
        "Latency": 106,
    },
    (_ONLINE, "OnlineNnet2FeaturePipelineInfo", "online-nnet2-feature-pipeline.cc"): {
        "--mfcc-config option": 39,
        "--plp-config option": 46,
        "--fbank-config option": 53,
        "--online-pitch-config option": 64,
    },
    (_ONLINE, "RuleActivated", "online-endpoint.cc"): {
        "Endpointing rule": 38,
    },
    (_ONLINE, "ComputeDerivedVars", "ivector-extractor.cc"): {
        "Computing derived variables": 183,
        "Done.": 204,
    },
    (_ONLINE, "PrintDiagnostics", "online-ivector-feature.cc"): {
        "By the end of the utterance": 369,
    },
}
"""Messages of other functions, by program ("": any), function and file, with their lines."""
