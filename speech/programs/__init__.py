"""Kaldi's programs from audio to lattices of words: a room for each group.

Gives `PROGRAMS` to the command line, which loads a module when one of its programs is called. May
import every room of this floor.
"""

_BY_MODULE = {
    "features.spectral": {
        "compute-mfcc-feats": "MFCC of recordings.",
        "compute-fbank-feats": "Filter banks of recordings.",
        "compute-plp-feats": "PLP of recordings.",
        "compute-spectrogram-feats": "Spectrograms of recordings.",
    },
    "features.pitch": {
        "compute-kaldi-pitch-feats": "Pitch of recordings.",
        "process-kaldi-pitch-feats": "Features of the pitch.",
        "compute-and-process-kaldi-pitch-feats": "Features of the pitch of recordings.",
    },
    "features.segments": {
        "extract-segments": "Parts of recordings.",
    },
    "features.transforms": {
        "apply-cmvn-online": "Normalize features by what was heard so far.",
        "apply-cmvn-sliding": "Normalize features by a sliding window.",
        "splice-feats": "Put features beside their neighbors.",
        "add-deltas": "Put beside features how they change over time.",
        "transform-feats": "Multiply features with matrices.",
    },
    "features.voiced_frames": {
        "compute-vad": "Which frames have speech, by their energy.",
        "select-voiced-frames": "The frames with speech.",
    },
    "speakers.global_gmms": {
        "gmm-global-init-from-feats": "Train a mixture of Gaussians from nothing.",
        "gmm-global-est": "Estimate diagonal Gaussians of statistics.",
        "fgmm-global-est": "Estimate full Gaussians of statistics.",
        "gmm-global-sum-accs": "Add statistics of diagonal Gaussians.",
        "fgmm-global-sum-accs": "Add statistics of full Gaussians.",
        "gmm-global-copy": "Copy a mixture of diagonal Gaussians.",
        "fgmm-global-copy": "Copy a mixture of full Gaussians.",
        "gmm-global-to-fgmm": "Diagonal Gaussians as full ones.",
        "fgmm-global-to-gmm": "Full Gaussians as diagonal ones.",
    },
    "speakers.gaussian_posteriors": {
        "gmm-global-acc-stats": "Statistics of diagonal Gaussians.",
        "fgmm-global-acc-stats": "Statistics of full Gaussians.",
        "gmm-gselect": "The best diagonal Gaussians of each frame.",
        "fgmm-gselect": "The best full Gaussians of each frame.",
        "gmm-global-get-post": "Posteriors of the best Gaussians.",
        "gmm-global-gselect-to-post": "Posteriors of chosen Gaussians.",
        "fgmm-global-gselect-to-post": "The same of full Gaussians.",
    },
    "speakers.extractors": {
        "ivector-extractor-init": "Begin an iVector extractor.",
        "ivector-extractor-acc-stats": "Statistics to train an iVector extractor.",
        "ivector-extractor-sum-accs": "Add statistics of iVector extractors.",
        "ivector-extractor-est": "Estimate an iVector extractor of statistics.",
        "ivector-extractor-copy": "Copy an iVector extractor.",
        "ivector-extract": "iVectors of utterances or speakers.",
    },
    "speakers.ivectors": {
        "ivector-extract-online2": "iVectors as an online recognizer has them.",
    },
    "speakers.speaker_vectors": {
        "ivector-mean": "Means of vectors, of all or by speaker.",
        "ivector-normalize-length": "Vectors of one length.",
        "ivector-subtract-global-mean": "Vectors less their mean.",
        "transform-vec": "Multiply vectors with a matrix.",
    },
    "speakers.plda": {
        "ivector-compute-lda": "LDA of vectors of speakers.",
        "ivector-compute-plda": "PLDA of vectors of speakers.",
        "ivector-copy-plda": "Copy PLDA, or smooth it.",
        "ivector-adapt-plda": "Adapt PLDA to vectors without speakers.",
        "ivector-plda-scoring": "Scores of trials by PLDA.",
        "ivector-plda-scoring-dense": "Scores of all pairs of segments of recordings.",
        "compute-eer": "The equal error rate of scores.",
    },
    "lattices.scoring": {
        "compute-wer": "The word error rate of hypotheses.",
        "compute-wer-bootci": "The word error rate with its confidence interval.",
        "align-text": "Pairs of the words of two texts.",
        "lattice-oracle": "The fewest errors of all paths of lattices.",
    },
    "lattices.word_lattices": {
        "lattice-align-words": "Lattices whose arcs are words.",
        "lattice-to-ctm-conf": "When words were spoken, and how sure they are.",
        "nbest-to-ctm": "When the words of single paths were spoken.",
        "lattice-mbr-decode": "Words with the least expected number of errors.",
    },
    "graphs.language_models": {
        "arpa2fst": "An FST of an n-gram model in an ARPA file.",
    },
    "lattices.rescoring": {
        "arpa-to-const-arpa": "A const-ARPA file of an n-gram model in an ARPA file.",
        "lattice-lmrescore": "Lattices with the costs of a language model added.",
        "lattice-lmrescore-const-arpa": "The same of a const-ARPA file.",
        "lattice-lmrescore-kaldi-rnnlm": "The same of a recurrent model.",
        "lattice-lmrescore-pruned": "Another model's costs on the best paths.",
        "lattice-lmrescore-kaldi-rnnlm-pruned": "The same of a recurrent model.",
    },
    "lattices.best_paths": {
        "lattice-best-path": "Words and alignments of the best paths of lattices.",
        "lattice-determinize-phone-pruned": "Lattices of words, from those with states.",
        "lattice-determinize-non-compact": "The same, with the costs of each frame.",
    },
    "decoding.aligning": {
        "nnet3-align-compiled": "Alignments of features with graphs of their texts.",
    },
    "decoding.decoders": {
        "nnet3-latgen-faster": "Lattices of words of features.",
        "nnet3-latgen-faster-parallel": "The same, searched by several threads.",
        "nnet3-latgen-faster-batch": "The same, chunks of many utterances at once.",
        "nnet3-latgen-faster-looped": "The same, each frame computed once.",
        "nnet3-latgen-faster-looped-parallel": "The same, searched by several threads.",
        "nnet3-latgen-faster-lookahead": "Lattices, composed of HCL and G on the way.",
        "nnet3-latgen-grammar": "Lattices, with graphs that call each other.",
        "latgen-faster-mapped": "Lattices of words of log-likelihoods.",
        "latgen-faster-mapped-parallel": "The same, searched by several threads.",
        "gmm-latgen-faster": "Lattices of words, by a model of Gaussians.",
        "gmm-latgen-faster-parallel": "The same, searched by several threads.",
    },
    "graphs.grammars": {
        "make-grammar-fst": "Graphs that call each other, as one file.",
    },
    "graphs.trees": {
        "acc-tree-stats": "Statistics that decision trees are built of.",
        "sum-tree-stats": "Add statistics for decision trees.",
        "cluster-phones": "Questions about phones, or classes of phones.",
        "compile-questions": "Lists of phones as questions of decision trees.",
        "build-tree": "Build a decision tree.",
    },
    "graphs.gaussian_models": {
        "gmm-init-mono": "Begin a monophone model of Gaussians.",
        "gmm-init-biphone": "Begin a model of all pairs of phones.",
        "gmm-init-model": "Begin a model of Gaussians by a tree.",
    },
    "decoding.online_decoding": {
        "online2-wav-nnet3-latgen-faster": "Lattices of words of recordings.",
    },
}

PROGRAMS: dict[str, tuple[str, str]] = {
    name: (module, text) for module, names in _BY_MODULE.items() for name, text in names.items()
}
"""Programs by name: the module of this folder that holds the program, and a line of help. The
function has the name of the program with `_` for `-`."""
