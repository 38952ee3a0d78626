"""CNTK's networks, configs and readers, lowered to op lists.

Names are looked up on first use (PEP 562). Rooms, in their order: base, config, lattices, network,
operators, lower, readers, models, ndl, mel, brainscript, run, sgd, actions, programs. A room
imports from those before it. May import operators and below.
"""

from ..framework.base.python.lazy_names import lazy_names

_HOMES = {
    # models: open, evaluate, save
    "load_model": ".run.model",
    "open_model": ".models.open_model",
    "write_model": ".models.v1",
    "dump": ".models.dump",
    "CntkNet": ".run.runtime",
    "NodeValue": ".run.values",
    # networks: look at, build, edit
    "Network": ".network.network",
    "Node": ".network.nodes.node",
    "describe": ".network.describe",
    "build_network": ".brainscript.build",
    "build_ndl_file": ".ndl.builder",
    "build_section_network": ".run.build",
    **dict.fromkeys(("Session", "parse_mel", "parse_mel_file", "run_script"), ".mel"),
    # configs: read, check, run
    **dict.fromkeys(
        ("ConfigParameters", "load_config", "parse_config", "parse_command_line"), ".config"
    ),
    "evaluate_text": ".brainscript.build",
    "load_experiment": ".brainscript.experiment",
    "check_file": ".programs.check",
    "run_config": ".actions.command_line",
    "Run": ".actions.common",
    "add_action": ".actions.run",
    # data: readers, writers, minibatches
    **dict.fromkeys(("create_reader", "create_writer", "create_deserializer"), ".readers.catalog"),
    "DataReader": ".readers.base.reader",
    "DataWriter": ".readers.base.writer",
    **dict.fromkeys(("Deserializer", "Samples", "Stream"), ".readers.base.data"),
    "Minibatch": ".readers.base.pack",
    "minibatch_of": ".run.values",
    "Layout": ".readers.base.layout",
    **dict.fromkeys(("Hmms", "Lattice", "LatticeArchive", "Lattices"), ".lattices"),
    # training and evaluation over data
    **dict.fromkeys(("AutoAdjust", "SgdOptions"), ".sgd.options"),
    "Trainer": ".sgd.trainer",
    "ModelFiles": ".sgd.files",
    "Evaluator": ".sgd.evaluate",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = lazy_names(__name__, globals(), _HOMES)
