# ruff: noqa: E501  (an entry is a line)
"""What users of nnet3 do by mistake, and words that the message must hold in this order.

An entry is a config whose wrong lines replace or follow lines of `GOOD`, a command of the shell, or
a line of Python; see `test_kaldi.py` for the files and names that these may use.
"""

GOOD = """input-node name=input dim=4
component name=aff type=NaturalGradientAffineComponent input-dim=12 output-dim=5
component name=relu type=RectifiedLinearComponent dim=5
component name=last type=NaturalGradientAffineComponent input-dim=5 output-dim=3
component-node name=aff component=aff input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=relu component=relu input=aff
component-node name=last component=last input=relu
output-node name=output input=last objective=linear
"""

CONFIGS = [
    # (the number of a line of GOOD; what stands there; words of what verify prints)
    (
        3,
        "componnt name=relu type=RectifiedLinearComponent dim=5",
        "error: bad.config:3: 'componnt' is not expected did you mean component",
    ),
    (
        7,
        "component-node name=last component=last input=Sum(relu aff)",
        "error: bad.config:7: Sum: expected ',' or ')', got 'aff'",
    ),
    (
        7,
        "component-node name=last component=last input=aff_input",
        "error: bad.config:7: there is no node 'aff_input' did you mean aff?",
    ),
    (
        7,
        "component-node name=last component=last input=rellu",
        "error: bad.config:7: there is no node 'rellu' (did you mean relu?)",
    ),
    (
        7,
        "component-node name=last component=lst input=relu",
        "error: bad.config:7: there is no component 'lst' (did you mean last?)",
    ),
    (
        2,
        "component name=aff type=NaturalGradientAfineComponent input-dim=12 output-dim=5",
        "error: bad.config:2: unknown component type did you mean NaturalGradientAffineComponent",
    ),
    (
        2,
        "component name=aff type=NaturalGradientAffineComponent input-dim=12 ouput-dim=5",
        "error: bad.config:2: ouput-dim=5 did you mean output-dim",
    ),
    (
        2,
        "component name=aff type=NaturalGradientAffineComponent input-dim=8 output-dim=5",
        "error: bad.config:5: of dimension 12, but its component 'aff' wants 8",
    ),
    (
        8,
        "output-node name=output input=Sum(last, relu)",
        "error: bad.config:8: Sum of different dimensions: 'last' has 3, 'relu' has 5",
    ),
    (
        8,
        "output-node name=output input=last objectve=linear",
        "error: bad.config:8: objectve=linear did you mean objective",
    ),
    (
        8,
        "output-node name=output input=last objective=softmax",
        "error: bad.config:8: objective=softmax: linear or quadratic",
    ),
    (
        8,
        "output-node name=output input=last, relu",
        "error: bad.config:8: expected the end, got ','",
    ),
    (8, "output-node name=output", "error: bad.config:8: input= is missing"),
    (
        8,
        "# output-node name=output input=last",
        "error: bad.config: a network needs an output-node",
    ),
    (1, "input-node name=input", "error: bad.config:1: dim= is missing"),
    (1, "input-node nam=input dim=4", "error: bad.config:1: name= is missing (did you mean nam?)"),
    (
        1,
        "name=input dim=4",
        "error: bad.config:1: a line begins with one of component, component-node",
    ),
    (1, "input-node name=input, dim=4", "error: bad.config:1: 'input,' is not a valid name"),
    (
        6,
        "component-node name=aff component=relu input=aff",
        "error: bad.config:6: 'aff' is defined twice, first at bad.config:5",
    ),
    (
        6,
        "component-node name=relu component=relu input=Offset(aff, 1.5)",
        "error: bad.config:6: Offset: expected an integer, got '1.5'",
    ),
    (
        6,
        "dim-range-node name=relu input-node=aff dim-offset=3 dim=5",
        "error: bad.config:6: takes columns 3 to 8 of 'aff', which has 5",
    ),
    (
        6,
        "component-node name=relu component=relu input='aff",
        "error: bad.config:6: the quote after input= is not closed",
    ),
    (
        7,
        "component-node name=last component=last input=Sum(input in2)",
        "error: bad.config:7: Sum: expected ',' or ')', got 'in2'",
    ),
    # -- allowed and unusual
    (
        7,
        "component-node name=last component=last input=aff",
        "warning: bad.config: Node relu is never used to compute any output. no error",
    ),
    (
        8,
        "output-node name=out input=last",
        "warning: bad.config: No output node is called 'output' (there is out) no error",
    ),
    (
        4,
        "component name=last type=NaturalGradientAffineComponent input-dim=5 output-dim=3 learning-rate=0",
        "warning: bad.config: Component last has the learning rate 0: it is not trained. no error",
    ),
    (
        6,
        "dim-range-node name=relu input-node=aff dim-offset=0 dim=5",
        "warning: Component relu is never used by any node. warning: Node relu takes all columns of aff. no error",
    ),
]

COMMANDS = [
    # (what was typed behind `opscope`, words of what it prints)
    (
        "nnet3-compute --frames-per-chunk=-1 good.raw ark:x.ark ark:out.ark",
        "frames_per_chunk is -1; it must be at least 1",
    ),
    (
        "nnet3-compute --frames-per-chunk=1.5 good.raw ark:x.ark ark:out.ark",
        "--frames-per-chunk=1.5 is no integer",
    ),
    (
        "nnet3-compute --frame-per-chunk=5 good.raw ark:x.ark ark:out.ark",
        "invalid option --frame-per-chunk=5 did you mean frames-per-chunk",
    ),
    (
        "nnet3-compute ivector.raw ark:x.ark ark:out.ark",
        "one: the network wants an iVector of 2 columns, you gave none",
    ),
    (
        "nnet3-compute --ivectors=ark:other.ark ivector.raw ark:x.ark ark:out.ark",
        "No iVector available for utterance one",
    ),
    (
        "nnet3-compute good.raw ark:narrow.ark ark:out.ark",
        "one: the input wants 4 columns, you gave 3 (1 rows)",
    ),
    (
        "nnet3-compute nan.raw ark:x.ark ark:out.ark",
        "component 'aff': 1 of 60 numbers of linear_params are nan or infinite; training has diverged",
    ),
    (
        "nnet3-xvector-compute nanpool.raw ark:x.ark ark:out.ark",
        "one: 1 rows: component 'aff': 1 of 60 numbers training has diverged",
    ),
    (
        "nnet3-xvector-compute --min-chunk-size=1 pooling.raw ark:x.ark ark:out.ark",
        "one: 1 rows: 1 of 1 output rows are not computable; rows of 'input' that are not given:",
    ),
    (
        "verify nan.raw",
        "error: nan.raw: component 'aff': 1 of 60 numbers of linear_params are nan or infinite",
    ),
    (
        "nnet3-copy unused.raw copy.raw",
        "WARNING (nnet3-copy[ Component spare is never used by any node. WARNING Node lonely is never used to compute any output. LOG",
    ),
    (
        "nnet3-info unused.raw",
        "WARNING (nnet3-info[ Component spare is never used by any node. Node lonely",
    ),
    (
        "verify unused.raw",
        "warning: Component spare is never used by any node. warning: Node lonely is never used no error",
    ),
    (
        "nnet3-init mixed.config out.raw",
        "mixed.config:2: 'componnt' is not expected (did you mean component",
    ),
    # -- files of another kind
    (
        "nnet3-compute good.config ark:x.ark ark:out.ark",
        "good.config: a config, not a network: nnet3-init makes one of it",
    ),
    (
        "nnet3-init net.xconfig out.raw",
        "net.xconfig: an xconfig; nnet3-xconfig-to-config makes a config of it",
    ),
    ("nnet3-init empty.config out.raw", "empty.config: no line of a config in it"),
    (
        "nnet3-xconfig-to-config --xconfig-file good.config",
        "good.config: a config, not an xconfig: nnet3-init takes it",
    ),
    (
        "nnet3-compute --ivectors=ark:x.ark ivector.raw ark:x.ark ark:out.ark",
        "x.ark: a value of kind 'vector' was expected here, but this is a matrix (byte 6)",
    ),
    (
        "nnet3-compute good.raw ark:other.ark ark:out.ark",
        "other.ark: a value of kind 'matrix' was expected here, but this is a vector (byte 6)",
    ),
    (
        "nnet3-train good.raw ark:x.ark out.raw",
        "x.ark: a value of kind 'example' was expected here, but this is a matrix (byte 6)",
    ),
    (
        "nnet3-compute good.raw ark:archived.raw ark:out.ark",
        "archived.raw: a value of kind 'matrix' was expected here, but this is a network (byte 6)",
    ),
    ("nnet3-am-info good.raw", "good.raw: a raw network, not an acoustic model"),
    (
        "nnet3-compute --use-priors good.raw ark:x.ark ark:out.ark",
        "good.raw: the priors of the model are wanted, and this is a raw network",
    ),
    (
        "nnet3-compute good.raw x.ark ark:out.ark",
        "'x.ark' is no table: for reading it begins with 'ark:' or 'scp:'",
    ),
    # -- options and edits
    (
        "nnet3-compute --acoustic-scale=nan good.raw ark:x.ark ark:out.ark",
        "acoustic_scale is nan; it must be finite",
    ),
    (
        "nnet3-copy --edits=remove-orphan good.raw out.raw",
        "--edits:1: 'remove-orphan' is no edit directive (did you mean remove-orphans,",
    ),
    (
        "nnet3-copy --edits=set-learning-rate good.raw out.raw",
        "--edits:1: learning-rate= is missing: 'set-learning-rate'",
    ),
    (
        "nnet3-copy --edits=set-dropout-proportion;remove-orphans good.raw out.raw",
        "--edits:1: proportion= is missing: 'set-dropout-proportion'",
    ),
    (
        "nnet3-copy --edits-config=rates good.raw out.raw",
        "WARNING name=af: no component is called so (did you mean aff?) LOG for 0 components.",
    ),
    # -- features that are NaN
    (
        "nnet3-compute good.raw ark:nan.ark ark:out.ark",
        "WARNING one: features: 2 of 5 frames hold nan or infinite numbers, the first of them frame 2;",
    ),
    (
        "nnet3-compute --looped good.raw ark:nan.ark ark:out.ark",
        "WARNING one: features: 2 of 5 frames hold nan or infinite numbers, the first of them frame 2;",
    ),
    # -- all problems of a file
    (
        "verify bad.xconfig",
        "error: bad.xconfig:2: no such layer type: relu-layr (did you mean relu-layer"
        " error: bad.xconfig:3: relu-layer 'b': dimm=5: no such option (did you mean dim"
        " error: bad.xconfig:4: no layer before this one is named 'c' bad.xconfig: 3 errors",
    ),
    (
        "verify bad.raw",
        "error: bad.raw:4: there is no component 'rellu' (did you mean relu?)"
        " error: bad.raw:6: objective=lin: linear or quadratic"
        " error: bad.raw: <Dim> was expected here, but this is '<Dimm>' line 3 errors",
    ),
    ("nnet3 components TanhComponnt", "unknown component type did you mean TanhComponent"),
    ("nnet3 xconfig-layers tdnn-layer", "no such layer type: tdnn-layer (did you mean tdnnf-layer"),
    ("nnet3 edits rename", "'rename' is no edit directive (did you mean rename-node?)"),
]

TYPED = [
    # (a line of Python, words of the error)
    (
        'compile_request(nnet, Request([Io("input", [])], [Io("output", [[0, 0, 0]])]))',
        "lists no rows of the input 'input' (0 indexes)",
    ),
    (
        'compile_request(nnet, Request([Io("input", rows)], [Io("output", [])]))',
        "lists no rows of the output 'output' (0 indexes)",
    ),
    (
        'compile_request(nnet, Request([Io("input", rows)], [Io("output", [[0, 9, 0]])]))',
        "1 of 1 output rows are not computable; rows of 'input' that are not given",
    ),
    (
        'Io("input", [[0, 0, 0], [0, 0.5, 0]])',
        "'input': each index is a row of whole numbers (n, t, x), not (0, 0.5, 0) (row 1 of 2)",
    ),
    (
        'Io("input", [[0, 1], [0, 2], [0, 3]])',
        "'input': each index is a row of whole numbers (n, t, x); you gave an array [3, 2]",
    ),
    (
        'Io("input", [0, 1, 2])',
        "'input': each index is a row of whole numbers (n, t, x); you gave an array [3]",
    ),
    ("Io(3, rows)", "the name of an input or output: want a str, not an int: 3"),
    ('Request(Io("input", rows))', "inputs of a request: want a list, not an IoSpecification"),
    (
        'Request(["input"])',
        "each of the inputs of a request: want an IoSpecification, not a str: 'input'",
    ),
    ("ChunkComputer(nnet, 50)", "options: want a ChunkOptions, not an int: 50"),
    ('ChunkOptions(frames_per_chunk="50")', "frames_per_chunk: want an int, not a str: '50'"),
    ("ChunkOptions(frames_per_chunk=-1)", "frames_per_chunk is -1; it must be at least 1"),
    (
        "ChunkComputer(nnet).compute(np.zeros((0, 4)))",
        "features must be a matrix of at least one row; you gave an array [0, 4]",
    ),
    (
        'list(ChunkComputer(nnet).compute_all([("one", np.zeros((3, 4)))]))',
        "each utterance: want a Utterance, not a tuple",
    ),
    (
        'list(ChunkComputer(nnet).compute_all([Utterance("one", [[1, 2, 3, 4]])]))',
        "one: features: want a ndarray, not a list",
    ),
    (
        "ChunkComputer(diverged)",
        "component 'aff': 1 of 60 numbers of linear_params are nan or infinite",
    ),
    ("LoopedOptions(frames_per_chunk=2.5)", "frames_per_chunk: want an int, not a float: 2.5"),
    ("LoopedComputer(nnet, ChunkOptions())", "options: want a LoopedOptions, not a ChunkOptions"),
    ("simple_request(nnet, 1.5)", "frames: want an int, not a float: 1.5"),
    ("Nnet.read(3)", "the path of a model: want a str or a PathLike, not an int: 3"),
    ("Nnet.from_config_text(3)", "the text of a config is a str, not a int"),
    (
        'Nnet.from_config_text("", "seed")',
        "rng: want a generator of NumPy, a seed or None, not 'seed'",
    ),
    ("Nnet.from_configs(3)", "the paths of configs: want a str or a PathLike or an Iterable"),
    ("Nnet.from_configs([])", "the list of configs is empty"),
    ("nnet.write(3)", "the path of a file: want a str or a PathLike, not an int: 3"),
    ('nnet.unvectorize("x")', "the vector of parameters: want a ndarray, not a str: 'x'"),
    ("AmNnetSimple.read(3)", "the path of a file: want a str or a PathLike"),
    ('AmNnetSimple(3, b"")', "the network: want a Nnet, not an int: 3"),
    # -- computers
    (
        "NnetComputer(nnet, nnet)",
        "the compiled request (see compile_request): want an OpList or a NetDesc, not a Nnet",
    ),
    ("NnetComputer(None, nnet)", "want an OpList or a NetDesc, not a NoneType: None"),
    ("NnetComputer(net, 3)", "a model is wanted: an Nnet, an AmNnetSimple, or the path of a file"),
    ("NnetComputer(net, nnet, shared=3)", "shared: want a Scope, not an int: 3"),
    ('NnetComputer(net, nnet, place="gpu")', "Scope wants a place, CPUPlace() or GPUPlace(0)"),
    ('NnetComputer(net, nnet).accept_input("inptu", [[1]])', "takes no 'inptu'; it takes 'input'"),
    (
        'NnetComputer(net, nnet).accept_input("input", [[1, 2, 3, 4]])',
        "the input 'input' wants 5 rows of 4 columns, you gave 1 x 4",
    ),
    (
        'NnetComputer(net, nnet).accept_input("input", np.zeros((5, 4), complex))',
        "the input 'input': no array of real numbers: you gave ndarray (complex128)",
    ),
    ('NnetComputer(net, nnet).accept_input("input", None)', "no array of real numbers"),
    ("NnetComputer(net, nnet).run()", "'input' was not given"),
    ("SegmentComputer(3, nnet)", "want an OpList or a NetDesc, not an int: 3"),
    ("compile_segments(nnet, [])", "the list of requests is empty"),
    ("compile_segments(nnet, 3)", "the requests: want a list or a tuple, not an int: 3"),
    ('compile_request(nnet, "request")', "the request: want a ComputationRequest, not a str"),
    (
        'compile_request(nnet, request, optimize="no")',
        "optimize: want a bool or an OptimizeOptions",
    ),
    ('compile_request(nnet, request, test_mode="no")', "test_mode: want a bool, not a str: 'no'"),
    ("for_inference(nnet, collapse=None)", "collapse: want a bool, not a NoneType: None"),
    ("prepare_for_test(3)", "the network: want a Nnet, not an int: 3"),
    ("CachingCompiler(3)", "the network: want a Nnet, not an int: 3"),
    ('ChunkComputer(nnet, priors="x")', "priors: no array of real numbers"),
    (
        "ChunkComputer(nnet, priors=[0.5, 0.5, -1])",
        "the prior of column 2 is -1, no probability",
    ),
    ("ChunkComputer(nnet, priors=[1, 2])", "2 priors for an output of 3 columns"),
    ("ChunkComputer(nnet).compute([[1, 2], [3]])", "utterance: features: no array of real numbers"),
    (
        "ChunkComputer(nnet).compute(np.zeros((3, 4)), ivector=3)",
        "utterance: the iVector must be a vector",
    ),
    ("list(ChunkComputer(nnet).compute_all(3))", "utterances: want an Iterable, not an int: 3"),
    (
        "list(ChunkComputer(nnet).compute_all([Utterance(3, np.zeros((3, 4)))]))",
        "the key of an utterance: want a str, not an int: 3",
    ),
    (
        'list(ChunkComputer(nnet).compute_all([Utterance("one", np.full((3, 4), "x"))]))',
        "one: features: no real numbers (<U1)",
    ),
    (
        'list(ChunkComputer(nnet).compute_all([Utterance("one", np.zeros((3, 4)), [1])]))',
        "one: ivector: want a ndarray, not a list: [1]",
    ),
    ('ChunkOptions(acoustic_scale="1")', "acoustic_scale: want a float, not a str: '1'"),
    ("ChunkOptions(extra_right_context_final=2.5)", "extra_right_context_final: want an int"),
    (
        "ChunkOptions(extra_left_context_initial=-5)",
        "extra_left_context_initial is -5; at least -1",
    ),
    ('LoopedOptions(acoustic_scale=float("inf"))', "acoustic_scale is inf; it must be finite"),
    ('LoopedComputer(nnet).stream().accept("x")', "stream: features: no array of real numbers"),
    # -- requests
    ('Io("input", rows, has_deriv="yes")', "'input': has_deriv: want a bool, not a str: 'yes'"),
    ('Io("", rows)', "'' is no name of an input or output"),
    ('Io("the input", rows)', "'the input' is no name of an input or output"),
    (
        'Io("input", [[0, 2**40, 0]])',
        "'input': (0, 1099511627776, 0) is out of range: n must lie in",
    ),
    (
        'Request([], [], need_model_derivative="yes")',
        "need_model_derivative of a request: want a bool, not a str: 'yes'",
    ),
    ("Request.parse(3)", "the text of a request: want a str, not an int: 3"),
    (
        'compile_request(nnet, Request([Io("inptu", rows)], request.outputs))',
        "the network has no node 'inptu' (did you mean input?)",
    ),
    (
        'compile_request(nnet, Request([Io("input", rows)] * 2, request.outputs))',
        "the request lists 'input' twice",
    ),
    # -- training, edits, xconfigs, tables
    ("NnetTrainer(3, nnet)", "options: want a NnetTrainerOptions, not an int: 3"),
    ('NnetTrainer(NnetTrainerOptions(), "x.raw")', "the network: want a Nnet, not a str: 'x.raw'"),
    ('NnetTrainerOptions(momentum="x")', "momentum: want a float, not a str: 'x'"),
    ("NnetTrainer(NnetTrainerOptions(), nnet).train(3)", "the example: want a NnetExample"),
    ('apply_edits(nnet, "remove-orphans")', "the directives (see parse_edits): want a list"),
    ("parse_edits(3)", "the text of edits: want a str, not an int: 3"),
    ('xconfig_to_config("input name=a\\n", "fnal")', "config='fnal' is none of did you mean final"),
    ("xconfig_to_config(3)", "an xconfig's text or path: want a str or a PathLike"),
    ('read_table(3, "matrix")', "rspecifier: want a str, not an int: 3"),
]
