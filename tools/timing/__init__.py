"""The clock of record: candidate and reference timed alike on one GPU, in turns.

The candidate's calls run in its replayer process (tools/replaying/gpu/timing.py).
"""
