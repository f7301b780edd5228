"""Changes the surroundings of a candidate's calls: state of the process and of the module, and the
form of inputs.

Runs in a candidate's process; tools/judging judges the results.
"""
