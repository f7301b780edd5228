"""Checks the names of logs, policies and problems in the half second before torch is imported."""

from __future__ import annotations

from kernelwright.agent.runtime.databases import open_store
from kernelwright.policies.model_identity import adapter_folder, model_config
from kernelwright.rl.training.online.options import LoopOptions, OnlineOptions
from kernelwright.rl.training.online.problem_source import ProblemSource
from kernelwright.rl.training.options import LogOptions, TrainOptions
from kernelwright.rl.training.plan import refuse_empty
from kernelwright.rl.training.subject import path_of
from kernelwright.store.database import Store


def check_log(options: LogOptions) -> None:
    """Reads the log before any heavy import. Raises InputError, PolicyRefused, StoreError."""
    with Store.open(options.db, create=False, readonly=True) as store:
        refuse_empty(store, options)
    _look_at_policy(options)


def check_problems(options: OnlineOptions) -> None:
    """Checks the problems before any heavy import. Raises InputError, PolicyRefused,
    ProblemError, StoreError.
    """
    ProblemSource(options.problems, options.seed, options.against)
    _look_at_policy(options)
    with open_store(options.db):
        """It can be written."""


def check_loop(options: LoopOptions) -> None:
    """Checks a loop's folder and problems before any heavy import.

    Raises InputError if the folder holds a loop with other settings; otherwise as
    `check_problems`.
    """
    from kernelwright.rl.training.online.loop_folder import refuse_other_loop

    refuse_other_loop(options)
    check_problems(options)


def _look_at_policy(options: TrainOptions) -> None:
    model_config(path_of(options.policy))
    if options.adapter is not None:
        adapter_folder(options.adapter)
