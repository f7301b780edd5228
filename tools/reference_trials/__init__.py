"""What is tried before a verdict: a reference once, in a process that can be ended; the mode in which it is judged; the
sizes that a candidate takes. Not here: what the judge expects of a candidate (tools/references).
"""
