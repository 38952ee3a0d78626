"""Embedding: dense and sparse gradients, padding, and the operators on sparse rows."""

import numpy as np
import pytest

from opscope.framework.base.errors import RunError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, PARAMETER, make_var
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest

IDS = np.array([4, 0, 4, 2, 4])


class TestEmbedding(OpTest):
    type = "embedding"
    grad = ("w",)

    def cases(self, rng):
        w = rng.normal(size=(6, 3))
        for sparse in (False, True):
            yield Case({"ids": IDS, "w": w}, {"sparse": sparse})
            ids = np.array([[1, 2, 5], [0, 2, 2]], np.int32)
            yield Case({"ids": ids, "w": w}, {"sparse": sparse, "padding_idx": 2})
            yield Case({"ids": np.array(3), "w": w}, {"sparse": sparse})
        many = rng.integers(0, 40, (5, 20))
        yield Case({"ids": many, "w": rng.normal(size=(40, 33))})

    def reference(self, inputs, attrs):
        out = inputs["w"][inputs["ids"]]
        out[inputs["ids"] == attrs["padding_idx"]] = 0
        return {"out": out}

    def test_refuses(self):
        w = np.zeros((6, 3))
        self.refuses("integer dtype", {"ids": np.zeros(2), "w": w})
        self.refuses("2 dimensions", {"ids": IDS, "w": w[0]})
        self.refuses("padding_idx 6", {"ids": IDS, "w": w}, {"padding_idx": 6})

    @pytest.mark.parametrize("bad", [-1, 6])
    def test_refuses_ids_out_of_range(self, bad):
        case = Case({"ids": np.array([1, bad]), "w": np.zeros((6, 3))})
        with pytest.raises(RunError, match=rf"op .*embedding.*'ids' holds {bad}, want.*< 6"):
            self.output(case)


@pytest.mark.parametrize("op_type, slot", [("embedding", "w"), ("gather", "x")])
def test_ids_in_columns_and_a_run_after_a_bad_one(op_type, slot):
    """A table of fewer columns than its memory has, ids that lie apart, and an id that is no row in
    one of the runs."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(50, 9)).astype(np.float32)[:, 2:7]
    ids = rng.integers(0, 50, (200, 3))
    net, scope = PlainNet(), Scope()
    net.add_op(op_type, {"ids": ["ids"], slot: ["table"]}, {"out": ["out"]})
    for name, array in {"ids": ids[:, 1], "table": table}.items():
        scope.var(name).bind(array)
    for bad in (False, True, False):
        ids[150, 1] = 50 if bad else 49
        if bad:
            with pytest.raises(RunError, match="'ids' holds 50, want 0 <= ids < 50"):
                net.run(scope)
        else:
            net.run(scope)
            np.testing.assert_array_equal(scope.get("out").numpy(), table[ids[:, 1]])


class TestEmbeddingGrad(OpTest):
    type = "embedding_grad"

    def cases(self, rng):
        w, grad = np.zeros((6, 3)), rng.normal(size=(5, 3))
        yield Case({"ids": IDS, "w": w, "out_grad": grad})
        yield Case({"ids": IDS, "w": w, "out_grad": grad}, {"padding_idx": 4})
        ids, w = rng.integers(0, 9, (70, 90)), np.zeros((9, 7))  # more than one chunk
        yield Case({"ids": ids, "w": w, "out_grad": rng.normal(size=(70, 90, 7))})

    def reference(self, inputs, attrs):
        out = np.zeros_like(inputs["w"])
        np.add.at(out, inputs["ids"], inputs["out_grad"])
        if attrs["padding_idx"] >= 0:
            out[attrs["padding_idx"]] = 0
        return {"w_grad": out}

    def test_refuses(self):
        """What would be written beside the table."""
        ids, w, grad = np.array([1, 9]), np.zeros((6, 3)), np.zeros((2, 3))
        self.refuses("dim of out_grad and of w", {"ids": ids, "w": w, "out_grad": grad[:, :2]})
        self.refuses("one shape", {"ids": ids[:1], "w": w, "out_grad": grad})
        self.refuses("padding_idx 6", {"ids": ids, "w": w, "out_grad": grad}, {"padding_idx": 6})
        with pytest.raises(RunError, match="'ids' holds 9, want 0 <= ids < 6"):
            self.output(Case({"ids": ids, "w": w, "out_grad": grad}))


class TestEmbeddingRowsGrad(OpTest):
    type = "embedding_rows_grad"

    def cases(self, rng):
        yield Case({"ids": IDS, "out_grad": rng.normal(size=(5, 3))}, {"padding_idx": 0})
        ids = np.array([[1, 2], [0, 2]], np.int32)
        yield Case({"ids": ids, "out_grad": rng.normal(size=(2, 2, 3))})

    def reference(self, inputs, attrs):
        rows = inputs["ids"].reshape(-1).astype(np.int64)
        values = inputs["out_grad"].reshape(len(rows), inputs["out_grad"].shape[-1]).copy()
        padded = rows == attrs["padding_idx"] if attrs["padding_idx"] >= 0 else rows < 0
        values[padded], rows[padded] = 0, -1
        return {"values": values, "rows": rows}


class TestRowsToDense(OpTest):
    type = "rows_to_dense"

    def cases(self, rng):
        like = np.zeros((6, 3))
        yield Case({"x": rng.normal(size=(5, 3)), "rows": IDS, "like": like})
        rows = np.array([2, -1, 2, -1, 0])
        yield Case({"x": rng.normal(size=(5, 3)), "rows": rows, "like": like})

    def reference(self, inputs, attrs):
        out, held = np.zeros(inputs["like"].shape), inputs["rows"] >= 0
        np.add.at(out, inputs["rows"][held], inputs["x"][held])
        return {"out": out}

    def test_refuses(self):
        x, like = np.zeros((5, 3)), np.zeros((6, 3))
        self.refuses("numbers of rows", {"x": x[:4], "rows": IDS, "like": like})
        self.refuses("one shape", {"x": x, "rows": IDS, "like": like[:, :2]})
        self.refuses("1 dimensions", {"x": x, "rows": IDS[:, None], "like": like})
        self.refuses("integer dtype", {"x": x, "rows": np.zeros(5), "like": like})
        for bad in (-2, 6):
            with pytest.raises(RunError, match=f"rows 'rows' holds {bad}, want -1 to 5"):
                self.output(Case({"x": x[:1], "rows": np.array([bad]), "like": like}))


class TestMergeRows(OpTest):
    type = "merge_rows"

    def cases(self, rng):
        for rows in (IDS, [2, -1, 2, -1, 0], [-1] * 5, [0, 1, 2, 3, 4], [3] * 5):
            yield Case({"x": rng.normal(size=(5, 3)), "rows": np.array(rows)})
        yield Case({"x": rng.normal(size=5), "rows": IDS.astype(np.int32)})

    def reference(self, inputs, attrs):
        x, rows = inputs["x"], inputs["rows"]
        out, merged = np.zeros_like(x), np.full_like(rows, -1)
        for i, row in enumerate(rows):
            if row >= 0:
                first = list(rows).index(row)
                out[first] += x[i]
                merged[first] = row
        return {"out": out, "rows_out": merged}

    def test_refuses(self):
        self.refuses("numbers of rows", {"x": np.zeros((4, 2)), "rows": IDS})


def build(sparse, computed=False):
    """A net that looks up twice in a table; the second time in a computed one, if so wanted."""
    net = PlainNet()
    net.add_var(make_var("ids", [-1], "int64", INPUT))
    net.add_var(make_var("w", [6, 3], "float64", PARAMETER))
    net.add_op("square", {"x": "w"}, {"out": "squared"})
    second = "squared" if computed else "w"
    net.add_op("embedding", {"ids": "ids", "w": "w"}, {"out": "a"}, {"sparse": sparse})
    net.add_op("embedding", {"ids": "ids", "w": second}, {"out": "b"}, {"sparse": sparse})
    net.add_op("mul", {"x": "a", "y": "b"}, {"out": "ab"})
    net.add_op("reduce_sum", {"x": "ab"}, {"out": "cost"})
    return net


def gradient(net):
    names = net.add_backward_ops("cost")
    scope = Scope()
    scope.feed({"ids": IDS, "w": np.random.default_rng(0).normal(size=(6, 3))})
    net.run(scope)
    return scope, names["w"]


def test_sparse_gradients_of_one_table_are_joined():
    scope, name = gradient(build(False))
    wanted = scope.numpy(name)
    scope, name = gradient(build(True))
    values, rows = scope.numpy(name), scope.numpy("w@GRAD@ROWS")
    assert values.shape == (10, 3) and rows.shape == (10,)
    dense = np.zeros((6, 3))
    np.add.at(dense, rows, values)
    np.testing.assert_allclose(dense, wanted)


def test_sparse_and_dense_gradients_meet():
    wanted_scope, name = gradient(build(False, computed=True))
    scope, _ = gradient(build(True, computed=True))  # a computed table gets a dense gradient
    np.testing.assert_allclose(scope.numpy(name), wanted_scope.numpy(name))
