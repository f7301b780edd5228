"""A candidate's numbers against the reference's: form, tolerance, and how a wrong output lies. Nothing here runs a
candidate.
"""
