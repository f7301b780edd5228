"""One program of an interpreted kernel recorded, and the others replayed from the record: what Python does between two
operations of Triton's builder is done once, and where programs do not meet in memory each operation is done once for
many of them. No check lies here but that of whether they meet.
"""
