"""xconfig: layers instead of components, turned into nnet3's config files.

Gives `xconfig_to_config`, a function from text to text. May import language; its check, network.
"""

from .configs import Configs, layer_types, xconfig_to_config, xconfig_to_configs

__all__ = ["Configs", "layer_types", "xconfig_to_config", "xconfig_to_configs"]
