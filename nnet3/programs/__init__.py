"""Kaldi's nnet3 programs as commands: a module for each group of programs.

Gives `PROGRAMS` to the command line, which loads a module when one of its programs is called; what
programs share is in `base/`. May import every room of this floor. docs/adding_a_program.md adds a
program.
"""

_BY_MODULE = {
    "models": {
        "nnet3-init": "Make an nnet3 network from a config file.",
        "nnet3-copy": "Copy an nnet3 network, changed by options.",
        "nnet3-info": "Print what an nnet3 network is made of.",
        "nnet3-am-copy": "Copy an nnet3 acoustic model, changed by options.",
        "nnet3-am-info": "Print what an nnet3 acoustic model is made of.",
        "nnet3-average": "Average nnet3 networks.",
    },
    "compute": {
        "nnet3-compute": "Compute the output of an nnet3 network for features.",
        "nnet3-compute-batch": "The same, chunks of many utterances at once.",
        "nnet3-xvector-compute": "Compute one vector for each utterance.",
        "nnet3-xvector-compute-batched": "The same, chunks of many utterances at once.",
        "nnet3-compute-from-egs": "Compute the output for each example.",
        "nnet3-discriminative-compute-from-egs": "The output for each such example.",
    },
    "compile": {
        "nnet3-compile": "Print what a network computes for a request.",
    },
    "xconfig": {
        "nnet3-xconfig-to-config": "Turn an xconfig into config files.",
    },
    "examples.get_egs": {
        "nnet3-get-egs": "Make examples from features and posteriors.",
        "nnet3-get-egs-dense-targets": "Make examples from features and matrices.",
        "nnet3-get-egs-simple": "Make examples of whole matrices, such as images.",
        "nnet3-xvector-get-egs": "Make examples for x-vectors.",
    },
    "examples.egs": {
        "nnet3-copy-egs": "Copy examples; choose frames, cut context.",
        "nnet3-merge-egs": "Merge examples into minibatches.",
        "nnet3-shuffle-egs": "Copy examples in random order.",
        "nnet3-subset-egs": "Draw examples at random.",
        "nnet3-egs-augment-image": "Change images in examples at random.",
    },
    "training.train": {
        "nnet3-train": "Train an nnet3 network on examples.",
        "nnet3-compute-prob": "Objective and accuracy on examples.",
        "nnet3-combine": "Average the networks that do best on examples.",
        "nnet3-show-progress": "How a network changed.",
    },
    "training.chain": {
        "nnet3-chain-train": "Train an nnet3 network with LF-MMI.",
        "nnet3-chain-compute-prob": "LF-MMI objective on examples.",
        "nnet3-chain-combine": "Average the networks that do best with LF-MMI.",
    },
    "training.chain2": {
        "nnet3-chain-train2": "Train with LF-MMI, an output for each language.",
        "nnet3-chain-combine2": "Average the networks that do best in several languages.",
    },
    "training.chain_posteriors": {
        "nnet3-chain-compute-post": "Posteriors by the denominator graph.",
        "nnet3-chain-add-post-to-egs": "Put posteriors into chain examples.",
    },
    "examples.chain_egs": {
        "nnet3-chain-get-egs": "Make chain examples.",
        "nnet3-chain-e2e-get-egs": "Make chain examples of whole utterances.",
        "nnet3-chain-normalize-egs": "Add weights to chain examples.",
        "nnet3-chain-copy-egs": "Copy chain examples; shift, cut context.",
        "nnet3-chain-merge-egs": "Merge chain examples into minibatches.",
        "nnet3-chain-shuffle-egs": "Copy chain examples in random order.",
        "nnet3-chain-subset-egs": "Draw chain examples at random.",
        "chain-make-num-fst-e2e": "The numerator graphs of whole utterances.",
    },
    "training.discriminative": {
        "nnet3-discriminative-train": "Train with MMI, MPFE or sMBR.",
        "nnet3-discriminative-compute-objf": "Their objective on examples.",
    },
    "examples.discriminative_egs": {
        "nnet3-discriminative-get-egs": "Make examples of lattices.",
        "nnet3-discriminative-copy-egs": "Copy such examples; shift them.",
        "nnet3-discriminative-merge-egs": "Merge them into minibatches.",
        "nnet3-discriminative-shuffle-egs": "Copy them in random order.",
        "nnet3-discriminative-subset-egs": "Draw some of them at random.",
    },
    "graphs.denominator": {
        "chain-est-phone-lm": "A phone language model for LF-MMI.",
        "chain-make-den-fst": "The denominator graph for LF-MMI.",
    },
    "training.lda": {
        "nnet3-acc-lda-stats": "Statistics for LDA of a network's output.",
        "nnet3-chain-acc-lda-stats": "The same, of chain examples.",
        "sum-lda-accs": "Add statistics for LDA.",
        "nnet-get-feature-transform": "An input transform from such statistics.",
    },
    "acoustic_models": {
        "nnet3-am-init": "Make an acoustic model of a raw network.",
        "nnet3-am-adjust-priors": "Set the priors of an acoustic model.",
        "nnet3-am-train-transitions": "Transition probabilities of alignments.",
        "copy-transition-model": "Copy a model's transition model.",
    },
    "nnet2_models": {
        "nnet-am-copy": "Copy an acoustic model of nnet2, changed by options.",
    },
    "features": {
        "apply-cmvn": "Normalize the mean and variance of features.",
        "feat-to-dim": "How many columns features have.",
        "feat-to-len": "How many frames features have.",
        "cuda-compiled": "Whether there is a GPU.",
        "cuda-gpu-available": "Whether there is a GPU, and it computes.",
    },
    "corpus.cmvn_stats": {
        "compute-cmvn-stats": "Statistics that features are normalized by.",
    },
    "corpus.copies": {
        "copy-feats": "Copy features.",
        "subsample-feats": "Copy every n'th frame of features.",
        "subset-feats": "Copy the features of some utterances.",
        "fstcopy": "Copy tables of FSTs.",
        "copy-matrix": "Copy matrices, changed by options.",
        "matrix-dim": "How many rows and columns matrices have.",
    },
    "alignments": {
        "ali-to-pdf": "From transition-ids to pdfs.",
        "ali-to-phones": "From transition-ids to phones.",
        "ali-to-post": "From alignments to posteriors.",
        "scale-post": "Posteriors times a factor.",
        "copy-int-vector": "Copy vectors of integers.",
        "post-to-tacc": "Counts of transition-ids or pdfs.",
        "am-info": "How large an acoustic model is.",
        "show-transitions": "The transitions of a model, in words.",
        "hmm-info": "How large a transition model is.",
        "tree-info": "What a decision tree is like.",
    },
    "graphs.conversion": {
        "convert-ali": "Alignments of another tree and model.",
    },
    "graphs.training": {
        "compile-train-graphs": "Graphs of transcripts, to align them.",
        "compile-train-graphs-fsts": "Graphs of grammars, one per utterance.",
    },
    "graphs.expansion": {
        "fstcomposecontext": "Put phones in context into FSTs.",
        "make-ilabel-transducer": "One label for phones with equal HMMs.",
        "make-h-transducer": "From transition-ids to phones in context.",
        "add-self-loops": "Add the self-loops of HMM states.",
    },
    "graphs.transducers": {
        "fstisstochastic": "Whether states' probabilities add up to 1.",
        "fstrmsymbols": "Remove symbols from FSTs.",
        "fstrmepslocal": "Remove epsilons where FSTs do not grow by it.",
        "fstaddselfloops": "Let disambiguation symbols pass through FSTs.",
        "fstpushspecial": "Push weights, so that all states have one sum.",
        "fstminimizeencoded": "Merge the equal states of FSTs.",
        "fstarcsort": "Sort the arcs of FSTs by labels.",
        "fstproject": "Acceptors of the labels of one side of FSTs.",
    },
    "graphs.determinization": {
        "fstdeterminizestar": "Determinize FSTs, without epsilons.",
    },
    "graphs.text": {
        "fstcompile": "Make FSTs of text.",
        "fstprint": "Print FSTs as text.",
    },
    "graphs.looking_ahead": {
        "fstconvert": "Write FSTs in other types, to look ahead too.",
        "fstrelabel": "Give labels of FSTs other numbers.",
    },
    "graphs.composition": {
        "fstcompose": "Compose two FSTs.",
        "fsttablecompose": "Compose FSTs.",
    },
    "lattices.lattices": {
        "lattice-copy": "Copy lattices, or some of them.",
        "lattice-align-phones": "Lattices whose arcs are phones.",
        "lattice-1best": "The best path of lattices.",
        "lattice-add-penalty": "Lattices, with a cost for each word.",
        "lattice-scale": "Lattices, their costs times factors.",
        "lattice-prune": "Lattices within a beam.",
    },
    "lattices.supervision": {
        "chain-get-supervision": "Supervision for chain examples.",
    },
    "sums": {
        "matrix-sum": "Add matrices.",
        "matrix-sum-rows": "Add up the rows of matrices.",
        "vector-sum": "Add vectors.",
    },
}

PROGRAMS: dict[str, tuple[str, str]] = {
    name: (module, text) for module, names in _BY_MODULE.items() for name, text in names.items()
}
"""Programs by name: the module of this folder that holds the program, and a line of help. The
function has the name of the program with `_` for `-`."""

OWN = frozenset({"nnet3-compile", "nnet3-xconfig-to-config"})
"""The programs that Kaldi does not have, or that take their arguments otherwise."""
