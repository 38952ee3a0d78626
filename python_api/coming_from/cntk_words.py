# ruff: noqa: E501  (an entry is a line)
"""What names of CNTK are here, beside what the package's catalogs say of them."""

from __future__ import annotations

TRAINING = "[running configs](cntk_training.md)"
FACE = "[cntk](reference/cntk.md)"
NETWORKS = "[networks](cntk_networks.md)"
READERS = "[readers](cntk_readers.md)"
RUNTIME = "[running networks](cntk_runtime.md)"
BUILDER = "[NetBuilder](reference/builder.md)"
OPERATORS = "[operators](reference/operators.md)"
TRAIN = "[training](training.md)"
OWN_NODE = "[a node kind of your own](adding_a_node_kind.md)"
OWN_READER = "[a reader of your own](adding_a_reader.md)"

PROGRAMS = (
    # CNTK's name; here; where
    (
        "`cntk configFile=a.cntk x=1`",
        "`opscope cntk configFile=a.cntk x=1`; `cntk.run_config`",
        TRAINING,
    ),
    (
        "`configFile`, `currentDirectory`, `include=`",
        "the same; `cntk.load_config`",
        "[configs](cntk_configs.md)",
    ),
    (
        "`command`, `action`",
        "the same; `cntk.config.commands` lists what would run",
        "[configs](cntk_configs.md)",
    ),
    ("`stderr`, `traceLevel`, `makeMode`, `doneFile`, `timestamping`", "the same", TRAINING),
    (
        "`deviceId`",
        "the same: -1 or `cpu`, a number, `gpu`, `auto`; in Python `opscope.CPUPlace`, `opscope.GPUPlace`",
        TRAINING,
    ),
    ("`precision`", "the same; in Python `dtype` of `cntk.load_model`", TRAINING),
    (
        "`SimpleNetworkBuilder`, `NDLNetworkBuilder`, `BrainScriptNetworkBuilder`, `ExperimentalNetworkBuilder`",
        "the same; `cntk.build_section_network`, `cntk.build_ndl_file`, `cntk.build_network`",
        "[configs](cntk_configs.md), [BrainScript](brainscript.md)",
    ),
    (
        "`ConfigParameters`, `ConfigArray`, `ConfigValue`",
        "`cntk.ConfigParameters`, `cntk.config.ConfigArray`, `cntk.config.ConfigValue`",
        "[configs](cntk_configs.md)",
    ),
    ("`ComputationNetwork`", "`cntk.Network`; with its values `cntk.CntkNet`", NETWORKS),
    ("`ComputationNode`", "`cntk.Node`", NETWORKS),
    ("`MBLayout`", "`cntk.Layout`", READERS),
    ("`IDataReader`, `DataReader`", "`cntk.DataReader`; `cntk.create_reader`", READERS),
    ("`IDataWriter`, `DataWriter`", "`cntk.DataWriter`; `cntk.create_writer`", READERS),
    ("`IDataDeserializer`", "`cntk.Deserializer`; `cntk.create_deserializer`", OWN_READER),
    ("`Randomizer`, `Packer`, `TruncatedBPTTPacker`", "modules of `cntk/readers/base`", READERS),
    ("`SGD`, `SGDParams`", "`cntk.Trainer`, `cntk.SgdOptions`", TRAINING),
    ("`SimpleEvaluator`, `SimpleOutputWriter`", "`cntk.Evaluator`; the action `write`", TRAINING),
    (
        "model files `.dnn`, `.cmf`, `.model`",
        "`cntk.load_model`, `cntk.open_model`, `cntk.write_model`; `opscope show`, `opscope verify`",
        NETWORKS,
    ),
    ("checkpoints `.ckp`", "`cntk.ModelFiles`", TRAINING),
    ("`dumpNode` text", "`cntk.dump`", NETWORKS),
    (
        "`new CNTK`, `TrainAction`, `EditAction`, `Model`, `SGDOptimizer`, `RandomizingSource`, `HTKFeatReader` (language of 2015)",
        "the same: `cntk.load_experiment`, `cntk.run_config`",
        "[BrainScript](brainscript.md)",
    ),
)
"""The command line, and the classes of CNTK's source."""

EVALUATION = (
    (
        "`GetEvalF`, `GetEvalD`, `GetEvalExtendedF`, `GetEvalExtendedD`, `IEvaluateModel`, `IEvaluateModelExtended`, `Eval`",
        "`cntk.CntkNet`; `dtype` of `cntk.load_model` is float or double",
        FACE,
    ),
    ("`Init`", "nothing: `cntk.load_model` takes place and dtype", FACE),
    ('`CreateNetwork ("modelPath=...")`', "`cntk.load_model`", FACE),
    (
        "`CreateNetwork (a network's text)`",
        "`cntk.build_network` or `cntk.build_section_network`, then `cntk.CntkNet`",
        FACE,
    ),
    ("`Evaluate (inputs, outputs)`, `ForwardPass`", "`cntk.CntkNet.eval`", FACE),
    (
        "`StartEvaluateMinibatchLoop`, `StartForwardEvaluation`",
        "nothing: `cntk.CntkNet.eval` names its nodes, and keeps what it made for them",
        FACE,
    ),
    (
        "`ResetState`, `ForwardPass (..., resetRNN = false)`",
        "`cntk.CntkNet.forward` of a `cntk.Minibatch` whose `cntk.Layout` says that sequences continue (`begin < 0`, `end > steps`); others start new",
        RUNTIME,
    ),
    (
        "`GetNodeDimensions`, `GetInputSchema`, `GetOutputSchema`, `VariableSchema`, `VariableLayout`",
        '`net.network.groups["feature"]` and `["output"]`, nodes with `name`, `shape`, `operation`',
        NETWORKS,
    ),
    (
        "`Values`, `ValueBuffer`, `ValueRefs`, `VectorRef`",
        "arrays; whole numbers for one-hot samples; sparse ones as `cntk.Samples` with `indices` and `first`",
        FACE,
    ),
    ("`Destroy`", "nothing: an object goes when nothing refers to it any more", FACE),
    ("`EvalReader`, `EvalWriter`", "not there: `cntk.CntkNet.eval` takes and gives arrays", FACE),
)
"""EvalDll, `Source/Common/Include/Eval.h`."""

LIBRARY2 = (
    ("`load_model`, `Function.Load`, `LoadModel`", "`cntk.load_model`", FACE),
    (
        "`save_model`, `Function.save`, `SaveModel`",
        "`cntk.CntkNet.save`, in the format of the binary models; the protobuf format is read, not written",
        FACE,
    ),
    ("`restore_model`, `RestoreModel`", "`cntk.load_model`", FACE),
    (
        "`Function.eval`, `forward`, `Forward`, `Evaluate`",
        "`cntk.CntkNet.eval`, `cntk.CntkNet.forward`",
        RUNTIME,
    ),
    (
        "`Function.backward`, `grad`, `Backward`",
        "`cntk.CntkNet.forward_backward`, then `cntk.CntkNet.gradient`",
        RUNTIME,
    ),
    (
        "`Function.clone`, `CloneMethod`, `BS.Network.CloneFunction`",
        "`cntk.Network.copy_subtree`; `CloneFunction` in BrainScript",
        NETWORKS,
    ),
    ("`find_by_name`, `find_all_with_name`", "`cntk.Network.find`, `cntk.Network.match`", NETWORKS),
    (
        "`arguments`, `inputs`, `outputs`, `output`",
        "`cntk.Network.groups`, `cntk.Node.inputs`",
        NETWORKS,
    ),
    (
        "`parameters`, `constants`",
        "`cntk.CntkNet.parameters`, with `learning=False` constants too",
        RUNTIME,
    ),
    (
        "`Parameter.value`, `Constant.value`, `SetValue`",
        "`cntk.CntkNet.get`, `cntk.CntkNet.set`",
        RUNTIME,
    ),
    (
        "`replace_placeholders`, `placeholder_variable`, `ReplacePlaceholders`",
        "`cntk.Network.add` without inputs, then `cntk.Network.connect`",
        NETWORKS,
    ),
    (
        "`op_name`, `attributes`, `name`, `uid`, `shape`, `dtype`, `owner`",
        "`cntk.Node.operation`, `attributes`, `name`, `shape`; names are unique",
        NETWORKS,
    ),
    (
        "`depth_first_search`, `PrintGraph`, `output_function_graph`",
        "`cntk.Network.below`, `cntk.describe`",
        NETWORKS,
    ),
    ("`graph.plot`", "the action `plot`; `opscope show --svg`", "[looking](looking.md)"),
    ("`UserFunction`", "a kind of node with its operators", OWN_NODE),
    (
        "`combine`, `as_block`, `as_composite`, `alias`, `Block`, `AsBlock`, `AsComposite`, `Alias`",
        "not there: nodes are evaluated by name, several at once; a layer is a Python function",
        NETWORKS,
    ),
    ("`input_variable`, `Input`, `InputVariable`", "`b.input`; the node `InputValue`", BUILDER),
    ("`output_variable`", "`cntk.Network.add_to_group`", NETWORKS),
    (
        "`parameter`, `Parameter`, `constant`, `Constant`",
        "`b.parameter`, `b.constant`; the node `LearnableParameter`",
        BUILDER,
    ),
    (
        "`Axis`, `dynamic_axes`, `default_batch_axis`, `new_unique_dynamic_axis`",
        "`levels` of `b.input`; the node `DynamicAxis`",
        "[sequences](sequences.md)",
    ),
    (
        "`Value`, `Value.create`, `NDArrayView`, `NDMask`, `NDShape`, `one_hot`",
        "arrays and `opscope.Sequences`; for CNTK's networks lists of arrays, `cntk.Samples`",
        "[sequences](sequences.md)",
    ),
    (
        "`DeviceDescriptor`, `cpu`, `gpu`, `best`, `set_default_device`",
        "`opscope.CPUPlace`, `opscope.GPUPlace`: the place of a `opscope.Scope`, or of `cntk.load_model`",
        FACE,
    ),
    ("`SetMaxNumCPUThreads`", "`opscope.set_threads`", "[threads](threads.md)"),
    (
        "`uniform`, `normal`, `xavier`, `glorot_uniform`, `glorot_normal`, `he_uniform`, `he_normal`, `bilinear` (initializers)",
        "`init` of `LearnableParameter`; `init` of `b.parameter`",
        "[initializers](reference/initializers.md)",
    ),
    (
        "`Sequential`, `LayerStack`",
        "the same in BrainScript; in Python calls one after the other",
        BUILDER,
    ),
    (
        "`Dense`, `Embedding`, `Convolution`, `Deconvolution`",
        "`b.fc`, `b.embedding`, `b.conv2d`, `b.conv_transpose2d`; `DenseLayer`, ... in BrainScript",
        BUILDER,
    ),
    (
        "`MaxPooling`, `AveragePooling`, `GlobalMaxPooling`, `GlobalAveragePooling`, `MaxUnpooling`",
        "`b.max_pool2d`, `b.avg_pool2d`, `b.global_max_pool`, `b.global_avg_pool`; the node `MaxUnpooling`",
        BUILDER,
    ),
    (
        "`Recurrence`, `LSTM`, `RNNStep`, `GRU`, `Delay`",
        "`b.lstm`, `b.gru`, `b.simple_rnn`, `b.recurrent`; the node `PastValue`",
        BUILDER,
    ),
    (
        "`Dropout`, `BatchNormalization`, `LayerNormalization`, `Stabilizer`",
        "`b.dropout`, `b.batch_norm`, `b.layer_norm`; `StabilizerLayer` in BrainScript",
        BUILDER,
    ),
    ("`default_options`", "not there: options stand at the layer", BUILDER),
    (
        "`plus`, `minus`, `element_times`, `element_divide`, `times`, `times_transpose`",
        "`b.add`, `b.sub`, `b.mul`, `b.div`, `b.matmul`",
        OPERATORS,
    ),
    (
        "`abs`, `exp`, `log`, `sqrt`, `square`, `sin`, `cos`, `floor`, `ceil`, `round`, `negate`, `reciprocal`, `clip`",
        "`b.abs`, ... with the same names; `b.neg`",
        OPERATORS,
    ),
    (
        "`relu`, `sigmoid`, `tanh`, `softmax`, `hardmax`, `log_add_exp`",
        "`b.relu`, `b.sigmoid`, `b.tanh`, `b.softmax`, `b.hardmax`; the node `LogPlus`",
        OPERATORS,
    ),
    (
        "`equal`, `not_equal`, `less`, `less_equal`, `greater`, `greater_equal`, `element_select`",
        "`b.equal`, ..., `b.where`",
        OPERATORS,
    ),
    (
        "`reduce_sum`, `reduce_mean`, `reduce_max`, `reduce_min`, `reduce_log_sum`",
        "`b.reduce_sum`, `b.reduce_mean`, `b.reduce_max`, `b.reduce_min`, `b.logsumexp`",
        OPERATORS,
    ),
    (
        "`reshape`, `transpose`, `slice`, `splice`, `roipooling`, `convolution`, `pooling`, `unpooling`",
        "`b.reshape`, `b.transpose`, `b.slice`, `b.concat`; the nodes `ROIPooling`, `Convolution`, `Pooling`, `MaxUnpooling`",
        OPERATORS,
    ),
    (
        "`past_value`, `future_value`, `optimized_rnnstack`",
        "`b.sequence_shift`, `b.recurrent`; the nodes `PastValue`, `FutureValue`, `OptimizedRNNStack`",
        OPERATORS,
    ),
    (
        "`sequence.is_first`, `is_last`, `first`, `last`, `where`, `gather`, `scatter`, `broadcast_as`, `slice`, `reduce_sum`",
        "`b.sequence_pool`, `b.sequence_expand`, `b.sequence_slice`; `BS.Sequences` and `BS.Loop` in BrainScript",
        OPERATORS,
    ),
    (
        "`cross_entropy_with_softmax`, `binary_cross_entropy`, `weighted_binary_cross_entropy`, `squared_error`, `classification_error`",
        "`b.softmax_cross_entropy`, `b.sigmoid_cross_entropy`, `b.squared_error`, `b.accuracy`; the nodes of criteria",
        OPERATORS,
    ),
    (
        "`cosine_distance`, `lambda_rank`, `ndcg_at_1`, `random_sample`, `random_sample_inclusion_frequency`, `per_dim_mean_variance_normalize`",
        "`b.cosine_similarity`; the nodes `LambdaRank`, `NDCG1Eval`, `RandomSample`, `RandomSampleInclusionFrequency`, `PerDimMeanVarNormalization`",
        "[nodes](reference/cntk_nodes.md)",
    ),
    (
        "`sgd`, `momentum_sgd`, `nesterov`, `adagrad`, `rmsprop`, `adam_sgd`, `Learner`",
        "optimizers of `opscope.train`; for CNTK's networks `gradUpdateType` of `SGD`",
        TRAIN,
    ),
    (
        "`learning_rate_schedule`, `momentum_schedule`, `momentum_as_time_constant_schedule`, `UnitType`",
        "`lr_piecewise` and the other schedules; `learningRatesPerMB`, `learningRatesPerSample`, `momentumAsTimeConstant`",
        TRAIN,
    ),
    (
        "`Trainer`, `train_minibatch`, `training_session`, `CreateTrainer`",
        "`opscope.train`; for CNTK's networks `cntk.Trainer`",
        TRAINING,
    ),
    ("`test_minibatch`, `TestMinibatch`", "`cntk.Evaluator`; the actions `test`, `eval`", TRAINING),
    ("`save_checkpoint`, `restore_from_checkpoint`", "`cntk.ModelFiles`, `makeMode`", TRAINING),
    (
        "`previous_minibatch_loss_average`, `ProgressPrinter`",
        "`opscope.History`, callbacks of `opscope.train`; the log of `cntk.Trainer`",
        TRAIN,
    ),
    (
        "`MinibatchSource`, `next_minibatch`, `MinibatchData`",
        "`cntk.create_reader`, `cntk.DataReader.get_minibatch`, `cntk.Minibatch`",
        READERS,
    ),
    (
        "`CTFDeserializer`, `ImageDeserializer`, `StreamDef`, `StreamConfiguration`, `ReaderConfig`",
        "the same deserializers in a section of a config; `cntk.parse_config`",
        READERS,
    ),
    ("`sequence_to_cntk_text_format`", "not there: the format is lines of text", READERS),
    (
        "`Communicator`, `data_parallel_distributed_learner`, `block_momentum_distributed_learner`, `ParallelTrain`",
        "a config with `ParallelTrain` under `mpiexec`: [several processes](cntk_training.md#several-processes)",
        TRAINING,
    ),
)
"""CNTK 2.0's library: `CNTKLibrary.h`, and its Python package. `b` is a NetBuilder."""

ACTIONS = {
    "train": "trains a network by the section `SGD`",
    "trainRNN": "the same as `train`",
    "adapt": "trains `origModelFileName` on, by KL divergence near to what it was",
    "test": "criteria over data",
    "eval": "the same as `test`",
    "cv": "criteria of the models of several epochs; the best of them",
    "write": "values of nodes over data, as text or through a writer",
    "edit": "builds and saves a network, or runs a script of MEL",
    "dumpNodes": "a model as text",
    "dumpNode": "a model as text",
    "dumpnode": "a model as text",
    "plot": "a model as a graph for Graphviz",
    "topo": "the same as `plot`",
    "SVD": "matrices as products of smaller ones",
    "convertdbn": "a model of a file of DBN.exe, an older program",
    "exportdbn": "a file of DBN.exe of a model",
    "bnstat": "running statistics of batch normalization, computed again",
    "writeWordAndClass": "a vocabulary, with classes of words by frequency",
    "createLabelMap": "the labels of a data file, for `labelMappingFile`",
}

MEL = {
    "CreateModel": "`cntk.Network`, `Session.open`",
    "CreateModelWithName": "`m = CreateModel ()`; `Session.open`",
    "LoadModel": "`cntk.open_model`, `Session.open`",
    "LoadModelWithName": "`m = LoadModel (f)`",
    "LoadNDLSnippet": "`cntk.build_ndl_file`",
    "SaveDefaultModel": "`cntk.write_model`",
    "SaveModel": "`cntk.write_model`",
    "SetDefaultModel": "`Session.default`",
    "UnloadModel": "`Session.models`",
    "DumpModel": "`cntk.dump`",
    "DumpNode": "`cntk.dump` of some nodes",
    "CopyNode": "`cntk.Network.copy_nodes`",
    "CopySubTree": "`cntk.Network.copy_subtree`",
    "CopyNodeInputs": "`cntk.Network.copy_node` without content",
    "SetNodeInput": "`cntk.Network.set_input`",
    "SetNodeInputs": "`cntk.Network.connect`",
    "SetProperty": "`cntk.Network.set_property`",
    "SetPropertyForSubTree": "`cntk.Network.set_property_below`",
    "RemoveNode": "`cntk.Network.delete`",
    "Rename": "`cntk.Network.rename_all`",
    "ReviseParameter": "`cntk.Network.revise`; `cntk.CntkNet.set` while it runs",
}
"""Commands of MEL by their first names, and what does the same in Python."""

LEARNERS = {
    "momentum_sgd": ("`gradUpdateType = none`, `normal`, `simple`", "SGD with momentum"),
    "nesterov": ("`useNAG = true`", "Nesterov's momentum"),
    "adagrad": ("`gradUpdateType = adagrad`, `useAdagrad = true`", "AdaGrad"),
    "fs_adagrad": ("`gradUpdateType = fsAdagrad`", "AdaGrad with decaying squares and momentum"),
    "rms_prop": ("`gradUpdateType = rmsProp`", "RMSProp with weights that adapt"),
}
"""Operators `cntk.NAME` of updates, and the options that choose them."""

ABSENT = (
    ("`devtest` (action)", "it tests CNTK itself, on data of its makers"),
    (
        "`KaldiReader`",
        "an older `Kaldi2Reader`, which CNTK itself does not have any more",
    ),
    (
        "`BrainScriptNetworkBuilder` with `TimeReverse`",
        "CNTK's library has the function, but no node of this name either; `FutureValue` runs backwards",
    ),
    (
        "`UserDefinedV2Function` (node)",
        "CNTK's library makes it in memory around a function of its user's: no file, and no text, can name it; a kind of one's own, as in [adding a node kind](adding_a_node_kind.md), has a name, gradients and a place in files",
    ),
    (
        "models of CNTK 2.0's library (protobuf), written",
        "they are read; the binary format is written, which CNTK 2.0 reads",
    ),
    ("C#, Java, the WebApi", "there is the command line and Python"),
)
"""Names of CNTK that are not here, and why."""

FIELDS = {
    "SGD": "maxEpochs=epochs epochSize=epoch_size minibatchSize=minibatch_size"
    " learningRatesPerMB=rates,rates_per learningRatesPerSample=rates,rates_per"
    " minLearningRatePerSample=min_rate momentumPerMB=momenta,momenta_per"
    " momentumPerSample=momenta,momenta_per momentumAsTimeConstant=momenta,momenta_per"
    " gradUpdateType=learner useAdagrad=learner useNAG=learner normWithAveMultiplier=learner_attrs"
    " varianceTimeConstant=learner_attrs fsAdagradTargetAvDenom=learner_attrs"
    " rms_gamma=learner_attrs rms_wgt_inc=learner_attrs rms_wgt_dec=learner_attrs"
    " rms_wgt_max=learner_attrs rms_wgt_min=learner_attrs clippingThresholdPerSample=clip"
    " gradientClippingWithTruncation=clip_norm L1RegWeight=l1 L2RegWeight=l2"
    " disableRegInBatchNormalization=l1_l2_of_batch_norm gaussianNoiseInjectStd=noise"
    " dropoutRate=dropout batchNormalizationTimeConstant=norm_time"
    " batchNormalizationBlendTimeConstant=norm_blend numSubminibatches=sub_minibatches"
    " maxSamplesInRAM=samples_in_memory truncated=truncated"
    " UseAllDataForPreComputedNode=precompute_all trainCriterionNodeName=criterion"
    " evalCriterionNodeName=evaluation numMBsToShowResult=show_every"
    " firstMBsToShowResult=show_first keepCheckPointFiles=keep_checkpoints"
    " gradientcheck=check_gradients sigFigs=check_digits adaptationRegType=adaptation"
    " adaptationRegWeight=adaptation AutoAdjust=adjust ParallelTrain=parallel"
    " seqGammarAMF=sequence seqGammarLMF=sequence"
    " seqGammarWordPen=sequence seqGammarBMMIFactor=sequence seqGammarUsesMBR=sequence"
    " doReferenceAlign=sequence hSmoothingWeight=sequence frameDropThresh=sequence",
    "AutoAdjust": "autoAdjustLR=rate reduceLearnRateIfImproveLessThan=decrease_below"
    " increaseLearnRateIfImproveMoreThan=increase_above learnRateDecreaseFactor=decrease_factor"
    " learnRateIncreaseFactor=increase_factor continueReduce=continue_reduce"
    " learnRateAdjustInterval=interval loadBestModel=load_best"
    " UseCVSetControlLRIfCVExists=use_validation UseEvalCriterionControlLR=use_evaluation"
    " numPrevLearnRates=previous_rates numBestSearchEpoch=fine_epochs numMiniBatch4LRSearch=samples"
    " numSamples4Search=samples autoAdjustMinibatch=minibatch"
    " minibatchSizeTuningFrequency=minibatch_every minibatchSizeTuningMax=minibatch_most"
    " minibatchSearchCriterionErrorMargin=minibatch_margin",
    "ParallelTrain": "parallelizationMethod=method parallelizationStartEpoch=first_epoch"
    " distributedMBReading=distributed syncPerfStats=stats_every",
    "DataParallelSGD": "gradientBits=bits useZeroThresholdFor1BitQuantization=zero_threshold"
    " useBufferedAsyncGradientAggregation=buffered",
    "ModelAveragingSGD": "blockSize=block blockSizePerWorker=of_rank syncFrequencyInFrames=of_rank"
    " syncPeriod=of_rank",
    "BlockMomentumSGD": "resetSGDMomentum=reset_momentum useNesterovMomentum=nesterov"
    " blockLearningRate=block_rate blockMomentumAsTimeConstant=time_constant"
    " blockMomentumPerSync=block_momentum",
    "DataParallelASGD": "syncPeriod=period UsePipeline=pipelined SimModelAverage=method"
    " adjustType=ramp adjustCoefficient=ramp_start adjustPerMinibatches=ramp_length",
}
"""Where `SgdOptions`, `AutoAdjust` and `ParallelOptions` hold what the options of a section say."""
