"""Other GPUs of this machine that are at work: they share its power, its heat and its links with the judging one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelwright.tools.profile_results import Neighbour

BUSY_SHARE = 0.05
"""A GPU that computes for a smaller share of the time is taken to be idle."""


def neighbours_of(uuid: str, sensors: Mapping[str, Mapping[str, Any]]) -> tuple[Neighbour, ...]:
    """Returns the GPUs at work beside the judging one, in the driver's order. sensors: as gpus.read_sensors gives them.
    uuid: of the GPU that judges.
    """
    return tuple(
        Neighbour(
            uuid=other, name=told.get("name") or "", busy=busy, power_watts=told.get("power_watts")
        )
        for other, told in sensors.items()
        if other != uuid and (busy := (told.get("busy_percent") or 0) / 100) >= BUSY_SHARE
    )


def busiest_readings(*readings: tuple[Neighbour, ...]) -> tuple[Neighbour, ...]:
    """Each neighbour of several readings once, as it was when it was busiest."""
    found: dict[str, Neighbour] = {}
    for one in (neighbour for reading in readings for neighbour in reading):
        if one.uuid not in found or one.busy > found[one.uuid].busy:
            found[one.uuid] = one
    return tuple(found.values())
