"""What surrounds a candidate's calls, drawn anew: state of the process and of the module, and the form of inputs.

What is judged of it belongs to tools/judging. Runs in a candidate's process.
"""
