"""From audio to words: features, iVectors, FSTs, decoding, recognizers as Vosk and Kaldi have them.

Stands above nnet3 and below bridges: may import framework, operators, kaldi and nnet3, never
cntk. Names are looked up on first use (PEP 562).
"""

from ..framework.base.python.lazy_names import lazy_names

_HOMES = {
    **dict.fromkeys(("Audio", "read_wav"), ".audio.wav"),
    "read_audio": ".audio.read",
    **dict.fromkeys(("Resampler", "resample"), ".audio.resample"),
    **dict.fromkeys(
        ("Mfcc", "Plp", "Fbank", "Spectrogram", "FeatureStream", "mfcc"), ".features.computers"
    ),
    **dict.fromkeys(
        ("MfccOptions", "PlpOptions", "FbankOptions", "SpectrogramOptions"), ".features.options"
    ),
    "PitchOptions": ".features.pitch",
    **dict.fromkeys(("Pitch", "PitchStream", "ProcessPitchOptions"), ".features.pitch_processing"),
    **dict.fromkeys(("cmvn_stats", "apply_cmvn"), ".features.cmvn"),
    **dict.fromkeys(("OnlineCmvn", "OnlineCmvnOptions", "OnlineCmvnState"), ".features.cmvn"),
    **dict.fromkeys(("sliding_cmvn", "SlidingCmvnOptions"), ".features.sliding"),
    **dict.fromkeys(("splice", "transform", "SpliceOptions"), ".features.transforms"),
    **dict.fromkeys(("IvectorModel", "IvectorOptions"), ".ivector.model"),
    **dict.fromkeys(("OnlineIvector", "AdaptationState"), ".ivector.online"),
    "SilenceWeights": ".ivector.silence",
    "load_graph": ".fst.graph_folder",
    "make_graph": ".graph_making.make",
    **dict.fromkeys(("Decoder", "BestPath"), ".search.decoder"),
    "SearchOptions": ".search.options",
    "raw_lattice": ".search.raw_lattice",
    "RawLattice": "..kaldi.lattices.raw_lattice",
    **dict.fromkeys(("determinized", "phone_starts"), "..kaldi.lattices.phone_determinize"),
    **dict.fromkeys(("minimum_bayes_risk", "BayesRisk"), ".lattice.bayes_risk"),
    "n_best": ".lattice.best_paths",
    "word_aligned": ".lattice.word_align",
    "WordBoundaries": ".lattice.word_boundary",
    "lexicon_aligned": ".lattice.lexicon_align",
    "make_lang": ".lexicon.lang",
    **dict.fromkeys(("train", "RecognizerOptions"), ".training.train"),
    **dict.fromkeys(("Guesser", "Guess"), ".pronunciation.guesser"),
    "known_pronunciations": ".new_words.lexicons",
    "adapt": ".new_words.adapt",
    "Adapted": ".adaptation.addition",
    "AlignLexicon": ".lattice.align_lexicon",
    **dict.fromkeys(("timed_words", "timed_phones", "ctm_lines"), ".lattice.times"),
    "Model": ".recognize.model",
    "CtcModel": ".ctc.model",
    "CtcTokens": ".ctc.tokens",
    **dict.fromkeys(("transcribe", "recognized", "Transcript", "Spoken"), ".recognize.transcript"),
    **dict.fromkeys(("KaldiRecognizer", "EndpointerMode"), ".recognize.kaldi_recognizer"),
    **dict.fromkeys(("Recognizer",), ".recognize.recognizer"),
    **dict.fromkeys(
        (
            *("SetLogLevel", "GpuInit", "GpuThreadInit", "list_models", "list_languages"),
            "Processor",
        ),
        ".recognize.vosk_names",
    ),
    **dict.fromkeys(("BatchModel", "BatchRecognizer"), ".serving.vosk_batches"),
    **dict.fromkeys(("SpkModel", "SpeakerVector"), ".recognize.speaker_model"),
    **dict.fromkeys(("Speakers", "Match"), ".speakers.speakers"),
    "Plda": ".speakers.plda",
    "align": ".alignment.align",
    "AlignOptions": ".alignment.path",
    **dict.fromkeys(("Alignment", "AlignedWord", "AlignedPhone"), ".alignment.result"),
    **dict.fromkeys(("Utterance", "Word", "Phone", "Alternative"), ".recognize.utterance"),
}
__all__ = list(_HOMES)
_EARLIER = {
    "Recogniser": "Recognizer",
    "recognised": "recognized",
    "determinised": "determinized",
}
"""The spelling of names that programs have been written with, and today's."""
_get, __dir__ = lazy_names(__name__, globals(), _HOMES)


def __getattr__(name: str) -> object:
    return _get(_EARLIER.get(name, name))
