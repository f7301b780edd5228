"""What a reference chooses among values of which several are equal, or as good as equal. Comparing numbers against a
tolerance does not belong here.
"""
