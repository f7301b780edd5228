"""Parses and checks a command's arguments before anything heavy starts. Every refusal is an
InputError.
"""

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
    """Parses an option's value: a JSON object, or the name of a JSON file behind an @. Raises
    InputError.
    """
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
    """Returns the database of `--db`, or of the positional argument that came before `--db` (with
    a note on stderr).

    Raises InputError if both are given.
    """
    if argument is None:
        return db
    if db is not None:
        raise InputError(f"--db {db} and {argument} name two databases: give --db alone")
    typer.echo(
        "give the database with --db: the next release removes the argument in its place", err=True
    )
    return argument


def choose_targets(names: list[str], device: str) -> tuple[str, ...]:
    """Returns the proper names of the targets, in their order, each once. Without names: the
    device's own target, or sm_90 if there is no GPU.
    """
    try:
        targets = [parse_target(name).name for name in names]
    except ValueError as error:
        raise InputError(str(error)) from None
    return tuple(dict.fromkeys(targets)) or (_target_of_device(device) or DEFAULT_TARGET,)


def _target_of_device(device: str) -> str:
    if device == "cpu":
        return ""
    from kernelwright.tools.hardware.gpus import read_driver

    index = int(device.removeprefix("cuda:"))
    target = next((gpu.target for gpu in read_driver().gpus if gpu.index == index), "")
    return target if target in TARGETS else ""


def choose_device(device: str) -> str:
    """Returns `cpu` or `cuda:N`. `auto` means the first GPU that CUDA finds and torch can use,
    else the CPU.
    """
    if device == "cpu":
        return "cpu"
    match = re.fullmatch(r"auto|cuda(?::(\d+))?", device)
    if match is None:
        raise InputError(f"unknown device {device!r}: choose auto, cpu or cuda:N")
    from kernelwright.tools.hardware.gpus import read_driver

    gpus = {gpu.index for gpu in read_driver().gpus}
    torch = version("torch") or ""
    usable = bool(gpus) and not torch.endswith("+cpu")
    if device == "auto":
        return "cuda:0" if usable else "cpu"
    index = int(match[1] or 0)
    if not gpus:
        raise InputError(
            f"{device} was asked for, but CUDA finds no GPU here: use --device cpu, or see agent doctor"
        )
    if not usable:
        raise InputError(
            f"{device} was asked for, but torch {torch} is built without CUDA: install a CUDA build, "
            "or use --device cpu"
        )
    if index not in gpus:
        raise InputError(
            f"there is no cuda:{index} here: choose from {', '.join(f'cuda:{i}' for i in sorted(gpus))}"
        )
    return f"cuda:{index}"


def own_work_mode(rule: str) -> str:
    """Checks the rule of own work: `strict`, `report` or `share:P` with 0 < P <= 1. Returns the
    rule unchanged.
    """
    if rule in ("strict", "report"):
        return rule
    kind, _, share = rule.partition(":")
    try:
        fits = kind == "share" and 0 < float(share) <= 1
    except ValueError:
        fits = False
    if not fits:
        raise InputError(
            f"--own-work {rule!r}: choose strict, report or share:P with P over 0 and at most 1, such as share:0.5"
            " (auto: agent solve only)"
        )
    return rule


def peak_for_estimates() -> Peak:
    """Returns the tabulated peak rates of this machine's first GPU; without one, the rates of the
    H200.
    """
    from kernelwright.tools.hardware.gpus import read_driver

    for gpu in read_driver().gpus:
        peak = peak_of(gpu.name)
        if peak is not None:
            return peak
    return next(peak for peak in PEAKS if peak.gpu == "H200")
