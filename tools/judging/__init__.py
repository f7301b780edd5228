"""Judges candidates, in the trusted process only: examines sizes and draws, compares answers,
attributes work, decides the verdict.

A candidate's code never runs here. The reference's own source does: the user wrote and trusts it.
tools/replaying runs kernels, tools/tracing reads host code, tools/timing holds the clock.

    front.py         traces and compiles a candidate
    judge.py         the judge of a device: prepared problems, expected outputs, memory
    verdict.py       order of sizes, and the result; examination.py: the checks at a size
    size_checks.py   comparison of a call's outputs; calls.py: the replayed call itself
    own_work.py      computation by the candidate's kernels or by torch
"""
