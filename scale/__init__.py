"""Work on many machines: jobs, recipes, the scoring of corpora, planning for many ranks.

Rooms, in their order: jobs, recipe, score, planning. May import all floors but python_api.
"""
