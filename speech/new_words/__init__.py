"""Words that users add to models: `adapt`, `known_pronunciations`, and their commands.

May import `recognize` and the rooms before it.
"""
