"""The redesigned top level: `new CNTK [ ... ]` and the classes in it.

classes    the tables of classes: members, types, defaults, meaning
members    what an object reads from its record and the scopes around
objects    the constructors
sections   objects as sections of the old language
unread     members that nothing reads
"""
