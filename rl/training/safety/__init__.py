"""What keeps a training honest: the judge's own examination, alarms that stop a run, and what a person should look
at.
"""
