"""A shell script as Kaldi's steps/nnet3 issues it, run through `opscope links` with pipes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from kaldi_models import one_state_model
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.tables.tables import TableWriter
from opscope.nnet3.network.model import AmNnetSimple
from opscope.python_api.cli.main import main

CONFIG = """input-node name=input dim=4
component name=lda type=FixedAffineComponent matrix=lda.mat
component-node name=lda component=lda input=Append(Offset(input, -1), input, Offset(input, 1))
component name=a type=NaturalGradientAffineComponent input-dim=12 output-dim=16 max-change=0.75
component-node name=a component=a input=lda
component name=r type=RectifiedLinearComponent dim=16
component-node name=r component=r input=a
component name=n type=BatchNormComponent dim=16
component-node name=n component=n input=r
component name=d type=DropoutComponent dim=16 dropout-proportion=0.0
component-node name=d component=d input=n
component name=b type=NaturalGradientAffineComponent input-dim=16 output-dim=3
component-node name=b component=b input=d
component name=s type=LogSoftmaxComponent dim=3
component-node name=s component=s input=b
output-node name=output input=s
"""
INIT = """input-node name=input dim=4
output-node name=output input=Append(Offset(input, -1), input, Offset(input, 1))
"""
TREE = one_state_model(3)
SCRIPT = r"""
egs="ark:nnet3-copy-egs ark:egs.JOB.ark ark:- |"
nnet3-get-egs --num-pdfs=3 --left-context=1 --right-context=1 --num-frames=4 \
  "ark,s,cs:cat feats.ark |" "ark,s,cs:cat post.ark |" ark:- | \
  nnet3-copy-egs --random=true --srand=1 ark:- ark:orig.1.ark ark:orig.2.ark
ln -s egs.1.ark link.1.ark; ln -s egs.2.ark link.2.ark
nnet3-shuffle-egs --srand=3 "ark:cat orig.1.ark orig.2.ark|" ark:- | \
  nnet3-copy-egs ark:- ark:link.1.ark ark,scp:link.2.ark,egs.2.scp
nnet3-subset-egs --n=8 ark:egs.1.ark ark:valid.egs
nnet3-init --srand=-2 init.config init.raw
for JOB in 1 2; do
  nnet3-acc-lda-stats --rand-prune=4.0 init.raw "${egs/JOB/$JOB}" $JOB.lda_stats &
done
wait
sum-lda-accs lda_stats 1.lda_stats 2.lda_stats
nnet-get-feature-transform lda.mat lda_stats
nnet3-init --srand=-1 init.raw final.config 0.raw
nnet3-am-init final.mdl 0.raw - | nnet3-am-train-transitions - "ark:cat ali.ark|" 0.mdl
for x in 0 1; do
  y=$((x + 1))
  nnet3-compute-prob $x.mdl "ark,bg:nnet3-copy-egs ark:valid.egs ark:- | \
    nnet3-merge-egs --minibatch-size=1:64 ark:- ark:- |" &
  [ $x -eq 0 ] || { nnet3-info $x.mdl && nnet3-show-progress --use-gpu=no 0.mdl $x.mdl; } >log &
  for JOB in $(seq $y); do
    [ $x -eq 0 ] || read="--read-cache=cache.$x"
    [ $JOB -eq 2 ] || write="--write-cache=cache.$y"
    nnet3-train $read $write --print-interval=10 --momentum=0.0 --max-param-change=2.0 \
      --l2-regularize-factor=0.5 --srand=$x --optimization.min-deriv-time=-10 \
      "nnet3-copy --learning-rate=0.01 --scale=1.0 $x.mdl - |nnet3-copy \
        --edits='set-dropout-proportion name=* proportion=0.1' - - |" \
      "ark,bg:nnet3-copy-egs --frame=$JOB ark:egs.$JOB.ark ark:- | \
        nnet3-shuffle-egs --buffer-size=50 --srand=$x ark:- ark:- | \
        nnet3-merge-egs --minibatch-size=8,1:4 ark:- ark:- |" $y.$JOB.raw &
  done
  wait
  nnet3-average $y.[12].raw - | nnet3-am-copy --set-raw-nnet=- $x.mdl $y.mdl
done
nnet3-combine --max-objective-evaluations=5 --verbose=3 2.mdl 1.mdl \
  "ark,bg:nnet3-merge-egs --minibatch-size=1:8 ark:valid.egs ark:- |" \
  "| nnet3-am-copy --set-raw-nnet=- 2.mdl combined.mdl"
nnet3-merge-egs --minibatch-size=8 ark:egs.1.ark ark:- | \
  nnet3-compute-from-egs --apply-exp=true combined.mdl ark:- ark:- | \
  matrix-sum-rows ark:- ark:- | vector-sum ark:- post.1.vec
vector-sum post.*.vec post.vec
nnet3-am-adjust-priors combined.mdl post.vec final.mdl
nnet3-am-info --print-args=false final.mdl | grep -q 'prior-dimension: 3'
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="runs a shell script")
def test_a_training_script(tmp_path):
    programs = tmp_path / "bin"
    assert CliRunner().invoke(main, ["links", str(programs)]).exit_code == 0
    rng = np.random.default_rng(0)
    with (
        TableWriter(f"ark:{tmp_path}/feats.ark", "matrix") as feats,
        TableWriter(f"ark:{tmp_path}/post.ark", "posterior") as posts,
        TableWriter(f"ark:{tmp_path}/ali.ark", "int_vector") as alis,
    ):
        for number in range(12):
            labels = rng.integers(0, 3, 20)
            feats.write(f"u{number:02}", np.eye(3, 4)[labels] * 3 + rng.normal(size=(20, 4)))
            posts.write(f"u{number:02}", Posterior.from_frames([[(k, 1.0)] for k in labels]))
            alis.write(f"u{number:02}", 2 * labels + 1)
    for name, text in (("final.config", CONFIG), ("init.config", INIT), ("final.mdl", TREE)):
        (tmp_path / name).write_text(text)
    script = "set -e -o pipefail\n" + SCRIPT
    paths = os.pathsep.join([str(programs), os.environ["PATH"]])
    environment = os.environ | {"PATH": paths, "OPSCOPE_PIPES": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr and "Read computation cache from cache.1" in done.stderr
    model = AmNnetSimple.read(tmp_path / "final.mdl")
    assert model.priors.sum() == pytest.approx(1, rel=1e-5)
    assert not list(tmp_path.glob(".*.tmp"))
