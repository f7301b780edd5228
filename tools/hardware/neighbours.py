"""Detects busy GPUs of this machine beside the judging GPU: they share its power, its cooling and
its links.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelwright.tools.profile_results import Neighbour

BUSY_SHARE = 0.05
"""Share of computing time below which a GPU counts as idle."""


def neighbours_of(uuid: str, sensors: Mapping[str, Mapping[str, Any]]) -> tuple[Neighbour, ...]:
    """Returns the busy GPUs beside the judging GPU, in the driver's order. sensors: from
    gpus.read_sensors. uuid: of the judging GPU.
    """
    return tuple(
        Neighbour(
            uuid=other,
            name=sensor_values.get("name") or "",
            busy=busy,
            power_watts=sensor_values.get("power_watts"),
        )
        for other, sensor_values in sensors.items()
        if other != uuid and (busy := (sensor_values.get("busy_percent") or 0) / 100) >= BUSY_SHARE
    )


def busiest_readings(*readings: tuple[Neighbour, ...]) -> tuple[Neighbour, ...]:
    """Returns each neighbour of several readings once, with its busiest reading."""
    busiest: dict[str, Neighbour] = {}
    for reading in readings:
        for neighbour in reading:
            earlier = busiest.get(neighbour.uuid)
            if earlier is None or neighbour.busy > earlier.busy:
                busiest[neighbour.uuid] = neighbour
    return tuple(busiest.values())
