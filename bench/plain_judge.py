"""A local judge process at the priority of who began it, as a Ray actor is; `agent` gives its own a lower one on a CPU,
and on a busy machine that decides more than what a comparison (bench.ray_kills) is after.
"""

from __future__ import annotations

from kernelwright.agent.judging import judge_process

if __name__ == "__main__":
    judge_process.lower_session = lambda niceness: None
    judge_process.main()
