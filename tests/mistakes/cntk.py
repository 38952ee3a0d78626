# ruff: noqa: E501  (an entry is a line)
"""Mistakes in CNTK's files and what the message must hold, its words in this order.

The tables: what is run, and words of its one error. `PLAIN` are short mistakes, run in the process;
`DEEP` are texts and records that nest without measure, each run in a process of its own, which must
end with an error of the package and not with a signal.
"""

REDESIGNED = """
actions = train
train = new TrainAction [
    model = new Model [
        modelPath = "m.dnn"
        network = new SimpleNetworkBuilder [
            layerSizes = 2 : 4 : 3
            layerTypes = 'Sigmoid'
            input = source.features.data
            output = ComputeNodeRef [ dim = source.labels.dim ]
            trainingCriterion = CrossEntropyWithSoftmax (source.labels.data, output)
            evalCriterion = ErrorPrediction (source.labels.data, output)
        ]
    ]
    optimizer = new SGDOptimizer [ minibatchSize = 256 ; learningRatesPerMB = RATES ; maxEpochs = 5 ]
    source = new RandomizingSource [
        STREAMS
        features = new HTKFeatReader [ scpFile = "a.scp" ; data = new ComputeNodeRef [ dim = 2 ] ]
        labels = new HTKMLFReader [ mlfFile = "a.mlf" ; data = new ComputeNodeRef [ dim = 3 ] ]
    ]
]
"""
_STREAMS = "([ reader = features ; input = model.network.features ] : [ reader = labels ; input = model.network.labels ])"


def redesigned(streams: str = "", rates: str = "0.8") -> str:
    """A file of the redesigned language with these lines in its source and learning rates."""
    return REDESIGNED.replace("STREAMS", streams).replace("RATES", rates)


PLAIN = [
    # (what is run, words of the message)
    # -- the redesigned language
    (
        f"experiment(redesigned('streams = (1 : {_STREAMS})'))",
        "train.bs:17:22: 'streams' must hold records, not a number",
    ),
    (
        "experiment(redesigned(rates='(0.8 : [ a = 1 ])'))",
        "'learningRatesPerMB' must hold numbers, strings or booleans, not a record",
    ),
    (
        "experiment(redesigned(rates='(0.8 : (x => x))'))",
        "'learningRatesPerMB' must hold not a function",
    ),
    (
        "experiment(redesigned('contextWindow = (features : labels)'))",
        "'contextWindow' must hold not a HTKFeatReader",
    ),
    # -- devices
    (
        "place_of(config('deviceId = --1'))",
        "deviceId is a number, 'cpu', 'gpu' or 'auto', not '--1'",
    ),
    ("place_of(config('deviceId = ²'))", "deviceId is a number, 'cpu', 'gpu' or 'auto', not '²'"),
    (
        "place_of(config('deviceId = here'))",
        "deviceId is a number, 'cpu', 'gpu' or 'auto', not 'here'",
    ),
    (
        "build_section(config('deviceId = --1\\nBrainScriptNetworkBuilder = { x = Input {2} }'))",
        "deviceId is a number, 'cpu', 'gpu' or 'auto', not '--1'",
    ),
    (
        "build_section(config('deviceId = ²\\nBrainScriptNetworkBuilder = { x = Input {2} }'))",
        "deviceId is a number, 'cpu', 'gpu' or 'auto', not '²'",
    ),
    # -- NUL characters
    ("config('modelPath = \"a\\0b\"')", "<string>:1:15: a NUL character"),
    ("parse_command_line(['modelPath=a\\0b'])", "<command line>:1:12: a NUL character"),
    ("load_config('a\\0b')", "holds a NUL"),
    ("open_model('a\\0b')", "holds a NUL"),
    ("read_model('a\\0b')", "holds a NUL"),
    ("read_checkpoint('a\\0b')", "holds a NUL"),
    ("SteadyFile('a\\0b')", "holds a NUL"),
    ("HtkFile.open('a\\0b')", "holds a NUL"),
    ("read_lines('a\\0b')", "holds a NUL"),
    ("read_matrix('a\\0b', np.dtype('f4'))", "holds a NUL"),
    # -- headers of matrices
    ("matrix(b'd', 0, 2**63)", "a matrix of 0 x 9223372036854775808"),
    ("matrix(b'd', 2**63, 0)", "a matrix of 9223372036854775808 x 0"),
    ("matrix(b'd', 2**40, 2**40)", "a matrix of 1099511627776 x 1099511627776"),
    ("matrix(b's', 2**63, 0)", "a matrix of 0 x 9223372036854775808"),
    ("matrix(b's', 0, 2**63)", "a matrix of 9223372036854775808 x 0"),
    ("matrix(b's', 2**20, 2**20)", "a sparse matrix of 1048576 x 1048576"),
    # -- overrides
    (
        "experiment(redesigned(), {'.'.join('a' * 5000): '1'})",
        "more than 2000 records in one another",
    ),
    (
        "experiment(redesigned(), {'train.nothing.a': '1'})",
        "command line: train.nothing.a=1:1:17: there is no member 'nothing' to look into",
    ),
    # -- changes and classes of the redesigned language
    (
        "experiment(redesigned() + 'train.optimizr.maxEpochs = 7')",
        "train.bs:22: there is no member 'optimizr' to look into (did you mean optimizer?)",
    ),
    (
        "experiment(redesigned() + 'more = train + [ modl = delete ]\\nprecision = more.x')",
        "train.bs:22: there is no member 'modl' to delete (did you mean model?)",
    ),
    (
        "experiment(redesigned(rates='Format (0.8, \".2\")'))",
        "train.bs:15:79: 'format' must be a string, not a number, in Format (...)",
    ),
    (
        "experiment(redesigned().replace('learningRatesPerMB = 0.8 ; maxEpochs = 5', ''))",
        "train.bs:15:34: SGDOptimizer needs the parameter 'maxEpochs', which is not found",
    ),
    (
        "experiment(redesigned().replace('\"a.scp\"', '3'))",
        "train.bs:18: 'scpFile' must be a string, not a number",
    ),
    (
        "experiment(redesigned().replace('scpFile = \"a.scp\" ;', ''))",
        "train.bs:18: HTKFeatReader needs an scpFile, or its source a dataSetFile",
    ),
    (
        "value('new ComputationNode [ a.b = 1 ]')",
        "there is no member 'a' to look into",
    ),
]

DEEP = [
    # (code, words of the one line that it ends with)
    ("value('(' * 50_000 + '1' + ')' * 50_000)", "more than 2000 levels of nesting"),
    ("value('[a=' * 50_000 + '1' + ']' * 50_000)", "more than 2000 levels of nesting"),
    ("value('-' * 50_000 + '1')", "more than 2000 levels of nesting"),
    ("value('if true then ' * 50_000 + '1')", "more than 2000 levels of nesting"),
    ("value('[a=1]' + '.a' * 50_000)", "more than 4000 operators in one expression"),
    ("value('[ f (x) = f (x + 1) ; z = f (1) ].z')", "more than 20000 nested function calls"),
    (
        "value('[ a = array [1..2] (i => a) ; z = Print (a) ].z')",
        "more than 200 records and arrays in one another: [1] -> [1] ... -> [1]",
    ),
    (
        "value('[ a = [ b = a ] ; z = Print (a) ].z')",
        "more than 200 records and arrays in one another: b -> b ... -> b",
    ),
    (
        "network('{ a = array [1..2] (i => a) ; features = Input {a} }')",
        "an array is an element of itself",
    ),
    ("network('{ f (n) = array [1..2] (i => f (n + 1)) ; features = Input {f (0)} }')", "20000"),
    (
        "network('{ f (n) = [ a = f (n + 1) ] ; features = Input {f (0)} }')",
        "more than 200 records and arrays in one another: a -> a ... -> a",
    ),
    (
        "experiment('actions = a\\na = ' + '[a=' * 1500 + '1' + ']' * 1500, {'.'.join('a' * 1400): '2'})",
        "an action must be one of",
    ),
    (
        "experiment('actions = (a : a)\\na = array [1..2] (i => a)')",
        "an array is an element of itself",
    ),
    # -- the redesigned language: functions without end, records in one another, changes of them
    (
        "experiment('actions = e\\ne = new EditAction [ f (n) = f (n + 1) ; do = f (1) ]')",
        "train.bs:2:25: more than 20000 nested function calls",
    ),
    (
        "experiment('actions = e\\nf (n) = new NDL [ x = f (n + 1).x ]\\ne = new EditAction [ do = Dump (f (1), \"a\") ]')",
        "train.bs:2: more than 20000 values need each other in f (...), called at",
    ),
    (
        "experiment('actions = e\\ne = ' + '[ a = ' * 10_000 + '1' + ']' * 10_000)",
        "train.bs:2:12005: more than 2000 levels of nesting",
    ),
    (
        "experiment(redesigned('f (n) = [ a = f (n + 1) ] ; readMethod = f (1)'))",
        "train.bs:17: 'readMethod' must hold numbers, strings or booleans, not a record",
    ),
    (
        "experiment(redesigned('f (n) = array [1..2] (i => f (n + 1)) ; readMethod = f (1)'))",
        "train.bs:17: more than 20000",
    ),
    (
        "experiment(redesigned('streams = ([ a = streams ] : streams)'))",
        "train.bs:17:38: an array is an element of itself",
    ),
    (
        "experiment(redesigned() + 'f (n) = f (n + 1)\\nb = f (1)\\nb.x = 1\\nprecision = b.x')",
        "more than 20000 nested function calls",
    ),
    (
        "experiment(redesigned() + '\\n'.join(f'a{n} = a{n + 1} + [ x = {n} ]' for n in range(30_000)) + '\\na30000 = []\\na0.x = 1\\nprecision = a0.x')",
        "more than 20000 values need each other",
    ),
    (
        "experiment(redesigned() + '\\n' + '.'.join('a' * 3000) + ' = 1')",
        "more than 2000 records in one another",
    ),
    ("config('a = ' + '[' * 50_000 + ']' * 50_000)", "more than 200 brackets inside one another"),
    (
        "config('\\n'.join(f'v{i} = $v{i + 1}$' for i in range(5000)) + '\\nv5000 = 1').string('v0')",
        "more than 100 variables that use one another in the value of",
    ),
    (
        "included('cntk', 'include={}\\na = 1\\n')",
        "more than 100 nested includes included at 100.cntk:1:1",
    ),
    ("included('bs', 'include \"{}\"\\na = 1\\n')", "nested includes included at"),
    (
        "parse_ndl('a = ' + 'F(' * 50_000 + 'b' + ')' * 50_000)",
        "more than 200 brackets inside one another",
    ),
    (
        "parse_ndl('a = ' + 'F(' * 150 + 'b' + ')' * 150)",
        "more than 100 calls or macros inside one another",
    ),
    (
        "parse_mel('m = LoadModel(' + 'F(' * 50_000 + 'b' + ')' * 50_000 + ')')",
        "more than 200 brackets inside one another",
    ),
]
