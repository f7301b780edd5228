"""The folder of a loop: its identity, the record of its cycles, and the last promoted policy.

Imports nothing heavy, so a loop with other settings is refused before a model is loaded.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.training.checkpoints import SETTINGS_FILE
from kernelwright.rl.training.online.measuring import HeldOutFigures, PolicyComparison
from kernelwright.rl.training.online.options import LoopOptions

POLICY, RECORD = "policy", "loop.jsonl"


class Cycle(Value):
    """The result of a cycle."""

    cycle: int
    policy: str
    """The policy at the start of the cycle."""
    candidate: str
    measured: tuple[HeldOutFigures, ...]
    compared: tuple[PolicyComparison, ...]
    promoted: bool
    why: str
    seconds: float


def refuse_other_loop(options: LoopOptions) -> None:
    """Raises InputError if the folder holds a loop with other settings. Writes nothing."""
    note = options.output / SETTINGS_FILE
    stored = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else None
    is_other = (
        stored["identity"] != options.loop_identity if stored else bool(read_record(options.output))
    )
    if is_other:
        raise InputError(
            f"{options.output} holds a loop with other settings: give those again, or choose another --out"
        )


def begin(options: LoopOptions) -> list[Cycle]:
    """Makes the folder, or continues in it, and returns the finished cycles. Raises InputError if
    the folder holds another loop.
    """
    refuse_other_loop(options)
    options.output.mkdir(parents=True, exist_ok=True)
    note = options.output / SETTINGS_FILE
    if not note.is_file():
        facts = {"identity": options.loop_identity, "loop": secrets.token_hex(4)}
        note.write_text(json.dumps(facts), encoding="utf-8")
    return read_record(options.output)


def loop_id(options: LoopOptions) -> str:
    """Returns the random id of this loop. Another loop of the same name in the same database has
    another id, and so never reuses its measurements.
    """
    return str(json.loads((options.output / SETTINGS_FILE).read_text(encoding="utf-8"))["loop"])


def champion(options: LoopOptions, cycles: Sequence[Cycle]) -> str:
    """Returns the last promoted policy, or the loop's initial policy."""
    promoted = [cycle.candidate for cycle in cycles if cycle.promoted]
    return promoted[-1] if promoted else options.policy


def read_record(folder: Path) -> list[Cycle]:
    """Reads the finished cycles of a loop; none before its start."""
    path = folder / RECORD
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [Cycle.model_validate(json.loads(line)) for line in lines if line.strip()]


def promote(candidate: Path, target: Path) -> None:
    """Copies a candidate to the loop's policy folder; the old policy stays until the copy is
    complete.
    """
    # Copied beside the target, then swapped by two renames.
    beside = target.with_name(f".{target.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(candidate, beside)
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    beside.rename(target)
    shutil.rmtree(old, ignore_errors=True)
