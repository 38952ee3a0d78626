"""A sample plug-in of opscope."""
