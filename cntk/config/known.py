"""The parameters that CNTK 2.0 beta 9 knows in some sections, to tell misspelt ones.

Source: SGD.cpp, NDLNetworkBuilder.h, SimpleNetworkBuilder.h, Source/Readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...framework.base.errors import OpscopeError, nearest
from ..base.text import located
from .parameters import ConfigParameters
from .variables import names_used

_ANYWHERE = "deviceId precision traceLevel"
_PARALLEL_PARTS = {
    "DataParallelSGD": "gradientBits useBufferedAsyncGradientAggregation"
    " useZeroThresholdFor1BitQuantization",
    "ModelAveragingSGD": "blockSize blockSizePerWorker syncFrequencyInFrames syncPeriod syncPeroid",
    "BlockMomentumSGD": "blockLearningRate blockMomentumAsTimeConstant blockMomentumPerSync"
    " blockSize blockSizePerWorker resetSGDMomentum syncPeriod useNesterovMomentum",
    "DataParallelASGD": "AdjustLearningRateAtBeginning SimModelAverage UsePipeline syncPeriod",
    "AdjustLearningRateAtBeginning": "adjustCoefficient adjustPerMinibatches adjustType",
}
_SECTIONS = {
    "SGD": "AutoAdjust L1RegWeight L2RegWeight ParallelTrain UseAllDataForPreComputedNode"
    " adaptationRegType adaptationRegWeight batchNormalizationBlendTimeConstant"
    " batchNormalizationTimeConstant clippingThresholdPerSample disableRegInBatchNormalization"
    " doReferenceAlign dropoutRate epochSize executionEngine firstMBsToShowResult frameDropThresh"
    " fsAdagradTargetAvDenom gaussianNoiseInjectStd gradUpdateType gradientClippingWithTruncation"
    " gradientcheck hSmoothingWeight keepCheckPointFiles learningRatesPerMB learningRatesPerSample"
    " maxEpochs maxSamplesInRAM maxTempMemSizeInSamplesForCNN minLearningRatePerSample"
    " minibatchSize modelPath momentumAsTimeConstant momentumPerMB momentumPerSample"
    " normWithAveMultiplier numMBsToCUDAProfile numMBsToShowResult numSubminibatches rms_gamma"
    " rms_wgt_dec rms_wgt_inc rms_wgt_max rms_wgt_min seqGammarAMF seqGammarBMMIFactor seqGammarLMF"
    " seqGammarUsesMBR seqGammarWordPen sigFigs trainCriterionNodeName evalCriterionNodeName"
    " traceNodeNamesReal traceNodeNamesCategory traceNodeNamesSparse truncated unitTest useAdagrad"
    " useNAG varianceTimeConstant",
    "AutoAdjust": "UseCVSetControlLRIfCVExists UseEvalCriterionControlLR autoAdjustLR"
    " autoAdjustMinibatch continueReduce increaseLearnRateIfImproveMoreThan learnRateAdjustInterval"
    " learnRateDecreaseFactor learnRateIncreaseFactor loadBestModel"
    " minibatchSearchCriterionErrorMargin minibatchSizeTuningFrequency minibatchSizeTuningMax"
    " numBestSearchEpoch numMiniBatch4LRSearch numPrevLearnRates numSamples4Search"
    " reduceLearnRateIfImproveLessThan",
    "ParallelTrain": "distributedMBReading parallelizationMethod parallelizationStartEpoch"
    f" syncPerfStats {' '.join(_PARALLEL_PARTS)}",
    **_PARALLEL_PARTS,
    "SimpleNetworkBuilder": "addDropoutNodes applyMeanVarNorm auxfeatdim constForgetGateValue"
    " constInputGateValue constOutputGateValue defaultHiddenActivity directConnect evalCriterion"
    " forgetGateInitVal initValueScale inputGateInitVal layerSizes layerTypes lookupTableOrder"
    " lookupTableOrderSizes maOrder maxsent_size nbrClass needPrior noise_number outputGateInitVal"
    " outputLayerSize randomSeedOffset recurrentLayer rnnType sparseinput streamSizes"
    " trainingCriterion uniformInit vocabSize",
}
# Of all readers together, at any level; sections in them may have any name: streams do.
_READER = (
    "acousticScale action alias alignments allowMapCreation appendix areaRatio aspectRatio"
    " beginSequence blockRandomize brightnessRadius cacheBlockSize channels checkData"
    " chunkSizeInBytes compute contextWindow contrastRadius cropSize cropType customDecimalPoint"
    " customDelimiter dataMultiPass definesMBSize denlats denLatTocFile deserializers dim"
    " elementSize endSequence equalLength expandToUtterance featureTransform file fileList"
    " format frameMode grayscale height hflip ignoresentencebegintag input inputLabel"
    " intensityFile intensityStdDev interpolations isProposal jitterType kaldicmd kaldiModel"
    " keepDataInMemory labelDim labelMappingFile labelToTargetMappingFile labelType"
    " latticeIndexBeginFile legacyMode lmScale localTimeline maxErrors maxNumOverflowWarning"
    " maxReadData maxSequenceLength maxUtteranceLength mbFormat meanFile microbatchSize"
    " minibatchMode minibatchSize mlfFile mlfFileList mlpFile mode module"
    " multiThreadedDeserialization multiViewCrop nbest nbrUttsInEachRecurrentIter noise_number"
    " numberobs numCPUThreads numLatTocFile oldAcousticScale onelineperfile oneSilenceClass"
    " outputLabel outputNodeNames padValue pageFilePath phoneFile precision prefetch"
    " prefixPathInSCP prefixPathInToc randomizationWindow randomize reader readers readerType"
    " readMethod rename rescale returnDense rx saturationRadius scaleMode scpFile sectionType"
    " seed seqTrainCriterion sideRatio silPhoneList skipSequenceIds sparsenessFactor start"
    " statelist stateListFile subminibatch symbolForGap symmetricPadding targetDim token"
    " traceLevel transforms transPFile truncated truncationLength type unigram unittest unk"
    " useMersenneTwisterRand useNumericSequenceKeys useWordMap verbosity wfile width windowSize"
    " wordclass wordContext wordmap wrecords writerType wsize"
)
_READERS = ("reader", "cvreader", "evalreader", "writer")
_TYPES = ("readertype", "writertype")
_OWN_TYPES = frozenset(  # others come from elsewhere, and so do their parameters
    f"{name}{role}".lower()
    for name in "Binary CNTKBinary CNTKTextFormat Composite CompositeData HTKMLF Image LMSequence"
    " LUSequence UCIFast SparsePC LibSVMBinary Kaldi Kaldi2 DSSM".split()
    for role in ("Reader", "Writer")
) | {"htkdeserializers"}
_READER_NAMES = {name.lower(): name for name in f"{_READER} {_ANYWHERE}".split()}
KNOWN = {
    section.lower(): {name.lower(): name for name in f"{names} {_ANYWHERE}".split()}
    for section, names in _SECTIONS.items()
}
_OPENS = re.compile(r"(\w+)[ \t]*=[ \t]*[\[{]")
_FREE = "networkbuilder"  # sections of scripts: any name may be in them


def unknown_parameters(config: ConfigParameters) -> Iterator[str]:
    """The parameters of known sections that CNTK does not know there, with place and suggestions.

    A name that some `$name$` uses is known, and so is one that a section further in may hold: it is
    looked up from there.
    """
    used = {name.lower() for name in names_used(config.text.string)}
    yield from _unknown(config, used)


def _unknown(section: ConfigParameters, used: set[str], in_reader: bool = False) -> Iterator[str]:
    for name in section:
        if not section.is_section(name):
            continue
        lower = name.lower()
        reader = in_reader or lower in _READERS
        names = KNOWN.get(lower) or (_READER_NAMES if reader else None)
        if names is None and lower.endswith(_FREE):
            continue
        inner = ConfigParameters(section.raw(name), f"{section.path}:{name}", section)
        if reader and any(inner.has(kind) and not _is_own(inner, kind) for kind in _TYPES):
            continue
        if names is not None:
            known = {**names, **_inside(inner), **_learner_of(inner)}
            for key in inner:
                named = key.lower() in known or key.lower() in used
                if not named and not (reader and _is_section(inner, key)):
                    message = f"unknown parameter {inner.path}:{key}{_hint(key, known)}"
                    yield str(located(OpscopeError, message, inner.place(key)))
        yield from _unknown(inner, used, reader)


def _is_own(section: ConfigParameters, kind: str) -> bool:
    text = section.raw(kind).string if section.has_value(kind) else ""
    return "$" in text or text.lower() in _OWN_TYPES


def _learner_of(section: ConfigParameters) -> dict[str, str]:
    """The section with the attributes of a learner that is plugged in."""
    name = section.raw("gradUpdateType").string if section.has_value("gradUpdateType") else ""
    return {name.lower(): name} if _is_section(section, name) else {}


def _is_section(section: ConfigParameters, name: str) -> bool:
    return section.has_value(name) and section.raw(name).string[:1] in ("[", "(", "{")


def _hint(key: str, known: dict[str, str]) -> str:
    """The sections that know a name, or the names most like it here."""
    homes = [name for name in _SECTIONS if key.lower() in KNOWN[name.lower()]]
    return f" (it belongs in {' or '.join(homes)})" if homes else nearest(key, known.values())


def _inside(section: ConfigParameters) -> dict[str, str]:
    """The names that the sections inside a section know."""
    found: dict[str, str] = {}
    for name in {match.group(1).lower() for match in _OPENS.finditer(section.text.string)}:
        found.update(KNOWN.get(name, {}))
    return found
