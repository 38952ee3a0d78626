"""Small texts in CNTK's languages, each with other parts of them, for the campaign to damage."""

from __future__ import annotations

NDL_SEEDS = (
    b"""load = Macros
run = N
Macros = [ FF(W, x, B=b0) { T = Times(W, x) ; P = Plus(T, B) }
One(x) = Sigmoid(x) ]
N = [ d = 4 ; b0 = Parameter(3, 1, init=fixedValue, value=-0.5)
x = Input(d, tag="feature") ; l = Input(3, tag=label)
W = Parameter(3, d, init=gaussian, initValueScale=0.5, needGradient=false)
y = FF(W, x) ; z = One(y) ; e = FF(W, x, B=b0)
c = CrossEntropyWithSoftmax(l, z, tag=criterion) ; EvalNodes = (c)
OutputNodes = (z:y) ]
""",
    b"""i = ImageInput(8, 6, 2, tag=feature)
w = Parameter(3, 18) # weights
c = Convolution(w, i, 3, 3, 3, 1, 1, zeroPadding=true)
p = MaxPooling(c, 2, 2, 2, 2)
s = Reshape(p, 24)
h = PastValue(3, r, timeStep=2, defaultPastValue=0.1)
x = Input(3) ; r = Plus(x, h) ; k = Constant(2) ; q = RowSlice(0, 2, r)
v = RowStack(q, Scale(k, r), Reshape(r, 3)) ; m = Mean(x)
n = PerDimMeanVarNormalization(x, m, InvStdDev(x), tag=output)
""",
)

MEL_SEEDS = (
    b"""m = CreateModel()
L4 = Plus(features, Exp(x))
CopyNode(m.L1.*, m.L9.*, copy=all) ; CopyNodeInputs(a, b)
SetNodeInput(m.x, 0, y) ; SetInputs(m.x, a, b, c)
SetProperty(m.L1.*, learningRateMultiplier, 0.5) ; SetPropertyForSubTree(CE, needsGradient, false)
DeleteNode(a, b*) ; Rename(a*, b*) ; ReviseParameter(W, "w.txt")
n = [ x = Input(3) ; y = Exp(x) ]
LoadNDLSnippet(k, "a.ndl", section=S)
SaveDefaultModel("d.dnn", format=cntk) ; UnloadModel(m, n)
""",
)
MEL_SECTIONS = b"""load = Macros
edit = Script
Macros = [ F(x) { y = Exp(x) } ]
Script = [ m = CreateModel()
m.L4 = F(features)
DumpModel(m, "m.txt", includeData=true) ]
"""

CONFIG_SEEDS = (
    b"""include=other.cntk
command = Write:Edit:Dump:Svd:Eval
deviceId = -1 ; stderr = log ; outDir = out ; numCPUThreads = 2
modelPath = "$outDir$/m.$n$" ; n = 3
Write = [ action = write ; outputNodeNames = z:y ; outputPath = o.txt
format = [ type = real ; sequencePrologue = "%d" ; elementSeparator = " " ]
reader = [ readerType = HTKMLFReader ; features = [ dim = 4 ; scpFile = a.scp ; contextWindow = 3 ]
labels = [ mlfFile = a.mlf ; labelDim = 3 ; labelMappingFile = s ] ] ]
Edit = [ action = edit ; editPath = e.mel ; ndlMacros = m.ndl ]
Dump = [ action = dumpNode ; nodeName = z ; printValues = true ]
Svd = [ action = SVD ; outputmodelPath = s.dnn ; KeepRatio = 0.5 ; AlignedSize = 8 ]
Eval = [ action = eval ; evalNodeNames = e*2 ; minibatchSize = 1M
reader = [ readerType = UCIFastReader ; file = u ; features = [ start = 1 ; dim = 4 ]
labels = [ start = 0 ; dim = 1 ; labelType = category ; labelDim = 3 ; labelMappingFile = s ] ] ]
""",
    b"""command = T:V:P:B:W
T = [ action = train:test ; modelPath = m ; NDLNetworkBuilder = [ run = N ]
N = [ x = Input(4, tag=feature) ; l = Input(3, tag=label) ; W = Parameter(3, 4)
z = Times(W, x) ; c = SquareError(l, z, tag=criterion) ; OutputNodes = (z) ]
SGD = [ maxEpochs = 4 ; minibatchSize = 2*2:4 ; learningRatesPerSample = 0.1*2:{0.05:1e-3}
momentumAsTimeConstant = 0:2500 ; gradUpdateType = AdaGrad ; dropoutRate = 0.5 ; epochSize = 100
AutoAdjust = [ autoAdjustLR = adjustAfterEpoch ; reduceLearnRateIfImproveLessThan = 0.001 ] ]
reader = [ readerType = CNTKTextFormatReader ; file = a ; randomize = false
input = [ x = [ dim = 4 ; format = dense ] ; l = [ dim = 3 ; format = sparse ; alias = y ] ] ] ]
V = [ action = cv ; crossValidationInterval = 0:2:4 ; sleepTimeBetweenRuns = 0 ; modelPath = m
reader = [ readerType = CNTKTextFormatReader ; file = a ; input = [ x = [ dim = 4 ; format = dense ]
l = [ dim = 3 ; format = dense ] ] ] ]
P = [ action = plot ; modelPath = m ; outputDOTFile = m.dot ]
B = [ action = bnstat ; modelPath = m ; itersPerNode = 3
reader = [ readerType = CNTKTextFormatReader ; file = a ; input = [ x = [ dim = 4 ; format = dense ]
l = [ dim = 3 ; format = dense ] ] ] ]
W = [ action = writeWordAndClass ; inputFile = i ; outputVocabFile = v
outputWord2Cls = a ; outputCls2Index = b
vocabSize = 9 ; nbrClass = 2 ; beginSequence = s ; endSequence = e ]
""",
    b"""command = T
T = [ action = trainRNN ; modelPath = m ; SGD = [ maxEpochs = 1 ; learningRatesPerMB = 0.1 ]
SimpleNetworkBuilder = [ rnnType = CLASSLSTM ; layerSizes = 9:5:6:9 ; recurrentLayer = 1:2
trainingCriterion = classCrossEntropyWithSoftmax ; evalCriterion = classCrossEntropyWithSoftmax
nbrClass = 2 ; vocabSize = 9 ; layerTypes = Sigmoid ; addDropoutNodes = true ; directConnect = 1
lookupTableOrder = 1 ; maOrder = 2 ; needPrior = true ; uniformInit = false ]
reader = [ readerType = CNTKTextFormatReader ; file = a ; input = [ features = [ dim = 9
format = dense ] ; labels = [ dim = 4 ; format = dense ] ] ] ]
""",
)

BRAINSCRIPT_SEEDS = (
    b"""{ x = Input {3} ; f (n) = if n == 0 then x else f (n - 1) + Constant (n)
s (t, k = 2) = if k > 0 then s (t + t, k = k - 1) else t
a = [| 1 ; "b" ; [ c = true ] |] ; r[i:1..4] = if i == 1 then 1 else 2 * r[i - 1]
base = [ p = 1 ; q = p + 1 ] ; more = base + [ p = 5 ] ; less = base with [ q = 7 ]
t = Replace (Format (more.q, ".2") + s ("ab"), "a", 'c') ; n = Length (a) + Floor (2.5) ** 2
z = Splice (f (2) : x : Repeat (2, x), axis = 1) ; y = if n > 3 && !false then z else x
outputNodes = (y) ; featureNodes = (x) }
""",
    b"""{ x = Input {9} ; l = Input {3, tag = "label"}
g = x => y => x .* y - y / 2 ; h = (u => u + 1) >> Sigmoid
e = Sequential (EmbeddingLayer {4} : RecurrentLSTMLayer {5, goBackwards = true}
: BS.Sequences.Last : LayerStack {2, i => DenseLayer {i + 3, activation = Tanh}}
: LayerNormalizationLayer {} : StabilizerLayer {} : LinearLayer {3}) (x)
d = PastValue (0, e, timeStep = 2) ; p = ParameterTensor {(3 : 3), init = "glorotUniform"}
z = p * g (e) (h (e)) ; c = CrossEntropyWithSoftmax (l, z, tag = "criterion") }
""",
    b"""{ i = ImageInput (8, 8, 2) ; m = Sequential (
ConvolutionalLayer {4, (3 : 3), pad = true, activation = ReLU, stride = 2}
: BatchNormalizationLayer {spatialRank = 2} : MaxPoolingLayer {(2 : 2), stride = 2} : Dropout)
z = m (i) ; w = Parallel ((x => x) : (x => -x), Splice) (z) ; outputNodes = (z : w) }
""",
    b"""(new ComputationNetwork [ x = Input (2)
z = new ComputationNode [ operation = 'Exp' ; inputs = x ]
v = new TensorShape [ dims = 2 : (3 : 4) ] ; k = Print (Chr (65) + Substr ("abc", 1, 1))
outputNodes = z /* a comment */ // another
])
""",
)

REDESIGNED_SEEDS = (
    b"""actions = train : add
train = new TrainAction [
  model = new Model [ modelPath = "m.dnn" ; network = new SimpleNetworkBuilder [
    layerSizes = 2 : 4 : 3 ; layerTypes = 'Sigmoid' ; input = source.features.data
    output = ComputeNodeRef [ dim = source.labels.dim ]
    trainingCriterion = CrossEntropyWithSoftmax (source.labels.data, output)
    evalCriterion = ErrorPrediction (source.labels.data, output) ] ]
  optimizer = new SGDOptimizer [ minibatchSize = 256
    learningRatesPerMB = 0.8 : 0.1 ; maxEpochs = 2 ]
  source = new RandomizingSource [
    features = new HTKFeatReader [ scpFile = "a.scp" ; data = new ComputeNodeRef [ dim = 2 ] ]
    labels = new HTKMLFReader [ mlfFile = "a.mlf" ; data = new ComputeNodeRef [ dim = 3 ] ] ] ]
add = new EditAction [ old = new NDL [ x = Input (2) ; y = Exp (x) ]
  twin = EditModel (old, [ twice = Plus (old.y, old.y) ])
  do = SaveModel (twin, "n" + Format ('%.2f', 1.5)) : Dump (old, "o.txt") ]
""",
    b"""actions = e
base = [ a = [ b = 1 ; c = 2 ] ; f (x) = x + a.b ]
other = base + [ a.b = 5 ; a.c = delete ] - [ f = 0 ]
add (x, y) = x + y ; three = add (other.a.b)
e = new EditAction [ do = Dump (new NDL [ x = Input (2) ; z = Times (Parameter (2, 2), x) ], 'o') ]
""",
)
