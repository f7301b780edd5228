"""Decisions by site over the compiler's draft: the plan, the registry, and where they are taken.

Belongs here: the decisions, their sites, and the change of each choice. Does not belong here: the lowerings themselves,
and the judging or timing of drafts.
"""
