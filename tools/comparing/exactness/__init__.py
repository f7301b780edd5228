"""How exactly an output is asked for: which outputs the reference's operators round, which steps they take on rounded
values, and how often and in which direction a candidate rounds otherwise. Forms, layouts and memory do not belong here.
"""
