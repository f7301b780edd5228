"""Chooses the regions of a model: its own modules, from the outside in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kernelwright.agent.optimizing.capture import ModuleCall, exported_module
from kernelwright.agent.optimizing.region import Region, region_of
from kernelwright.agent.optimizing.region_text import NoRegion

MIN_LAUNCHES = 2
"""Fewest computing operators of a region: a single operator has nothing to fuse."""
MAX_REGION_LAUNCHES = 64
"""Most computing operators of a region: larger modules are cut into their children."""


def regions_below(
    calls: Mapping[str, ModuleCall],
    paths: Sequence[str],
    say: Callable[[str], None] = lambda _: None,
) -> list[Region]:
    """Returns the largest regions inside of modules, equal ones together, the most bytes saved
    first.
    """
    roots = [child for path in paths for child in _children(calls, path)]
    groups: dict[str, list[Region]] = {}
    for region in _largest(calls, roots, say):
        groups.setdefault(region.structure, []).append(region)
    merged = [_merged(group) for group in groups.values()]
    return sorted(merged, key=lambda region: region.bytes_saved, reverse=True)


def _largest(
    calls: Mapping[str, ModuleCall], paths: Sequence[str], say: Callable[[str], None]
) -> Iterator[Region]:
    for path in paths:
        say(f"reading {path or 'the model'}")
        region = _region_at(calls, path)
        if region is not None and region.launches <= MAX_REGION_LAUNCHES:
            if region.launches >= MIN_LAUNCHES and region.bytes_saved > 0:
                yield region
            continue
        yield from _largest(calls, _children(calls, path), say)


def _region_at(calls: Mapping[str, ModuleCall], path: str) -> Region | None:
    if path not in calls:
        return None
    program = exported_module(calls[path])
    if program is None:
        return None
    try:
        return region_of(calls[path], program)
    except NoRegion:
        return None


def _children(calls: Mapping[str, ModuleCall], path: str) -> list[str]:
    """Returns the modules called directly inside another module."""
    prefix = f"{path}." if path else ""
    inside = [name for name in calls if name.startswith(prefix) and name != path]
    nearest: list[str] = []
    for name in inside:
        parents = {name[:index] for index, letter in enumerate(name) if letter == "."}
        if not parents & set(inside):
            nearest.append(name)
    return nearest


def _merged(group: Sequence[Region]) -> Region:
    """Returns a single region for equal regions."""
    paths = tuple(path for region in group for path in region.paths)
    calls = sum(region.calls for region in group)
    return group[0].with_(paths=paths, calls=calls)
