"""What the keys of xconfig layers mean; `opscope nnet3 xconfig-layers` prints it.

Facts from Kaldi's steps/libs/nnet3/xconfig.
"""

from __future__ import annotations

from typing import Final

MEANINGS: Final = {
    "add-log-stddev": "the last column is the log of the root mean square; for types that end in"
    " renorm",
    "affine-transform-file": "the file with the matrix, whose last column is the bias",
    "allow-zero-padding": "frames that are not there count as zeros",
    "big-dim": "columns of the affine component and the relu",
    "bottleneck-dim": "columns of a LinearComponent in front of the affine one; below dim",
    "bypass-scale": "factor of the input, which is added to the output, -1 to 1; 0: no bypass",
    "bypass-source": "what is added to the output: input, noop (as input, and a NoOpComponent holds"
    " the sum), relu or batchnorm (what the first of these gives)",
    "cell-dim": "columns of the cell",
    "cepstral-lifter": "the liftering of the cepstra that is undone; 0: none",
    "config": "what is computed over which frames, as mean+stddev+count(-LEFT:STEP:PERIOD:RIGHT),"
    " where +stddev and +count may be left out; PERIOD divides LEFT and RIGHT, STEP divides PERIOD",
    "context": "frames of the two matrices: default (-time-stride,0 and 0,time-stride), left-only"
    " (-time-stride,0 and 0), shift-left (-time-stride,0 twice), none (0 twice)",
    "decay-time": "frames in which the memory fades: a step makes it smaller by delay / decay-time",
    "delay": "frames to the state that a state is computed from: -1 is the frame before, above 0"
    " time runs backwards; not 0",
    "dim": "columns of the output",
    "dim-offset": "the first column that is taken, from 0",
    "dropout-per-dim": "whole columns are dropped, for a sequence; where the type's name has"
    " dropout",
    "dropout-per-dim-continuous": "as dropout-per-dim, with masks uniform in (1 - 2p, 1 + 2p)",
    "dropout-proportion": "the share p that is dropped, 0 to 1",
    "freq-max-proportion": "the largest share of columns that is zeroed, between 0 and 1",
    "gru-nonlinearity-options": "more keys of the component with the nonlinearity, in double"
    " quotes",
    "height": "heights of input and output",
    "height-period": "heights from one tap of a filter to the next",
    "include-in-init": "init.config gets the layer as well",
    "include-log-softmax": "a LogSoftmaxComponent comes last",
    "input": "a descriptor of xconfig: what the layer reads",
    "lstm-nonlinearity-options": "more keys of the LstmNonlinearityComponent, in double quotes",
    "ng-affine-options": 'more keys of the affine components, in double quotes: "rank-in=20"',
    "ng-linear-options": "more keys of the LinearComponent of bottleneck-dim, in double quotes",
    "ng-per-element-scale-options": "more keys of the components that scale each column, in double"
    " quotes; fast types have none",
    "non-recurrent-projection-dim": "columns of the projection that only the output has",
    "num-bottleneck-filters": "filters between the first and the last of three convolutions, which"
    " see one height and frame; there are two convolutions else",
    "num-filters": "filters of the output, at each height",
    "num-filters1": "filters of the first part of the input",
    "num-filters2": "filters of the second part of the input",
    "num-filters3": "filters of the third part of the input; 0: there is none",
    "objective-type": "linear or quadratic, as objective= of an output-node",
    "output-delay": "the output at t belongs to frame t + output-delay",
    "recurrent-projection-dim": "columns of the projection that the recurrence reads",
    "self-repair-lower-threshold1": "mean derivative below which the first relu is repaired",
    "self-repair-lower-threshold2": "mean derivative below which the second relu is repaired",
    "self-repair-lower-threshold3": "mean derivative below which the third relu is repaired",
    "self-repair-scale": "how strongly the dimensions of nonlinearities are repaired, 0 to 1",
    "self-repair-scale-nonlinearity": "how strongly sigmoids and tanhs are repaired, 0 to 1; fast"
    " types repair within the nonlinearity",
    "self-scale": "factor of the output before, where the gates read it",
    "small-dim": "columns of the output",
    "target-rms": "the root mean square that renorm and batchnorm scale to",
    "time-mask-max-frames": "the most frames that are zeroed in a row",
    "time-zeroed-proportion": "the share of frames that is zeroed, between 0 and 1",
    "write-init-config": "init.config gets an output, from which the transform is estimated",
}
"""What a key means in every layer type that has it and declares no other meaning."""


def meaning(key: str) -> str:
    """What a key means: as above, else as in the components that it is written to; "" if neither
    tells."""
    from ..components.base.keys import MEANINGS as OF_COMPONENTS

    return MEANINGS.get(key) or OF_COMPONENTS.get(key, "")
