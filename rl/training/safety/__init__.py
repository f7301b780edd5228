"""Safety of a training: the examination of the judge, alarms that stop a run, and candidates that a person should look
at.
"""
