"""Node kinds and actions of other packages."""

from importlib.metadata import EntryPoint

import pytest

from opscope.cntk.actions import run
from opscope.cntk.network import catalogue
from opscope.cntk.network.nodes.kind import KINDS
from opscope.framework.base.errors import OpscopeError


def test_entry_points_are_loaded_when_a_node_is_unknown(tmp_path, monkeypatch):
    (tmp_path / "my_nodes.py").write_text(
        "from opscope.cntk.network.nodes import rules\n"
        "from opscope.cntk.network.nodes.kind import register\n"
        "from opscope.cntk.network.nodes.node import Kind\n"
        "register(Kind('MyNode', (1, 1), rules.unary))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("mine", "my_nodes", catalogue.GROUP)
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [point])
    catalogue.load_plugins.cache_clear()
    try:
        assert catalogue.kind("MyNode").inputs == (1, 1)
    finally:
        KINDS.pop("MyNode", None)
        catalogue.load_plugins.cache_clear()


def test_an_action_is_added_once():
    run.add_action("my_action", print)
    try:
        with pytest.raises(OpscopeError, match="'my_action' already"):
            run.add_action("my_action", print)
    finally:
        run.ACTIONS.pop("my_action", None)
        run.added.discard("my_action")
