"""Runs a reference once in a process that can be ended, before anything is asked of a policy. Not here: what the judge
expects of a candidate (tools/references).
"""
