# ruff: noqa: E501  (an entry is a line)
"""What newcomers type by mistake, and words that the message must hold in this order.

A line that begins with `$ ` is a command of the shell, run in a folder with `net.pb` and `x.npy`.
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
    ('b.parameter("w", [3], init="glorot")', "no initialiser 'glorot'; known: xavier"),
    # -- layers and operators
    ("b.fc(x)", "layer 'fc_0' (fc): give `size` or the parameter `w`"),
    (
        "b.fc(x, 8, activation=b.relu)",
        'activation is the name of an operator write activation="relu"',
    ),
    ('b.fc(x, 8, activation="rellu")', "no operator of type 'rellu' did you mean relu"),
    ("b.fc(x, 8, units=3)", "has no argument 'units' size"),
    ('b.fc("xx", 8)', "the net has no variable 'xx' did you mean x"),
    ("b.fc(X, 8)", "the net has no variable"),
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
    # -- variables are no arrays of numbers
    (
        "float(cost)",
        "holds no numbers while the net is built b.run(scope, feed=..., fetch=['cost'])",
    ),
    ("np.asarray(x)", "holds no numbers while the net is built"),
    ("1 if x > 0 else 0", "neither true nor false while the net is built b.where"),
    ("list(x)", "its first dimension is not known"),
    ("x[0] = 1", "x"),
    # -- gradients and optimizers
    (
        "b.backward_from(scores)",
        "wants a single number 'scores' has the shape [?, 3] b.mean(scores)",
    ),
    ('b.backward_from("costs")', "no variable 'costs' did you mean cost"),
    ("b.add_optimization(0.1)", "add_optimization needs backward_from(cost) first"),
    ('b.backward_from(cost); b.add_optimization("adam", .1)', 'add_optimization(0.1, "adam"), not'),
    ('b.backward_from(cost); b.add_optimization(0.1, "adm")', "'adm' is no optimizer mean adam"),
    ("b.backward_from(cost); b.add_optimization(lr=0.1)", "no attribute 'lr' learning_rate"),
    ('b.backward_from(cost, wrt=["xx"])', "no variable 'xx' did you mean x"),
    (
        'b.backward_from(cost, wrt=["x"]); b.add_optimization(0.1)',
        "nothing to update leave wrt out",
    ),
    ("trained.add_optimization(0.1)", "scores.w"),
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
        "'scores' is computed by op 0",
    ),
    ('trained.predict({"x": X}, scope=Scope())', "holds no value of 'scores.w' initialise"),
    ('OpContext(seed="one")', "seed: want a whole number from 0 on, or None, not 'one'"),
    ("opscope.set_threads(0)", "set_threads: want a whole number from 1 on, or None, not 0"),
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
    # -- files
    ('opscope.save(trained, Scope(), "a")', "no value in the scope: 'scores.w' initialise first"),
    ('opscope.load("nofile")', "nofile: no such file; looked for nofile.pb"),
    (
        'open("m.pt", "wb").close(); opscope.load("m.pt")',
        "m.pt: a file of another framework NAME.pb",
    ),
    (
        'opscope.train(opscope.load("net.pb"), data, epochs=1, loss="cost")',
        "load(path, train=True)",
    ),
    ('opscope.load("net.pb").predict({"y": X})', "'y'"),
    # -- two nets in one scope
    (
        "s = Scope(); trained.initialize(s); again().initialize(s)",
        "of another NetBuilder share=True",
    ),
    # -- the command line
    ("$ opscope show nofile", "nofile: no such file; looked for nofile.pb"),
    ("$ opscope shwo net.pb", "no command 'shwo' did you mean show"),
    (
        "$ opscope run net.pb --fetch scores",
        "input 'x' float32[?, 4] is missing: --feed x=FILE.npy",
    ),
    (
        "$ opscope run net.pb --feed x=x.npy --fetch score",
        "no variable 'score' did you mean scores",
    ),
    ("$ opscope run net.pb --feed x=nofile.npy --fetch scores", "nofile.npy: no such file"),
    ("$ opscope run net.pb --feed x.npy --fetch scores", "--feed x.npy: want NAME=VALUE"),
    ("$ opscope train net.pb --data x.npy --loss cost --epochs 1 --out a.pb", "x.npy"),
    ("$ opscope ops sofmax", "did you mean softmax"),
]
