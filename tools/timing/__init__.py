"""Clock of record: times candidate and reference alike on a GPU, in alternating blocks.

The candidate's calls run in its replayer process (tools/replaying/gpu/timing.py).
"""
