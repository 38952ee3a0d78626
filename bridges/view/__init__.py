"""One self-contained HTML page to look at a net: `view(net_or_path)` and `Page`.

The op list of a model becomes a `NetGraph` (`graph`), which is laid out and written into the page.
May import framework, nnet3, cntk and the room model.
"""
