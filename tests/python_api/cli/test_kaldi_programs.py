"""Every program of Kaldi that `opscope links` names: run bare, with --help, and on a tiny input.

The listing is one small experiment: a line reads what the lines before it wrote. A program that
is new in `links` fails here until it has a line.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from ivector_models import DIM
from kaldi_models import call_main, one_state_model
from opscope.framework.base.backend import gpu_present
from opscope.kaldi.fst.fst import Fst
from opscope.kaldi.tables.tables import TableWriter
from opscope.nnet3.files.examples import NnetExample, NnetIo
from opscope.python_api.cli.main import kaldi_programs, main
from speech_decoding import LENGTHS, PHONES, decoding_graph, write_decoding
from speech_graphs import (
    arc_fst,
    grammar_bytes,
    lookahead_bytes,
    random_first,
    random_grammar,
    vector_bytes,
)

PROGRAMS = kaldi_programs()
_SMALL = """input-node name=input dim={dim}
component name=a type=NaturalGradientAffineComponent input-dim={dim} output-dim={pdfs}
component-node name=a component=a input=input
component name=l type=LogSoftmaxComponent dim={pdfs}
component-node name=l component=l input=a
output-node name=output input={output}
"""
_TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 2 3 4 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State>
<State> 1 </State> </TopologyEntry> </Topology>
"""
_TREE = """ContextDependency 1 0 ToPdf TE 0 5 ( NULL CE 0 CE 1 CE 2 CE 3 )
EndContextDependency """
_NNET2 = """<Nnet> <NumComponents> 1 <Components>
<AffineComponentPreconditioned> <LearningRate> 0.5 <LinearParams> [ 1 2
3 4 ] <BiasParams> [ 0 1 ] <Alpha> 4 <MaxChange> 10 </AffineComponentPreconditioned>
</Components> </Nnet> [ ]
"""
_RNNLM = """input-node name=input dim=2
component name=a type=AffineComponent input-dim=4 output-dim=2
component-node name=a component=a input=Append(input, IfDefined(Offset(a, -1)))
output-node name=output input=a
"""

EXPERIMENT = """
compute-mfcc-feats --config=mfcc.conf scp:wav.scp ark:mfcc.ark
compute-fbank-feats --num-mel-bins=10 scp:wav.scp ark:fbank.ark
compute-spectrogram-feats scp:wav.scp ark:spectrogram.ark
compute-plp-feats scp:wav.scp ark:plp.ark
compute-kaldi-pitch-feats scp:wav.scp ark:pitch.ark
process-kaldi-pitch-feats ark:pitch.ark ark:processed.ark
compute-and-process-kaldi-pitch-feats scp:wav.scp ark:both.ark
extract-segments scp:wav.scp segments ark:parts.ark
compute-cmvn-stats --spk2utt=ark:spk2utt ark:feats.ark ark:cmvn.ark
compute-cmvn-stats ark:feats.ark global.cmvn
apply-cmvn --utt2spk=ark:utt2spk ark:cmvn.ark ark:feats.ark ark:normal.ark
apply-cmvn-online global.cmvn ark:feats.ark ark:heard.ark
apply-cmvn-sliding --cmn-window=10 ark:feats.ark ark:sliding.ark
splice-feats --left-context=1 --right-context=1 ark:feats.ark ark:spliced.ark
add-deltas ark:feats.ark ark:deltas.ark
subsample-feats --n=2 ark:feats.ark ark:half.ark
subset-feats --n=2 ark:feats.ark ark:two.ark
copy-feats --compress=true ark:feats.ark ark,scp:copied.ark,copied.scp
feat-to-dim ark:feats.ark dim
feat-to-len scp:copied.scp ark,t:lengths
cuda-compiled
cuda-gpu-available
nnet3-latgen-faster --ivectors=ark:ivectors.ark --acoustic-scale=1.0 --lattice-beam=2 \
    --word-symbol-table=words.txt final.mdl HCLG.fst ark:feats.ark ark:o.lat ark,t:o.words ark:o.ali
nnet3-latgen-faster-parallel --config=latgen.conf --num-threads=2 final.mdl HCLG.fst ark:feats.ark \
    ark:parallel.lat
nnet3-latgen-faster-batch --config=latgen.conf final.mdl HCLG.fst ark:feats.ark ark:batch.lat
nnet3-latgen-faster-looped --config=latgen.conf final.mdl HCLG.fst ark:feats.ark ark:looped.lat
nnet3-latgen-faster-looped-parallel --config=latgen.conf final.mdl ark:graphs.ark ark:feats.ark \
    ark:lp.lat
nnet3-latgen-faster-lookahead --config=latgen.conf final.mdl HCLr.fst Gr.fst disambig \
    ark:feats.ark ark:la.lat
nnet3-latgen-grammar --config=latgen.conf final.mdl grammar.fst ark:feats.ark ark:grammar.lat
nnet3-align-compiled --ivectors=ark:ivectors.ark final.mdl ark:graphs.ark ark:feats.ark ark:ali.ark
ivector-extract-online2 --config=ivector_extractor.conf ark:spk2utt ark:feats.ark ark:i.ark
compute-vad --vad-energy-threshold=0 --vad-energy-mean-scale=0 ark:feats.ark ark:vad.ark
select-voiced-frames ark:feats.ark ark:vad.ark ark:voiced.ark
gmm-global-init-from-feats --num-gauss=2 --num-iters=2 ark:feats.ark d.gmm
gmm-gselect d.gmm ark:feats.ark ark:chosen.ark
gmm-global-acc-stats --gselect=ark:chosen.ark d.gmm ark:feats.ark d.acc
gmm-global-sum-accs d.sum d.acc d.acc
gmm-global-est --min-gaussian-occupancy=1 d.gmm d.sum d2.gmm
gmm-global-copy d2.gmm d3.gmm
gmm-global-to-fgmm d.gmm f.gmm
fgmm-gselect f.gmm ark:feats.ark ark:chosen.f
fgmm-global-acc-stats --gselect=ark:chosen.f f.gmm ark:feats.ark f.acc
fgmm-global-sum-accs f.sum f.acc f.acc
fgmm-global-est --min-gaussian-occupancy=1 f.gmm f.sum f2.gmm
fgmm-global-copy f2.gmm f3.gmm
fgmm-global-to-gmm f2.gmm d4.gmm
gmm-global-get-post --n=2 d.gmm ark:feats.ark ark:d.post
gmm-global-gselect-to-post d.gmm ark:feats.ark ark:chosen.ark ark:d2.post
fgmm-global-gselect-to-post f.gmm ark:feats.ark ark:chosen.f ark:f.post
scale-post ark:f.post 0.5 ark:half.post
ivector-extractor-init --ivector-dim=2 f.gmm 0.ie
ivector-extractor-acc-stats 0.ie ark:feats.ark ark:half.post 0.ieacc
ivector-extractor-sum-accs 0.ieacc 0.ieacc ie.sum
ivector-extractor-est --gaussian-min-count=1 0.ie ie.sum 1.ie
ivector-extractor-copy 1.ie 2.ie
ivector-extract 1.ie ark:feats.ark ark:half.post ark:i1.ark
ivector-mean ark:spk2utt ark:rows.txt ark:means.ark ark:numbers.ark
ivector-subtract-global-mean ark:rows.txt ark:centered.ark
ivector-normalize-length ark:centered.ark ark:normal.vec
ivector-compute-lda --dim=1 ark:rows.txt ark:utt2spk rows.lda
transform-vec rows.lda ark:rows.txt ark:projected.ark
ivector-compute-plda ark:spk2utt ark:rows.txt plda
ivector-copy-plda --smoothing=0.1 plda plda.smooth
ivector-adapt-plda plda ark:rows.txt plda.adapted
ivector-plda-scoring --num-utts=ark:numbers.ark plda ark:means.ark ark:rows.txt trials scores
ivector-plda-scoring-dense --target-energy=1 plda ark:spk2utt ark:rows.txt ark:dense.ark
compute-eer labels
online2-wav-nnet3-latgen-faster --mfcc-config=mfcc.conf --lattice-beam=2 \
    --ivector-extraction-config=ivector_extractor.conf final.mdl HCLG.fst ark:spk2utt scp:wav.scp \
    ark:online.lat
lattice-copy ark:o.lat ark:copy.lat
nnet3-latgen-faster --config=latgen.conf --determinize-lattice=false --lattice-beam=0.3 \
    final.mdl HCLG.fst ark:feats.ark ark:raw.lat
lattice-scale --lm-scale=0.5 ark:o.lat ark:scaled.lat
lattice-best-path ark:o.lat ark,t:best.words ark:best.ali
compute-wer ark,t:o.words ark:best.words
compute-wer-bootci ark,t:o.words ark:best.words
align-text ark,t:o.words ark:best.words ark:pairs.txt
lattice-oracle ark:o.lat ark,t:o.words ark:oracle.words
lattice-determinize-phone-pruned final.mdl ark:raw.lat ark:pruned.words
lattice-determinize-non-compact --prune=true ark:raw.lat ark:plain.lat
lattice-prune --beam=1 ark:o.lat ark:pruned.lat
lattice-1best ark:o.lat ark:best.lat
lattice-align-phones final.mdl ark:o.lat ark:phones.lat
lattice-add-penalty --word-ins-penalty=0.5 ark:o.lat ark:penalized.lat
lattice-align-words word_boundary.int final.mdl ark:words.lat ark:aligned.lat
lattice-to-ctm-conf ark:o.lat conf.ctm
lattice-mbr-decode ark:o.lat ark:mbr.words ark:risks ark:bins ark:mbr.times
nbest-to-ctm ark:best.lat best.ctm
ali-to-pdf final.mdl ark:o.ali ark:pdfs.ark
ali-to-phones --write-lengths=true final.mdl ark:o.ali ark:lengths.ark
ali-to-phones final.mdl ark:o.ali ark,t:sequences.ark
ali-to-post ark:pdfs.ark ark:post.ark
copy-int-vector ark:pdfs.ark ark,t:pdfs.txt
ali-to-post ark:o.ali ark:ids.post
acc-tree-stats final.mdl ark:feats.ark ark:o.ali 1.acc
sum-tree-stats treeacc 1.acc 1.acc
cluster-phones --pdf-class-list=0 treeacc phone_sets questions.txt
compile-questions topology questions.txt questions.qst
build-tree --thresh=1 --round-num-leaves=false treeacc roots questions.qst topology grown
gmm-init-mono --train-feats=ark:feats.ark topology 3 mono.mdl mono.tree
gmm-init-biphone topology 3 biphone.mdl biphone.tree
gmm-init-model --write-occs=occs grown treeacc topology grown.mdl
gmm-latgen-faster --acoustic-scale=0.01 --lattice-beam=1 mono.mdl HCLG.fst ark:feats.ark ark:gmm.lat
gmm-latgen-faster-parallel --acoustic-scale=0.01 --lattice-beam=1 grown.mdl \
    ark:graphs.ark ark:feats.ark ark:gp.lat
nnet-am-copy --remove-preconditioning=true nnet2.mdl copied.mdl
convert-ali final.mdl final.mdl tree ark:words.ali ark:converted.ali
fstcompile L.txt L.fst
compile-train-graphs tree final.mdl L.fst ark:spoken ark:train.graphs
compile-train-graphs-fsts tree final.mdl L.fst ark:spoken.ark ark:train.fsts
fstisstochastic --delta=9 L.fst
fstcomposecontext --context-size=1 --central-position=0 ilabels L.fst CL.fst
make-ilabel-transducer ilabels tree final.mdl fewer map.fst
make-h-transducer ilabels tree final.mdl Ha.fst
fstcompose Ha.fst CL.fst HCLa.fst
add-self-loops --self-loop-scale=0.1 final.mdl HCLa.fst HCL.fst
make-grammar-fst --nonterm-phones-offset=100 HCLG.fst made_grammar.fst
post-to-tacc --per-pdf=true final.mdl ark:ids.post 1.tacc
vector-sum 1.tacc 1.tacc total.tacc
show-transitions phones.txt final.mdl total.tacc
am-info final.mdl
hmm-info final.mdl
tree-info tree
nnet3-init small.config 0.raw
nnet3-copy --binary=false 0.raw 0.txt
nnet3-info 0.raw
nnet3-am-init tree topology 0.raw made.mdl
nnet3-am-copy --raw=true final.mdl final.raw
nnet3-am-info final.mdl
nnet3-am-adjust-priors made.mdl total.tacc adjusted.mdl
nnet3-am-train-transitions made.mdl ark:o.ali trained.mdl
copy-transition-model made.mdl made.trans
nnet3-compute --ivectors=ark:ivectors.ark final.raw ark:feats.ark ark:out.ark
latgen-faster-mapped --acoustic-scale=1.0 --lattice-beam=1 final.mdl HCLG.fst ark:out.ark ark:m.lat
latgen-faster-mapped-parallel --acoustic-scale=1.0 --lattice-beam=1 final.mdl ark:graphs.ark \
    ark:out.ark ark:mp.lat
nnet3-compute-batch --ivectors=ark:ivectors.ark final.raw ark:feats.ark ark:batch.ark
nnet3-xvector-compute xvector.raw ark:feats.ark ark:x.ark
nnet3-xvector-compute-batched --chunk-size=30 xvector.raw ark:feats.ark ark:xb.ark
nnet3-get-egs-simple input=ark:feats.ark output=ark:out.ark ark:simple.egs
nnet3-get-egs --num-pdfs=4 ark:feats.ark ark:post.ark ark:egs.ark
nnet3-get-egs-dense-targets --num-targets=4 ark:feats.ark ark:out.ark ark:dense.egs
nnet3-xvector-get-egs --num-pdfs=4 ranges ark:feats.ark ark:xvector.egs
nnet3-copy-egs ark:egs.ark ark:copy.egs
nnet3-shuffle-egs ark:egs.ark ark:shuffled.egs
nnet3-subset-egs --n=5 ark:egs.ark ark:five.egs
nnet3-merge-egs --minibatch-size=8 ark:egs.ark ark:merged.egs
nnet3-egs-augment-image --num-channels=1 ark:images.egs ark:augmented.egs
nnet3-compute-from-egs --apply-exp=true 0.raw ark:egs.ark ark:outputs.ark
nnet3-train 0.raw ark:merged.egs 1.raw
nnet3-compute-prob 1.raw ark:merged.egs
nnet3-average 0.raw 1.raw average.raw
nnet3-combine 0.raw 1.raw ark:merged.egs combined.raw
nnet3-show-progress 0.raw 1.raw ark:merged.egs
nnet3-acc-lda-stats 0.raw ark:egs.ark 1.lda
sum-lda-accs all.lda 1.lda 1.lda
nnet-get-feature-transform --dim=2 lda.mat all.lda
copy-matrix lda.mat lda.txt
matrix-dim lda.mat
transform-feats lda.mat ark:out.ark ark:transformed.ark
matrix-sum lda.mat lda.mat sum.mat
matrix-sum-rows ark:feats.ark ark:rows.ark
fstcopy ark:graphs.ark ark:copied.graphs
arpa2fst --disambig-symbol=#0 lm.arpa G.fst
arpa-to-const-arpa --bos-symbol=6 --eos-symbol=7 labels.arpa G.carpa
fstcompile words.fst.txt words.fst
lattice-lmrescore --lm-scale=-1.0 ark:o.lat words.fst ark:subtracted.lat
lattice-lmrescore-const-arpa ark:o.lat G.carpa ark:rescored.lat
lattice-lmrescore-pruned --add-const-arpa=true words.fst G.carpa ark:o.lat ark:replaced.lat
nnet3-init rnnlm.config rnnlm.raw
lattice-lmrescore-kaldi-rnnlm --bos-symbol=6 --eos-symbol=7 words.mat rnnlm.raw ark:o.lat ark:r.lat
lattice-lmrescore-kaldi-rnnlm-pruned --bos-symbol=6 --eos-symbol=7 words.fst words.mat rnnlm.raw \
    ark:o.lat ark:rp.lat
chain-est-phone-lm --num-extra-lm-states=10 ark:sequences.ark phone_lm.fst
fstprint phone_lm.fst phone_lm.txt
fstconvert --fst_type=olabel_lookahead --save_relabel_opairs=relabel phone_lm.fst ahead.fst
fstrelabel --relabel_ipairs=relabel phone_lm.fst relabeled.fst
fstcompile phone_lm.txt compiled.fst
fstdeterminizestar compiled.fst det.fst
fstminimizeencoded det.fst minimized.fst
fstpushspecial minimized.fst pushed.fst
fstarcsort --sort_type=olabel pushed.fst sorted.fst
fstproject --project_output=true sorted.fst projected.fst
fstaddselfloops disambig disambig sorted.fst loops.fst
fsttablecompose loops.fst phone_lm.fst composed.fst
fstrmsymbols disambig composed.fst removed.fst
fstrmepslocal removed.fst local.fst
chain-make-den-fst tree final.mdl phone_lm.fst den.fst norm.fst
chain-make-den-fst tree final.mdl phone_lm.fst den/default.den.fst den/default.normalization.fst
nnet3-init languages.config languages.raw
chain-get-supervision tree final.mdl ark:lengths.ark ark:sup.ark
nnet3-init chain.config chain.raw
nnet3-chain-get-egs --num-frames=20 norm.fst ark:feats.ark ark:sup.ark ark:chain.egs
nnet3-chain-get-egs --num-frames=20 ark:feats.ark ark:sup.ark ark:bare.egs
nnet3-chain-e2e-get-egs --num-frames=25,40,61 ark:feats.ark ark:phones.ark final.mdl ark:e2e.egs
chain-make-num-fst-e2e final.mdl norm.fst ark:phones.ark ark:numerators.ark
nnet3-chain-normalize-egs norm.fst ark:bare.egs ark:normal.egs
nnet3-chain-copy-egs ark:chain.egs ark:chain.copy
nnet3-chain-shuffle-egs ark:chain.egs ark:chain.shuffled
nnet3-chain-subset-egs --n=2 ark:chain.egs ark:chain.two
nnet3-chain-merge-egs --minibatch-size=2 ark:chain.egs ark:chain.merged
nnet3-chain-train chain.raw den.fst ark:chain.merged chain1.raw
nnet3-chain-compute-prob chain1.raw den.fst ark:chain.merged
nnet3-chain-combine den.fst chain.raw chain1.raw ark:chain.merged chain2.raw
nnet3-chain-train2 languages.raw den ark:chain.merged languages1.raw
nnet3-chain-combine2 den languages.raw languages1.raw ark:chain.merged languages2.raw
nnet3-chain-compute-post chain.raw den.fst ark:feats.ark ark:chain.post
nnet3-chain-add-post-to-egs chain.raw den.fst ark:chain.egs ark:lwf.egs
nnet3-chain-acc-lda-stats chain.raw ark:chain.egs chain.lda
nnet3-discriminative-get-egs --num-frames=20 final.mdl ark:feats.ark ark:o.lat ark:o.ali ark:d.egs
nnet3-discriminative-copy-egs ark:d.egs ark:d.copy
nnet3-discriminative-shuffle-egs ark:d.egs ark:d.shuffled
nnet3-discriminative-subset-egs --n=2 ark:d.egs ark:d.two
nnet3-discriminative-merge-egs --minibatch-size=1:2 ark:d.egs ark:d.merged
nnet3-discriminative-train made.mdl ark:d.merged d.raw
nnet3-discriminative-compute-objf made.mdl ark:d.merged
nnet3-discriminative-compute-from-egs 0.raw ark:d.egs ark:d.out
"""
_OF_GPU = "cuda-compiled", "cuda-gpu-available"
LINES = [shlex.split(line) for line in EXPERIMENT.replace("\\\n", " ").split("\n") if line]
_XVECTOR = """input-node name=input dim={dim}
component name=x type=StatisticsExtractionComponent input-dim={dim} input-period=1 output-period=1
component name=p type=StatisticsPoolingComponent input-dim={extracted} left-context=100 \
right-context=100 num-log-count-features=0 output-stddevs=false
component-node name=x component=x input=input
component-node name=p component=p input=Round(x, 1)
output-node name=output input=p
"""


def phones_of(count: int) -> Fst:
    """Any sequence of phones, as `nnet3-chain-e2e-get-egs` takes them: a graph of pdfs."""
    return arc_fst([[(label, label, 0.5, 0) for label in range(1, count + 1)]], {0: 0.5})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the experiment begins with."""
    place = tmp_path_factory.mktemp("experiment")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        write_decoding()
        Path("small.config").write_text(_SMALL.format(dim=DIM, pdfs=PHONES, output="l"))
        Path("chain.config").write_text(_SMALL.format(dim=DIM, pdfs=PHONES, output="a"))
        many = _SMALL.replace("name=output", "name=output-default")
        Path("languages.config").write_text(many.format(dim=DIM, pdfs=PHONES, output="a"))
        Path("den").mkdir()
        Path("xvector.config").write_text(_XVECTOR.format(dim=DIM, extracted=2 * DIM + 1))
        assert call_main("nnet3-init", "xvector.config", "xvector.raw")[0] == 0
        Path("topology").write_text(_TOPOLOGY)
        Path("phone_sets").write_text("".join(f"{phone}\n" for phone in range(1, PHONES + 1)))
        Path("roots").write_text("shared split 1 2\nnot-shared split 3 4\n")
        singles = "".join(f"{phone} singleton\n" for phone in range(2, PHONES + 1))
        Path("word_boundary.int").write_text(f"1 nonword\n{singles}")
        Path("words.lat").write_text("a\n0 1 1 1,1,4_3\n1 2 2 1,1,6_5\n2 0,0,\n\n")
        Path("words.ali").write_text("a 4 3 6 5\n")
        Path("spoken").write_text("a 1 2\n")
        Path("spoken.ark").write_bytes(b"a " + vector_bytes(phones_of(2)))
        Path("L.txt").write_text("0 0 2 1\n0 0 3 2\n0\n")
        Path("lm.arpa").write_text(
            "\\data\\\nngram 1=2\n\n\\1-grams:\n-99 <s>\n-0.3 </s>\n\n\\end\\\n"
        )
        labels = range(1, 8)  # five words, <s> and </s>
        ngrams = "".join(f"-1 {label}\n" for label in labels)
        Path("labels.arpa").write_text(f"\\data\\\nngram 1=7\n\n\\1-grams:\n{ngrams}\n\\end\\\n")
        arcs = "".join(f"0 0 {label} {label} 2\n" for label in labels)
        Path("words.fst.txt").write_text(f"{arcs}0 1\n")
        Path("words.mat").write_text("[ " + "0.1 -0.2\n" * 7 + "0.3 0.1 ]\n")
        Path("rnnlm.config").write_text(_RNNLM)
        Path("tree").write_text(_TREE)
        Path("nnet2.mdl").write_text(one_state_model(PHONES) + _NNET2)
        Path("utt2spk").write_text("a s\nb s\nc t\n")
        Path("rows.txt").write_text("a [ 1 2 ]\nb [ 2 1 ]\nc [ 4 -1 ]\n")
        Path("trials").write_text("s a\ns c\n")
        Path("labels").write_text("2 target\n1 nontarget\n")
        Path("segments").write_text("a1 a 0.05 0.2\nc1 c 0.1 0.3\n")
        Path("ranges").write_text("a 0 0 3 10 1\nb 0 0 0 10 0\nc 0 0 20 30 2\n")
        random = np.random.default_rng(3)
        Path("HCLr.fst").write_bytes(lookahead_bytes(random_first(random, 5, 2 * PHONES), 6))
        Path("Gr.fst").write_bytes(vector_bytes(random_grammar(random, 5)))
        Path("disambig").write_text("8\n")
        names = "".join(f"p{phone} {phone}\n" for phone in range(1, PHONES + 1))
        Path("phones.txt").write_text(names)
        Path("latgen.conf").write_text(
            "--ivectors=ark:ivectors.ark\n--acoustic-scale=1.0\n--lattice-beam=1\n"
        )
        Path("grammar.fst").write_bytes(grammar_bytes(PHONES + 1, decoding_graph()))
        graph = vector_bytes(decoding_graph())
        Path("graphs.ark").write_bytes(b"".join(f"{key} ".encode() + graph for key in LENGTHS))
        graph = vector_bytes(phones_of(PHONES))
        Path("phones.ark").write_bytes(b"".join(f"{key} ".encode() + graph for key in LENGTHS))
        with TableWriter("ark:images.egs", "example") as table:
            indexes = np.array([[0, t, 0] for t in range(4)], np.int32)
            pixels = np.arange(24, dtype=np.float32).reshape(4, 6)
            table.write("i", NnetExample([NnetIo("input", indexes, pixels)]))
    return place


def test_every_program_has_a_line() -> None:
    assert {line[0] for line in LINES} == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_bare_and_help(name: str) -> None:
    """As Kaldi's: help on standard output; without arguments the same on standard error."""
    run = CliRunner()
    shown = run.invoke(main, [name, "--help"])
    assert shown.exit_code == 0 and shown.stderr == ""
    assert f"Usage:  {name} [options]" in shown.stdout and "Standard options:" in shown.stdout
    command = main.get_command(click.Context(main), name)
    files = command.files
    if files and all(file.startswith("[") for file in files):
        return  # it reads standard input
    bare = run.invoke(main, [name])
    assert bare.exception is None or isinstance(bare.exception, SystemExit)
    if name in _OF_GPU:  # it takes no arguments: its answer is the exit code
        assert (bare.exit_code, bare.stdout) == (0 if gpu_present() else 1, "")
        assert "Usage" not in bare.stderr
    else:
        assert (bare.exit_code, bare.stdout) == (1, "")
        assert f"Usage:  {name} [options]" in bare.stderr


def test_every_program_on_a_tiny_input(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for words in LINES:
        before = set(Path().iterdir())
        code, out, err = call_main(*words)
        if words[0] in _OF_GPU:
            assert code == (0 if gpu_present() else 1)
            continue
        assert code == 0, f"{words}: {err}"
        made = set(Path().iterdir()) - before
        told = out or made or f"LOG ({words[0]}[" in err  # some only tell, on standard error
        assert told, f"{words}: neither a file nor a word came of it"
        assert all(path.stat().st_size for path in made), f"{words}: an empty file"
