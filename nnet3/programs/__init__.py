"""Kaldi's nnet3 programs as commands: a module for each group of programs.

Gives `PROGRAMS` to the command line, which loads a module when one of its programs is called; what
programs share is in `base/`. May import every room of this floor. docs/adding_a_program.md adds a
program.
"""

PROGRAMS: dict[str, tuple[str, str]] = {
    "nnet3-init": ("models", "Make an nnet3 network from a config file."),
    "nnet3-copy": ("models", "Copy an nnet3 network, changed by options."),
    "nnet3-info": ("models", "Print what an nnet3 network is made of."),
    "nnet3-am-copy": ("models", "Copy an nnet3 acoustic model, changed by options."),
    "nnet3-am-info": ("models", "Print what an nnet3 acoustic model is made of."),
    "nnet3-compute": ("compute", "Compute the output of an nnet3 network for features."),
    "nnet3-xvector-compute": ("compute", "Compute one vector for each utterance."),
    "nnet3-compute-from-egs": ("compute", "Compute the output for each example."),
    "nnet3-compile": ("compile", "Print what a network computes for a request."),
    "nnet3-xconfig-to-config": ("xconfig", "Turn an xconfig into config files."),
    "nnet3-get-egs": ("get_egs", "Make examples from features and posteriors."),
    "nnet3-get-egs-dense-targets": ("get_egs", "Make examples from features and matrices."),
    "nnet3-xvector-get-egs": ("get_egs", "Make examples for x-vectors."),
    "nnet3-copy-egs": ("egs", "Copy examples; choose frames, cut context."),
    "nnet3-merge-egs": ("egs", "Merge examples into minibatches."),
    "nnet3-shuffle-egs": ("egs", "Copy examples in random order."),
    "nnet3-subset-egs": ("egs", "Draw examples at random."),
    "nnet3-egs-augment-image": ("egs", "Change images in examples at random."),
    "nnet3-train": ("train", "Train an nnet3 network on examples."),
    "nnet3-compute-prob": ("train", "Objective and accuracy on examples."),
    "nnet3-chain-train": ("chain", "Train an nnet3 network with LF-MMI."),
    "nnet3-chain-compute-prob": ("chain", "LF-MMI objective on examples."),
    "nnet3-chain-combine": ("chain", "Average the networks that do best with LF-MMI."),
    "nnet3-chain-get-egs": ("chain_egs", "Make chain examples."),
    "nnet3-chain-e2e-get-egs": ("chain_egs", "Make chain examples of whole utterances."),
    "nnet3-chain-normalize-egs": ("chain_egs", "Add weights to chain examples."),
    "nnet3-chain-copy-egs": ("chain_egs", "Copy chain examples; shift, cut context."),
    "nnet3-chain-merge-egs": ("chain_egs", "Merge chain examples into minibatches."),
    "nnet3-chain-shuffle-egs": ("chain_egs", "Copy chain examples in random order."),
    "nnet3-chain-subset-egs": ("chain_egs", "Draw chain examples at random."),
    "chain-est-phone-lm": ("graphs.denominator", "A phone language model for LF-MMI."),
    "chain-make-den-fst": ("graphs.denominator", "The denominator graph for LF-MMI."),
    "nnet3-average": ("models", "Average nnet3 networks."),
    "nnet3-combine": ("train", "Average the networks that do best on examples."),
    "nnet3-show-progress": ("train", "How a network changed."),
    "nnet3-acc-lda-stats": ("lda", "Statistics for LDA of a network's output."),
    "nnet3-chain-acc-lda-stats": ("lda", "The same, of chain examples."),
    "sum-lda-accs": ("lda", "Add statistics for LDA."),
    "nnet-get-feature-transform": ("lda", "An input transform from such statistics."),
    "nnet3-am-init": ("acoustic_models", "Make an acoustic model of a raw network."),
    "nnet3-am-adjust-priors": ("acoustic_models", "Set the priors of an acoustic model."),
    "nnet3-am-train-transitions": ("acoustic_models", "Transition probabilities of alignments."),
    "copy-transition-model": ("acoustic_models", "Copy a model's transition model."),
    "apply-cmvn": ("features", "Normalize the mean and variance of features."),
    "feat-to-dim": ("features", "How many columns features have."),
    "feat-to-len": ("features", "How many frames features have."),
    "cuda-compiled": ("features", "Whether there is a GPU."),
    "ali-to-pdf": ("alignments", "From transition-ids to pdfs."),
    "ali-to-phones": ("alignments", "From transition-ids to phones."),
    "ali-to-post": ("alignments", "From alignments to posteriors."),
    "copy-int-vector": ("alignments", "Copy vectors of integers."),
    "post-to-tacc": ("alignments", "Counts of transition-ids or pdfs."),
    "am-info": ("alignments", "How large an acoustic model is."),
    "hmm-info": ("alignments", "How large a transition model is."),
    "tree-info": ("alignments", "What a decision tree is like."),
    "matrix-sum": ("sums", "Add matrices."),
    "matrix-sum-rows": ("sums", "Add up the rows of matrices."),
    "vector-sum": ("sums", "Add vectors."),
}
"""Programs by name: the module of this folder that holds the program, and a line of help. The
function has the name of the program with `_` for `-`."""

OWN = frozenset({"nnet3-compile", "nnet3-xconfig-to-config"})
"""The programs that Kaldi does not have, or that take their arguments otherwise."""
