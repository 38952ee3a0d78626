"""Component types of other packages."""

from importlib.metadata import EntryPoint

from opscope.nnet3.components import COMPONENTS, new_component
from opscope.nnet3.components.base import component as component_module


def test_entry_points_are_loaded_when_a_type_is_unknown(tmp_path, monkeypatch):
    (tmp_path / "my_components.py").write_text(
        "from opscope.nnet3.components.base.component import Component\n"
        "class MyOwnComponent(Component):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("mine", "my_components", component_module.PLUGINS)
    monkeypatch.setattr(component_module, "entry_points", lambda group: [point])
    component_module.load_plugins.cache_clear()
    try:
        assert new_component("MyOwnComponent").type == "MyOwnComponent"
    finally:
        COMPONENTS.pop("MyOwnComponent", None)
        component_module.load_plugins.cache_clear()
