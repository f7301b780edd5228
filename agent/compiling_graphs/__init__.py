"""The backend of torch.compile that runs judged kernels of a database, and Inductor for all other graphs.

Solving graphs belongs to agent/batch.
"""
