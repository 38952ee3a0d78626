"""Texts of the redesigned language, read for tests."""

from __future__ import annotations

from opscope.cntk.base.text import Source
from opscope.cntk.brainscript.build import TYPES, evaluate
from opscope.cntk.brainscript.experiment import read_experiment
from opscope.cntk.brainscript.language.parser import parse_expression
from opscope.cntk.brainscript.library import REDESIGNED
from opscope.cntk.brainscript.redesign.objects import REDESIGNED_TYPES
from opscope.cntk.brainscript.values import Session


def value(text):
    """The value of an expression of the redesigned language."""
    session = Session({**TYPES, **REDESIGNED_TYPES}, redesigned=True)
    return evaluate(parse_expression(Source("t", text)), session, {}, "", REDESIGNED)


def read(text, overrides=None, folders=()):
    """(the experiment of a text, the warnings)."""
    told = []
    return read_experiment(Source("train.bs", text), overrides, folders, told.append), told


def sgd(experiment):
    return experiment.actions[0].config.section("SGD")
