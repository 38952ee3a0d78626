"""Learners that are plugged in: their attributes, from the section of their name.

SGD = [ gradUpdateType = Lion ; Lion = [ beta = 0.98 ] ; ... ]
"""

from __future__ import annotations

from typing import Any

from ...framework.base.errors import AttributeTypeError, nearest
from ...framework.ir.schema import REQUIRED, AttrSpec
from ..config.parameters import ConfigParameters
from ..operators.updates.learning import GRADIENT_UPDATES, PLUGINS, find_learner

_SCALARS = ("float", "int", "bool", "string")


def plugged_attributes(section: ConfigParameters, name: str) -> dict[str, Any]:
    """The attributes of the learner that `gradUpdateType` of an SGD section names.

    Raises:
        FormatError: there is no such learner; or an attribute is unknown, missing or wrong.
    """
    value = section["gradUpdateType"]
    learner = find_learner(name)
    if learner is None:
        brought = [one for one in PLUGINS.names() if one not in GRADIENT_UPDATES]
        known = ["none", "adagrad", "rmsProp", "fsAdagrad", *brought]
        raise value.error(
            f"Invalid Gradient Updating Type. Valid values are ({' | '.join(known)})"
            f", not {str(value)[:40]!r}{nearest(str(value), known)}"
        )
    for other in ("useAdagrad", "useNAG"):
        if section.bool(other, False):
            raise section[other].error(f"{other} is about CNTK's learners, not {str(value)!r}")
    part = section.section(str(value)) if section.has(str(value)) else ConfigParameters("")
    given = {attr.name.lower(): attr for attr in learner.attrs}
    for key in part.names():
        if key.lower() not in given and part.has(key):
            hint = nearest(key, [attr.name for attr in learner.attrs])
            raise part[key].error(f"the learner {str(value)!r} has no attribute {key!r}{hint}")
    return {
        attr.name: _value(part, attr)
        for attr in learner.attrs
        if part.has(attr.name) or attr.default is REQUIRED
    }


def _value(part: ConfigParameters, attr: AttrSpec) -> Any:
    if attr.type not in _SCALARS:
        raise part[attr.name].error(f"{attr.name} is no number and no text: it cannot be given")
    try:
        return attr.check(getattr(part, attr.type)(attr.name), part.path)
    except AttributeTypeError as error:
        raise part[attr.name].error(str(error)) from None
