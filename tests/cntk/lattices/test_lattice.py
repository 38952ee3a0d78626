"""The sequence criterion beside a sum over all paths of small lattices."""

import io
from dataclasses import replace

import numpy as np
import pytest

import lattice_cases
import opscope.cntk.operators  # noqa: F401  registers them
from opscope.cntk.config import parse_config
from opscope.cntk.lattices import Hmms, Lattice, Lattices
from opscope.cntk.lattices.archive_format import read_lattice
from opscope.cntk.lattices.lattice import PARTS, feed_lattices, lattice_variable, levels
from opscope.cntk.network.network import Network
from opscope.cntk.operators.losses.alignment import align
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.layout import packed
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.run.runtime import CntkNet
from opscope.cntk.sgd.measure import sub_minibatches
from opscope.cntk.sgd.options import SgdOptions
from opscope.cntk.sgd.schedules import Schedules
from opscope.framework.base.errors import FormatError, OpscopeError, RunError, ShapeError
from opscope.framework.base.scope import Scope
from opscope.testing import Case, OpTest

STATES = len(lattice_cases.STATES)


@pytest.fixture(scope="module")
def hmms(tmp_path_factory):
    return lattice_cases.hmms(tmp_path_factory.mktemp("hmms"))


def arrays(held, begin):
    scope = Scope()
    feed_lattices(scope, "n", held, begin)
    return {part: scope.numpy(lattice_variable("n", part)) for part, *_ in PARTS}


def expected(lattice, hmms, likelihoods, label, attrs):
    """Value, and gradient by x but for softmax, of one utterance: `(value, gamma, label)`."""
    given = {"acoustic": 14.0, "language": 14.0, "penalty": 0.0, "boost": 0.0, **attrs}
    value = likelihoods[np.arange(len(label)), label].sum() / given["acoustic"]
    if given.get("realign") and lattice.reference is not None:
        row, label = 0, label.copy()
        for phone, count in lattice.reference.tolist():
            part, of = likelihoods[row : row + count], hmms.transitions[phone]
            found = lattice_cases.best_path(part, hmms.states[phone], of)[1]
            label[row : row + len(found)] = found
            row += count
    logs, rights, tables = [], [], []
    quiet = hmms.numbers["sil"]
    for score, states, way in lattice_cases.paths(
        lattice, hmms, likelihoods, given["language"], given["penalty"]
    ):
        right, at = 0, 0
        for j in way:
            units = lattice.units[lattice.first[j] : lattice.first[j + 1]]
            frames = slice(at, at + int(units[:, 1].sum()))
            at = frames.stop
            if units[:, 0].tolist() != [quiet]:
                right += (np.array(states[frames]) == label[frames]).sum()
        logs.append(score / given["acoustic"] - given["boost"] * right)
        rights.append(right)
        tables.append(np.eye(likelihoods.shape[1])[states])
    whole = np.logaddexp.reduce(logs)
    share = np.exp(np.array(logs) - whole)
    if not given.get("risk"):
        return value - whole, np.einsum("p,pts->ts", share, tables), label
    mean = share @ rights
    slope = np.einsum("p,pts->ts", share * (np.array(rights) - mean), tables)
    return mean, slope / given["acoustic"], label


class TestLatticeCriterion(OpTest):
    halves = False  # scores of whole paths differ by more than halves resolve
    type = "cntk.lattice_criterion"
    resize = False  # the arrays of a lattice are parts of one

    @pytest.fixture(autouse=True)
    def _phones(self, hmms):
        self.hmms = hmms

    def lattices(self):
        rng = np.random.default_rng(3)
        first, second = (lattice_cases.lattice(rng, final_null=null) for null in (False, True))
        said = [(0, 2), (2, 3), (1, 0), (4, 2)]
        return [replace(first, reference=said), None, second]

    def cases(self, rng):
        held = self.lattices()
        begin = np.array([0, 7, 9, 16])
        for attrs in (
            {"acoustic": 2.0, "language": 1.5, "penalty": -0.3},
            {"acoustic": 1.0, "language": 2.0, "boost": 0.7, "smoothing": 0.6},
            {"acoustic": 3.0, "language": 1.0, "drop": 0.2, "smoothing": 1.0, "realign": True},
            {"acoustic": 2.0, "language": 1.0, "risk": True, "smoothing": 0.8},
            {"acoustic": 2.0, "language": 1.0, "risk": True, "realign": True, "boost": 0.1},
        ):
            inputs = {
                "label": np.eye(STATES)[rng.integers(STATES, size=16)],
                "x": rng.normal(size=(16, STATES)),
                "likelihoods": rng.normal(size=(16, STATES)),
            }
            yield Case({**inputs, **arrays(Lattices(self.hmms, held), begin)}, attrs)

    def reference(self, inputs, attrs):
        scores, slope, total = inputs["likelihoods"], np.zeros((16, STATES)), 0.0
        soft = np.exp(inputs["x"] - np.logaddexp.reduce(inputs["x"], 1, keepdims=True))
        weight = attrs["smoothing"]
        for lattice, rows in zip(self.lattices()[::2], (slice(0, 7), slice(9, 16)), strict=True):
            label = inputs["label"][rows].argmax(1)
            value, gamma, label = expected(lattice, self.hmms, scores[rows], label, attrs)
            total += value
            target = np.eye(STATES)[label]
            if attrs["risk"]:
                slope[rows] = (1 - weight) * (soft[rows] - target) - weight * gamma
                continue
            slope[rows] = weight * gamma + (1 - weight) * soft[rows] - target
            dropped = gamma[np.arange(7), label] < attrs["drop"]
            slope[rows][dropped] = 0
        return {"out": np.array([total]), "slope": slope}

    def test_the_slope_is_that_of_the_value(self):
        for case in self.cases(np.random.default_rng(5)):
            if case.attrs.get("realign"):
                continue
            attrs = {**case.attrs, "smoothing": 1.0, "drop": 0.0}
            by = 1 if attrs.get("risk") else attrs["acoustic"]
            inputs = {**case.inputs, "label": case.inputs["label"].copy()}
            found = self.output(Case(inputs, attrs), "float64")["slope"] / by
            towards = np.random.default_rng(6).normal(size=found.shape)
            step, values = 1e-6, []
            for sign in (1, -1):
                moved = inputs["likelihoods"] + sign * step * towards
                given = Case({**inputs, "likelihoods": moved}, attrs)
                values.append(float(self.output(given, "float64")["out"][0]))
            slope = (values[0] - values[1]) / (2 * step)
            if attrs.get("boost"):
                continue  # labels of the boosted paths are not among what moves
            assert -np.sum(found * towards) == pytest.approx(slope, rel=1e-5, abs=1e-7)

    def test_grad_names_what_there_is(self):
        case = next(self.cases(np.random.default_rng(0)))
        setup = self.setup(case, "float64")
        slope = np.random.default_rng(1).normal(size=case.inputs["x"].shape)
        found = setup.gradients({**setup.arrays, "slope": slope}, ("x",))
        assert np.allclose(found["x"], slope * setup.seed("out"))

    def test_scores_that_are_not_meant(self):
        case = next(self.cases(np.random.default_rng(0)))
        found = []
        for value in (-1e4, 0.0):
            lm = case.inputs["lm"].copy()
            lm[0] = value
            found.append(self.output(Case({**case.inputs, "lm": lm}))["out"])
        assert found[0] == found[1]

    def test_refuses(self):
        case = next(self.cases(np.random.default_rng(0)))
        states = np.where(case.inputs["states"] == 5, STATES, case.inputs["states"])
        for change, match in (
            ({"states": states}, r"not in 0 \.\. 5"),
            ({"nodes": case.inputs["nodes"] + 1}, "ends at row 17, the minibatch has 16"),
        ):
            with pytest.raises(RunError, match=match):
                self.output(Case({**case.inputs, **change}))


def test_no_path(hmms):
    held = Lattice([0, 2, 4], [[0, 1]], [0.0], [[4, 2]], [0, 1])
    inputs = {slot: np.ones((4, STATES)) for slot in ("label", "x", "likelihoods")}
    case = Case({**inputs, **arrays(Lattices(hmms, [held]), np.array([0, 4]))})
    with pytest.raises(RunError, match="no path leads through the lattice of utterance 0"):
        TestLatticeCriterion().output(case)


def test_best_states_of_phones(hmms):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(9, STATES))
    phones = np.array([0, 4, 0, 1, 4, 1, 2, 0])
    rows, frames = np.array([0, 3, 0, 9, 2, 1, 4, 2]), np.array([4, 1, 4, 0, 5, 2, 3, 1])
    found = align(scores, phones, rows, frames, hmms.states, hmms.transitions)
    at = 0
    for number, (phone, row, count) in enumerate(zip(phones, rows, frames, strict=True)):
        score, states = lattice_cases.best_path(
            scores[row : row + count], hmms.states[phone], hmms.transitions[phone]
        )
        assert found.scores[number] == pytest.approx(score)
        if np.isfinite(score):
            assert found.states[at : at + count].tolist() == list(states)
        at += count
    assert np.isneginf(found.scores[1])  # a chain of two states takes two frames


def test_numbers_of_cntk(hmms):
    data = io.BytesIO(lattice_cases.WRITTEN_BY_CNTK[2])
    held = read_lattice(data, "a.lats", 0, np.arange(len(hmms)), hmms.numbers["sp"])
    held = replace(held, reference=lattice_cases.REFERENCE)
    inputs = arrays(Lattices(hmms, [held]), np.array([0, 8]))
    scores = lattice_cases.LIKELIHOODS
    inputs |= {"likelihoods": scores, "x": 0 * scores, "label": np.eye(STATES)[[0] * 8]}
    attrs = {"acoustic": 2.0, "language": 1.3, "penalty": -0.2, "smoothing": 1.0, "drop": 0.0}
    found = TestLatticeCriterion().output(Case(inputs, {**attrs, "realign": True}), "float64")
    assert scores[:, 0].sum() / 2 - found["out"][0] == pytest.approx(lattice_cases.TOTAL, rel=1e-6)
    gamma = found["slope"] + np.eye(STATES)[lattice_cases.ALIGNED]
    assert gamma[5] == pytest.approx(lattice_cases.SHARES, abs=1e-6)
    assert gamma.min() >= 0 and gamma.sum(1) == pytest.approx(1)


def test_rounds_of_a_long_chain():
    edges = np.column_stack([np.arange(500), np.arange(1, 501)])[::-1]
    assert [part.tolist() for part in levels(edges, 501)] == [[n] for n in range(499, -1, -1)]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"times": [1, 2]}, "begin with 0"),
        ({"times": [0, 2, 1]}, "never fall"),
        ({"edges": [[0, 3]]}, "leaves its 3 nodes"),
        ({"edges": [[1, 1]]}, "later node"),
        ({"scores": [0.0, 1.0]}, "do not fit"),
        ({"scores": [np.nan]}, "not a number"),
        ({"units": [[1, 1]]}, "have 1 frames, the edge 2"),
        ({"first": [0, 2]}, "do not share its 1 units"),
        ({"first": [0]}, "do not fit 1 edges"),
        ({"reference": [[0, 3]]}, "do not have 4 frames"),
    ],
)
def test_bad_lattices(change, match):
    good = {"times": [0, 2, 4], "edges": [[0, 1]], "scores": [0.0], "units": [[1, 2]]}
    good["first"] = [0, 1]
    Lattice(**good)
    with pytest.raises(ShapeError, match=match):
        Lattice(**{**good, **change})


def test_lattices_of_states():
    times, edges = [0, 2, 2, 5], [(0, 1), (0, 2), (1, 2), (2, 3)]
    held = Lattice.of_states(times, edges, np.zeros(4), [3, 3, 3, 1, 1, 4, 4])
    assert held.first.tolist() == [0, 1, 3, 3, 5]
    assert held.units.tolist() == [[3, 2], [3, 1], [1, 1], [1, 1], [4, 2]]
    hmms, scores = Hmms.of_states(5), np.random.default_rng(0).normal(size=(5, 5))
    ((value, states, _),) = [p for p in lattice_cases.paths(held, hmms, scores) if len(p[2]) == 2]
    assert states == [3, 1, 1, 4, 4]
    assert value == pytest.approx(scores[np.arange(5), states].sum())
    with pytest.raises(ShapeError, match="have 7"):
        Lattice.of_states(times, edges, np.zeros(4), [3])


class TestHmms:
    def test_phones_of_the_same_states_are_one(self, hmms):
        assert hmms.names == ("sil", "sp", "x-a+b", "b", "b-c")
        assert hmms.numbers["a"] == hmms.numbers["x-a+b"] == 2
        assert hmms.states[1].tolist() == [5, -1]
        assert np.exp(hmms.transitions[1, 0]).tolist() == pytest.approx([0.4, 0, 0.6])
        assert np.exp(hmms.transitions[0, 2]).tolist() == pytest.approx([0.1, 0.5, 0.4])

    @pytest.mark.parametrize(
        ("phones", "transitions", "why"),
        [
            ("a T_one b_2\na T_one b_2", None, "tying:2: the phone 'a' is there already"),
            ("a T_none b_2", None, "tying:1: there are no transitions 'T_none'"),
            ("a T_one b_9", None, "tying:1: there is no state 'b_9'"),
            ("a T_two b_2", None, "tying:1: 1 states; the transitions 'T_two' have 2"),
            ("a T_one", None, "tying:1: a phone, its transitions and states"),
            ("", None, "there are no phones"),
            (None, "T 1 .5 .5 .5", "transprob:1: 3 probabilities"),
            (None, "T x", "transprob:1: a name, a number of states"),
            (None, "T 1 1 2 1 1", "transprob:1: a probability is at most 1, not 2"),
        ],
    )
    def test_wrong_files(self, tmp_path, phones, transitions, why):
        lattice_cases.hmms(tmp_path)
        if phones is not None:
            (tmp_path / "tying").write_text(phones)
        if transitions is not None:
            (tmp_path / "transprob").write_text(transitions)
        with pytest.raises(FormatError, match=why):
            Hmms.read(tmp_path / "tying", tmp_path / "transprob", lattice_cases.STATES)


def sequence_net(hmms):
    """A network with the criterion, and a minibatch of three sequences, one without lattice."""
    rng = np.random.default_rng(2)
    network = Network("test")
    network.precision = "double"
    x = network.add("InputValue", "x", attributes={"shape": 3})
    label = network.add("InputValue", "label", attributes={"shape": STATES})
    given = {"shape": (STATES, 3), "init": "uniform", "initValueScale": 20}
    weights = network.add("LearnableParameter", "W", attributes=given)
    outputs = network.add("Times", "outputs", [weights, x])
    network.add("SequenceWithSoftmax", "criterion", [label, outputs, outputs])
    network.validate()
    held = [lattice_cases.lattice(rng), None, lattice_cases.lattice(rng, frames=8)]
    lengths = np.array([7, 2, 8])
    begin, rows = np.append(0, np.cumsum(lengths)), int(lengths.sum())
    streams = {
        "x": rng.normal(size=(rows, 3)),
        "label": np.eye(STATES)[rng.integers(STATES, size=rows)],
    }
    samples = {name: Samples(begin, values) for name, values in streams.items()}
    layouts = dict.fromkeys(samples, packed(lengths))
    batch = Minibatch(samples, layouts, np.zeros((3, 2)), lattices=Lattices(hmms, held))
    return CntkNet(network), batch


def test_in_a_network(hmms):
    net, batch = sequence_net(hmms)
    value = net.forward_backward(batch, "criterion")["criterion"]
    scores = batch.streams["x"].values @ net.get("W").T
    label, total = batch.streams["label"].values.argmax(1), 0.0
    for lattice, rows in zip(batch.lattices.items[::2], (slice(0, 7), slice(9, 17)), strict=True):
        total += expected(lattice, hmms, scores[rows], label[rows], {})[0]
    assert value == pytest.approx(total)
    net.set("W", net.get("W") - 1e-3 * net.gradient("W"))
    after = net.forward(batch, ["criterion"])["criterion"].scalar
    assert after > value


def test_parts_of_a_minibatch_take_their_lattices(hmms):
    net, batch = sequence_net(hmms)
    whole = net.forward(batch, ["criterion"])["criterion"].scalar
    pieces = sub_minibatches(batch, 2)
    assert [len(part.lattices.items) for part in pieces] == [1, 2]
    found = [net.forward(part, ["criterion"])["criterion"].scalar for part in pieces]
    assert sum(found) == pytest.approx(whole)


def test_what_does_not_fit_the_minibatch(hmms):
    net, batch = sequence_net(hmms)
    items = list(batch.lattices.items)
    for wrong, match in (
        (None, "criterion.*no lattices"),
        (Lattices(hmms, items[:2]), "2 lattices; 3 sequences"),
        (Lattices(hmms, items[::-1]), "sequence 0 has 8 frames, the sequence 7"),
        (Lattices(Hmms.of_states(1), items), "a phone that is not below 1"),
    ):
        batch.lattices = wrong
        with pytest.raises(OpscopeError, match=match):
            net.forward(batch, ["criterion"])


def test_options_of_sgd(hmms):
    net, batch = sequence_net(hmms)
    before = net.forward(batch, ["criterion"])["criterion"].scalar
    text = "maxEpochs=1\nlearningRatesPerSample=0.1\nseqGammarAMF=2\nhSmoothingWeight=0.5\n"
    options = SgdOptions.of(parse_config(f"{text}seqGammarUsesMBR=true\ndoReferenceAlign=true"))
    said = [item and replace(item, reference=[(0, item.frames)]) for item in batch.lattices.items]
    batch.lattices = Lattices(hmms, said)
    node, log = net.network.find("criterion"), []
    schedules = Schedules(net, node, options, log.append)
    assert (node.attributes["seqGammarAMF"], node.attributes["hSmoothingWeight"]) == (2, 0.5)
    assert node.attributes["seqGammarUsesMBR"] is node.attributes["doReferenceAlign"] is True
    schedules.set(0)
    schedules.set(0)
    assert "".join(log) == (
        "Setting Hsmoothing weight to 0.5 and frame-dropping threshhold to 1e-10\n"
        "Setting SeqGammar-related parameters:"
        " amf=2.00, lmf=14.00, wp=0.00, bMMIFactor=0.00, usesMBR=true\n"
    )
    after = net.forward(batch, ["criterion"])["criterion"].scalar
    assert 0 <= after <= 15 and after != before
