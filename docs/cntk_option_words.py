# ruff: noqa: E501  (an entry is a line)
"""What each option of commands and readers means.

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
    "SGD deserializers format input makeMode maxEpochs mlfFile modelPath precision randomize reader"
    " scpFile traceLevel truncated type writer writerType"
)
"""Names that are told in another table than that of the code that looks them up."""

COMMANDS = (
    Section(
        "Everywhere",
        "At the top of a config, or in a command; a command's own value counts before that of the sections around.",
        ("actions.run", "actions.settings", "actions.common"),
        """
command | names of the sections to run, in order
action | string | train | what a command does: one of the actions below, or several, `train:test`
currentDirectory | string | the current one | folder to run in
stderr | file of the log; none: standard error
doneFile | a file that is written at the very end
timestamping | the time in front of each line of the log
progressTracing | `PROGRESS: 12.50%` on standard output, for job schedulers
numCPUThreads | threads of the CPU; 0: as opscope has them, below 0: leave so many cores free
traceLevel | above 0: the config, networks and lines about minibatches are logged
precision | float or double, of all values
deviceId | string | -1 | -1 or cpu; a GPU's number, gpu for the first one, auto for one if there is one
modelPath | string | required | of the model that a command reads or writes
makeMode | bool | true | whether a command goes on from what is there already, or does nothing where it is finished; false: from the start
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
""",
    ),
    Section(
        "cv",
        "Evaluates the models of several epochs, and tells the best; options of `test` hold, too.",
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
outputPath | string | required without writer | begin of the names of files; the name of the node is put behind; `-` is standard output
writer | section | none | a writer, in place of `outputPath`
minibatchSize | samples of a minibatch
epochSize | samples to write; 0: all
nodeUnitTest | the gradients of the one output node, too, in files beside the values
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
epilogue | behind all
sequenceSeparator | between sequences
sequencePrologue | in front of each sequence; `%d` is its number, `%x` its shape
sequenceEpilogue | string | a line end | behind each sequence
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
NodeNameRegex | a regular expression of the names of matrices; none: those of `SVDConfig`
KeepRatio | share of the sum of singular values that is kept
SVDConfig | string | required without NodeNameRegex | a file with expressions and their shares, a line each
AlignedSize | the inner dimension is a multiple of this
""",
    ),
    Section(
        "bnstat",
        "Computes the running statistics of batch normalisation anew, over the data of `reader`.",
        ("actions.statistics batch_norm_statistics",),
        """
modelPath | string | required | the model
newModelPath | string | modelPath.PBN | the new model
itersPerNode | minibatches for each node
minibatchSize | samples of a minibatch
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
section | the command whose `reader` is used
minibatchSize | samples that are read at once
labelMappingFile | string | required | of the labels' section of the reader: the file
labelDim | int | none | of that section: labels at most
""",
    ),
    Section(
        "SGD",
        "How `train` and `adapt` train. A list, `0.8*5:0.4`, has a value for each epoch, and the last one goes on; `opscope.cntk.SgdOptions` holds what is read.",
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
varianceTimeConstant | fsAdaGrad: samples over which squares are averaged
fsAdagradTargetAvDenom | fsAdaGrad: what gradients are divided by on average
rms_gamma | rmsProp: decay of the squares
rms_wgt_inc | rmsProp: factor of a weight whose gradient keeps its sign
rms_wgt_dec | rmsProp: factor of a weight whose gradient changes its sign
rms_wgt_max | rmsProp: largest weight
rms_wgt_min | rmsProp: smallest weight
clippingThresholdPerSample | largest gradient of a sample
gradientClippingWithTruncation | whether each element is clipped; false: the norm of each gradient
L1RegWeight | weight of the sum of absolute values as a penalty
L2RegWeight | weight of half the sum of squares as a penalty
disableRegInBatchNormalization | no penalty for scale and bias of batch normalisation
gaussianNoiseInjectStd | standard deviation of noise on parameters, after each update
dropoutRate | floats | 0 | of the nodes `Dropout`, by epoch, from 0 to below 1
batchNormalizationTimeConstant | samples over which running statistics forget, by epoch
batchNormalizationBlendTimeConstant | weight of running statistics while training, in samples, by epoch
numSubminibatches | parts in which a minibatch is computed, for memory
maxSamplesInRAM | int | any | samples of such a part at most
truncated | whether sizes are steps of truncated sequences; a reader's `truncated` says the same
UseAllDataForPreComputedNode | `Mean` and `InvStdDev` over all the data; false: over the first epoch
trainCriterionNodeName | the criterion; none: that of the network
evalCriterionNodeName | the evaluation node; none: the first of the network
numMBsToShowResult | minibatches between two lines of the log
firstMBsToShowResult | minibatches at the start of an epoch that have a line each
keepCheckPointFiles | keep the checkpoints of all epochs
gradientcheck | compare gradients with differences; needs `precision = double`
sigFigs | digits that must agree then
adaptationRegType | none or KL
adaptationRegWeight | weight of the reference model, from 0 to 1
AutoAdjust | section | none | next table
seqGammarAMF | float | 14 | criterion over lattices: divides all scores
seqGammarLMF | float | 14 | criterion over lattices: factor of language-model scores
seqGammarWordPen | float | 0 | criterion over lattices: added to the score of each edge
seqGammarBMMIFactor | float | 0 | boosted MMI: taken off for each correct frame
seqGammarUsesMBR | bool | false | expected number of correct frames instead of MMI
doReferenceAlign | bool | false | align the labels anew with each minibatch
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
numBestSearchEpoch | search: epochs in which it goes on after the first rate that is better
numMiniBatch4LRSearch | ints | 500 | search: minibatches of a trial, by epoch
numSamples4Search | ints | none | the same in samples
autoAdjustMinibatch | look for larger minibatches
minibatchSizeTuningFrequency | epochs between two searches
minibatchSizeTuningMax | largest minibatch
minibatchSearchCriterionErrorMargin | percent that the criterion may get worse
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
rnnType | SIMPLENET, SIMPLERNN, LSTM, CLASSLM, LBLM, NPLM, CLASSLSTM, NCELSTM or CLSTM
recurrentLayer | numbers of the layers that are recurrent
applyMeanVarNorm | normalise the input with its mean and deviation
needPrior | an output that is scaled by the prior of the labels
addDropoutNodes | `Dropout` behind each layer
uniformInit | parameters are uniform; false: Gaussian
initValueScale | factor of their range
defaultHiddenActivity | value of delays before the first step
directConnect | layers whose input goes to the output, too
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

_ORDER = """
randomize | string | auto | auto or true: shuffle; none or false: the order of the file
randomizationWindow | int | all the data | samples within which sequences are shuffled
prefetch | read the next minibatch in a thread of its own
"""
_HTK_STREAMS = """
scpFile | of a stream of features: the list of its files
dim | elements of a frame in the file
contextWindow | frames joined to one: their number, or those to the left : to the right
prefixPathInSCP | put in front of all paths
expandToUtterance | one frame for each utterance, repeated for all of its frames
mlfFile | string | required without mlfFileList | of a stream of labels: its file
mlfFileList | string | none | a list of such files
labelMappingFile | the names of the labels, a line each
labelDim | int | dim | labels
labelToTargetMappingFile | a matrix that gives each label a vector as its target
targetDim | int | of the matrix | elements of such a target
phoneFile | string | required with lattices | section of phones: phones, their transitions and states
transPFile | string | required with lattices | section of phones: the transitions
denLatTocFile | string | required with lattices | section of lattices: tables of archives
prefixPathInToc | section of lattices: folder of the archives
type | string | as its files say | features or labels: `real` or `category`
"""

READERS = (
    Section(
        "Every reader",
        "",
        ("readers.catalogue", "readers.base.sections"),
        """
readerType | string | CNTKTextFormatReader | which reader
deserializers | array | none | without `readerType`: sections that are joined by the names of sequences
readers | strings | none | names of sections, each a reader, that are read side by side
precision | float or double, of the values
randomize | string | as each reader says | whether sequences are shuffled
randomizationWindow | int | as each reader says | samples within which they are
traceLevel | int | 0 | how much the reader logs
sectionType | string | none | of sections of old readers: data or labels
dim | int | required | elements of a sample
prefixPathInSCP | put in front of the paths of a list
""",
    ),
    Section(
        "CNTKTextFormatReader",
        "Lines `id |name values |name index:value`.",
        ("readers.text.reader", "readers.text.format"),
        """
file | the data
input | section | required | a section for each stream
dim | of a stream: elements of a sample
format | string | required | of a stream: dense or sparse
alias | string | its name | of a stream: what the file calls it
frameMode | sequences are single samples, shuffled one by one
skipSequenceIds | numbers in front of lines are passed over; each line is a sequence
maxErrors | samples that may be wrong and are passed over
chunkSizeInBytes | bytes that are read at once
"""
        + _ORDER,
    ),
    Section(
        "CNTKBinaryReader",
        "The same in a binary file of chunks; `opscope.cntk.readers.binary.format.write_binary` makes one.",
        ("readers.binary.format",),
        """
file | the data
input | section | all streams | a section for each stream that is wanted
alias | string | its name | of a stream: what the file calls it
"""
        + _ORDER,
    ),
    Section(
        "HTKMLFReader",
        "HTK features by lists, labels from MLF files. A section with `scpFile` is a stream of features, one with `mlfFile` of labels.",
        ("readers.htk.reader", "readers.htk.mlf", "readers.htk.lattices"),
        """
frameMode | frames one by one, shuffled; false: utterances
truncated | utterances in pieces of `minibatchSize` steps; needs `frameMode = false`
nbruttsineachrecurrentiter | utterances side by side, by epoch
readMethod | blockRandomize, or rollingWindow, which moves single frames
randomize | string | auto | frames within which to shuffle; auto: all; none: the order of the list, only with rollingWindow
minibatchMode | partial: a last small minibatch; full: none
maxUtteranceLength | frames of the longest utterance; longer ones are left out and named
useMersenneTwisterRand | another random generator than C's
legacyMode | bool | true | must be true: `HTKDeserializers` is the other reader
prefetch | read the next minibatch in a thread of its own
"""
        + _HTK_STREAMS,
    ),
    Section(
        "HTKDeserializers",
        "The same section as of HTKMLFReader, in the orders of the newer readers.",
        ("readers.composite htk_deserializers_reader",),
        """
frameMode | frames one by one; false: utterances
truncated | cut utterances into pieces
truncationLength | steps of a piece; 0: `minibatchSize`
nbruttsineachrecurrentiter | utterances side by side, with `truncated`
readMethod | blockRandomize, or none
randomize | string | auto | as of HTKMLFReader
prefetch | read the next minibatch in a thread of its own
""",
    ),
    Section(
        "deserializers",
        "Of a reader without `readerType`: a list of sections, each a deserializer. The first one tells the order.",
        (
            "readers.composite composite_reader",
            "readers.composite htk_features",
            "readers.composite htk_labels",
        ),
        """
type | string | required | of a deserializer: one of the table below
input | section | required | of a deserializer: its streams
frameMode | single samples, shuffled one by one
truncated | cut sequences into pieces
truncationLength | steps of a piece
checkData | whether sequences that a deserializer lacks are left out and counted
useNumericSequenceKeys | bool | as the files need | whether names of sequences are numbers, of which leading zeros do not count
expandToUtterance | of features: one frame for each utterance
"""
        + _ORDER,
    ),
    Section(
        "UCIFastReader",
        "Tables: columns of numbers, and a label.",
        ("readers.uci.reader",),
        """
file | string | required | the data
start | of a stream: its first column, from 0
dim | of a stream: its columns
labelDim | of labels: how many there are
labelType | of labels: category, regression or none
labelMappingFile | of labels: their names, a line each
allowMapCreation | write this file where it is not there; else the action `createLabelMap` does
customDelimiter | string | blanks | character between columns
customDecimalPoint | string | . | character in numbers
minibatchMode | partial: a last small minibatch; full: none
wfile | a cache that BinaryReader reads, written in the first epoch
writerType | string | BinaryWriter | of the cache
randomize | string | auto | rows within which to shuffle; auto: all; none: the order of the file
prefetch | read the next minibatch in a thread of its own
""",
    ),
    Section(
        "BinaryReader",
        "Tables in files of sections, which UCIFastReader writes.",
        ("readers.binary.reader",),
        """
file | string | required | the data, or a list of files
minibatchMode | partial: a last small minibatch; full: none
prefetch | read the next minibatch in a thread of its own
""",
    ),
    Section(
        "LMSequenceReader",
        "Sentences for language models; the label is the next word.",
        ("readers.language.lm_reader",),
        """
file | sentences, a line each, with the words that begin and end them
wordclass | number, count, word and class of each word, a line each
unk | the word for those that are not known
mode | of the features' section: what labels are like: class, softmax or nce
noise_number | of the features' section: noise words of each word, with mode nce
labelType | of the second section of labels: category, nextWord (from the vocabulary of the first) or none
labelDim | int | 0 | of the first section of labels: words of the vocabulary
labelMappingFile | of labels: the words, a line each; it need not be there where there is a `wordclass`
nbruttsineachrecurrentiter | sentences side by side
cacheBlockSize | sentences that are shuffled together
prefetch | read the next minibatch in a thread of its own
""",
    ),
    Section(
        "LUSequenceReader",
        "Sentences with a label for each word.",
        ("readers.language.lu_reader",),
        """
file | words and labels between blanks, a word a line; an empty line ends a sentence
inputLabel | string | labelIn | the section of the words
outputLabel | string | labelOut | the section of the labels
token | of both: the words, or labels, a line each
mode | of both: plain, or class with a file of classes as `token`
labelType | of both: category
useWordMap | of words: replace them by `wordmap`
endSequence | of both: the word at the end of a sentence
wordmap | a file of pairs of words: each is read as the other
wordContext | places of words that a sample has, `0:-1:1`
unk | the word for those that are not known
equalLength | sentences of a minibatch have one length
dataMultiPass | begin anew at the end of the data, within an epoch
nbruttsineachrecurrentiter | sentences side by side
randomize | none, or auto: shuffle
prefetch | read the next minibatch in a thread of its own
""",
    ),
    Section(
        "ImageReader",
        "Images by a map: a path and a label a line. `width`, `height` and `channels` make its input.",
        ("readers.image.reader", "readers.image.transforms"),
        """
file | the map
width | pixels, after scaling
height | pixels, after scaling
channels | 1 or 3
labelDim | of labels: how many there are
transforms | array | none | of a deserializer: steps, each with its `type`: Crop, Scale, Color, Intensity, Mean, Transpose
cropType | center, randomSide, randomArea or multiView10
cropSize | ints | 0 | pixels of the crop, width : height; 0: by the ratios
sideRatio | float | none | side of the crop by the smaller side of the image, from : to
areaRatio | float | none | area of the crop by that of the image, from : to
aspectRatio | float | 1 | width by height of the crop, from : to
jitterType | uniRatio: draw ratios between both ends; none: the first ones
hflip | bool | with random crops | mirror half of the images
multiViewCrop | ten crops of each image: corners, centre, and mirrored
interpolations | nearest, linear, cubic or lanczos, or several to draw from
scaleMode | fill: stretch; crop: cut; pad: fill up
padValue | int | copies of the edge | grey of what is filled up
brightnessRadius | float | 0 | change of brightness, 0 to 1
contrastRadius | float | 0 | change of contrast, 0 to 1
saturationRadius | float | 0 | change of saturation, 0 to 1
intensityStdDev | standard deviation of the change of intensity
intensityFile | its directions, a file of OpenCV
meanFile | a mean image, which is subtracted; a file of OpenCV
mbFormat | nchw: [W x H x C]; nhwc: [C x W x H]
grayscale | read images as grey
seed | of crops and colours
numCPUThreads | threads that decode; 0: as many as there are cores
type | string | required | of a step: what it does
randomize | auto: shuffle; none: the order of the map
prefetch | read the next minibatch in a thread of its own
""",
    ),
    Section(
        "HTKMLFWriter",
        "A feature file of HTK for each utterance.",
        ("readers.htk.writer",),
        """
outputNodeNames | sections, one for each node
scpFile | string | required | of a node: the paths of the files, in the order of the utterances
dim | of a node: elements of a sample
type | of a node: Real
file | string | none | of a node: the same as `scpFile`
""",
    ),
    Section(
        "LUSequenceWriter",
        "The best labels of each word.",
        ("readers.language.lu_writer",),
        """
outputNodeNames | sections, one for each node
file | of a node: the file
token | of a node: the labels, a line each
nbest | of a node: labels that are written
unk | the word for those that are not known
""",
    ),
    Section(
        "LMSequenceWriter",
        "The same, for word classes as LMSequenceReader has them.",
        ("readers.language.lu_writer",),
        """
outputNodeNames | sections, one for each node
file | of a node: the file
token | of a node: the file of word classes
nbest | of a node: words that are written
unk | the word for those that are not known
""",
    ),
    Section(
        "BinaryWriter",
        "The values of nodes in a file of sections.",
        ("readers.binary.writer",),
        """
wfile | the file
dim | of a section: elements of a sample
sectionType | of a section: data or labels
labelType | string | required for labels | of a section of labels: regression
""",
    ),
)

DESERIALIZERS = {
    "CNTKTextFormatDeserializer": "As `CNTKTextFormatReader`: `file`, `input`, `skipSequenceIds`, `maxErrors`, `chunkSizeInBytes`.",
    "CNTKBinaryFormatDeserializer": "As `CNTKBinaryReader`: `file`, `input`.",
    "HTKFeatureDeserializer": "`input` with one stream, as the sections with `scpFile` of `HTKMLFReader`.",
    "HTKMLFDeserializer": "`input` with one stream, as the sections with `mlfFile` of `HTKMLFReader`.",
    "ImageDeserializer": "As `ImageReader`: `file`, and `input` with a stream of images that has `transforms`, and one of labels.",
    "Base64ImageDeserializer": "The same, with the images in the map itself as base64.",
}
"""What a deserializer takes."""
