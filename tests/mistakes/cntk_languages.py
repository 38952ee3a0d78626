# ruff: noqa: E501  (an entry is a line)
"""Mistakes in CNTK's configs, NDL, MEL, BrainScript, data, models and Python calls.

The table: what is run, and words of its one error, in this order. `train` runs a small training whose
parts may be changed, `ndl`, `mel`, `brainscript` and `redesigned` evaluate a text, `data` reads one.
"""

LANGUAGES = [
    # (what is run, words of the message)
    # -- command lines and configs
    ("run_config('a.cntk')", "the command line names no config: configFile=a.cntk is missing"),
    ("run_config('configFile=no.cntk')", "error opening file 'no.cntk': No such file"),
    (
        "run_config('configFile=' + file('a.cntk', b''), 'Train=[SGD=[maxEpochs=3]')",
        "<command line>:1:7: no closing ]",
    ),
    ("parse_config('a = [ b = 1')", "<string>:1:5: no closing ] found"),
    ("parse_config('a = \"x')", '<string>:1:5: no closing " found'),
    ("parse_config('a = $b$').string('a')", "<string>:1:5: No variable found with the name b"),
    ("parse_config('a = 1:2*x').array('a').ints()", "<string>:1:9: invalid input string 'x'"),
    ("parse_config('a = 1.5').int('a')", "<string>:1:5: invalid input string '1.5'"),
    ("parse_config('a = ja').bool('a')", "boolean argument expected, not 'ja'"),
    ("parse_config('include=no.cntk')", "'no.cntk' included at <string>:1:1"),
    ("train(command='Tran')", "a.cntk:1:11: Tran (did you mean Train?)"),
    ("train(extra='action = trian')", "unknown action: trian (did you mean train"),
    (
        "train(builder='NDLNetworkBuidler = [ run = Net ]')",
        "No network builder found (did you mean NDLNetworkBuilder",
    ),
    ("train(builder='NDLNetworkBuilder = [ run = Nett ]')", "'Nett' (did you mean Net?)"),
    (
        "train(builder='NDLNetworkBuilder = [ networkDescription = no.ndl ]')",
        "a.cntk:6:45: 'no.ndl'",
    ),
    (
        "train(builder='SimpleNetworkBuilder = [ layerSizes = 2:2 ; trainingCriterion = Cross ; evalCriterion = ErrorPrediction ]')",
        "trainingCriterion: 'Cross' is not possible",
    ),
    (
        "train(builder='SimpleNetworkBuilder = [ layerSizes = 2:8:2 ; layerTypes = Sigmod ; trainingCriterion = CrossEntropyWithSoftmax ; evalCriterion = ErrorPrediction ]')",
        "layerTypes: 'Sigmod' is none of Sigmoid",
    ),
    # -- SGD
    (
        "train(sgd='minibatchSize = 2 ; learningRatesPerMB = 1')",
        "a.cntk:7:8: parameter missing: SGD:maxEpochs",
    ),
    (
        "train(sgd=SGD.replace('= 1 ', '= one '))",
        "a.cntk:7:22: invalid input string 'one' SGD:maxEpochs",
    ),
    (
        "train(sgd=SGD.replace('minibatchSize = 2', 'minibatchSize = 0'))",
        "at least one sample SGD:minibatchSize",
    ),
    (
        "train(sgd=SGD + ' ; learningRatesPerMB = 1')",
        "both learningRatesPerSample and learningRatesPerMB",
    ),
    (
        "train(sgd='maxEpochs = 1')",
        "you must specify the learningRatesPerSample or learningRatesPerMB",
    ),
    ("train(sgd=SGD + ' ; momentumPerMB = 1.5')", "must be in [0, 1) SGD:momentumPerMB"),
    ("train(sgd=SGD + ' ; gradUpdateType = adam')", "Valid values are (none | adagrad | rmsProp"),
    ("train(sgd=SGD + ' ; dropoutRate = 1')", "dropoutRate must be >= 0 and < 1"),
    ("train(sgd=SGD + ' ; gradientcheck = true')", "needs to use precision = 'double'"),
    (
        "train(sgd=SGD + ' ; AutoAdjust = [ autoAdjustLR = always ]')",
        "(none | searchBeforeEpoch | adjustAfterEpoch)",
    ),
    (
        "train(sgd=SGD + ' ; trainCriterionNodeName = cee')",
        "no node is called 'cee' (did you mean ce?)",
    ),
    # -- readers and data
    (
        "train(reader=READER.replace('Reader', 'Redaer'))",
        "there is no reader type 'CNTKTextFormatRedaer' (did you mean CNTKTextFormatReader?)",
    ),
    ("train(reader=READER.replace('d.ctf', 'no.ctf'))", "no.ctf: No such file"),
    (
        "train(reader=READER.replace('x = [ dim = 2', 'x = [ dim = 3'))",
        "x InputValue the reader gives samples of 3, not 2",
    ),
    (
        "train(reader=READER.replace('x = [ dim = 2 ;', 'x = ['))",
        "parameter missing: reader:input:x:dim",
    ),
    (
        "train(reader=READER.replace('y = [', 'labels = [ alias = y ;'))",
        "no stream 'y' (it has labels, x)",
    ),
    (
        "train(reader=READER.replace('dense', 'dens'))",
        "the format is 'dense' or 'sparse', not 'dens'",
    ),
    (
        "train(reader=READER + ' ; maxErrors = many')",
        "invalid input string 'many' reader:maxErrors",
    ),
    ("data('|x 1 2 |y 1 0\\n|x 1 two |y 1 0\\n')", "e.ctf:2:6: a number was expected"),
    ("data('|x 1 2 3 |y 1 0\\n')", "e.ctf:1:3: x has 3 values; 2 were expected"),
    ("data('|z 1 2 |y 1 0\\n')", "e.ctf:1: sequence 0 has no sample of x"),
    ("data('|x 0:1 |y 1 0\\n')", "e.ctf:1:5: this is ':'"),
    ("data('')", "e.ctf: the file is empty"),
    ("create_reader(section('readerType = UCIFastReader'))", "has no stream with a dim"),
    (
        "create_reader(section('readerType = HTKMLFReader ; x = [ dim = 3 ; scpFile = no.scp ] ;"
        " y = [ labelDim = 2 ; mlfFile = no.mlf ]'))",
        "no.scp: No such file",
    ),
    (
        "create_reader(section('deserializers = ([ type = CNTKTextFormatDeserialiser ])'))",
        "(did you mean CNTKTextFormatDeserializer",
    ),
    ("create_writer(section('writerType = HTKMLFWritter'))", "(did you mean HTKMLFWriter?)"),
    ("create_writer(section('writerType = HTKMLFWriter'))", "parameter missing: outputNodeNames"),
    # -- NDL
    ("ndl('y = Tims(W, x)')", "n.ndl:2:6: 'Tims' (did you mean Times"),
    ("ndl('y = Times(V, x)')", "n.ndl:2:12: could not be resolved 'V'"),
    ("ndl('y = Plus(x)')", "n.ndl:2:6: Plus takes 2 parameters, not 1"),
    ("ndl('y = Plus(x, y)')", "a loop without delay: y = Plus"),
    (
        "ndl('W = Parameter(3, 4)\\n y = Times(W, x)')",
        "left [3 x 4] and right [2] operands are not compatible",
    ),
    ("ndl('W = Parameter(2, two)\\n y = Times(W, x)')", "n.ndl:2:6: dims (2, 'two')"),
    ("ndl('W = Parameter(2, 2, init = unifrom)')", "'init' must be one of not 'unifrom'"),
    ("ndl('y = Tanh(x, tag = outptu)')", "Invalid group tag 'outptu', must be one of"),
    ("ndl('y = Delay(x)')", "usage: PastValue(rows, input"),
    ("ndl('y = RowSlice(1, 5, x)')", "the range [1, 6) is not in axis 1 of [2]"),
    ("ndl('y = ImageInput(4, 4)')", "takes 3 or 4 parameters, not 2; usage: ImageInput(width"),
    (
        "ndl('x = Input(3)')",
        "n.ndl:2:2: Symbol 'x' currently assigned to it is assigned at n.ndl:1:",
    ),
    ("ndl('y = Tanh(x ]')", "unmatched bracket ( was opened at n.ndl:2:"),
    ("ndl('FeatureNodes = (z)')", "Invalid node 'z' as a(n) feature node"),
    (
        "ndl('y = L(x)', 'L(a, b) { W = Parameter(b, 2) \\n y = Times(W, a) }')",
        "Parameter mismatch, 1 2 expected in call to L(a, b)",
    ),
    ("ndl('y = L(x)', 'L(a) { y = L(a) }')", "macro L calls itself: L -> L"),
    # -- MEL
    ("mel('LoadModle(\"a\")')", "<string>:1:1: LoadModle (did you mean LoadModel"),
    ("mel('LoadModel(\"no.dnn\")')", "<string>:1:12: error opening file 'no.dnn'"),
    ("mel('SetProperty(m.zz, output, true)')", "<string>:1:13: m.zz (did you mean z?)"),
    ("mel('SetProperty(m.z, outputt, true)')", "<string>:1:18: 'outputt' (did you mean output?)"),
    ("mel('SetProperty(m.z, output, maybe)')", "<string>:1:26: not 'maybe'"),
    (
        "mel('SetProperty(m.z, output)')",
        "Valid parameters: SetProperty(toNode, propertyName, propertyValue)",
    ),
    ("mel('Rename(m.z, m.x)')", "the name 'x' is taken"),
    ("mel('Rename(m.*, m.a)')", "must have their stars at the same place"),
    ("mel('Remove(m.z)')", "y Tanh operation: input 0 is not connected"),
    ("mel('SetInput(m.z, 5, m.x)')", "input 5 does not exist; there are 2"),
    ("mel('CopyNode(m.z, m.c, copy=some)')", "<string>:1:25: copyFlag=(all|value)"),
    ("mel('ReviseParameter(m.W, \"no.txt\")')", "<string>:1:23: no.txt: No such file or directory"),
    ("mel('q = Tnah(m.y)')", "'Tnah' (did you mean Tanh?)"),
    ("mel('Remove(m.z')", "( was opened at <string>:1:7"),
    ("mel('SetNodeInput(m.y, 0, m.y)')", "a loop without delay: y = Tanh"),
    # -- BrainScript
    ("brainscript('z = Tnah (x)')", "BrainScript:1:23: 'Tnah' (did you mean Tanh?)"),
    ("brainscript('z = Sigmoid (y)')", "BrainScript:1:32: unknown identifier 'y' in Sigmoid"),
    ("brainscript('z = Sigmoid (x, x)')", "expects 1 positional parameters (_), 2 were provided"),
    (
        "brainscript('z = DenseLayer {3, activaton = ReLU} (x)')",
        "'activaton' (did you mean activation?)",
    ),
    (
        "brainscript('W = ParameterTensor {3:4} ; z = W * x')",
        "left [3 x 4] and right [2] operands are not compatible",
    ),
    ("brainscript('z = x + z')", "circular reference (z -> z)"),
    (
        "brainscript('z = new ComputationNode [ operation = \"Sigmiod\" ; inputs = x ]')",
        "'Sigmiod' (did you mean Sigmoid?)",
    ),
    (
        "brainscript('z = new ComputatoinNode [ inputs = x ]')",
        "'ComputatoinNode' (did you mean ComputationNode",
    ),
    (
        "brainscript('z = Tanh (x, tag = \"outptu\")')",
        "invalid group tag 'outptu' (did you mean output?)",
    ),
    ("brainscript('z = x.dimm')", "'dimm' (did you mean dim"),
    ("brainscript('a = array [1..3] (i => i) ; z = Input {a[5]}')", "Index 5 out of bounds [1..3]"),
    ("brainscript('x = Input {3}')", "'x' is defined twice first defined at BrainScript:1:3"),
    ("brainscript('z = Sigmoid x')", "'=' expected, not '}'"),
    ("brainscript('m = BS.Network.Load (\"no.dnn\")')", "there is no model file 'no.dnn'"),
    # -- the redesigned language
    ("redesigned('actions = trian')", "trian"),
    (
        "redesigned(optimizer='new SGDOptimizr [ maxEpochs = 1 ]')",
        "'SGDOptimizr' (did you mean SGDOptimizer",
    ),
    ("redesigned(optimizer='new SGDOptimizer [ learningRatesPerMB = 1 ]')", "maxEpochs"),
    (
        "redesigned(network='new SimpleNetworkBuilder [ layerSizes = 2:3 ]')",
        "new SimpleNetworkBuilder",
    ),
    ("redesigned(network='modle.network')", "unknown identifier 'modle' (did you mean model"),
    ("load_experiment([])", "there is no configFile=..."),
    # -- models and Python
    ("load_model(file('m.dnn', b'abc'))", "m.dnn: no model of CNTK"),
    ("load_model(file('m.dnn', MODEL[: len(MODEL) // 2]))", "m.dnn: byte the file ends within"),
    (
        "load_model(file('m.dnn', MODEL.replace(wide('Times'), wide('Tames'))))",
        "node 'z': 'Tames' (did you mean Times",
    ),
    ("load_model('.')", "a folder, not a file"),
    ("model().eval({'q': np.ones((2, 2))})", "no input 'q'; it has x"),
    ("model().eval({'x': np.ones((2, 3))})", "an array of [2, 3] is given; [rows, 2] is needed"),
    ("model().eval({'x': np.ones((2, 2))}, 'zz')", "no node is called 'zz' (did you mean z?)"),
    ("model().set('W', np.ones((3, 2)))", "a value of shape (3, 2) does not fit"),
    ("model().set('W', 'abc')", "no array of numbers"),
    ("model().get('z')", "z (Pass) has no value of its own"),
    ("model().save('no/such/m.dnn')", "there is no folder"),
    ("Network().add('Tims', 'z')", "'Tims' (did you mean Times"),
    ("Network().add('Tanh', 'z', ['q'])", "no node is called 'q'"),
    ("two_nodes('Slice', {'begin': 1})", "has no attribute 'begin' (did you mean beginIndex?)"),
    (
        "two_nodes('Slice', {'beginIndex': 'one', 'endIndex': 2})",
        "a value of type int is needed, not 'one'",
    ),
    ("two_nodes('Plus')", "takes 2 inputs, not 1"),
    ("add_action('train', print)", "the action 'train' is there already"),
]
