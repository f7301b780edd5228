"""Judges in other processes, behind one interface: `JudgePool` (pool.py).

Belongs here: the interface, its implementation on this machine (a judge process for each GPU or CPU
slot), its implementation on Ray, and the adapter that makes a pool an evaluator. Does not belong
here: the making of a verdict (tools/), the HTTP service (agent/serving/), the runs of a batch
(agent/batch/).
"""
