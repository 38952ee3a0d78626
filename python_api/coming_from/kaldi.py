# ruff: noqa: E501  (an entry is a line)
"""Kaldi's names: programs, components and xconfig layers from their tables; scripts and classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...nnet3.programs import PROGRAMS
from ...speech.programs import PROGRAMS as SPEECH_PROGRAMS
from .rows import Row, read

_ROWS: Final = """
steps/nnet3/train_dnn.py | opscope nnet3 train | features and targets in tables
steps/nnet3/train_raw_dnn.py | opscope nnet3 train |
steps/nnet3/train_rnn.py | opscope nnet3 train | `--chunk-left-context` and `--num-frames`
steps/nnet3/xconfig_to_configs.py | opscope nnet3-xconfig-to-config | `opscope.nnet3.xconfig_to_config` in Python
steps/nnet3/get_egs.sh | opscope nnet3-get-egs |
steps/nnet3/decode.sh | opscope nnet3-latgen-faster |
steps/nnet3/decode_looped.sh | opscope nnet3-latgen-faster-looped |
steps/online/nnet3/decode.sh | opscope online2-wav-nnet3-latgen-faster |
steps/make_mfcc.sh | opscope compute-mfcc-feats |
steps/make_fbank.sh | opscope compute-fbank-feats |
steps/make_plp.sh | opscope compute-plp-feats |
steps/make_mfcc_pitch.sh | opscope compute-and-process-kaldi-pitch-feats |
steps/compute_cmvn_stats.sh | opscope compute-cmvn-stats |
steps/online/nnet2/extract_ivectors_online.sh | opscope ivector-extract-online2 |
steps/nnet3/align.sh | opscope nnet3-align-compiled | `opscope align` for recordings and a text
steps/score_kaldi.sh | opscope compute-wer | `opscope wer` has a page with all errors
steps/get_ctm.sh | opscope lattice-to-ctm-conf |
local/score.sh | opscope wer |
utils/run.pl, utils/queue.pl, utils/slurm.pl | opscope nnet3 train | `--cmd`; also kubernetes and dask
path.sh | opscope links | a folder of executables to put into PATH
SRILM ngram-count | opscope make-lm |
SRILM ngram -ppl | opscope perplexity |
SRILM ngram -prune | opscope make-lm | `--prune`
SRILM ngram -mix-lm | opscope make-lm | `--mix`
kaldi_io, kaldiio | opscope.nnet3.read_table, opscope.nnet3.RandomAccessTable, opscope.nnet3.TableWriter |
SequentialTableReader | opscope.nnet3.read_table |
RandomAccessTableReader | opscope.nnet3.RandomAccessTable |
TableWriter | opscope.nnet3.TableWriter |
nnet3::Nnet | opscope.nnet3.Nnet |
nnet3::AmNnetSimple | opscope.nnet3.AmNnetSimple |
nnet3::{ComputationRequest IoSpecification NnetComputer} | opscope.nnet3.* |
nnet3::CachingOptimizingCompiler | opscope.nnet3.CachingCompiler |
nnet3::Compiler | opscope.nnet3.compile_request, opscope.nnet3.compile |
nnet3::NnetOptimizeOptions | opscope.nnet3.OptimizeOptions |
nnet3::NnetComputation | opscope.nnet3.Computation | its commands are `opscope.nnet3.Command`
nnet3::NnetTrainer | opscope.nnet3.NnetTrainer |
nnet3::NnetTrainerOptions | opscope.nnet3.NnetTrainerOptions |
nnet3::DecodableNnetSimple | opscope.nnet3.ChunkComputer |
nnet3::DecodableNnetSimpleLooped | opscope.nnet3.LoopedComputer |
nnet3::NnetBatchComputer | opscope.nnet3.BatchComputer |
nnet3::{Descriptor SumDescriptor SimpleSumDescriptor OptionalSumDescriptor ConstantSumDescriptor BinarySumDescriptor ForwardingDescriptor SimpleForwardingDescriptor OffsetForwardingDescriptor SwitchingForwardingDescriptor RoundingForwardingDescriptor ReplaceIndexForwardingDescriptor} | opscope.nnet3.* |
nnet3::ReadEditConfig | opscope.nnet3.apply_edits |
LatticeFasterDecoder | opscope.speech.Decoder |
LatticeFasterDecoderConfig | opscope.speech.SearchOptions |
GetRawLattice | opscope.speech.raw_lattice |
DeterminizeLatticePhonePruned | opscope.speech.determinized |
MinimumBayesRisk | opscope.speech.minimum_bayes_risk |
WordAlignLattice | opscope.speech.word_aligned |
Mfcc, MfccOptions | opscope.speech.Mfcc, opscope.speech.MfccOptions |
Fbank, FbankOptions | opscope.speech.Fbank, opscope.speech.FbankOptions |
Plp, PlpOptions | opscope.speech.Plp, opscope.speech.PlpOptions |
OnlineCmvn | opscope.speech.OnlineCmvn |
OnlineIvectorFeature | opscope.speech.OnlineIvector |
IvectorExtractor | opscope.speech.IvectorModel |
OnlineSilenceWeighting | opscope.speech.SilenceWeights |
SingleUtteranceNnet3Decoder | opscope.speech.Recognizer |
"""


def rows() -> Iterator[Row]:
    """The programs; the rows of this table; component types and layers of xconfigs."""
    from ...nnet3.components import COMPONENTS
    from ...nnet3.xconfig.configs import layer_types

    for name, (_, text) in {**PROGRAMS, **SPEECH_PROGRAMS}.items():
        yield Row("Kaldi", name, f"opscope {name}", text)
    yield from read("Kaldi", _ROWS)
    for name in COMPONENTS:
        yield Row(
            "Kaldi", name, f"opscope nnet3 components {name}", "the same in configs and models"
        )
    for name in layer_types():
        yield Row("Kaldi", f"xconfig {name}", f"opscope nnet3 xconfig-layers {name}", "the same")
