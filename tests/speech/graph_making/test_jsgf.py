"""JSGF: sentences and how likely they are."""

from __future__ import annotations

import math

import pytest

from fst_relations import relation
from opscope.framework.base.errors import FormatError
from opscope.kaldi.fst.algorithms.determinize_star import determinize_star
from opscope.speech.graph_making.jsgf import read_jsgf

WORDS = {word: number for number, word in enumerate("on off the light please red two".split(), 1)}


def label_of(word, place):
    if word not in WORDS:
        raise FormatError(f"{place}: no {word}")
    return WORDS[word]


def sentences(text, steps=8):
    """The probability of each sentence of up to so many words."""
    fst = determinize_star(read_jsgf(text, "g.jsgf", label_of), log=True)
    names = {number: word for word, number in WORDS.items()}
    found = relation(fst, log=True, steps=steps)
    return {
        " ".join(names[label] for label in labels): math.exp(-weight)
        for (labels, _), weight in found.items()
    }


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ("public <a> = on | off;", {"on": 0.5, "off": 0.5}),
        ("public <a> = /3/ on | /1/ off light;", {"on": 0.75, "off light": 0.25}),
        ("public <a> = [please] (on | off);", dict.fromkeys(
            ["please on", "please off", "on", "off"], 0.25)),
        ("<b> = red | two; public <a> = <b> on <b>;", dict.fromkeys(
            ["red on red", "red on two", "two on red", "two on two"], 0.25)),
        ("<a> = on; <b> = off;", {"on": 1.0}),  # none is public: the first one
        ("public <a> = on; public <b> = <a> off;", {"on": 0.5, "on off": 0.5}),
        ('public <a> = "the light" {tag; = } on; // a comment', {"the light on": 1.0}),
        ("public <a> = on /* off */ | <NULL> off;", {"on": 0.5, "off": 0.5}),
        ("public <a> = on | on;", {"on": 1.0}),
    ],
)  # fmt: skip
def test_sentences(rules, wanted):
    text = f"#JSGF V1.0 UTF-8 en;\ngrammar lights;\n{rules}\n"
    assert sentences(text) == pytest.approx(wanted, abs=1e-3)


def test_repetitions():
    found = sentences("public <a> = on* off;", steps=4)
    assert found == pytest.approx(
        {"off": 1 / 2, "on off": 1 / 4, "on on off": 1 / 8, "on on on off": 1 / 16}, abs=1e-3
    )
    found = sentences("public <a> = (on)+;", steps=3)
    assert found == pytest.approx({"on": 1 / 2, "on on": 1 / 4, "on on on": 1 / 8}, abs=1e-3)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ("public <a> = on | blue;", "line 1: no blue"),
        ("public <a> =\non <b>;", "line 2: there is no rule '<b>'"),
        ("public <a> = on <a>;", "contains itself"),
        ("<b> = <a>; <a> = <b>;", "contains itself"),
        ("public <a> = on", "line 1: no ';' ends"),
        ("public <a> = (on;", "line 1: ; was not expected"),
        ("public <a> = on);", "line 1: ) was not expected"),
        ("public <a> = on | ;", "line 1: an alternative is empty"),
        ("public <a> = * on;", "line 1: nothing stands before *"),
        ("public <a> = on /2/ off;", "line 1: a weight"),
        ("public <a> = /0/ on;", "line 1: a weight"),
        ("<a> = on; <a> = off;", "the rule <a> comes twice"),
        ("import <x.y>;", "a rule, <name> = ...;"),
        ("grammar x;", "there is no rule in it"),
        ("public <a> = on }", "line 1: '}' cannot be read"),
    ],
)
def test_mistakes(rules, told):
    with pytest.raises(FormatError, match="g.jsgf: ") as error:
        read_jsgf(rules, "g.jsgf", label_of)
    assert told in str(error.value)
