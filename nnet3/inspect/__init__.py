"""What the compiler makes of a request, stage by stage, as one object that can be printed.

Gives `compile` and `CompiledRequest`; each stage prints itself in words with ranges (`str`) and in
Kaldi's notation (`to_kaldi`). May import every room that compiles.
"""
