"""Checks inputs in other memory layouts than the problem's: layouts drawn, and the candidate's
answers.

Layouts of outputs are checked in tools/comparing/.
"""
