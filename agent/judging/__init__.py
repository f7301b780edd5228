"""Judges outside this process, behind one seam: `JudgePool` (pool.py).

Belongs here: the seam, its local implementation (a judge process for each GPU or CPU slot), its implementation on Ray,
and what makes an evaluator of a pool. Does not belong here: what a verdict is (tools/), who asks for it over HTTP
(agent/serving/), and the lanes of a batch (agent/batch/).
"""
