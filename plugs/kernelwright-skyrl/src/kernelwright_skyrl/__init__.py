"""Kernelwright's judge as a SkyRL-Gym environment. Importing this package registers the environment `kernelwright`."""

from skyrl_gym.envs import register

from kernelwright_skyrl.environment import KernelEnv, Unscored, rows

__all__ = ["ENVIRONMENT", "KernelEnv", "Unscored", "rows"]

ENVIRONMENT = "kernelwright"

register(id=ENVIRONMENT, entry_point="kernelwright_skyrl.environment:KernelEnv")
