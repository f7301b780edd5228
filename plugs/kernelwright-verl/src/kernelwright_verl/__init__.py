"""Kernelwright's verdicts in verl: `compute_score` for `custom_reward_function`, rows for its data sets, and the
advantage estimator `kernel_grpo` (in `kernelwright_verl.advantage`, which imports verl).
"""

from kernelwright_verl.scoring import Unscored, compute_score, rows

__all__ = ["Unscored", "compute_score", "rows"]
