# ruff: noqa: E501  (an entry is a line)
"""What each option of readers and writers means; see `cntk_option_words`."""

from __future__ import annotations

from cntk_option_words import Section

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
        ("readers.catalog", "readers.base.sections"),
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
        ("readers.htk.options", "readers.htk.reader", "readers.htk.mlf", "readers.htk.lattices"),
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
localTimeline | without `truncated`: each of several processes counts the samples of its own sequences, up to its part of a minibatch; false: the samples of all
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
        "DSSMReader",
        "Queries and documents in two binary files of sparse records; labels are 1 in their first element. `labels` is a section with a `labelDim`.",
        ("readers.sparse.dssm", "readers.sparse.records"),
        """
file | string | required | of a stream: its records; of the first section by name the documents, of the second the queries
dim | int | required | of a stream: elements of a sample
randomize | string | none | without effect: records come in the order of the file
minibatchMode | string | partial | without effect: the last minibatch may be short
""",
    ),
    Section(
        "Kaldi2Reader",
        "HTKMLFReader's orders, and its options, over tables of Kaldi. A section with `scpFile` is a stream of features, one with `mlfFile` of labels.",
        ("readers.kaldi.reader", "readers.kaldi.derivatives"),
        """
scpFile | string | required | of features: a line `key frames` for each utterance, as Kaldi's feat-to-len writes them
rx | string | required | of features: a text file that holds the rspecifier of matrices, `scp:feats.scp`
featureTransform | of features: a file of Kaldi's nnet1 that is applied to them: windows, shifts, scales, matrices; NO_FEATURE_TRANSFORM: none
mlfFile | string | required | of labels: a text file that holds the rspecifier of posteriors, with one label of weight 1 a frame
targets_delay | frames by which labels come later
seqTrainCriterion | string | none | smbr or mpfe: a training gives the network's first output back, and gets the slope of this criterion by it; wants `frameMode = false`
type | string | required with seqTrainCriterion | of two streams: `readerDeriv` or `seqTrainDeriv`, the slopes; `readerObj` or `seqTrainObj`, the frames expected to be wrong
denlats | section | required with seqTrainCriterion | the lattices: their `rx`, Kaldi's model, silence and scales
alignments | section | required with seqTrainCriterion | the reference: its `rx`, of vectors of transition-ids
kaldiModel | string | required with seqTrainCriterion | of denlats: a file that begins with a transition model
silPhoneList | strings | none | of denlats: silence phones, `1:2`
oneSilenceClass | of denlats: any silence is right for any other; false: silence is never right
oldAcousticScale | of denlats: of the acoustic costs that are in the lattices
acousticScale | of denlats: of the network's log-likelihoods
lmScale | of denlats: of the costs of the graph
prefetch | read the next minibatch in a thread of its own
""",
    ),
    Section(
        "LibSVMBinaryReader",
        "Sparse features and dense labels in a binary file of batches, which names them; a network's input `DSSMLabel` gets 1 in its first element.",
        ("readers.sparse.libsvm",),
        """
file | string | required | the data
rename | string | the file's name | of a section with the name of a stream: what the network calls it
minibatch | int | as the file has | records of a batch, to be compared with the file
randomize | string | none | without effect: records come in the order of the file
minibatchMode | string | partial | without effect: the last minibatch may be short
""",
    ),
    Section(
        "SparsePCReader",
        "Sparse features and one number as the label in a binary file of records. `labels` is a section with a `labelDim`.",
        ("readers.sparse.parallel_corpus",),
        """
file | string | required | the data
dim | int | required | of a stream: elements of a sample
microbatchSize | records of a sequence
returnDense | samples are dense
gradientCheck | the same
sparsenessFactor | a record has at most an element for so many dimensions
verificationCode | a number after each record; 0: there is none
maxReadData | records that begin before this byte are read; 0: all
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
dataMultiPass | begin again at the end of the data, within an epoch
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
areaRatio | float | none | area of the crop by the area of the image, from : to
aspectRatio | float | 1 | width by height of the crop, from : to
jitterType | uniRatio: draw ratios between both ends; none: the first ones
hflip | bool | with random crops | mirror half of the images
multiViewCrop | ten crops of each image: corners, center, and mirrored
interpolations | nearest, linear, cubic or lanczos, or several to draw from
scaleMode | fill: stretch; crop: cut; pad: fill up
padValue | int | copies of the edge | gray of what is filled up
brightnessRadius | float | 0 | change of brightness, 0 to 1
contrastRadius | float | 0 | change of contrast, 0 to 1
saturationRadius | float | 0 | change of saturation, 0 to 1
intensityStdDev | standard deviation of the change of intensity
intensityFile | its directions, a file of OpenCV
meanFile | a mean image, which is subtracted; a file of OpenCV
mbFormat | nchw: [W x H x C]; nhwc: [C x W x H]
grayscale | read images as gray
seed | of crops and colors
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
outputNodeNames | strings | required | sections, one for each node
scpFile | string | required | of a node: the paths of the files, in the order of the utterances
dim | of a node: elements of a sample
type | of a node: Real
file | string | none | of a node: the same as `scpFile`
""",
    ),
    Section(
        "Kaldi2Writer",
        "Values of nodes as matrices in a table of Kaldi; `writerType = Kaldi2Reader` is the same. A section for each node.",
        ("readers.kaldi.writer",),
        """
outputNodeNames | strings | required | nodes to write
dim | int | required | of a node: elements of a sample
scpFile | string | required | of a node: a line for each utterance, of which the first word is the key
file | string | none | the same, in place of it
Kaldicmd | of a node: a wspecifier, `ark:-`; none: keys are paths of archives of their own
overflowValue | larger numbers become the logarithm of the utterance's frames, or of `dim` without Kaldicmd, as in CNTK
maxNumOverflowWarning | warnings about these
""",
    ),
    Section(
        "LUSequenceWriter",
        "The best labels of each word.",
        ("readers.language.lu_writer",),
        """
outputNodeNames | strings | required | sections, one for each node
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
outputNodeNames | strings | required | sections, one for each node
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
