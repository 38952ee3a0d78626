"""Best paths and determinization of the lattices of a search; lattices of given log-likelihoods."""

from __future__ import annotations

import numpy as np
import pytest

from kaldi_models import call_main, done
from opscope.kaldi.lattices.lattice import CompactLattice, joined
from opscope.kaldi.tables.tables import TableWriter, read_table
from speech_decoding import write_decoding
from speech_lattices import paths

OFFLINE = "nnet3-latgen-faster"
GIVEN = "--acoustic-scale=1.0", "--lattice-beam=1", "--ivectors=ark:ivectors.ark"
FILES = "final.mdl", "HCLG.fst", "ark:feats.ark"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_decoding()


def table(name: str, kind: str = "compact_lattice") -> dict[str, CompactLattice]:
    return dict(read_table(f"ark:{name}", kind))


def assert_same(ours: CompactLattice, theirs: CompactLattice) -> None:
    mine, wanted = paths(ours), paths(theirs)
    assert mine.keys() == wanted.keys()
    for path, costs in wanted.items():
        np.testing.assert_allclose(mine[path], costs, atol=2e-3)


def test_determinized_lattices_are_those_of_decoding():
    done(call_main(OFFLINE, *GIVEN, *FILES, "ark:o.lat", "ark,t:words", "ark,t:ids"))
    done(call_main(OFFLINE, *GIVEN, "--determinize-lattice=false", *FILES, "ark:raw.lat"))
    program = "lattice-determinize-phone-pruned", "--beam=1", "final.mdl", "ark:raw.lat"
    done(call_main(*program, "ark:p.lat"), "Done 3 lattices, determinization finished")
    plain = "--write-compact=false", *program[1:]
    done(call_main(program[0], *plain, "ark:f.lat"))
    other = "lattice-determinize-non-compact", "--prune=true", "--beam=1", "ark:raw.lat"
    done(call_main(*other, "ark:n.lat"), "Done 3 lattices, errors on 0")
    done(call_main(other[0], "--minimize=true", *other[1:], "ark:m.lat"))
    tables = [table(f"{name}.lat", "lattice") for name in ("f", "n", "m")]
    found = table("p.lat")
    costs: dict[tuple[int, int], set[float]] = {}
    for key, lattice in table("o.lat").items():
        assert_same(found[key], lattice)
        for each in tables:
            assert all(len(arc.weight.ids) < 2 for group in each[key].arcs for arc in group)
            assert_same(joined(each[key]), lattice)
    # in the plain ones the cost of a frame is that of its transition-id, on every path
    for lattice in tables[0].values():
        costs.clear()
        frames = [0] * lattice.states
        for state, group in enumerate(lattice.arcs):
            for arc in group:
                frames[arc.target] = frames[state] + len(arc.weight.ids)
                if arc.weight.ids:
                    place = frames[state], arc.weight.ids[0]
                    costs.setdefault(place, set()).add(arc.weight.acoustic)
        assert costs and all(len(each) == 1 for each in costs.values())
    done(
        call_main("lattice-best-path", "ark:o.lat", "ark,t:w", "ark,t:i"),
        "For utterance a, best cost",
        "Done 3 lattices, failed for 0",
    )
    for ours, theirs in (("w", "words"), ("i", "ids")):
        tables = [dict(read_table(f"ark:{name}", "int_vector")) for name in (ours, theirs)]
        assert tables[0].keys() == tables[1].keys()
        assert all(np.array_equal(tables[0][key], tables[1][key]) for key in tables[0])
    code, _, err = call_main(*program[:2], "final.mdl", "ark:o.lat", "ark:x.lat")
    assert code == 0, err
    code, _, err = call_main(program[0], *plain[:2], "final.mdl", "ark:o.lat", "ark:x.lat")
    assert code == 1 and "the lattice was determinized before" in err
    code, _, err = call_main(*other[:1], "--acoustic-scale=0", "ark:raw.lat", "ark:x.lat")
    assert code == 1 and "Do not use a zero acoustic scale" in err


def test_costs_are_scaled():
    done(call_main(OFFLINE, *GIVEN, *FILES, "ark:o.lat"))
    options = "--lm-scale=2", "--acoustic2lm-scale=0.5", "--lm2acoustic-scale=-1"
    done(call_main("lattice-scale", *options, "--inv-acoustic-scale=4", "ark:o.lat", "ark:s.lat"))
    factors = np.array([[2, 0.5], [-1, 0.25]])
    for key, lattice in table("o.lat").items():
        found = paths(table("s.lat")[key])
        for path, costs in paths(lattice).items():
            np.testing.assert_allclose(found[path], factors @ costs, atol=2e-3)
    code, _, err = call_main(
        "lattice-scale", "--acoustic-scale=2", "--inv-acoustic-scale=4", "ark:o.lat", "ark:x"
    )
    assert code == 1 and "say the same: give one" in err


@pytest.mark.parametrize("ending", ["", "-parallel"])
def test_log_likelihoods_that_are_given(ending):
    done(call_main(OFFLINE, *GIVEN, *FILES, "ark:o.lat"))
    compute = "nnet3-compute", "--use-priors=true", GIVEN[-1], "final.mdl"
    done(call_main(*compute, "ark:feats.ark", "ark:logs.ark"))
    threads = ("--num-threads=2",) if ending else ()
    program = f"latgen-faster-mapped{ending}", *GIVEN[:2], *threads
    files = "final.mdl", "HCLG.fst", "ark:logs.ark"
    done(call_main(*program, *files, "ark:m.lat"), "Done 3 utterances, failed for 0")
    for key, lattice in table("o.lat").items():
        assert_same(table("m.lat")[key], lattice)
    with TableWriter("ark:logs.ark", "matrix") as writer:
        writer.write("a", np.zeros((3, 3), np.float32))
    code, _, err = call_main(*program, *files, "ark:x.lat")
    assert code == 1 and "a: log-likelihoods of shape (3, 3): [frames, 4] is wanted" in err
