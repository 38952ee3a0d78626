"""Kaldi's own scripts of `steps/chain2`, from the first stage to the last, with these programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import speech_decoding
from kaldi_models import call_main, done
from opscope.kaldi.tables.tables import TableWriter, read_table
from opscope.nnet3.network.model import AmNnetSimple

REPOSITORY = os.environ.get("OPSCOPE_KALDI_REPOSITORY", "")
TREE = """ContextDependency 1 0 ToPdf TE 0 5 ( NULL CE 0 CE 1 CE 2 CE 3 )
EndContextDependency """
CONFIG = """input-node name=input dim={dim}
component name=h type=NaturalGradientAffineComponent input-dim={wide} output-dim=16 max-change=0.75
component-node name=h component=h input=Append(Offset(input, -1), input, Offset(input, 1))
component name=r type=RectifiedLinearComponent dim=16
component-node name=r component=r input=h
component name=n type=BatchNormComponent dim=16
component-node name=n component=n input=r
component name=o type=NaturalGradientAffineComponent input-dim=16 output-dim=4
component-node name=o component=o input=n
output-node name=output-default input=o
output-node name=output input=o
component name=x type=NaturalGradientAffineComponent input-dim=16 output-dim=4
component-node name=x component=x input=n
component name=l type=LogSoftmaxComponent dim=4
component-node name=l component=l input=x
output-node name=output-default-xent input=l
output-node name=output-xent input=l
"""
INFO = "frame_subsampling_factor 1\nlangs default\nmodel_left_context 1\nmodel_right_context 1\n"
SCRIPT = r"""
set -e -o pipefail
. ./path.sh
latgen="nnet3-latgen-faster --acoustic-scale=1.0 --lattice-beam=0.5 --ivectors=ark:ivectors.ark"
for j in 1 2; do
  utils/split_scp.pl -j 2 $((j-1)) data/train/feats.scp > feats.$j.scp
  lattices="ark:|gzip -c >lats/lat.$j.gz"
  $latgen final.mdl HCLG.fst scp:feats.$j.scp "$lattices" ark:/dev/null ark:$j.ali
done
copy-transition-model final.mdl chain/init/default_trans.mdl
ali-to-phones final.mdl "ark:cat 1.ali 2.ali|" ark:phones.ark
chain-est-phone-lm --num-extra-lm-states=10 ark:phones.ark lm.fst
fst=chain/den_fsts/default
chain-make-den-fst chain/default.tree final.mdl lm.fst $fst.den.fst $fst.normalization.fst
nnet3-init --srand=1 net.config chain/init/default.raw
cmd="--cmd utils/run.pl"
context="--left-context 1 --right-context 1 --frames-per-chunk 10,7"
steps/chain2/get_raw_egs.sh $cmd --cmvn-opts "" $context --frame-subsampling-factor 1 \
  --alignment-subsampling-factor 1 data/train chain lats chain/raw_egs
steps/chain2/process_egs.sh $cmd --num-repeats 1 --nj 2 --num-utts-subset 24 chain/raw_egs \
  chain/processed_egs
steps/chain2/randomize_egs.sh --frames-per-job 1500 --num-blocks 4 chain/processed_egs chain/egs
steps/chain2/train.sh $cmd --use-gpu no --num-epochs 2 --num-jobs-final 2 --minibatch-size 16 \
  chain/egs chain
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not REPOSITORY or not Path(REPOSITORY).is_dir(),
    reason="OPSCOPE_KALDI_REPOSITORY names no repository of Kaldi's",
)
@pytest.mark.timeout(900)
def test_from_lattices_to_a_model(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    git = [
        "git",
        f"--git-dir={REPOSITORY}",
        "archive",
        "HEAD",
        "egs/wsj/s5/steps",
        "egs/wsj/s5/utils",
    ]
    archive = subprocess.run(git, capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "--strip-components=3"], input=archive, check=True)
    names = sorted(f"s{number % 4}-u{number:02}" for number in range(80))
    lengths = {name: 30 + 7 * int(name[-2:]) % 40 for name in names}
    monkeypatch.setattr(speech_decoding, "LENGTHS", lengths)
    speech_decoding.write_decoding()
    done(call_main("links", "bin"))
    for folder in ("data/train", "lats", "chain/init", "chain/den_fsts"):
        Path(folder).mkdir(parents=True)
    with TableWriter("ark,scp:data/train/feats.ark,data/train/feats.scp", "matrix") as writer:
        for key, rows in read_table("ark:feats.ark", "matrix"):
            writer.write(key, rows)
    speakers = {name: name[:2] for name in names}
    lines = {
        "utt2spk": [f"{name} {speaker}" for name, speaker in speakers.items()],
        "spk2utt": [
            " ".join([speaker, *(name for name in names if speakers[name] == speaker)])
            for speaker in sorted(set(speakers.values()))
        ],
    }
    for name, listed in lines.items():
        Path("data/train", name).write_text("\n".join(listed) + "\n")
    Path("chain/default.tree").write_text(TREE)
    Path("chain/init/info.txt").write_text(INFO)
    Path("lats/num_jobs").write_text("2\n")
    Path("lats/final.mdl").write_bytes(Path("final.mdl").read_bytes())
    dim = speech_decoding.DIM
    Path("net.config").write_text(CONFIG.format(dim=dim, wide=3 * dim))
    Path("path.sh").write_text("export PATH=$PWD/bin:$PWD/utils:$PATH LC_ALL=C\n")
    environment = os.environ | {"OPSCOPE_PIPES": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    ran = subprocess.run(
        ["bash", "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    told = Path("chain/log/combine.log").read_text()
    assert re.search(r"objective function changed from \S+ to -0\.", told)
    logs = [Path(f"chain/log/train.{number}.1.log").read_text() for number in (0, 3)]
    pattern = r"Overall average objective function for 'output-default' is (\S+)"
    first, last = (float(re.search(pattern, log)[1]) for log in logs)
    assert last > first + 0.05
    assert AmNnetSimple.read("chain/final.mdl").nnet.output_dim("output") == 4
