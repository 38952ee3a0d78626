"""One self-contained HTML page to look at a net: `view(net_or_path)` and `Page`.

A file or object becomes an op list with values (`opening`), that a `NetGraph` (`graph`), which is
laid out and written into the page. May import framework, nnet3 and cntk.
"""
