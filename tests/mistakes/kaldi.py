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
]
