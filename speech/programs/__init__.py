"""Kaldi's programs from audio to lattices of words: a module for each group.

Gives `PROGRAMS` to the command line, which loads a module when one of its programs is called. May
import every room of this floor.
"""

PROGRAMS: dict[str, tuple[str, str]] = {
    "compute-mfcc-feats": ("features", "MFCC of recordings."),
    "compute-fbank-feats": ("features", "Filter banks of recordings."),
    "compute-plp-feats": ("features", "PLP of recordings."),
    "compute-spectrogram-feats": ("features", "Spectrograms of recordings."),
    "compute-kaldi-pitch-feats": ("pitch", "Pitch of recordings."),
    "process-kaldi-pitch-feats": ("pitch", "Features of the pitch."),
    "compute-and-process-kaldi-pitch-feats": ("pitch", "Features of the pitch of recordings."),
    "extract-segments": ("segments", "Parts of recordings."),
    "apply-cmvn-online": ("transforms", "Normalize features by what was heard so far."),
    "apply-cmvn-sliding": ("transforms", "Normalize features by a sliding window."),
    "splice-feats": ("transforms", "Put features beside their neighbors."),
    "add-deltas": ("transforms", "Put beside features how they change over time."),
    "transform-feats": ("transforms", "Multiply features with matrices."),
    "ivector-extract-online2": ("ivectors", "iVectors as an online recognizer has them."),
    "compute-wer": ("scoring", "The word error rate of hypotheses."),
    "compute-wer-bootci": ("scoring", "The word error rate with its confidence interval."),
    "align-text": ("scoring", "Pairs of the words of two texts."),
    "lattice-oracle": ("scoring", "The fewest errors of all paths of lattices."),
    "lattice-align-words": ("word_lattices", "Lattices whose arcs are words."),
    "lattice-to-ctm-conf": ("word_lattices", "When words were spoken, and how sure they are."),
    "nbest-to-ctm": ("word_lattices", "When the words of single paths were spoken."),
    "lattice-mbr-decode": ("word_lattices", "Words with the least expected number of errors."),
    "arpa2fst": ("language_models", "An FST of an n-gram model in an ARPA file."),
    "lattice-best-path": ("lattices", "Words and alignments of the best paths of lattices."),
    "lattice-determinize-phone-pruned": ("lattices", "Lattices of words, of those of states."),
    "lattice-determinize-non-compact": ("lattices", "The same, with the costs of each frame."),
    "nnet3-align-compiled": ("aligning", "Alignments of features with graphs of their texts."),
    "nnet3-latgen-faster": ("decoding", "Lattices of words of features."),
    "nnet3-latgen-faster-parallel": ("decoding", "The same, searched by several threads."),
    "nnet3-latgen-faster-batch": ("decoding", "The same, chunks of many utterances at once."),
    "nnet3-latgen-faster-looped": ("decoding", "The same, each frame computed once."),
    "nnet3-latgen-faster-looped-parallel": ("decoding", "The same, searched by several threads."),
    "nnet3-latgen-faster-lookahead": ("decoding", "Lattices, composed of HCL and G on the way."),
    "nnet3-latgen-grammar": ("decoding", "Lattices, with graphs that call each other."),
    "make-grammar-fst": ("grammars", "Graphs that call each other, as one file."),
    "latgen-faster-mapped": ("decoding", "Lattices of words of log-likelihoods."),
    "latgen-faster-mapped-parallel": ("decoding", "The same, searched by several threads."),
    "online2-wav-nnet3-latgen-faster": ("online_decoding", "Lattices of words of recordings."),
}
"""Programs by name: the module of this folder that holds the program, and a line of help. The
function has the name of the program with `_` for `-`."""
