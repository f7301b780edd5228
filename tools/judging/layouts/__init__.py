"""Inputs in other memory layouts than the problem gives them: which are drawn, and what a candidate makes of them.

Layouts of outputs do not belong here (tools/comparing/).
"""
