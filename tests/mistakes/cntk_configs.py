# ruff: noqa: E501  (an entry is a line)
"""Configs, each broken in one way, and what `check` must tell of them.

`FILES` are whole: nothing is wrong with them. `BROKEN` holds the file to change, what to replace by
what, whether that is an error or a warning, and words of what is told, in this order.
"""

OLD = """command = Train:Test:Write:Dump
modelPath = m.dnn ; deviceId = -1 ; precision = float
dimension = 2
Train = [
    action = train
    SimpleNetworkBuilder = [ layerSizes = $dimension$:4:2 ; trainingCriterion = CrossEntropyWithSoftmax
        evalCriterion = ErrorPrediction ; layerTypes = Sigmoid ; addDropoutNodes = true ]
    SGD = [ maxEpochs = 3 ; epochSize = 0 ; minibatchSize = 5 ; learningRatesPerMB = 0.5:0.1
        momentumPerMB = 0.9 ; gradUpdateType = adagrad ; dropoutRate = 0.5
        AutoAdjust = [ autoAdjustLR = adjustAfterEpoch ; loadBestModel = true ] ]
    reader = [ readerType = CNTKTextFormatReader ; file = d.ctf ; randomize = false
        input = [ features = [ dim = 2 ; format = dense ] ; labels = [ dim = 2 ; format = dense ] ] ]
    cvReader = [ readerType = UCIFastReader ; randomize = none ; file = d.txt
        features = [ start = 0 ; dim = 2 ]
        labels = [ start = 2 ; dim = 1 ; labelDim = 2 ; labelMappingFile = labels.txt ] ]
]
Test = [ action = test ; minibatchSize = 5 ; evalNodeNames = EvalClassificationError
    reader = [ file = d.ctf ; input = [ features = [ dim = 2 ; format = dense ]
        labels = [ dim = 2 ; format = dense ] ] ] ]
Write = [ action = write ; outputNodeNames = H1
    reader = [ file = f.ctf ; input = [ features = [ dim = 2 ; format = dense ] ] ]
    writer = [ writerType = HTKMLFWriter ; outputNodeNames = H1 ; H1 = [ dim = 4 ; file = out.scp ] ] ]
Dump = [ action = dumpNode ; nodeName = W0 ]
"""
NDL = """command = Train:Edit
modelPath = m.dnn
Train = [
    action = train
    NDLNetworkBuilder = [ networkDescription = net.ndl ; run = Net ]
    SGD = [ maxEpochs = 1 ; learningRatesPerMB = 0.1 ]
    reader = [ file = d.ctf ; input = [ features = [ dim = 2 ; format = dense ] ; labels = [ dim = 2 ; format = dense ] ] ]
]
Edit = [ action = edit ; editPath = edit.mel ]
"""
NET = """Net = [
    features = Input(2, tag=feature) ; labels = Input(2, tag=label)
    W = Parameter(2, 2) ; z = Times(W, features)
    ce = CrossEntropyWithSoftmax(labels, z, tag=criterion)
]
"""
MEL = """m = LoadModel("$modelPath$", format=cntk)
SetProperty(m.W, learningRateMultiplier, 0)
Rename(m.z, m.top)
SaveModel(m, "edited.dnn")
"""
BRAINSCRIPT = """command = Train
Train = [
    action = train ; modelPath = m.dnn
    BrainScriptNetworkBuilder = {
        features = Input {2} ; labels = Input {2}
        Layer (x, dim) = ParameterTensor {dim:2} * x
        z = Layer (Tanh (features), 2)
        ce = CrossEntropyWithSoftmax (labels, z)
        featureNodes = (features) ; labelNodes = (labels) ; criterionNodes = (ce)
    }
    SGD = [ maxEpochs = 1 ; learningRatesPerMB = 0.1 ]
    reader = [ file = d.ctf ; input = [ features = [ dim = 2 ; format = dense ] ; labels = [ dim = 2 ; format = dense ] ] ]
]
"""
FILES = {
    "old.cntk": OLD,
    "ndl.cntk": NDL,
    "net.ndl": NET,
    "edit.mel": MEL,
    "bs.cntk": BRAINSCRIPT,
    "d.ctf": "|features 1 2 |labels 1 0\n|features 3 1 |labels 0 1\n",
    "f.ctf": "|features 1 2\n",
    "d.txt": "1 2 a\n3 1 b\n",
    "labels.txt": "a\nb\n",
    "out.scp": "one.htk\n",
}
CONFIGS = ("old.cntk", "ndl.cntk", "bs.cntk", "redesigned.bs")
E_, W_ = "error", "warning"
BROKEN = [
    # (config, what to replace, by what, severity, words)
    # -- SGD
    ("old.cntk", "dropoutRate = 0.5", "dropoutRat = 0.5", W_, ":9:58: unknown parameter old.cntk:Train:SGD:dropoutRat (did you mean dropoutRate?)"),
    ("old.cntk", "maxEpochs = 3", "maxEpoch = 3", E_, "required parameter missing: old.cntk:Train:SGD:maxEpochs (did you mean maxEpoch?)"),
    ("old.cntk", "minibatchSize = 5 ; l", "minibatchSize = abc ; l", E_, ":8:61: invalid input string 'abc' in old.cntk:Train:SGD:minibatchSize"),
    ("old.cntk", "momentumPerMB = 0.9", "momentumPerMB = 2", E_, ":9:25: Momentum parameter must be in [0, 1)"),
    ("old.cntk", "learningRatesPerMB = 0.5:0.1", "learningRatesPerMB = -0.5", E_, "a learning rate is a finite number, not below 0"),
    ("old.cntk", "epochSize = 0", "epochSize = -5", E_, "epoch size must be larger than mbsize. in old.cntk:Train:SGD:epochSize"),
    ("old.cntk", "dropoutRate = 0.5", "dropoutRate = 2", E_, "dropoutRate must be >= 0 and < 1."),
    ("old.cntk", "gradUpdateType = adagrad", "gradUpdateType = adagrd", E_, "Invalid Gradient Updating Type 'adagrd' (did you mean adagrad"),
    ("old.cntk", "gradUpdateType = adagrad", "gradUpdateType = adagrad ; rms_gamma = 0.9", W_, "old.cntk:Train:SGD:rms_gamma is not used: the learner is adagrad"),
    ("old.cntk", "maxEpochs = 3", "maxEpochs = 3 ; numPrevLearnRates = 3 ; loadBestModl = 1", W_, "unknown parameter old.cntk:Train:SGD:loadBestModl"),
    ("old.cntk", "autoAdjustLR = adjustAfterEpoch", "autoAdjustLR = afterwards", E_, "Invalid learning rate search type"),
    ("old.cntk", "modelPath = m.dnn ;", "", E_, "required parameter missing modelPath"),
    ("old.cntk", "    SGD = [", "    SDG = [", E_, "required parameter missing: old.cntk:Train:SGD (did you mean SDG?)"),
    ("old.cntk", "learningRatesPerMB = 0.5:0.1", "trainCriterionNodeName = CrossEntropy ; learningRatesPerMB = 1", E_, "trainCriterionNodeName: no node is called 'CrossEntropy' (did you mean CrossEntropyWithSoftmax?)"),
    ("old.cntk", "maxEpochs = 3", "maxEpochs = 3 ; ParallelTrain = [ parallelizationMethod = DataParalelSGD ]", E_, "Invalid Parallelization Method 'DataParalelSGD'"),
    ("old.cntk", "maxEpochs = 3", "maxEpochs = 3 ; ParallelTrain = [ parallelizationMethod = DataParallelSGD ; DataParallelSGD = [ gradientBits = 3 ] ]", E_, "gradientBits values must be in the range"),
    ("old.cntk", "maxEpochs = 3", "maxEpochs = 3 ; ParallelTrain = [ parallelizationMethod = none ; syncPerfStat = 1 ]", W_, "unknown parameter old.cntk:Train:SGD:ParallelTrain:syncPerfStat (did you mean syncPerfStats?)"),
    ("old.cntk", "deviceId = -1", "deviceId = -1 ; parallelTrain = maybe", E_, "boolean argument expected, not 'maybe'"),
    # -- commands and the top level
    ("old.cntk", "action = train", "action = trian", E_, "unknown action: trian (did you mean train"),
    ("old.cntk", "Train:Test:", "Train:Tset:", E_, ":1:17: required parameter missing: old.cntk:Tset (did you mean Test?)"),
    ("old.cntk", "= Train:Test:Write:Dump", "= Train:Test:Write", W_, "old.cntk:Dump is not used: no command names this section"),
    ("old.cntk", "$dimension$", "$dimensoin$", E_, "No variable found with the name dimensoin (did you mean dimension?)"),
    ("old.cntk", "precision = float", "precision = flaot", E_, 'Invalid precision string: "flaot"'),
    ("old.cntk", "deviceId = -1", "deviceId = --1", E_, "deviceId is a number, 'cpu', 'gpu' or 'auto', not '--1'"),
    ("old.cntk", "deviceId = -1", "deviceId = -1 ; numCPUTreads = 1", W_, "numCPUTreads is not used (did you mean numCPUThreads?)"),
    # -- readers and writers
    ("old.cntk", "readerType = CNTKTextFormatReader", "readerType = CNTKTextReader", E_, "there is no reader type 'CNTKTextReader' (did you mean CNTKTextFormatReader"),
    ("old.cntk", "    reader = [ readerType", "    raeder = [ readerType", E_, "required parameter missing: old.cntk:Train:reader (did you mean raeder"),
    ("old.cntk", "file = d.ctf ; randomize", "file = no.ctf ; randomize", E_, ":11:59: error opening file 'no.ctf': No such file or directory in old.cntk:Train:reader:file"),
    ("old.cntk", "        input = [", "        inputs = [", E_, "required parameter missing: old.cntk:Train:reader:input (did you mean inputs?)"),
    ("old.cntk", "        input = [ features = [ dim = 2", "        input = [ features = [ dim = 3", E_, "the reader gives samples of 3, but the input 'features' of the network has 2 in old.cntk:Train:reader"),
    ("old.cntk", "        input = [ features = [ dim = 2", "        input = [ features = [ dim = two", E_, "invalid input string 'two'"),
    ("old.cntk", "        input = [ features = [ dim = 2 ; format = dense ] ; labels", "        input = [ features = [ dim = 2 ; format = dense ] ; lables", E_, "the reader gives no stream 'labels' (did you mean lables?)"),
    ("old.cntk", "        input = [ features", "        input = [ more = [ dim = 1 ; format = dense ] ; features", W_, "no input of the network is called 'more'"),
    ("old.cntk", "labelMappingFile = labels.txt", "labelMappingFile = no.txt", E_, "error opening file 'no.txt'"),
    ("old.cntk", "start = 0 ; dim = 2", "start = 0 ; dmi = 1 ; dim = 2", W_, "unknown parameter old.cntk:Train:cvReader:features:dmi (did you mean dim?)"),
    ("old.cntk", "start = 2 ; dim = 1", "start = 7 ; dim = 1", E_, "d.txt:1"),
    ("old.cntk", "writerType = HTKMLFWriter", "writerType = HTKWriter", E_, "there is no writer type 'HTKWriter' (did you mean"),
    ("old.cntk", "H1 = [ dim = 4 ;", "H1 = [ dim = 5 ;", E_, "the node 'H1' has 4 numbers, and dim is 5"),
    ("old.cntk", "file = out.scp", "file = no.scp", E_, "error opening file 'no.scp'"),
    ("redesigned.bs", "[ dim = 2 ]", "[ dim = 4 ]", E_, "Times operation: shapes of left [4 x 2] and right [4]"),
    ("redesigned.bs", "dim = 3 ]", "dim = 3 ] ; typ = 'category'", W_, "typ"),
    ("old.cntk", "action = dumpNode", "action = devtest", E_, ":23:19: the action 'devtest' is not there"),
    # -- names of nodes
    ("old.cntk", "evalNodeNames = EvalClassificationError", "evalNodeNames = EvalClasificationError", W_, "no node is called 'EvalClasificationError' (did you mean EvalClassificationError?)"),
    ("old.cntk", "write ; outputNodeNames = H1", "write ; outputNodeNames = HH", E_, "There is no default output node"),
    ("old.cntk", "nodeName = W0", "nodeName = Ho", W_, "no node is called 'Ho'"),
    # -- SimpleNetworkBuilder
    ("old.cntk", "trainingCriterion =", "trainingCriterium =", E_, "required parameter missing: old.cntk:Train:SimpleNetworkBuilder:trainingCriterion (did you mean trainingCriterium"),
    ("old.cntk", "layerTypes = Sigmoid", "layerTypes = Sigmiod", E_, "Sigmiod"),
    ("old.cntk", "layerTypes = Sigmoid", "layerTypes = Sigmoid ; aplyMeanVarNorm = true", W_, "unknown parameter aplyMeanVarNorm (did you mean applyMeanVarNorm?)"),
    # -- NDL
    ("ndl.cntk", "networkDescription = net.ndl", "networkDescription = nte.ndl", E_, "error opening file 'nte.ndl'"),
    ("ndl.cntk", "run = Net", "run = Nte", E_, "'Nte', which is not another section in this configuration file (did you mean Net?)"),
    ("ndl.cntk", "run = Net", "run = Net ; rum = Net", W_, "unknown parameter ndl.cntk:Train:NDLNetworkBuilder:rum (did you mean run"),
    ("net.ndl", "Times(W", "Tims(W", E_, "net.ndl:3:31: Undefined function or macro 'Tims' (did you mean Times"),
    ("net.ndl", "Times(W, features)", "Times(W)", E_, "net.ndl:3:31: Times"),
    ("net.ndl", "Times(W, features)", "Times(W, feature)", E_, "net.ndl:3 feature"),
    ("net.ndl", "Parameter(2, 2)", "Parameter(2, 3)", E_, "net.ndl:3:31: z Times operation: shapes [2 x 3] [2]"),
    ("net.ndl", ", tag=criterion", "", E_, "No criterion node was specified"),
    ("net.ndl", "labels = Input(2, ", "labels = Input(3, ", E_, "net.ndl"),
    ("net.ndl", "W = Parameter(2, 2)", "W = Parameter(2, 2, learningRateMultiplier=0)", E_, "ce no parameter that learns is below the training criterion"),
    # -- MEL
    ("edit.mel", "SetProperty(m.W", "SetProprty(m.W", E_, "edit.mel:2:1: Unknown Editor function SetProprty (did you mean SetProperty"),
    ("edit.mel", "m.z, m.top", "m.zz, m.top", E_, "edit.mel:3:1: no node is called 'zz' (did you mean z?)"),
    ("edit.mel", "learningRateMultiplier", "learnRate", E_, "edit.mel:2"),
    ("edit.mel", "$modelPath$", "no.dnn", E_, "edit.mel:1:5: error opening file 'no.dnn'"),
    ("ndl.cntk", "editPath = edit.mel", "editPath = no.mel", E_, "error opening file 'no.mel'"),
    # -- BrainScript
    ("bs.cntk", "Tanh (features)", "Tahn (features)", E_, "bs.cntk:7:20: unknown identifier 'Tahn' (did you mean Tanh?)"),
    ("bs.cntk", "Layer (Tanh (features), 2)", "Layer (Tanh (features), dims=2)", E_, "bs.cntk:7 dims"),
    ("bs.cntk", "Layer (Tanh (features), 2)", "Layer (Tanh (features))", E_, "bs.cntk:7:13: function expects 2 positional parameters (x, dim), 1 were provided"),
    ("bs.cntk", " ; criterionNodes = (ce)", "", E_, "No criterion node was specified"),
    ("bs.cntk", "criterionNodes", "criterionNode", E_, "No criterion node was specified"),
    ("bs.cntk", "ParameterTensor {dim:2}", "ParameterTensor {dim:3}", E_, "bs.cntk:6 Times operation: shapes"),
    ("bs.cntk", "features = Input {2}", "features = Input {5}", E_, "Times operation: shapes of left"),
    ("bs.cntk", "{2} ; labels = Input {2}", "{2} ; labels = Input {2", E_, "bs.cntk"),
    # -- the redesigned language
    ("redesigned.bs", "learningRatesPerMB = 0.8", "learningRatesPerMB = 0.8 ; momentumPerMB = 2", E_, "Momentum parameter must be in [0, 1)."),
    ("redesigned.bs", "learningRatesPerMB = 0.8", "learningRatesPerMB = 'fast'", E_, "fast"),
    ("redesigned.bs", "maxEpochs = 5", "maxEpoch = 5", E_, "maxEpochs"),
    ("redesigned.bs", "ErrorPrediction (source", "ErrorPredicton (source", E_, "redesigned.bs:12:29: unknown identifier 'ErrorPredicton' (did you mean ErrorPrediction?)"),
    ("redesigned.bs", 'modelPath = "m.dnn"', 'modlPath = "m.dnn"', E_, "redesigned.bs:4 'modelPath'"),
    ("redesigned.bs", 'scpFile = "a.scp"', 'scpFile = "no.scp"', E_, "error opening file 'no.scp'"),
    ("redesigned.bs", "new SGDOptimizer", "new SGDOptimiser", E_, "SGDOptimiser (did you mean SGDOptimizer?)"),
    ("redesigned.bs", "actions = train", "actions = trian", E_, "unknown identifier 'trian' (did you mean train"),
    ("redesigned.bs", "layerSizes = 2 : 4 : 3", "layerSizes = 3 : 4 : 3", E_, "Times operation: shapes of left [4 x 3] and right [2]"),
]  # fmt: skip
