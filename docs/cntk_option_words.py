# ruff: noqa: E501  (an entry is a line)
"""What each option of commands means; `cntk_reader_words` has the options of readers.

A line is `name | meaning`, or `name | type | default | meaning` where the code does not tell type and
default by itself. `Section.sources` are modules below `opscope.cntk`, with the functions in them that look
the options up.
"""

from __future__ import annotations

from typing import NamedTuple


class Section(NamedTuple):
    """A table of options.

    Attributes:
        title: of the table.
        text: in front of it.
        sources: where the code looks the options up.
        words: the lines.
    """

    title: str
    text: str
    sources: tuple[str, ...]
    words: str


COMMON = (
    "SGD action deserializers format input makeMode maxEpochs minibatchSize mlfFile modelPath ParallelTrain precision randomize"
    " reader scpFile traceLevel truncated type writer writerType"
)
"""Names that this module lists in another table than the code that looks them up."""

COMMANDS = (
    Section(
        "Everywhere",
        "At the top of a config, or in a command; a command's own value takes precedence over the enclosing sections.",
        ("actions.run", "actions.settings", "actions.common"),
        """
command | names of the sections to run, in order
action | string | train | what a command does: one of the actions below, or several, `train:test`
currentDirectory | string | the current one | folder to run in
stderr | file of the log; none: standard error
doneFile | a file that is written at the very end
timestamping | the time in front of each line of the log
progressTracing | `PROGRESS: 12.50%` on standard output, for job schedulers
parallelTrain | bool | where mpiexec started several | whether the processes that mpiexec started work together; false is an error where there are several
numCPUThreads | threads of the CPU; 0: as opscope has them, below 0: leave so many cores free
traceLevel | above 0: the config, networks and lines about minibatches are logged
precision | float or double, of all values
deviceId | string | -1 | -1 or cpu; a GPU's number, gpu for the first one, auto for one if there is one
modelPath | string | required | of the model that a command reads or writes
makeMode | bool | true | whether a command resumes from existing files, or does nothing if it is finished; false: from the start
forceConstantRandomSeed | the same seed, 1, for all parameters
dumpFileName | of an NDLNetworkBuilder: a file that gets the network as text
""",
    ),
    Section(
        "train",
        "Trains the network of a builder, or of `modelPath`, by the section `SGD` over the data of `reader`. `trainRNN` is the same.",
        ("actions.train train",),
        """
cvReader | section | none | a reader with validation data; none: no validation
traceNodeNamesReal | strings | none | nodes whose values are logged as numbers, whenever they are computed
traceNodeNamesCategory | strings | none | nodes whose values are logged as the number of the largest element
traceNodeNamesSparse | strings | none | nodes whose values are logged as index and value of what is not 0
""",
    ),
    Section(
        "adapt",
        "Trains a model on, and keeps it near to what it was (`adaptationRegType`, `adaptationRegWeight` of `SGD`).",
        ("actions.train adapt",),
        """
origModelFileName | string | required | the model to start from
refNodeName | string | required for KL | the node of its output, which is compared
cvReader | section | none | as of `train`
""",
    ),
    Section(
        "test",
        "The training criterion and the evaluation nodes over the data of `reader`, summed up at the end. `eval` is the same.",
        ("actions.evaluate evaluate",),
        """
evalNodeNames | nodes to evaluate; none: evaluation nodes and criterion of the network
minibatchSize | samples of a minibatch
epochSize | samples to evaluate; 0: all
numMBsToShowResult | minibatches between two lines of the log, with `traceLevel` above 0
firstMBsToShowResult | minibatches at the start that have a line each
numSubminibatches | parts in which a minibatch is computed
maxSamplesInRAM | int | any | samples of such a part at most
distributedMBReading | bool | by reader | of several processes: whether each reads its own part of the data
""",
    ),
    Section(
        "cv",
        "Evaluates the models of several epochs, and prints the best; also takes the options of `test`.",
        ("actions.evaluate cross_validate",),
        """
crossValidationInterval | ints | required | first epoch : step : last epoch
sleepTimeBetweenRuns | seconds to wait between two models
""",
    ),
    Section(
        "write",
        "Writes values of nodes over the data of `reader`, which come in the order of the file.",
        ("actions.outputs write",),
        """
outputNodeNames | nodes to write; none: the output nodes of the network
outputPath | string | required without writer | begin of the names of files; the name of the node is appended; `-` is standard output
writer | section | none | a writer, in place of `outputPath`
minibatchSize | samples of a minibatch
epochSize | samples to write; 0: all
nodeUnitTest | also writes the gradients of the one output node, in separate files
unittest | of a writer: write what the reader gives, not the output nodes
format | section | none | how text is written, next table
""",
    ),
    Section(
        "format",
        "The section `format` of `write`, and of BrainScript's `Trace`.",
        ("run.value_format",),
        """
type | string | real | real: numbers; category: the number of the largest element; sparse: index:value of what is not 0
labelMappingFile | names of elements, a line each, for category and sparse
precisionFormat | of numbers, what stands between % and f of C's printf: `.4`
transpose | a line for each sample; false: a line for each element
prologue | in front of all; texts may hold `\\n`, `\\t`, `%s` (the node's name), `%n` (number of the minibatch)
epilogue | at the end of all
sequenceSeparator | between sequences
sequencePrologue | in front of each sequence; `%d` is its number, `%x` its shape
sequenceEpilogue | string | a line end | at the end of each sequence
sampleSeparator | string | a line end | between samples
elementSeparator | string | a space | between elements
""",
    ),
    Section(
        "edit",
        "Runs the script of MEL `editPath`; without it, builds the network of BrainScript and saves it.",
        ("actions.models edit", "mel.edit"),
        """
editPath | string | none | the script
ndlMacros | files of macros of NDL that it may use, joined by `+`
outputModelPath | string | required without editPath | the model that a network of BrainScript is saved as
""",
    ),
    Section(
        "dumpNode",
        "Writes a model as text. `dumpNodes` and `dumpnode` are the same.",
        ("actions.models dump_nodes",),
        """
modelPath | string | required | the model
nodeName | one node; `__AllNodes__`: all
nodeNameRegex | a regular expression of the names of nodes, in place of `nodeName`
outputFile | string | modelPath.nodeName.txt | the file
printValues | with the values of parameters
printMetadata | with operation, inputs, shapes
""",
    ),
    Section(
        "plot",
        "Writes a model as a graph for Graphviz. `topo` is the same.",
        ("actions.plot plot",),
        """
modelPath | string | required | the model
outputDotFile | string | modelPath.dot | the graph
outputFile | a picture that `renderCmd` makes of it
renderCmd | a command with `<IN>` and `<OUT>` for graph and picture
""",
    ),
    Section(
        "SVD",
        "Replaces matrices by products of two smaller ones.",
        ("actions.models decompose",),
        """
modelPath | string | required | the model
outputmodelPath | the new model
NodeNameRegex | a regular expression of the names of matrices; none: the names in `SVDConfig`
KeepRatio | share of the sum of singular values that is kept
SVDConfig | string | required without NodeNameRegex | a file with expressions and their shares, a line each
AlignedSize | the inner dimension is a multiple of this
""",
    ),
    Section(
        "convertdbn",
        "Makes a model of a feed-forward network in a file of DBN.exe, an older program. Settings of `SimpleNetworkBuilder` say its functions, criteria and the prior.",
        ("actions.models convert_dbn", "actions.models converted"),
        """
modelPath | string | required | the model that is written
dbnModelPath | string | required | the file
outputLayerSize | int | last of layerSizes | outputs of a network that pretraining has left without
""",
    ),
    Section(
        "exportdbn",
        "Makes such a file of a model: layers with or without `Sigmoid` from normalized features to what `ClassificationError` looks at. A `Mean` or parameter with `prior` in its name is the prior.",
        ("actions.models export_dbn",),
        """
modelPath | string | required | the model
dbnModelPath | string | required | the file that is written
""",
    ),
    Section(
        "bnstat",
        "Recomputes the running statistics of batch normalization over the data of `reader`.",
        ("actions.statistics batch_norm_statistics",),
        """
modelPath | string | required | the model
newModelPath | string | modelPath.PBN | the new model
itersPerNode | minibatches for each node
minibatchSize | samples of a minibatch
enableDistributedMBReading | bool | false | of several processes: whether each reads its own part of the data; else they cut minibatches
evalNodeNames | nodes that are evaluated to get there; none: evaluation nodes and criterion
""",
    ),
    Section(
        "writeWordAndClass",
        "Counts words, and puts them into classes of about the same number of occurrences.",
        ("actions.words write_word_and_class",),
        """
inputFile | text, a sentence a line
vocabSize | words at most; the others become `unk`
nbrClass | classes; 0: none
cutoff | words that occur fewer times become `unk`
unk | the word for all others
beginSequence | the word that begins sentences
endSequence | the word that ends sentences
outputVocabFile | string | required | number, count, word and class, a line each
outputMappingFile | the words, a line each
outputWord2Cls | string | required with classes | the class of each word
outputCls2Index | string | required with classes | the first word of each class
""",
    ),
    Section(
        "createLabelMap",
        "Writes the labels of a data file, which the `labelMappingFile` of the reader names.",
        ("actions.words create_label_map",),
        """
section | string | required | the command whose `reader` is used
minibatchSize | samples that are read at once
labelMappingFile | string | required | of the labels' section of the reader: the file
labelDim | int | none | of that section: labels at most
""",
    ),
    Section(
        "SGD",
        "How `train` and `adapt` train. A list, `0.8*5:0.4`, has a value for each epoch, and the last one holds for all later epochs; `opscope.cntk.SgdOptions` holds the parsed options.",
        ("sgd.options", "run.tracing"),
        """
maxEpochs | epochs
epochSize | samples of an epoch; 0: all the data
minibatchSize | samples of a minibatch, by epoch; with `truncated` the steps of each sequence
learningRatesPerMB | floats | one of both is required | learning rates for a whole minibatch, by epoch
learningRatesPerSample | floats | one of both is required | learning rates for a sample, by epoch
minLearningRatePerSample | training ends below it
momentumPerMB | floats | 0.9 | momentum of a minibatch, by epoch, from 0 to below 1
momentumPerSample | floats | none | momentum of a sample
momentumAsTimeConstant | floats | none | samples over which gradients are averaged; 0: no momentum
gradUpdateType | none, adaGrad, rmsProp or fsAdaGrad; see the learners below
useAdagrad | the same as `gradUpdateType = adagrad`
useNAG | Nesterov's momentum
normWithAveMultiplier | adaGrad and rmsProp: scale updates so that their factors are 1 on average
varianceTimeConstant | float | 720000 | fsAdaGrad: samples over which squares are averaged
fsAdagradTargetAvDenom | float | 1 | fsAdaGrad: what gradients are divided by on average
rms_gamma | float | 0.99 | rmsProp: decay of the squares
rms_wgt_inc | float | 1.2 | rmsProp: factor of a weight whose gradient keeps its sign
rms_wgt_dec | float | 0.75 | rmsProp: factor of a weight whose gradient changes its sign
rms_wgt_max | float | 10 | rmsProp: largest weight
rms_wgt_min | float | 0.1 | rmsProp: smallest weight
clippingThresholdPerSample | largest gradient of a sample
gradientClippingWithTruncation | whether each element is clipped; false: the norm of each gradient
L1RegWeight | weight of the sum of absolute values as a penalty
L2RegWeight | weight of half the sum of squares as a penalty
disableRegInBatchNormalization | no penalty for scale and bias of batch normalization
gaussianNoiseInjectStd | standard deviation of noise on parameters, after each update
dropoutRate | floats | 0 | of the nodes `Dropout`, by epoch, from 0 to below 1
batchNormalizationTimeConstant | samples over which running statistics forget, by epoch
batchNormalizationBlendTimeConstant | weight of running statistics while training, in samples, by epoch
numSubminibatches | parts in which a minibatch is computed, for memory
maxSamplesInRAM | int | any | samples of such a part at most
truncated | whether sizes are steps of truncated sequences; a reader's `truncated` says the same
UseAllDataForPreComputedNode | `Mean` and `InvStdDev` over all the data; false: over the first epoch
trainCriterionNodeName | the criterion; none: the network's criterion
evalCriterionNodeName | the evaluation node; none: the first of the network
numMBsToShowResult | minibatches between two lines of the log
firstMBsToShowResult | minibatches at the start of an epoch that have a line each
keepCheckPointFiles | keep the checkpoints of all epochs
gradientcheck | compare gradients with differences; needs `precision = double`
sigFigs | digits that must agree then
adaptationRegType | none or KL
adaptationRegWeight | weight of the reference model, from 0 to 1
AutoAdjust | section | none | next table
ParallelTrain | section | none | how several processes train together: a table below
seqGammarAMF | float | 14 | criterion over lattices: divides all scores
seqGammarLMF | float | 14 | criterion over lattices: factor of language-model scores
seqGammarWordPen | float | 0 | criterion over lattices: added to the score of each edge
seqGammarBMMIFactor | float | 0 | boosted MMI: taken off for each correct frame
seqGammarUsesMBR | bool | false | expected number of correct frames instead of MMI
doReferenceAlign | bool | false | realign the labels in each minibatch
hSmoothingWeight | float | 0.95 | weight of the criterion over lattices, the rest being cross entropy
frameDropThresh | float | 1e-10 | frames whose reference is less probable are left out
""",
    ),
    Section(
        "AutoAdjust",
        "The section `AutoAdjust` of `SGD`: how rates and minibatches follow the criterion.",
        ("sgd.options _adjust",),
        """
autoAdjustLR | none; searchBeforeEpoch: try rates before each epoch; adjustAfterEpoch: change the rate by how the criterion fell
reduceLearnRateIfImproveLessThan | relative improvement below which the rate falls
increaseLearnRateIfImproveMoreThan | relative improvement above which the rate grows
learnRateDecreaseFactor | factor when it falls, at most 1
learnRateIncreaseFactor | factor when it grows, at least 1
continueReduce | once it has fallen it falls after each epoch; training ends at the second time of too little improvement
learnRateAdjustInterval | epochs between two changes
loadBestModel | go back to the last model if the criterion got worse
UseCVSetControlLRIfCVExists | look at the validation data, if there are any
UseEvalCriterionControlLR | look at the evaluation node, not at the criterion
numPrevLearnRates | search: epochs whose rates it starts from
numBestSearchEpoch | search: epochs in which it continues after the first rate that is better
numMiniBatch4LRSearch | ints | 500 | search: minibatches of a trial, by epoch
numSamples4Search | ints | none | the same in samples
autoAdjustMinibatch | look for larger minibatches
minibatchSizeTuningFrequency | epochs between two searches
minibatchSizeTuningMax | largest minibatch
minibatchSearchCriterionErrorMargin | percent that the criterion may get worse
""",
    ),
    Section(
        "ParallelTrain",
        "The section `ParallelTrain` of `SGD`: how the processes that `mpiexec` started train together; see [training on several processes](../cntk_training.md#several-processes).",
        ("parallel.options",),
        """
parallelizationMethod | none, DataParallelSGD, ModelAveragingSGD, BlockMomentumSGD or DataParallelASGD
parallelizationStartEpoch | the first epoch, counted from 1, that they train together; before, each trains on all data
distributedMBReading | bool | by reader | whether each process reads its own part of the data; without it they cut minibatches, as they do by default for the older readers
syncPerfStats | exchanges between two lines about the time that they take; 0: no lines
DataParallelSGD | section | none | next tables, one for each method
ModelAveragingSGD | section | none | the same
BlockMomentumSGD | section | none | the same
DataParallelASGD | section | none | the same
""",
    ),
    Section(
        "DataParallelSGD",
        "Gradients are summed over all processes in each minibatch.",
        ("parallel.options",),
        """
gradientBits | ints | all | bits of a gradient's element on its way, by epoch: a power of two; what rounding loses is added the next time
useZeroThresholdFor1BitQuantization | whether 1 bit tells the sign; false: whether a value is above the mean of its column
useBufferedAsyncGradientAggregation | whether sums are used one minibatch later, while the next one is computed
""",
    ),
    Section(
        "ModelAveragingSGD",
        "Processes train apart; after each block of samples all take the mean of the parameters, weighted by samples. One of these may be given.",
        ("parallel.options",),
        """
blockSize | int | none | samples of all processes in a block
blockSizePerWorker | int | 40000 | samples of one process in a block
syncFrequencyInFrames | int | none | the same; an older name
syncPeriod | int | none | the same; an older name
""",
    ),
    Section(
        "BlockMomentumSGD",
        "The same, but blocks are steps of a descent with momentum of its own. `blockSize`, `blockSizePerWorker` (120000) and `syncPeriod` are as above.",
        ("parallel.options",),
        """
resetSGDMomentum | whether the momentum of minibatches is reset with each block
useNesterovMomentum | whether a block begins ahead by the momentum of blocks
blockLearningRate | factor of a block's change
blockMomentumAsTimeConstant | float | none | momentum of blocks: the samples after which 1/e of a change is left
blockMomentumPerSync | float | 1 - 1 / processes | momentum of blocks, in place of it
""",
    ),
    Section(
        "DataParallelASGD",
        "Processes train apart, and each adds its changes to parameters that all share, in its own time. The section `AdjustLearningRateAtBeginning` makes changes smaller at first.",
        ("parallel.options",),
        """
syncPeriod | ints | 256 | samples of a process after which it adds its change and continues from the shared parameters, by epoch
UsePipeline | whether it continues while the change is sent, with the result of the previous exchange
SimModelAverage | whether parameters are averaged instead, as `ModelAveragingSGD` does with `blockSizePerWorker = syncPeriod`
AdjustLearningRateAtBeginning | section | none | the following
adjustType | staircase, linearly or none
adjustCoefficient | share of a change at first; of staircase the height of a stair
adjustPerMinibatches | changes until the share is 1, or of a stair
""",
    ),
    Section(
        "SimpleNetworkBuilder",
        "A network from a few sizes.",
        ("network.standard.settings",),
        """
layerSizes | dimensions from input to output
layerTypes | Sigmoid, Tanh, RectifiedLinear, of all hidden layers or of each
trainingCriterion | string | required | CrossEntropyWithSoftmax, SquareError, ..., in any case
evalCriterion | string | required | ErrorPrediction, or as the criterion
rnnType | SIMPLENET, SIMPLERNN, LSTM, CLASSLM, LBLM, NPLM, CLASSLSTM, NCELSTM, CLSTM or CRF (with `trainingCriterion = crf`)
recurrentLayer | numbers of the layers that are recurrent
applyMeanVarNorm | normalize the input with its mean and deviation
needPrior | an output that is scaled by the prior of the labels
addDropoutNodes | `Dropout` after each layer
uniformInit | parameters are uniform; false: Gaussian
initValueScale | factor of their range
defaultHiddenActivity | value of delays before the first step
directConnect | layers whose input also goes to the output
sparseinput | the input is sparse
vocabSize | language models: words
nbrClass | language models: classes
noise_number | noise contrastive estimation: noise words
lookupTableOrder | words that a look-up table takes at once
maOrder | steps of the moving average
auxfeatdim | dimension of a second input
constForgetGateValue | the forget gate is constant
constInputGateValue | the input gate is constant
constOutputGateValue | the output gate is constant
forgetGateInitVal | bias of the forget gate
inputGateInitVal | bias of the input gate
outputGateInitVal | bias of the output gate
""",
    ),
    Section(
        "NDLNetworkBuilder",
        "A network written in NDL.",
        ("ndl.builder",),
        """
networkDescription | a file; none: the sections of the config that `run` names
run | strings | required | the name of the section with the network; in the file, or in the config where there is no file
load | strings | none | sections with macros
ndlMacros | string | none | files with macros, joined by `+`
randomSeedOffset | added to the seed of each parameter
""",
    ),
)
