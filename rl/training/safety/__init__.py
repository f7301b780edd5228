"""Safety of a training: the examination of the judge, alarms that stop a run, and suspects for a
person to inspect.
"""
