"""Functions of torch written with operators that take symbols for sizes, which replace torch's own in the process that
drafts. What is traced with them, and how, is no concern of theirs.
"""
