"""One program of an interpreted kernel recorded, and the others replayed from the record: what Python does between two
operations of Triton's builder is done once. No check and no operation that touches memory lies here.
"""
