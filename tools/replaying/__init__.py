"""Executes traces on real tensors, in a sandboxed process of its own: on a CPU under Triton's interpreter, on a GPU
with compiled kernels (docs/explanation/trust.md).

`replayer` is the judge's side, `service` the process's. The code here is trusted; the traces and the kernels are not.
Nothing here compares or decides.
"""
