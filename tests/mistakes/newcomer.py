# ruff: noqa: E501  (an entry is a line)
"""What newcomers type by mistake, and words that the message must hold in this order.

A line that begins with `$ ` is a command of the shell, run in a folder with `net.pb`, `x.npy`,
`data.npz` of `x` and `lab`, and `picture.pb`, `pickle.pb` and `notes.pb`, which are what they say.
In the others `b` is a builder over the input `x` [-1, 4] with the variables `label`, `scores`, `cost`,
and `trained` one with an optimizer; `X` and `Y` are data for them.
"""

MISTAKES = [
    # (what was typed, words of the message)
    # -- inputs and shapes
    ('b.input("y", 4)', "input 'y': want a list of whole numbers, not 4; write [4]"),
    ('b.input("y", "4")', "list of whole numbers, -1 for a dimension that may differ, not '4'"),
    ('b.input("y", [-1, 4.0])', "list of whole numbers, not [-1, 4.0]"),
    ('b.input("x", [-1, 4])', "variable 'x' is defined twice"),
    ('b.input("y", [4], "float31")', "'float31' is not a dtype did you mean float32"),
    ('b.parameter("w", [3], init="glorot")', "no initializer 'glorot' (write \"xavier\"); known:"),
    ('b.input("", [4])', "an input is named by a str, not by ''"),
    ("b.input(3, [4])", "an input is named by a str, not by 3"),
    ('b.input("y")', "input: missing a required argument: 'shape'"),
    ('b.input("y", [-1, 4], level=1)', "input has no argument 'level' (write levels=1)"),
    ('b.input("y", [-1, 4], levels=-1)', "input 'y': levels of sequences are 0, 1 or 2, not -1"),
    ('b.parameter("w", [3, None])', "parameter 'w': all its dimensions must be known, not [3, -1]"),
    (
        'b.parameter("w", [3], None)',
        "None is no initializer; want a name (zeros, a number, or an array",
    ),
    ('b.parameter("w", [3], "kaiming")', "no initializer 'kaiming' (write \"he\")"),
    ('b.parameter("w", [3], ("normal", 0.1))', "attributes go by name, not ('normal', 0.1)"),
    (
        'b.parameter("w", [3], ("normal", {"stdev": 1}))',
        "'normal' has no attribute 'stdev' (did you mean std?)",
    ),
    ('b.parameter("w", [3], np.zeros(4))', "parameter 'w' is [3], its first value [4]"),
    # -- layers and operators
    ("b.fc(x)", "layer 'fc_0' (fc): give `size` or the parameter `w`"),
    (
        "b.fc(x, 8, activation=b.relu)",
        'activation is the name of an operator write activation="relu"',
    ),
    ('b.fc(x, 8, activation="rellu")', "no operator of type 'rellu' did you mean relu"),
    ("b.fc(x, 8, units=3)", "has no argument 'units' size"),
    ('b.fc("xx", 8)', "the net has no variable 'xx' did you mean x"),
    (
        "b.fc(X, 8)",
        "want a variable of the net, not an array [2, 4]: feed it b.constant(value=array)",
    ),
    (
        'b.fc(NetBuilder("other").input("x", [-1, 4]), 8)',
        "'x' belongs to another NetBuilder (other)",
    ),
    ("b.conv2d(image, 16, kernel_size=3)", "conv2d has no argument 'kernel_size' (write kernel=3)"),
    ("b.conv2d(x, 16, 3)", "conv2d_0"),
    ("b.reshape(x, [2, -1])", "reshape takes x by position and attributes by name: shape=[2, -1]"),
    ("b.concat(x, scores)", "concat takes x by position, as a list: concat([x, scores])"),
    ("b.dropout(x, 0.5)", "attributes by name: p=0.5"),
    ("b.softmax(x, dim=1)", "softmax has no slot or attribute 'dim' (write axis=1)"),
    ("b.sofmax(x)", "NetBuilder has no attribute 'sofmax' did you mean softmax"),
    ('x @ b.parameter("w", [5, 3])', "the inner dimensions must agree and are 4, 5"),
    ("x + b.parameter('w', [5])", "x float32[?, 4] float32[5]"),
    (
        "b.lstm(b.input('t', [-1, 10, 4]), 8)",
        "'t' holds no sequences input('t', [-1, 4], levels=1)",
    ),
    ("b.softmax_cross_entropy(scores, x)", "softmax_cross_entropy label"),
    ('b.fc(x, size="8")', "fc: size is a whole number, not '8'"),
    ("b.fc(x, 0)", "size is at least 1, not 0"),
    ('b.fc(x, 8, trainable="no")', "trainable is True or False, not 'no'"),
    ('b.fc(x, 8, lr_factor="0.1")', "lr_factor is a number, not '0.1'"),
    ("b.fc(x, 8, name=3)", "name is a str, not 3"),
    ("b.fc(None, 8)", "want a variable of the net, not None"),
    (
        'b.fc(b.lstm(b.input("s", [-1, 4], levels=1), 8), 3)',
        "want a variable of the net, not a list of 1 (LSTMState); pick what is meant, as [0] does",
    ),
    ('b.lstm(b.input("s", [-1, 4], levels=1), "8")', "lstm: size is a whole number, not '8'"),
    ("b.matmul(x, 2.0)", "slot 'y' wants a variable, not 2.0 x + 2.0; b.constant(value=2.0)"),
    ("b.matmul(x, np.zeros((4, 2)))", "slot 'y' wants a variable, not an array [4, 2]: feed it"),
    ("b.reshape(x, -1, 2)", "attributes by name: shape=[-1, 2]"),
    ('b.cast(x, "float16")', "attributes by name: dtype='float16'"),
    ("b.split(x, sections=2)", "sections is a list of sizes, not 2; num=2"),
    ("b.dropout(x, rate=0.5)", "has no slot or attribute 'rate' (write p=0.5)"),
    ('b.add_op("relu", ["x"], ["y"])', "forward_net.add_op('relu', ...) b.relu(x, name='y')"),
    ("b.add_op(b.relu, x)", "add_op wants the type of an operator first, add_op('relu', x), not"),
    ('b.conv2d(image, 8, 3, padding="SAM")', "'SAM' is none of did you mean same"),
    ("b.relu(x, name=7)", "a result is named by a str, not by 7"),
    ("b.ones_like(x)", "has no attribute 'ones_like'; write b.fill_like(x, value=1.0)"),
    ("b.mse_loss(x, x)", "has no attribute 'mse_loss'; write b.mean(b.squared_error(x, y))"),
    ("b.Linear(4, 8)", "has no attribute 'Linear'; write b.fc"),
    (
        'b.sequence_pool(b.input("s", [-1, 4], levels=1), type="max")',
        "no slot or attribute 'type' (write pool_type='max')",
    ),
    (
        'b.gru(b.input("s", [-1, 4], levels=1), 8, initial=x)',
        "`initial` is a list of states, one for each layer and direction: initial=[x]",
    ),
    ("b.conv2d(image, 8, 3, groups=0)", "groups is at least 1, not 0"),
    ('b.relu(x, "y")', "relu takes x by position; the result is named by name='y'"),
    ("b.fc(8, x)", "want a variable of the net, not the number 8"),
    # -- variables are no arrays of numbers
    (
        "float(cost)",
        "holds no numbers while the net is built b.run(scope, feed=..., fetch=['cost'])",
    ),
    ("np.asarray(x)", "holds no numbers while the net is built"),
    ("1 if x > 0 else 0", "neither true nor false while the net is built b.where"),
    ("list(x)", "its first dimension is not known"),
    ("x[0] = 1", "x"),
    ("x.std()", "has no attribute 'std': write b.reduce_std"),
    ("x.view(-1, 2)", "has no attribute 'view': write b.reshape"),
    ("np.sum(x)", "np.sum is of arrays holds no numbers while the net is built; write b.sum"),
    ("np.concatenate([x, x])", "np.concatenate is of arrays write b.concat"),
    # -- gradients and optimizers
    (
        "b.backward_from(scores)",
        "wants a single number 'scores' has the shape [?, 3] b.mean(scores)",
    ),
    ('b.backward_from("costs")', "no variable 'costs' did you mean cost"),
    (
        'b.mean(scores, name="other"); b.add_optimization(0.1)',
        "add_optimization needs backward_from(cost) first 2 single numbers cost, other",
    ),
    ('b.backward_from(cost); b.add_optimization("adam", .1)', 'add_optimization(0.1, "adam"), not'),
    ('b.backward_from(cost); b.add_optimization(0.1, "adm")', "'adm' is no optimizer mean adam"),
    ("b.backward_from(cost); b.add_optimization(lr=0.1)", "no attribute 'lr' learning_rate"),
    ('b.backward_from(cost, wrt=["xx"])', "no variable 'xx' did you mean x"),
    (
        'b.backward_from(cost, wrt=["x"]); b.add_optimization(0.1)',
        "nothing to update leave wrt out",
    ),
    ("trained.add_optimization(0.1)", "scores.w"),
    (
        'b.backward_from(cost); b.add_optimization(0.1, "sgd", momentum=0.9)',
        "has no attribute 'momentum' (the types 'momentum' and 'nesterov' have one)",
    ),
    (
        'b.backward_from(cost); b.add_optimization(0.1, "AdmaW")',
        "'AdmaW' is no optimizer did you mean adamw, adam",
    ),
    (
        "b.backward_from(cost); b.add_optimization(0.1, schedule=lambda step: 0.1)",
        "schedule is the name of one, not there are constant, cosine",
    ),
    (
        'b.backward_from(cost); b.add_optimization(0.1, schedule="cosine", schedule_attrs=100)',
        "schedule_attrs is a dict such as {'total_steps': 1000}, not 100",
    ),
    ("trained.fit(X, Y)", "NetBuilder has no attribute 'fit' opscope.train"),
    ("trained.forward(X)", "need_backward=False b.predict"),
    ("trained.eval()", "b.predict test phase"),
    ("b.backward_from(cost, wrt=X)", "want variables or names, not an array [4]"),
    ("b.backward_from(cost, wrt=3)", "want variables or names, not the number 3"),
    ('opscope.LossScale("dynamic")', "loss scale: it must be above 0, not 'dynamic'; LossScale()"),
    (
        'b.backward_from(cost); b.add_optimization(0.1, "adam", clipnorm=1.0)',
        "has no attribute 'clipnorm' (here it is clip_norm)",
    ),
    (
        'b.backward_from(cost); b.add_optimization(0.1, optimizer="adam")',
        "has no attribute 'optimizer' (here it is the second argument, type)",
    ),
    (
        'b.backward_from(cost); b.add_optimization(0.1, schedule="StepLR")',
        "no schedule 'StepLR' (here it is step_decay)",
    ),
    # -- runs
    ('trained.run({"x": X, "label": Y})', "run(scope, feed={'x': array} not as the scope"),
    (
        'trained.run(Scope(), feed={"x": X}, fetch="cost")',
        "input 'label' is missing put it into the feed",
    ),
    (
        'trained.run(Scope(), feed={"x": X, "label": Y}, fetch="costs")',
        "fetch no variable 'costs' cost",
    ),
    ('trained.run(Scope(), feed={"x": X, "lable": Y})', "no variable 'lable' did you mean label"),
    (
        'trained.run(Scope(), feed={"x": X[:, :3], "label": Y})',
        "input 'x' wants [-1, 4] given [2, 3]",
    ),
    (
        'trained.run(Scope(), feed={"x": X, "label": Y * 1.5})',
        "'label' wants int64 and was given float64",
    ),
    (
        'trained.run(Scope(), feed={"x": X, "label": Y + 7})',
        "label 'label' holds 7 at sample 0, want 0 .. 2",
    ),
    (
        'trained.run(Scope(), feed={"x": X, "label": Y, "scores": X})',
        "input 'scores' wants [-1, 3] given [2, 4]",
    ),
    ('trained.predict({"x": X}, scope=Scope())', "holds no value of 'scores.w' initialize"),
    ('OpContext(seed="one")', "seed: want a whole number from 0 on, or None, not 'one'"),
    ("opscope.set_threads(0)", "set_threads: want a whole number from 1 on, or None, not 0"),
    (
        'trained.run(Scope(), feed={"x": None, "label": Y})',
        "input 'x' wants float32 and was given None",
    ),
    (
        'trained.run(Scope(), feed={"x": (row for row in X), "label": Y})',
        "wants float32 and was given a generator",
    ),
    (
        'trained.run(Scope(), feed={"x": X, "label": Y * 1.0})',
        "'label' wants int64 and was given float64; astype('int64')",
    ),
    ('trained.initialize("scope")', "initialize: the scope must be an opscope.Scope, not a str"),
    (
        "trained.initialize(Scope(), 0)",
        "the context must be an opscope.OpContext OpContext(seed=0)",
    ),
    ('trained.predict({"x": X}, "scores", Scope())', "want predict({'x': array}, scope=scope)"),
    (
        'trained.predict({"x": X}, scope=Scope(), batch_size="2")',
        "predict: batch_size is a whole number, not '2'",
    ),
    ("OpContext(0)", "OpContext: device is CPUPlace() the seed is given by name: seed=0"),
    ('OpContext(train="no")', "OpContext: train is True, False or None, not 'no'"),
    ('Scope("gpu")', "Scope wants a place, CPUPlace() or GPUPlace(0), or nothing, not 'gpu'"),
    ("Scope().var(3)", "a variable of a scope is named by a str, not by 3"),
    ("Scope().feed(X)", "scope.feed({'x': array}), not a ndarray"),
    ('opscope.copy(trained, Scope(), ["scores.w"])', "the source must be an opscope.Scope"),
    ('opscope.copy(Scope(), {}, ["scores.w"])', "the target must be an opscope.Scope"),
    (
        'b.lstm(x, 8, name="h"); b.run(Scope(), feed={"x": X}, fetch="h", need_backward=False)',
        "holds no sequences; declare the input with levels=1 and feed it a list of arrays",
    ),
    # -- training
    ("opscope.train(trained, data, epochs=1, scope=Scope())", "no variable 'loss' loss= 'cost'"),
    ('opscope.train(b, data, epochs=1, scope=Scope(), loss="cost")', "holds no optimizer"),
    (
        'opscope.train(trained, data, epochs=0, scope=Scope(), loss="cost")',
        "epochs wants a number from 1 on",
    ),
    (
        'opscope.train(trained, [(X, Y)], epochs=1, scope=Scope(), loss="cost", progress=False)',
        "a minibatch maps names to arrays; this is a tuple",
    ),
    (
        'opscope.train(trained, iter(data), epochs=2, scope=Scope(), loss="cost", progress=False)',
        "can be gone through only once",
    ),
    (
        'opscope.train(trained, [{"x": X * np.nan, "label": Y}], epochs=1, scope=Scope(), loss="cost")',
        "epoch 1, minibatch 1: 8 of the 8 numbers given for 'x' are NaN",
    ),
    (
        'opscope.train(trained, data, epochs=1, scope=Scope(), loss="cost", metrics=["acc"])',
        "no variable 'acc'",
    ),
    (
        'opscope.train(trained, data, epochs=1, scope=Scope(), loss="cost", resume=True)',
        "resume=True needs checkpoint",
    ),
    (
        'opscope.train(trained, data[0], epochs=1, scope=Scope(), loss="cost")',
        "data is one mapping: want a list of minibatches opscope.Minibatches(arrays, 32)",
    ),
    (
        'opscope.train(trained, X, epochs=1, scope=Scope(), loss="cost")',
        "data is a ndarray: want a list of minibatches opscope.Minibatches(arrays, 32)",
    ),
    ('opscope.train(trained, "d.npz", epochs=1, loss="cost")', "data is a str: want a list"),
    (
        'opscope.train(trained, lambda: data, epochs=1, scope=Scope(), loss="cost")',
        "must take the number of an epoch: lambda epoch: minibatches",
    ),
    (
        'opscope.train(trained, lambda epoch: None, epochs=1, scope=Scope(), loss="cost")',
        "the function of the data returned None for epoch 0: want minibatches",
    ),
    (
        'opscope.train(trained, data, epoch=1, scope=Scope(), loss="cost")',
        "train has no argument 'epoch' (write epochs=1)",
    ),
    (
        'opscope.train(trained, data, epochs=1, validation_data=data, loss="cost")',
        "train has no argument 'validation_data' (write evaluate=",
    ),
    (
        'opscope.train(trained, data, epochs=1, scope=Scope(), loss="cost", early_stop=3)',
        "early_stop is an EarlyStop(patience=5) or None, not 3",
    ),
    (
        'opscope.train(trained, data, epochs=1, scope=Scope(), loss="cost", checkpoint=3)',
        "checkpoint is the name of a file, not 3",
    ),
    ('opscope.EarlyStop(patience="2")', "want patience >= 1"),
    (
        'opscope.Minibatches({"x": X}, batch_size=2)',
        "Minibatches has no argument 'batch_size' (write size=2)",
    ),
    ('opscope.Minibatches({"x": X})', "Minibatches: missing a required argument: 'size'"),
    ('opscope.EarlyStop(min_delta="0.1")', "min_delta >= 0"),
    (
        'opscope.train(trained, data, epochs=1, scope=Scope(), loss="cost", early_stop=(1,) * 9)',
        "early_stop is an EarlyStop(patience=5) or None, not (1, 1",
    ),
    ("opscope.Minibatches(X, 2)", "Minibatches({'x': x, 'label': y}, 32), not a ndarray"),
    (
        'opscope.Minibatches({"x": X}, "2")',
        "Minibatches of '2' rows: want a whole number from 1 on",
    ),
    ('opscope.Minibatches({"x": None}, 2)', "'x' is a NoneType and has no rows"),
    (
        'opscope.train(trained, data, epochs=1, scope=Scope(), loss="cost", hooks=[3])',
        "hooks is a list of Hook objects, not [3]",
    ),
    (
        'opscope.train(trained, [{"x": X[:0], "label": Y[:0]}], epochs=1, scope=Scope(), loss="cost")',
        "epoch 1, minibatch 1: a minibatch without rows: x [0, 4], label [0]",
    ),
    # -- files
    ('opscope.save(trained, Scope(), "a")', "no value in the scope: 'scores.w' initialize first"),
    ('opscope.load("nofile")', "nofile: No such file or directory; looked for nofile.pb"),
    (
        'open("m.pt", "wb").close(); opscope.load("m.pt")',
        "m.pt: a file of another framework NAME.pb",
    ),
    (
        'opscope.train(opscope.load("net.pb"), data, epochs=1, loss="cost")',
        "load(path, train=True)",
    ),
    ('opscope.load("net.pb").predict({"y": X})', "'y'"),
    ('opscope.save(trained, Scope(), "")', "'' names no file: want NAME or NAME.pb"),
    ("opscope.save(trained, Scope(), None)", "want the name of a file, such as 'net.pb', not None"),
    ('opscope.save(trained, trained, "a.pb")', "in an opscope.Scope, not in a NetBuilder"),
    ("opscope.load(trained)", "want the name of a file, such as 'net.pb', not <NetBuilder"),
    ('trained.summary(batch="a")', "summary: batch is a whole number from 1 on, not 'a'"),
    (
        'opscope.load("net.pb").run({"x": X})',
        "no attribute 'run'; predict({'x': array}) gives its results",
    ),
    ('opscope.load("net.pb").fit(X)', "no attribute 'fit'; predict opscope.train"),
    ('opscope.load("net.pb", "scope")', "the scope must be an opscope.Scope, not a str: load("),
    ('opscope.load_parameters("net.pb", b, "scope")', "the scope must be an opscope.Scope"),
    ("opscope.load_parameters(None, b, Scope())", "wants the name of a file first, not None"),
    (
        'opscope.load("net.pb").predict({"x": X}, fetch=3)',
        "fetch is a name or a list of names, not 3",
    ),
    # -- two nets in one scope
    (
        "s = Scope(); trained.initialize(s); again().initialize(s)",
        "of another NetBuilder share=True",
    ),
    # -- the command line
    ("$ opscope show nofile", "nofile: No such file or directory; looked for nofile.pb"),
    ("$ opscope shwo net.pb", "no command 'shwo' did you mean show"),
    (
        "$ opscope run net.pb --fetch scores",
        "input 'x' float32[?, 4] is missing: --feed x=FILE.npy",
    ),
    (
        "$ opscope run net.pb --feed x=x.npy --fetch score",
        "no variable 'score' did you mean scores",
    ),
    (
        "$ opscope run net.pb --feed x=nofile.npy --fetch scores",
        "nofile.npy: No such file or directory",
    ),
    ("$ opscope run net.pb --feed x.npy --fetch scores", "--feed x.npy: want NAME=VALUE"),
    ("$ opscope train net.pb --data x.npy --loss cost --epochs 1 --out a.pb", "x.npy"),
    ("$ opscope ops Linera", "no layer or operator 'Linera'"),
    (
        "$ opscope run net.pb --feed x=net.pb --fetch scores",
        "net.pb: no NumPy file: neither .npy nor .npz",
    ),
    ("$ opscope run net.pb --feed z=x.npy --fetch scores", "no variable 'z' inputs are x, label"),
    ("$ opscope ops sofmax", "did you mean softmax"),
    (
        "$ opscope train net.pb --data data.npz --loss cost --epochs 1 --out a.pb",
        "data.npz: no array for the input 'label' did you mean lab holds x, lab --feed label=ARRAY",
    ),
    ("$ opscope show picture.pb", "picture.pb: 48 bytes are no NetDesc PNG opscope.save writes"),
    (
        "opscope.load('pickle.pb')",
        "are no NetDesc a pickle, which opscope never loads; opscope.save",
    ),
    ("opscope.load('notes.pb')", "is no saved net: it begins like text; opscope.save"),
    # -- data in another form
    (
        'b.run(Scope(), feed={"x": [[1, 2], [3]]}, fetch=["scores"])',
        "input 'x' is no array, but 2 items of several lengths (2, 1) b.input('x', [-1, 4], levels=1)",
    ),
    (
        'b.run(Scope(), feed={"x": np.array([X, X[:1]], object)}, fetch=["scores"])',
        "input 'x' is no array, but 2 items of several lengths (2, 1) levels=1",
    ),
    (
        'b.run(Scope(), feed={"image": np.ones((2, 8, 8, 3))}, fetch=["image"])',
        "[-1, 3, 8, 8] [2, 8, 8, 3] [N, H, W, C] [N, C, H, W] np.transpose(x, (0, 3, 1, 2))",
    ),
    (
        'b.run(Scope(), feed={"image": np.ones((8, 8, 3))}, fetch=["image"])',
        "wants [-1, 3, 8, 8] and was given [8, 8, 3]",
    ),
    (
        "b.conv2d(b.input('rows', [-1, 32, 24, 3]), w=b.parameter('k', [8, 3, 3, 3]))",
        "channels must agree and are 32, 3 np.transpose(x, (0, 3, 1, 2))",
    ),
    (
        "b.conv1d(b.input('rows', [-1, 9, 4]), w=b.parameter('k', [8, 4, 3]))",
        "channels must agree and are 9, 4 [N, W, C] np.transpose(x, (0, 2, 1))",
    ),
    (
        'opscope.train(trained, data, epochs=1, loss="cost", metrics=["acc"], scope=Scope())',
        "the net has no variable 'acc' a metric is a variable of the net b.accuracy( opscope.metrics",
    ),
    (
        "b.accuracy(scores, label, name='accuracy'); b.add_optimization(0.1);"
        ' opscope.train(b, data, epochs=1, loss="cost", metrics=["acc"], scope=Scope())',
        "the net has no variable 'acc' did you mean accuracy",
    ),
    (
        "b.accuracy(scores, label); b.add_optimization(0.1); opscope.train(b, data, epochs=1)",
        "the net has no variable 'loss'; loss= says what is minimized: perhaps 'cost'",
    ),
    ("trained.fc(x, 3, activation='swish')", "no operator of type 'swish'; here it is silu"),
    ("b.add_op('Linear', x, 3)", "no operator of type 'Linear'; here it is fc"),
]
