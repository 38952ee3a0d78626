"""The classes that `new` makes: their members with types, defaults and meaning.

Objects of the redesigned top level are read by these tables: a member that is in none of them and
that no expression names is misspelt, perhaps; a value of another type is an error; paths may be
written with backslashes. The reference page is made of them as well.

Source: F. Seide's notes on the redesign of the configuration language, 2015; SGD.cpp (SGDParams),
HTKMLFReader.cpp, SimpleNetworkBuilder.h, BrainScriptEvaluator.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KINDS = {
    "number": "a number",
    "integer": "a number without a fraction",
    "numbers": "a number, or several joined by `:`, one for each epoch; the last one continues",
    "integers": "the same without fractions",
    "boolean": "`true` or `false`",
    "string": "a string in quotes",
    "strings": "a string, or several joined by `:`",
    "setting": "a number, a string or a boolean",
    "path": "a string; `\\` separates folders as `/` does, on every system",
    "record": "`[ ... ]`",
    "function": "a function",
    "node": "a node of a network",
    "nodes": "a node, or several joined by `:`",
    "network": "a network, as NDL, SimpleNetworkBuilder, LoadModel and EditModel give it",
    "value": "anything",
    "values": "anything, or several joined by `:`",
}
"""The types of members; besides, the name of a class stands for its objects."""

REQUIRED = "required"


@dataclass(frozen=True)
class Setting:
    """A member: `default` is as one would write it, `REQUIRED`, or "" where there is none."""

    name: str
    kind: str
    default: str
    doc: str


@dataclass(frozen=True)
class ObjectClass:
    """A class: what its objects are, and the members that it reads.

    Attributes:
        doc: one or two sentences.
        settings: by name in lower case: members are found whatever capitals they have.
        open: whether any other member is used as well, as the nodes of a network are.
    """

    doc: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    open: bool = False

    def names(self) -> list[str]:
        """The members' names as the table has them."""
        return [setting.name for setting in self.settings.values()]


def _table(text: str) -> dict[str, Setting]:
    """A table of lines `name | type | default | meaning`."""
    settings = {}
    for line in filter(None, map(str.strip, text.strip().split("\n"))):
        name, kind, default, doc = (cell.strip() for cell in line.split("|"))
        settings[name.lower()] = Setting(name, kind, default, doc)
    return settings


_ANYWHERE = """
    precision | string | 'float' | 'float' or 'double'
    traceLevel | integer | 0 | how much the log tells
"""
_AUTO_ADJUST = """
    autoAdjustLR | string | 'none' | 'searchBeforeEpoch', 'adjustAfterEpoch' or 'none'
    reduceLearnRateIfImproveLessThan | number | 0 | relative gain below which the rate decreases
    increaseLearnRateIfImproveMoreThan | number | infinite | relative gain above which it increases
    learnRateDecreaseFactor | number | 0.618 | factor of a decrease, at most 1
    learnRateIncreaseFactor | number | 1.382 | factor of an increase, at least 1
    learnRateAdjustInterval | integer | 1 | epochs between two adjustments
    continueReduce | boolean | false | decrease after each epoch from the first decrease on
    loadBestModel | boolean | true | go back to the last model where the criterion got worse
    UseCVSetControlLRIfCVExists | boolean | true | let validation data decide, if there are any
    UseEvalCriterionControlLR | boolean | false | let the evaluation node decide
    numPrevLearnRates | integer | 5 | earlier rates that a search starts from
    numBestSearchEpoch | integer | 1 | epochs of the search after the first good rate
    numMiniBatch4LRSearch | integers | 500 | minibatches of a trial
    numSamples4Search | integers | | samples of a trial, in place of minibatches
    autoAdjustMinibatch | boolean | false | look for larger minibatches
    minibatchSizeTuningFrequency | integer | 1 | epochs between two searches for the size
    minibatchSizeTuningMax | integer | 1048576 | largest size
    minibatchSearchCriterionErrorMargin | integer | 1 | percent by which the criterion may get worse
"""
_PARALLEL = """
    parallelizationMethod | string | 'none' | or a name of the sections below
    parallelizationStartEpoch | integer | 1 | epochs before it are trained by each process alone
    distributedMBReading | boolean | by reader | each process reads its own part of the data
    syncPerfStats | integer | 0 | exchanges between two lines about their time; 0: none
    DataParallelSGD | DataParallelSGD | [] | gradients are summed in each minibatch
    ModelAveragingSGD | ModelAveragingSGD | [] | parameters are averaged after each block
    BlockMomentumSGD | BlockMomentumSGD | [] | the same with momentum from block to block
    DataParallelASGD | DataParallelASGD | [] | changes are added to shared parameters at any time
"""
_GRADIENTS = """
    gradientBits | integers | all | bits of a gradient's element on its way, a power of two
    useZeroThresholdFor1BitQuantization | boolean | true | 1 bit tells the sign; else above the mean
    useBufferedAsyncGradientAggregation | boolean | false | sums are used one minibatch later
"""
_AVERAGING = """
    blockSize | integer | | samples of all processes in a block
    blockSizePerWorker | integer | 40000 | samples of one process in a block, in place of it
    syncFrequencyInFrames | integer | | older name of it
    syncPeriod | integer | | older name of it
"""
_BLOCKS = """
    blockSize | integer | | samples of all processes in a block
    blockSizePerWorker | integer | 120000 | samples of one process in a block, in place of it
    syncPeriod | integer | | older name of it
    resetSGDMomentum | boolean | true | momentum of minibatches restarts with each block
    useNesterovMomentum | boolean | true | a block begins ahead by the momentum of blocks
    blockLearningRate | number | 1 | factor of a block's change
    blockMomentumAsTimeConstant | number | | momentum of blocks as a time constant in samples
    blockMomentumPerSync | number | 1 - 1 / processes | momentum of blocks, in place of it
"""
_ASYNCHRONOUS = """
    syncPeriod | integers | 256 | samples of a process after which it adds its change
    UsePipeline | boolean | false | go on while the change is on its way
    SimModelAverage | boolean | false | average parameters instead, at the same time
    AdjustLearningRateAtBeginning | AdjustLearningRateAtBeginning | | smaller changes at first
"""
_RAMP = """
    adjustType | string | 'staircase' | or 'linearly', or 'none'
    adjustCoefficient | number | 0.1 | share of a change at first, and of a stair
    adjustPerMinibatches | integer | 256 | changes until the share is 1, or of a stair
"""
_SGD = """
    trainingCriterion | node | the network's | what is made small; a node of the group criterion
    evalCriterion | node | the network's | what is counted besides; a node of the group evaluation
    maxEpochs | integer | required | epochs in all
    epochSize | integer | 0 | samples of an epoch; 0: all there are
    minibatchSize | integers | 256 | samples of a minibatch
    learningRatesPerMB | numbers | | learning rates of a whole minibatch
    learningRatesPerSample | numbers | | learning rates of a sample; one of the two is required
    momentumPerMB | numbers | 0.9 | momentum from minibatch to minibatch
    momentumPerSample | numbers | | momentum from sample to sample, in place of it
    momentumAsTimeConstant | numbers | | the same as a time constant in samples
    minLearningRatePerSample | number | 1e-9 | below it training ends
    dropoutRate | numbers | 0 | share of values that Dropout nodes set to 0
    gradUpdateType | string | 'none' | 'none', 'adagrad', 'rmsProp' or 'fsAdagrad'
    useAdagrad | boolean | false | the same as gradUpdateType = 'adagrad'
    useNAG | boolean | false | Nesterov's momentum
    normWithAveMultiplier | boolean | true | of adagrad and rmsProp: divide by the mean multiplier
    varianceTimeConstant | number | 720000 | of fsAdagrad
    fsAdagradTargetAvDenom | number | 1 | of fsAdagrad
    rms_gamma | number | 0.99 | of rmsProp: decay of the mean square
    rms_wgt_inc | number | 1.2 | of rmsProp: factor of an increase
    rms_wgt_dec | number | 0.75 | of rmsProp: factor of a decrease
    rms_wgt_max | number | 10 | of rmsProp: largest factor
    rms_wgt_min | number | 0.1 | of rmsProp: smallest factor
    gaussianNoiseInjectStd | number | 0 | noise on parameters after an update
    clippingThresholdPerSample | number | infinite | largest gradient of a sample
    gradientClippingWithTruncation | boolean | true | cut elements; else the norm
    L1RegWeight | number | 0 | weight of the sum of absolute values
    L2RegWeight | number | 0 | weight of half the sum of squares
    disableRegInBatchNormalization | boolean | false | spare scale and bias of batch normalization
    batchNormalizationTimeConstant | numbers | 0 | samples over which statistics are averaged
    batchNormalizationBlendTimeConstant | numbers | 0 | weight of old statistics, in samples
    AutoAdjust | AutoAdjust | [] | learning rates that follow the criterion
    ParallelTrain | ParallelTrain | [] | how several processes train together
    numSubminibatches | integer | 1 | parts in which a minibatch is computed
    maxSamplesInRAM | integer | unlimited | samples that are computed at one time
    truncated | boolean | false | sizes are lengths of truncated sequences
    UseAllDataForPreComputedNode | boolean | true | mean and variance of all data, not of one epoch
    gradientcheck | boolean | false | compare gradients with differences; needs double precision
    sigFigs | number | 6 | digits that must agree there
    numMBsToShowResult | integer | 10 | minibatches between two lines of the log
    firstMBsToShowResult | integer | 0 | minibatches of an epoch with a line each
    keepCheckPointFiles | boolean | false | keep the checkpoints of all epochs
    adaptationRegType | string | 'none' | 'KL' holds the outputs near to a reference model's
    adaptationRegWeight | number | 0 | weight of that, from 0 to 1
    traceLevel | integer | 0 | how much the log tells
    traceNodeNamesReal | strings | | nodes whose values the log shows, as numbers
    traceNodeNamesCategory | strings | | the same, the largest of each column
    traceNodeNamesSparse | strings | | the same, elements other than 0
    trainCriterionNodeName | string | | name of the training criterion, in place of the node
    evalCriterionNodeName | string | | name of the evaluation criterion, in place of the node
    seqGammarAMF | number | 14 | sequence training: factor of acoustic scores
    seqGammarLMF | number | 14 | sequence training: factor of language model scores
    seqGammarWordPen | number | 0 | sequence training: penalty of a word
    seqGammarBMMIFactor | number | 0 | sequence training: boosting
    seqGammarUsesMBR | boolean | false | sequence training: expected errors of states
    doReferenceAlign | boolean | false | sequence training: align the reference again
    hSmoothingWeight | number | 0.95 | sequence training: weight beside the frame criterion
    frameDropThresh | number | 1e-10 | sequence training: frames below this are left out
"""
_SOURCE = """
    dataSetFile | path | | list of utterances, for readers that have no list of their own
    streams | stream | from `data` | which reader feeds which input node; else the nodes in `data`
    readMethod | string | 'blockRandomize' | 'blockRandomize' or 'rollingWindow'
    randomize | setting | 'auto' | 'auto', 'none', or samples of a window
    miniBatchMode | string | 'partial' | 'partial' or 'full': the last minibatch of an epoch
    frameMode | boolean | true | frames are single samples; else utterances are sequences
    truncated | boolean | false | sequences are cut into parts of the minibatch's size
    nbruttsineachrecurrentiter | integers | 1 | sequences side by side
    maxUtteranceLength | integer | 10000 | frames; longer utterances are left out
    useMersenneTwisterRand | boolean | false | another generator of random numbers
    prefetch | boolean | true | read ahead of training
    phoneFile | path | | sequence training: phones
    transPFile | path | | sequence training: transitions
    verbosity | integer | 0 | changes nothing: `traceLevel` sets how much is logged
"""
_FEATURES = """
    data | ComputeNodeRef | | the input node; its dimension is checked when files are opened
    scpFile | path | dataSetFile | list of the feature files
    prefixPathInSCP | path | '' | folder in front of the names in the list
    contextWindow | integers | 1 | frames of a sample, or how many to the left and to the right
    expandToUtterance | boolean | false | a single frame counts for all of the utterance
    type | string | 'real' | 'real'
"""
_LABELS = """
    data | ComputeNodeRef | | the input node; its dimension is checked when files are opened
    mlfFile | path | | the labels
    mlfFileList | path | | list of files with labels, in place of it; one of the two is required
    labelMappingFile | path | '' | names of states, one a line
    labelToTargetMappingFile | path | '' | a row of numbers for each state
    targetDim | integer | | numbers of such a row
    labelType | string | 'category' | 'category'
    type | string | 'category' | 'category'
"""
_SIMPLE = """
    layerSizes | integers | required | dimensions of features, hidden layers and labels
    layerTypes | strings | 'Sigmoid' | functions of the hidden layers
    trainingCriterion | values | required | a node that uses `output`, or a name as in old configs
    evalCriterion | values | required | likewise
    input | node | an input | what the first layer reads
    output | ComputeNodeRef | | stands for the top layer before the softmax, in the criteria
    applyMeanVarNorm | boolean | false | normalize features by mean and variance
    needPrior | boolean | false | the output is a scaled likelihood
    addDropoutNodes | boolean | false | put Dropout after hidden layers
    uniformInit | boolean | true | uniform initial values, else Gaussian ones
    initValueScale | number | 1 | factor of initial values
    precision | string | 'float' | 'float' or 'double'
"""

# What readers, a plain record among a source's streams, and AutoAdjust read.
STREAM = "stream"
TOP_CLASSES: dict[str, ObjectClass] = {
    "CNTK": ObjectClass(
        "The whole file: settings, and the actions to run, in order.",
        _table(
            """
            actions | values | required | objects of TrainAction and EditAction
            stderr | path | '' | file of the log; '': standard error
            parallelTrain | boolean | | train by the processes that mpiexec started
            doneFile | path | '' | file that is written when all actions are done
            deviceId | setting | -1 | -1 or 'cpu', a GPU's number, 'gpu' or 'auto'
            """
            + _ANYWHERE
        ),
    ),
    "TrainAction": ObjectClass(
        "A training: data, network, and how it is optimized.",
        _table(
            """
            model | Model | required | the network and its file
            optimizer | SGDOptimizer | required | how it is trained
            source | RandomizingSource | required | the data
            deviceId | setting | -1 | -1 or 'cpu', a GPU's number, 'gpu' or 'auto'
            makeMode | boolean | true | resume from the last checkpoint that is there
            """
            + _ANYWHERE
        ),
    ),
    "EditAction": ObjectClass(
        "Models to be written, mostly made by `EditModel`.",
        _table("do | values | required | what `Dump` and `SaveModel` give"),
    ),
    "Model": ObjectClass(
        "A network and the file that it is saved in.",
        _table(
            """
            modelPath | path | required | the file; files of epochs end in their number
            network | network | required |
            """
        ),
    ),
    "NDL": ObjectClass(
        "A network of all nodes among the members, under the members' names, and all they need. "
        "Arrays `featureNodes`, `labelNodes`, `criterionNodes`, `evaluationNodes` and "
        "`outputNodes` put nodes into groups.",
        _table("precision | string | 'float' | 'float' or 'double'"),
        open=True,
    ),
    "SimpleNetworkBuilder": ObjectClass("Fully connected layers.", _table(_SIMPLE)),
    "SGDOptimizer": ObjectClass("Stochastic gradient descent.", _table(_SGD)),
    "AutoAdjust": ObjectClass("A plain record, a member of SGDOptimizer.", _table(_AUTO_ADJUST)),
    "ParallelTrain": ObjectClass("A plain record, a member of SGDOptimizer.", _table(_PARALLEL)),
    "DataParallelSGD": ObjectClass("A plain record in ParallelTrain.", _table(_GRADIENTS)),
    "ModelAveragingSGD": ObjectClass("A plain record in ParallelTrain.", _table(_AVERAGING)),
    "BlockMomentumSGD": ObjectClass("A plain record in ParallelTrain.", _table(_BLOCKS)),
    "DataParallelASGD": ObjectClass("A plain record in ParallelTrain.", _table(_ASYNCHRONOUS)),
    "AdjustLearningRateAtBeginning": ObjectClass(
        "A plain record in DataParallelASGD.", _table(_RAMP)
    ),
    "RandomizingSource": ObjectClass(
        "Randomized minibatches of what its readers read; these are members of it as well.",
        _table(_SOURCE),
    ),
    STREAM: ObjectClass(
        "A plain record, one or several joined by `:` are `streams` of a source.",
        _table(
            """
            reader | HTKFeatReader | required | or an HTKMLFReader
            input | node | required | the input node that it feeds
            """
        ),
    ),
    "HTKFeatReader": ObjectClass("Feature files of HTK.", _table(_FEATURES)),
    "HTKMLFReader": ObjectClass("Labels of frames, in HTK's master label files.", _table(_LABELS)),
    "ComputeNodeRef": ObjectClass(
        "An input node that something else feeds, or takes the place of.",
        _table("dim | integer | required | its dimension"),
    ),
    "ComputeNode": ObjectClass(
        "A node: `new ComputeNode [ class = 'Plus' ; arg1 = A ; arg2 = B ]`. Other members are "
        "attributes of its kind.",
        _table(
            """
            class | string | required | kind of the node
            arg1 | node | | first input; `arg2`, ... are the others
            tag | string | '' | group of the network that it is in
            """
        ),
        open=True,
    ),
    "String": ObjectClass(
        "A string: with `from` one in which text is replaced, with `format` a value as text.",
        _table(
            """
            from | string | | the text
            replacing | string | | what is looked for in it
            with | string | | what takes its place
            format | string | | text with one `%` as sprintf has it, such as `'%.2f'`
            arg | value | | the value for it
            """
        ),
    ),
    "EditedModel": ObjectClass(
        "Class of `EditModel (model, edits)`: a copy of a model with nodes added. Where the model "
        "has a node of a name, all its users use the new one.",
        _table(
            """
            model | network | required |
            edits | record | required | nodes, and records of nodes, by name
            """
        ),
    ),
    "Dump": ObjectClass(
        "Class of `Dump (model, pathName)`: writes a network's nodes and values as text.",
        _table("model | network | required | \n pathName | path | required | the file"),
    ),
    "SaveModel": ObjectClass(
        "Class of `SaveModel (model, pathName)`: writes a model.",
        _table("model | network | required | \n pathName | path | required | the file"),
    ),
}

"""The classes of the redesigned top level alone."""

_INPUT_NODES = "inputNodes | nodes | required | the nodes to give as parameters"
SHARED_CLASSES: dict[str, ObjectClass] = {
    "ComputationNetwork": ObjectClass(
        "A network of all nodes among the members, under the members' names, and all they need. "
        "Arrays `featureNodes`, `labelNodes`, `criterionNodes`, `evaluationNodes` and "
        "`outputNodes` put nodes into groups.",
        _table("precision | string | 'float' | 'float' or 'double'"),
        open=True,
    ),
    "ComputationNode": ObjectClass(
        "A node. Other members are attributes of its kind.",
        _table(
            """
            operation | string | required | kind of the node
            inputs | nodes | | its inputs; numbers become constants
            tag | string | '' | group of the network that it is in
            """
        ),
        open=True,
    ),
    "ComputationNetworkFromFile": ObjectClass(
        "Class of `BS.Network.Load (pathName)` and `LoadModel (pathName)`: a network from a model.",
        _table("pathName | path | required | the file"),
    ),
    "ComputationNetworkWithEdits": ObjectClass(
        "Class of `BS.Network.Edit`: a network in which functions replace nodes.",
        _table(
            """
            inputModel | network | required | the network
            editFunctions | function | required | one or several of a node; they give a node
            additionalRoots | nodes | required | nodes to add, or none
            """
        ),
    ),
    "CloneFunctionConfigLambda": ObjectClass(
        "Class of `BS.Network.CloneFunction`: a part of a network as a function that copies it.",
        _table(
            _INPUT_NODES
            + """
            outputNodes | nodes | required | a node, or a record of nodes: what the function gives
            parameters | string | required | 'learnable', 'constant' or 'shared'
            """
        ),
    ),
    "NodeFunction": ObjectClass(
        "A function that makes one node; a class of this package.",
        _table(
            """
            operation | string | required | kind of the node
            inputs | string | required | names of the parameters that are inputs
            parameters | string | inputs | names of all parameters
            options | record | [] | optional parameters with their defaults
            """
        ),
    ),
    "Overload": ObjectClass(
        "Several functions under one name, chosen by the number of parameters.",
        _table("functions | function | required | the functions, joined by `:`"),
    ),
    "StringFunction": ObjectClass(
        "Class of the functions on strings.",
        _table(
            """
            what | string | required | 'Format', 'Chr', 'Substr' or 'Replace'
            arg | value | required | the value, or the text
            how | string | | of Format: the middle of a printf format
            pos | integer | | of Substr: where it begins
            chars | integer | | of Substr: how many; below 0: all
            replacewhat | string | | of Replace: what is looked for
            withwhat | string | | of Replace: what takes its place
            """
        ),
    ),
    "NumericFunction": ObjectClass(
        "Class of the functions on numbers.",
        _table(
            """
            what | string | required | 'Floor', 'Ceil', 'Round', 'Abs', 'Length', 'Mod', 'IntDiv'
            arg | value | | the number; of Length: a string or an array
            args | numbers | | of Mod and IntDiv: the two numbers
            """
        ),
    ),
    "CompareFunction": ObjectClass(
        "Class of questions about values.",
        _table(
            """
            what | string | required | 'IsSameObject', 'IsArray', 'IsDouble' or 'IsBool'
            args | values | required | the value; of IsSameObject: the two
            """
        ),
    ),
    "PrintAction": ObjectClass(
        "Says a value in the log, and is that value.",
        _table("what | value | required | \n how | string | '' | the middle of a printf format"),
    ),
    "FailAction": ObjectClass(
        "Ends the evaluation with an error.", _table("what | string | required | the message")
    ),
    "Debug": ObjectClass(
        "Says a value in the log, and is that value.",
        _table(
            """
            value | value | required |
            say | string | '' | what to say before
            enabled | boolean | true | whether to say anything
            """
        ),
    ),
    "TensorShape": ObjectClass("Dimensions.", _table("dims | integers | required |")),
    "IntVector": ObjectClass("Whole numbers.", _table("items | integers | required |")),
    "SizeVector": ObjectClass("Whole numbers.", _table("items | integers | required |")),
    "BoolVector": ObjectClass("Booleans.", _table("items | boolean | required | or several")),
}
"""The classes that networks in BrainScript have as well."""

CLASSES = {**TOP_CLASSES, **SHARED_CLASSES}


def is_argument(name: str) -> bool:
    """Whether a member is an input of a ComputeNode: `arg1`, `arg2`, ..."""
    return name.startswith("arg") and name[3:].isdecimal() and name[3:].isascii()
