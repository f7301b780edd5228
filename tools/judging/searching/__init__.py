"""What is searched for after a candidate was right on all ordinary draws: outcomes of its kernels' comparisons that
none of them produced. How outcomes are noted belongs to tools/replaying/interpreter/comparisons.
"""
