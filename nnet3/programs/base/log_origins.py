"""Where Kaldi's own programs print each message from: function, file and line.

Kaldi's log lines name their origin, and scripts look for it:

    LOG (nnet3-train[5.5]:PrintTotalStats():nnet-training.cc:317) Overall average objective ...

A message of ours gets the origin of Kaldi's message of these words, with the line of Kaldi's
revision f400766 (July 2025). A message that Kaldi does not have comes from `main` of the program,
and has no line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Origin:
    """A place in Kaldi's source; `line` is None where Kaldi has no such message."""

    function: str
    file: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.function}():{self.file}"
        return place if self.line is None else f"{place}:{self.line}"


# How the message begins ({}: anything), and by program the line in its `main`.
_MAIN: dict[str, dict[str, int]] = {
    "Read raw neural net from": {"nnet3-init": 68},
    "Initialized raw neural net": {"nnet3-init": 80},
    "Copied raw neural net": {"nnet3-copy": 123},
    "Copied neural net from {} to raw format": {"nnet3-am-copy": 153},
    "Copied neural net from": {"nnet3-am-copy": 160},
    "Initialized am-nnet": {"nnet3-am-init": 96},
    "Modified priors": {"nnet3-am-adjust-priors": 137},
    "Accumulated transition stats": {"nnet3-am-train-transitions": 118},
    "Transition model update": {"nnet3-am-train-transitions": 125},
    "Setting priors of pdfs": {"nnet3-am-train-transitions": 131},
    "Trained transitions": {"nnet3-am-train-transitions": 140},
    "Copied transition model": {"copy-transition-model": 62},
    "Reading phone sequences": {"chain-est-phone-lm": 62},
    "Estimating phone LM": {"chain-est-phone-lm": 67},
    "Estimated phone language model": {"chain-est-phone-lm": 73},
    "Write denominator FST": {"chain-make-den-fst": 78},
    "Done {} utterances.": {"ali-to-phones": 134},
    "Zero-length utterance": {"nnet3-compute": 138, "nnet3-xvector-compute": 168},
    "No iVector available": {"nnet3-compute": 146},
    "No online iVector available": {"nnet3-compute": 155},
    "Time taken": {"nnet3-compute": 189, "nnet3-xvector-compute": 239},
    "Done {} utterances, failed for": {"nnet3-compute": 192, "nnet3-xvector-compute": 241},
    "Processed {} examples.": {
        "nnet3-compute-from-egs": 133,
        "nnet3-acc-lda-stats": 185,
        "nnet3-chain-acc-lda-stats": 242,
    },
    "No iVectors for utterance": {
        "nnet3-get-egs": 237,
        "nnet3-get-egs-dense-targets": 245,
        "nnet3-chain-get-egs": 400,
        "nnet3-chain-e2e-get-egs": 310,
    },
    "No deriv weights": {"nnet3-chain-get-egs": 423},
    "{} utterances had errors": {
        "nnet3-get-egs": 266,
        "nnet3-get-egs-dense-targets": 274,
        "nnet3-chain-get-egs": 442,
        "nnet3-chain-e2e-get-egs": 337,
    },
    "Could not create examples from utterance": {"nnet3-xvector-get-egs": 200},
    "Finished generating examples": {"nnet3-xvector-get-egs": 220},
    "No weight for example key": {"nnet3-copy-egs": 389, "nnet3-chain-copy-egs": 363},
    "No new output-name": {"nnet3-copy-egs": 400, "nnet3-chain-copy-egs": 372},
    "Read {} neural-network training examples": {
        "nnet3-copy-egs": 431,
        "nnet3-chain-copy-egs": 393,
    },
    "Shuffled order of": {"nnet3-shuffle-egs": 105, "nnet3-chain-shuffle-egs": 106},
    "Selected a subset of": {"nnet3-subset-egs": 92, "nnet3-chain-subset-egs": 92},
    "Perturbed": {"nnet3-egs-augment-image": 387},
    "For example {}, FST was empty": {"nnet3-chain-normalize-egs": 84},
    "Added normalization to": {"nnet3-chain-normalize-egs": 94},
    "Wrote model to": {"nnet3-train": 91},
    "Wrote raw model to": {"nnet3-chain-train": 101},
    "Averaged parameters of": {"nnet3-average": 164},
    "Read {} examples.": {"nnet3-combine": 148, "nnet3-chain-combine": 165},
    "objective function using the last": {"nnet3-combine": 158, "nnet3-chain-combine": 175},
    "Combining last": {"nnet3-combine": 174, "nnet3-chain-combine": 192},
    "Combining {} nnets, objective": {"nnet3-combine": 183, "nnet3-chain-combine": 201},
    "Finished combining": {"nnet3-combine": 195, "nnet3-chain-combine": 213},
    "Parameter-dim mismatch": {"nnet3-show-progress": 79},
    "At position": {"nnet3-show-progress": 115},
    "By segment": {"nnet3-show-progress": 125},
    "Total objf change per component": {"nnet3-show-progress": 128},
    "Printing info for the difference": {"nnet3-show-progress": 136},
    "Parameter differences per layer": {"nnet3-show-progress": 143},
    "Norms of parameter matrices": {"nnet3-show-progress": 153},
    "Relative parameter differences": {"nnet3-show-progress": 157},
    "Summed rows": {"matrix-sum-rows": 67},
    "Done copying": {"lattice-copy": 225},
    "Lattice for": {"lattice-align-phones": 85},
    "Outputting partial lattice": {"lattice-align-phones": 88},
    "Lattice was empty": {"lattice-align-phones": 96},
    "Successfully aligned": {"lattice-align-phones": 105},
    "Possibly empty lattice": {"lattice-1best": 90},
    "Done converting": {"lattice-1best": 103},
    "Error pruning lattice": {"lattice-prune": 88},
    "For utterance {}, pruned": {"lattice-prune": 94},
    "Overall, pruned": {"lattice-prune": 103},
    "Done {} lattices.": {"lattice-prune": 107},
    "Error creating proto-supervision": {"chain-get-supervision": 119},
    "Generated chain supervision": {"chain-get-supervision": 150},
    "No features for utterance": {"apply-cmvn-online": 84},
    "Applied online CMVN": {"apply-cmvn-online": 132},
    "Copied {} feature matrices.": {"copy-feats": 143},
    "Copied features from": {"copy-feats": 165},
    "Copied matrix to": {"copy-matrix": 112},
    "Copied {} matrices.": {"copy-matrix": 135},
    "No features read": {"matrix-dim": 56},
    "Did not find features": {"compute-cmvn-stats": 107},
    "No stats accumulated": {"compute-cmvn-stats": 123},
    "Wrote global CMVN stats": {"compute-cmvn-stats": 168},
    "Done accumulating CMVN stats": {"compute-cmvn-stats": 171},
    "Copied {} FSTs.": {"fstcopy": 71},
}

# Messages of other functions, by program ("": any), function and file, with their lines. The first
# that fits counts, of several that fit.
_FUNCTIONS: dict[tuple[str, str, str], dict[str, int]] = {
    ("", "Check", "nnet-nnet.cc"): {
        "Component {} is never used": 779,
        "Node {} is never used": 789,
    },
    ("", "RemoveOrphanComponents", "nnet-nnet.cc"): {
        "Removed {} orphan components": 847,
    },
    ("", "RemoveOrphanNodes", "nnet-nnet.cc"): {
        "Removed {} orphan nodes": 948,
    },
    ("", "ApplySvd", "nnet-utils.cc"): {
        "Decomposed {} components": 678,
    },
    ("", "ReduceRankOfComponents", "nnet-utils.cc"): {
        "Reduced rank of parameters": 1243,
    },
    ("", "ReadEditConfig", "nnet-utils.cc"): {
        "Converted {} components to FixedAffine": 1275,
        "Set learning rates": 1314,
        "Set learning rate factors": 1339,
        "Removed {} output nodes": 1377,
        "Set dropout proportions": 1413,
    },
    ("", "Collapse", "nnet-utils.cc"): {
        "Added {} components, removed": 1488,
    },
    ("", "SetNnet", "am-nnet-simple.cc"): {
        "Removed {} priors": 63,
    },
    ("nnet3-chain-train", "NnetChainTrainer", "nnet-chain-training.cc"): {
        "Read computation cache": 51,
        "Could not open cached computation": 53,
    },
    ("nnet3-chain-train", "~NnetChainTrainer", "nnet-chain-training.cc"): {
        "Wrote computation cache": 348,
    },
    ("", "NnetTrainer", "nnet-training.cc"): {
        "Read computation cache": 48,
        "Could not open cached computation": 50,
    },
    ("", "~NnetTrainer", "nnet-training.cc"): {
        "Wrote computation cache": 334,
    },
    ("", "PrintStatsForThisPhase", "nnet-training.cc"): {
        "Average objective function for {} for minibatches {} = ": 296,
        "Average objective function for {} for minibatches": 278,
        "Average objective function for {} using {} = ": 302,
        "Average objective function for {} using": 284,
    },
    ("", "PrintTotalStats", "nnet-training.cc"): {
        "Overall average objective function for {} = ": 320,
        "Overall average objective function": 317,
        "[this line is to be parsed": 324,
    },
    ("", "UpdateNnetWithMaxChange", "nnet-utils.cc"): {
        "Infinite parameter change": 2182,
        "Per-component max-change active": 2205,
        "Global max-change factor": 2205,
    },
    ("", "Print", "nnet-utils.cc"): {
        "For {}, per-component max-change": 2311,
        "The global max-change": 2320,
    },
    ("nnet3-chain-combine", "RecomputeStats", "nnet-chain-diagnostics.cc"): {
        "Recomputing stats": 301,
        "Done recomputing stats": 319,
    },
    ("", "RecomputeStats", "nnet-utils.cc"): {
        "Recomputing stats": 551,
        "Done recomputing stats": 559,
    },
    ("chain-est-phone-lm", "DoBackoff", "language-model.cc"): {
        "In LM [hard] backoff": 252,
    },
    ("chain-est-phone-lm", "Estimate", "language-model.cc"): {
        "Estimating language model": 298,
    },
    ("chain-est-phone-lm", "OutputToFst", "language-model.cc"): {
        "Total number of phone instances": 394,
        "Perplexity on training data": 395,
        "Note: perplexity": 396,
        "Created phone language model": 404,
    },
    ("chain-make-den-fst", "CreateDenominatorFst", "chain-den-graph.cc"): {
        "Number of states and arcs in phone-LM": 306,
        "Number of states and arcs in context-dependent": 335,
        "Number of states and arcs in transition-id FST is": 371,
        "Number of states and arcs in transition-id FST after removing epsilons": 379,
    },
    ("chain-make-den-fst", "DenGraphMinimizeWrapper", "chain-den-graph.cc"): {
        "Number of states and arcs in transition-id FST after reversed": 228,
        "Number of states and arcs in transition-id FST after regular": 233,
        "Number of states and arcs in transition-id FST after removing any": 238,
    },
    ("chain-make-den-fst", "PrintDenGraphStats", "chain-den-graph.cc"): {
        "Number of states is": 269,
    },
    ("chain-make-den-fst", "CheckDenominatorFst", "chain-den-graph.cc"): {
        "Pdf-id {} is not seen": 292,
    },
    ("", "Iterate", "push-special.cc"): {
        "push-special: finished": 182,
    },
    ("", "GetWeights", "nnet3-average.cc"): {
        "Normalizing weights": 50,
    },
    ("", "PrintTotalStats", "nnet-chain-diagnostics.cc"): {
        "Overall log-probability for {} = ": 244,
        "Overall log-probability": 239,
        "Total LWF": 250,
    },
    ("", "PrintTotalStats", "nnet-diagnostics.cc"): {
        "Overall accuracy": 180,
        "Overall per-dim accuracy": 195,
        "Overall log-likelihood": 162,
        "Overall objective": 162,
    },
    ("", "CheckAndFixConfigs", "nnet-am-decodable-simple.cc"): {
        "Increasing --frames-per-chunk from {} due": 300,
        "Increasing --frames-per-chunk": 294,
    },
    ("nnet3-get-egs", "ProcessFile", "nnet3-get-egs.cc"): {
        "Not producing egs for utterance": 54,
    },
    ("nnet3-get-egs-dense-targets", "ProcessFile", "nnet3-get-egs-dense-targets.cc"): {
        "Not producing egs for utterance": 59,
    },
    ("nnet3-chain-get-egs", "ProcessFile", "nnet3-chain-get-egs.cc"): {
        "Not producing egs for utterance": 134,
        "For {}, FST was empty": 159,
    },
    ("nnet3-chain-e2e-get-egs", "ProcessFile", "nnet3-chain-e2e-get-egs.cc"): {
        "For {}, FST was empty": 129,
    },
    ("", "~UtteranceSplitter", "nnet-example-utils.cc"): {
        "Split {} utts": 373,
        "Average chunk length": 383,
        "Output frames are distributed": 399,
    },
    ("", "PrintAggregateStats", "nnet-example-utils.cc"): {
        "Processed {} egs of avg. size": 1156,
    },
    ("", "PrintSpecificStats", "nnet-example-utils.cc"): {
        "Merged specific eg types": 1160,
    },
    ("", "PrintPriorDiagnostics", "nnet3-am-adjust-priors.cc"): {
        "Model did not previously have priors": 51,
        "Adjusting priors: largest": 58,
        "Adjusting priors: K-L": 61,
    },
    ("", "MleUpdate", "transition-model.cc"): {
        "TransitionModel::Update": 528,
        "{} probabilities floored": 531,
    },
    ("nnet3-chain-acc-lda-stats", "WriteStats", "nnet3-chain-acc-lda-stats.cc"): {
        "Accumulated stats": 71,
    },
    ("", "WriteStats", "nnet3-acc-lda-stats.cc"): {
        "Accumulated stats": 59,
    },
    ("", "Estimate", "get-feature-transform.cc"): {
        "Data count is": 35,
    },
    ("", "EstimateInternal", "get-feature-transform.cc"): {
        "Cholesky failed": 67,
        "LDA singular values": 84,
        "Sum of all singular": 86,
        "Sum of selected singular": 87,
        "Applied ceiling": 117,
    },
    ("lattice-copy", "CopySubsetLattices", "lattice-copy.cc"): {
        "The utterance {} is larger": 106,
        "Wrote {} out of": 122,
    },
    ("lattice-align-phones", "AlignLattice", "phone-align-lattice.cc"): {
        "Trying to word-align empty lattice": 267,
    },
    ("lattice-align-phones", "OutputPhoneArc", "phone-align-lattice.cc"): {
        "Phone changed before final": 313,
    },
    ("lattice-align-phones", "OutputArcForce", "phone-align-lattice.cc"): {
        "Mismatch in phone": 386,
        "Problem phone-aligning lattice": 391,
    },
    (
        "chain-get-supervision",
        "PhoneLatticeToProtoSupervisionInternal",
        "chain-supervision.cc",
    ): {
        "Empty lattice provided": 153,
        "CompactLattice has epsilon arc": 178,
        "Time of final state": 201,
    },
    ("chain-get-supervision", "ProtoSupervisionToSupervision", "chain-supervision.cc"): {
        "Supervision FST is empty": 393,
    },
    ("chain-get-supervision", "ProcessSupervision", "chain-get-supervision.cc"): {
        "Failed creating supervision": 43,
    },
    ("compute-cmvn-stats", "AccCmvnStatsWrapper", "compute-cmvn-stats.cc"): {
        "No weights available": 37,
        "Weights for utterance": 42,
    },
    ("matrix-sum", "TypeTwoUsage", "matrix-sum.cc"): {
        "Dimension mismatch for key": 201,
        "Zero matrix input": 196,
        "Summed {} with errors": 216,
    },
    ("matrix-sum", "TypeOneUsage", "matrix-sum.cc"): {
        "Dimension mismatch": 74,
        "No matrix found": 83,
        "Processed {} utterances": 94,
        "Produced output": 97,
    },
    ("matrix-sum", "TypeThreeUsage", "matrix-sum.cc"): {
        "Summed": 253,
    },
    ("vector-sum", "TypeTwoUsage", "vector-sum.cc"): {
        "Dimension mismatch for key": 127,
        "Zero vector input": 122,
        "Summed {} with errors": 142,
    },
    ("vector-sum", "TypeOneUsage", "vector-sum.cc"): {
        "Dimension mismatch": 73,
        "No vector found": 80,
        "Processed {} utterances": 91,
        "Produced output": 94,
    },
    ("vector-sum", "TypeThreeUsage", "vector-sum.cc"): {
        "Summed": 174,
    },
    ("", "CompileNoShortcut", "nnet-optimize.cc"): {
        "Computation request is": 760,
        "Generated computation is": 763,
        "Optimized computation is": 788,
    },
    ("", "Optimize", "nnet-optimize.cc"): {
        "Before optimization, max memory use": 507,
        "After optimization, max memory use": 629,
    },
    ("", "OptimizeMemoryCompression", "nnet-optimize-utils.cc"): {
        "Memory compression reduced": 4942,
    },
    ("", "ComputeDerivNeeded", "nnet-compile.cc"): {
        "deriv_needed = ": 248,
    },
    ("", "Compute", "nnet-computation-graph.cc"): {
        "current_distance = ": 486,
    },
    ("", "ComputeEpochInfo", "nnet-computation-graph.cc"): {
        "node_to_epoch: ": 1097,
    },
    ("", "ComputeNnetComputationEpochs", "nnet-graph.cc"): {
        "graph is: ": 271,
        "scc graph is: ": 278,
        "scc_node_to_epoch is: ": 286,
    },
    ("", "CompileLooped", "nnet-compile-looped.cc"): {
        "Looped compilation failed with": 349,
    },
    ("", "Init", "decodable-simple-looped.cc"): {
        "Computation is:": 88,
    },
    ("", "Init", "nnet-compute.cc"): {
        "matrix m1(": 88,
    },
    ("", "DebugAfterExecute", "nnet-compute.cc"): {
        "c{}: {}\t|\t": 185,
    },
    ("nnet3-merge-egs", "PrintSpecificStats", "nnet-example-utils.cc"): {
        "": 1190,
    },
    ("nnet3-chain-merge-egs", "PrintSpecificStats", "nnet-example-utils.cc"): {
        "": 1190,
    },
}


def origin_of(program: str, message: str) -> Origin:
    """Where Kaldi's program of that name prints a message of these words from."""
    from . import speech_origins  # most runs of programs print nothing from there

    for beginning, lines in (*_MAIN.items(), *speech_origins.MAIN.items()):
        if program in lines and _begins(beginning).match(message):
            return Origin("main", f"{program}.cc", lines[program])
    for (name, function, file), lines in (*speech_origins.FUNCTIONS.items(), *_FUNCTIONS.items()):
        if name in ("", program):
            for beginning, line in lines.items():
                if _begins(beginning).match(message):
                    return Origin(function, file, line)
    return Origin("main", f"{program}.cc")


@cache
def _begins(beginning: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, beginning.split("{}"))), re.S)
