"""Reads a command's arguments and checks them before anything heavy starts. Every refusal is an InputError."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import typer

from kernelwright.errors import InputError
from kernelwright.tools.hardware.machine_info import version
from kernelwright.tools.hardware.peaks import PEAKS, Peak, peak_of
from kernelwright.tools.hardware.targets import DEFAULT_TARGET, TARGETS, parse_target


def json_object(option: str, text: str) -> dict[str, Any]:
    """Returns the object that an option gives as JSON, or in a file behind an @. Raises InputError."""
    try:
        content = json.loads(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)
    except OSError as error:
        raise InputError(f"{option} {text}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{option} is not JSON ({error}): write it as '{{\"name\": value}}', or @FILE"
        ) from None
    if not isinstance(content, dict):
        raise InputError(f"{option} must be a JSON object: '{{\"name\": value}}', or @FILE")
    return content


def named_database(db: str | None, argument: str | None) -> str | None:
    """The database that `--db` names, or that the argument names which was its place before; stderr is told of that.

    Raises InputError where both are given.
    """
    if argument is None:
        return db
    if db is not None:
        raise InputError(f"--db {db} and {argument} name two databases: give --db alone")
    typer.echo(
        "give the database with --db: the next release removes the argument in its place", err=True
    )
    return argument


def choose_targets(asked: list[str], device: str) -> tuple[str, ...]:
    """The targets in the order asked for, each once, by their proper names; with none, the device's own, or sm_90
    where there is no GPU.
    """
    try:
        named = [parse_target(name).name for name in asked]
    except ValueError as error:
        raise InputError(str(error)) from None
    return tuple(dict.fromkeys(named)) or (_own_target(device) or DEFAULT_TARGET,)


def _own_target(device: str) -> str:
    if device == "cpu":
        return ""
    from kernelwright.tools.hardware.gpus import read_driver

    index = int(device.removeprefix("cuda:"))
    own = next((gpu.target for gpu in read_driver().gpus if gpu.index == index), "")
    return own if own in TARGETS else ""


def choose_device(asked: str) -> str:
    """Returns `cpu` or `cuda:N`. `auto` takes the first GPU that CUDA finds and torch can use, else the CPU."""
    if asked == "cpu":
        return "cpu"
    match = re.fullmatch(r"auto|cuda(?::(\d+))?", asked)
    if match is None:
        raise InputError(f"unknown device {asked!r}: choose auto, cpu or cuda:N")
    from kernelwright.tools.hardware.gpus import read_driver

    gpus = {gpu.index for gpu in read_driver().gpus}
    torch = version("torch") or ""
    usable = bool(gpus) and not torch.endswith("+cpu")
    if asked == "auto":
        return "cuda:0" if usable else "cpu"
    index = int(match[1] or 0)
    if not gpus:
        raise InputError(
            f"{asked} was asked for, but CUDA finds no GPU here: use --device cpu, or see agent doctor"
        )
    if not usable:
        raise InputError(
            f"{asked} was asked for, but torch {torch} is built without CUDA: install a CUDA build, or use --device cpu"
        )
    if index not in gpus:
        raise InputError(
            f"there is no cuda:{index} here: choose from {', '.join(f'cuda:{i}' for i in sorted(gpus))}"
        )
    return f"cuda:{index}"


def own_work_mode(asked: str) -> str:
    """`strict`, `report` or `share:P` with 0 < P <= 1, as it was written."""
    if asked in ("strict", "report"):
        return asked
    kind, _, share = asked.partition(":")
    try:
        fits = kind == "share" and 0 < float(share) <= 1
    except ValueError:
        fits = False
    if not fits:
        raise InputError(
            f"--own-work {asked!r}: choose strict, report or share:P with P over 0 and at most 1, such as share:0.5"
        )
    return asked


def peak_for_estimates() -> Peak:
    """Returns the peaks of this machine's first GPU where they are tabulated, else those of the H200."""
    from kernelwright.tools.hardware.gpus import read_driver

    own = next((peak for gpu in read_driver().gpus if (peak := peak_of(gpu.name))), None)
    return own or next(peak for peak in PEAKS if peak.gpu == "H200")
