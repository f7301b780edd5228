"""A judge's problems as a data set for GRPOTrainer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kernelwright_client import JudgeClient

if TYPE_CHECKING:
    from datasets import Dataset


def kernel_dataset(judge: JudgeClient | None = None, names: Iterable[str] | None = None) -> Dataset:
    """Rows with `prompt` (a chat) and `problem`; of the problems named, or of all that the judge has.

    Raises JudgeError where the judge has no problem of that name, or cannot be reached.
    """
    from datasets import Dataset

    return Dataset.from_list([task.row() for task in (judge or JudgeClient()).tasks(names)])
