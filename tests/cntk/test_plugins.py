"""Node kinds and actions of other packages."""

from importlib.metadata import EntryPoint

import pytest

from opscope.cntk.actions.run import PLUGINS, add_action
from opscope.cntk.network import catalogue
from opscope.cntk.network.nodes.kind import unregister
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
        unregister("MyNode")
        catalogue.load_plugins.cache_clear()


def test_an_action_is_added_once():
    add_action("my_action", print)
    try:
        with pytest.raises(OpscopeError, match="'my_action' is there already"):
            add_action("my_action", print)
    finally:
        PLUGINS.remove("my_action")
    with pytest.raises(OpscopeError, match="'train' is there already"):
        add_action("train", print)
