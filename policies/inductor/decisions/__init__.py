"""Decisions by site over the compiler's draft: the plan, the registry, and where they are taken.

Belongs here: what may be decided, where, and what each choice changes. Does not belong here: the lowerings themselves,
and the judging or timing of drafts.
"""
