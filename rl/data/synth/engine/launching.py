"""Writes the launches of a finished program's kernels: with literal block sizes, with a grid that
reads the block sizes, or autotuned.

The launches are parsed from the text, so every family has all styles. Reference, problem and
split are unchanged.

    drawn:     k[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    meta grid: grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
               k[grid](x, out, n, BLOCK=1024)
    autotuned: the same grid, k[grid](x, out, n), and @triton.autotune(configs=..., key=["n"])
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from kernelwright.rl.data.synth.engine.sketch import Sketch

META, TUNED = 0.12, 0.08
"""Shares of the programs whose grid reads the block sizes, and of those that are tuned."""
LAUNCH_PATTERN = re.compile(r"(?P<name>\w+)\[(?P<grid>.+?)\]\((?P<values>.*)\)")
CONSTANT_PATTERN = re.compile(r", (?P<name>BLOCK\w*|GROUP|num_warps)=(?P<value>\d+)\b")
BLOCK_COUNT_PATTERN = re.compile(r"triton\.cdiv\((?P<of>[^()]+), (?P<block>\d+)\)")
VECTOR_CONFIGURATIONS = ((512, 4), (1024, 4), (2048, 8), (4096, 8))
OTHER_CONFIGURATIONS: dict[tuple[str, ...], tuple[tuple[int, ...], ...]] = {
    ("BLOCK_L", "BLOCK"): ((16, 128, 4), (32, 64, 4), (8, 256, 4)),
    ("BLOCK_M", "BLOCK_N", "BLOCK_K"): ((64, 64, 32, 4), (128, 64, 32, 8), (64, 128, 32, 8)),
    ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP"): (
        (64, 64, 32, 8, 4),
        (128, 64, 32, 8, 8),
        (128, 128, 32, 8, 8),
    ),
    ("BLOCK_M", "BLOCK_N"): ((64, 32, 4), (32, 32, 4)),
}
"""Configurations by the names of the blocks; the last number is the number of warps."""


@dataclass
class DrawnLaunch:
    """A launch in the host code. `grid_at`: the line that sets `grid`, None for a grid inside the
    launch.
    """

    at: int
    name: str
    grid: str
    values: str
    grid_at: int | None = None

    @property
    def constants(self) -> dict[str, int]:
        """The keyword arguments of the launch with literal integers, by name."""
        return {m["name"]: int(m["value"]) for m in CONSTANT_PATTERN.finditer(self.values)}

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the block sizes: every constant of the launch except `num_warps`."""
        return tuple(name for name in self.constants if name != "num_warps")


def write_launches(sketch: Sketch) -> tuple[list[str], list[str]]:
    """Returns the kernels and the host's lines in this program's style."""
    kernels, host, rng = list(sketch.kernels), list(sketch.host), sketch.style
    style = rng.choices((None, _meta_grids, _tuned), (1 - META - TUNED, META, TUNED))[0]
    if style is not None:
        style(kernels, host, {name for name, _ in sketch.inputs}, rng)
    return kernels, host


def _launches(host: list[str]) -> list[DrawnLaunch]:
    launches = []
    for at, line in enumerate(host):
        call = LAUNCH_PATTERN.fullmatch(line)
        if call is None:
            continue
        # The grid stands in the launch, or in the line before.
        before = host[at - 1] if at else ""
        separate = call["grid"] == "grid" and before.startswith("grid = ")
        grid = before.removeprefix("grid = ") if separate else call["grid"]
        launches.append(
            DrawnLaunch(at, call["name"], grid, call["values"], at - 1 if separate else None)
        )
    return launches


def _read_from_meta(launch: DrawnLaunch) -> str:
    """Returns the grid with names of blocks instead of numbers; empty if a number belongs to no
    block.
    """
    unused = dict(launch.constants)
    unused.pop("num_warps", None)

    def named(match: re.Match[str]) -> str:
        name = next((n for n, value in unused.items() if value == int(match["block"])), "")
        unused.pop(name, None)
        return f'triton.cdiv({match["of"]}, meta["{name}"])'

    grid = BLOCK_COUNT_PATTERN.sub(named, launch.grid)
    # An empty name: a number of the grid that is no block size.
    return "" if '[""]' in grid else grid


def _put(host: list[str], launch: DrawnLaunch, grid: str, values: str) -> None:
    """Writes the launch's line again. A grid that reads blocks is a lambda in its own line."""
    # A grid without blocks stays a tuple.
    if "meta[" not in grid:
        shown_grid = "grid" if launch.grid_at is not None else grid
        host[launch.at] = f"{launch.name}[{shown_grid}]({values})"
        return
    written = f"grid = lambda meta: {grid}"
    host[launch.at] = f"{launch.name}[grid]({values})"
    if launch.grid_at is None:
        host.insert(launch.at, written)
    else:
        host[launch.grid_at] = written


def _meta_grids(kernels: list[str], host: list[str], inputs: set[str], rng: random.Random) -> None:
    # From the last line upwards, since inserted lines move the later ones.
    for launch in reversed(_launches(host)):
        grid = _read_from_meta(launch)
        if grid:
            _put(host, launch, grid, launch.values)


# -------------------------------------------------------------- autotuned
def _tuned(kernels: list[str], host: list[str], inputs: set[str], rng: random.Random) -> None:
    """Autotunes the first suitable kernel: the rest of the host code must not depend on its
    blocks.
    """
    launches = _launches(host)
    for launch in launches:
        at = next(i for i, text in enumerate(kernels) if f"def {launch.name}(" in text)
        # The draws of `_configs` happen for every launch, also for unsuitable ones.
        configs, grid = _configs(launch, rng), _read_from_meta(launch)
        keys = _keys(kernels[at], launch, inputs)
        is_single = sum(other.name == launch.name for other in launches) == 1
        if configs and grid and keys and is_single and _free(launch, host, kernels[at]):
            kernels[at] = "\n".join([*_decorator(configs, keys), kernels[at]])
            _put(host, launch, grid, CONSTANT_PATTERN.sub("", launch.values))
            return


def _configs(launch: DrawnLaunch, rng: random.Random) -> list[str]:
    """Returns the drawn configuration first, then one or two others."""
    constants = launch.constants
    drawn = (*(constants[name] for name in launch.blocks), constants.get("num_warps", 4))
    configurations: tuple[tuple[int, ...], ...] = OTHER_CONFIGURATIONS.get(launch.blocks, ())
    if launch.blocks == ("BLOCK",):
        configurations = VECTOR_CONFIGURATIONS
    alternatives = [config for config in configurations if config[:-1] != drawn[:-1]]
    if not alternatives:
        return []
    count = rng.choice((1, min(2, len(alternatives))))
    lines = []
    for config in (drawn, *rng.sample(alternatives, count)):
        blocks = zip(launch.blocks, config, strict=False)
        text = ", ".join(f'"{name}": {value}' for name, value in blocks)
        lines.append(f"triton.Config({{{text}}}, num_warps={config[-1]})")
    return lines


def _keys(kernel: str, launch: DrawnLaunch, inputs: set[str]) -> list[str]:
    """Returns up to three sizes among the kernel's arguments."""
    head = kernel[kernel.index("(") + 1 : kernel.index("):")]
    parameters = [text for text in head.split(", ") if "constexpr" not in text]
    keys = []
    for parameter, value in zip(parameters, _parted(launch.values), strict=False):
        is_name = re.fullmatch(r"[A-Za-z]\w*", value) and value not in inputs
        if is_name and not parameter.endswith("_ptr"):
            keys.append(parameter)
    return keys[:3]


def _parted(values: str) -> list[str]:
    """Splits the arguments of a call."""
    parts, depth = [""], 0
    # Commas inside brackets do not separate arguments.
    for letter in values:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _free(launch: DrawnLaunch, host: list[str], kernel: str) -> bool:
    """Returns whether the blocks may change: no atomics in memory, and no number of blocks
    computed before the launch.
    """
    # Variables of the host computed from block sizes.
    counted = {line.split(" = ")[0] for line in host if " = triton.cdiv(" in line}
    words = set(re.findall(r"\w+", launch.grid + launch.values))
    return "tl.atomic" not in kernel and not counted & words


def _decorator(configs: list[str], keys: list[str]) -> list[str]:
    shown = ", ".join(f'"{key}"' for key in keys)
    return [
        "@triton.autotune(",
        "    configs=[",
        *(f"        {config}," for config in configs),
        "    ],",
        f"    key=[{shown}],",
        ")",
    ]
