"""BrainScript, CNTK's language for networks: parsed at once, evaluated lazily.

tokens, parser, printer   text to the parse tree of `syntax`, and back
formatter                 a uniform layout of the user's own text
compiler, operators       the parse tree to values, computed when they are needed
edits                     changes of records: `a + b`, `a.b.c = x`, `a = delete`
values, failures          records, arrays, functions; settings of one evaluation; its errors
functions, nodes,         the classes that `new` makes
node_functions, networks
library/*.bs              the standard library: layers, operations, `BS`
build                     the entry: `build_section`, `build_network`, `evaluate_text`
redesign/*, experiment    files whose top level is `new CNTK [ ... ]`

Gives networks and experiments to run, actions and programs. May import config, models and network.
"""
