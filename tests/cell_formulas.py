"""One step of recurrent cells in NumPy, which the tests of cells and of layers share."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rnn_step(inputs, attrs):
    i = inputs
    function = {"tanh": np.tanh, "sigmoid": sigmoid, "": np.array}[attrs["activation"]]
    return {"out": function(i["x"] @ i["w_x"] + i["b"] + i["h"] @ i["w_h"])}


def lstm_step(inputs, attrs):
    p = {name: 0.0 for name in ("p_i", "p_f", "p_o")} | inputs
    i, f, g, o = np.split(p["x"] @ p["w_x"] + p["b"] + p["h"] @ p["w_h"], 4, axis=1)
    c = p["c"]
    memory = sigmoid(f + p["p_f"] * c) * c + sigmoid(i + p["p_i"] * c) * np.tanh(g)
    out = sigmoid(o + p["p_o"] * memory) * np.tanh(memory)
    return {"out": out @ p["w_proj"] if "w_proj" in p else out, "memory": memory}


def gru_step(inputs, attrs):
    i, h = inputs, inputs["h"]
    size = attrs["size"]
    from_x, own = i["x"] @ i["w_x"] + i["b"], h @ i["w_h"] + i.get("b_h", 0)
    r, z = np.split(sigmoid(from_x[:, : 2 * size] + own[:, : 2 * size]), 2, axis=1)
    after = r * own[:, 2 * size :] if "b_h" in i else (r * h) @ i["w_n"]
    n = np.tanh(from_x[:, 2 * size :] + after)
    return {"out": (1 - z) * n + z * h}


def given(rng, **shapes):
    """Random inputs of these shapes."""
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}
