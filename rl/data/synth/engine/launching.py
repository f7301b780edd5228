"""How a finished program launches its kernels: with numbers as drawn, with a grid that reads the block sizes, or
autotuned.

Read off the text of the launches, so that every family has all of them. The reference stays as it is, and so do its
problem and its split.
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
"""Configurations of the blocks of these names; the last number is that of the warps."""


@dataclass
class DrawnLaunch:
    """One line of the host code. `grid_at`: the line that sets `grid`, None where it stands in the launch."""

    at: int
    name: str
    grid: str
    values: str
    grid_at: int | None = None

    @property
    def constants(self) -> dict[str, int]:
        """The keyword arguments of the launch whose value is a literal integer, by name."""
        return {m["name"]: int(m["value"]) for m in CONSTANT_PATTERN.finditer(self.values)}

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the block sizes: every constant of the launch but `num_warps`."""
        return tuple(name for name in self.constants if name != "num_warps")


def write_launches(sketch: Sketch) -> tuple[list[str], list[str]]:
    """The kernels and the host's lines, in the style that this program has."""
    kernels, host, rng = list(sketch.kernels), list(sketch.host), sketch.style
    style = rng.choices((None, _meta_grids, _tuned), (1 - META - TUNED, META, TUNED))[0]
    if style is not None:
        style(kernels, host, {name for name, _ in sketch.inputs}, rng)
    return kernels, host


def _launches(host: list[str]) -> list[DrawnLaunch]:
    found = []
    for at, line in enumerate(host):
        call = LAUNCH_PATTERN.fullmatch(line)
        if call is None:
            continue
        before = host[at - 1] if at else ""
        separate = call["grid"] == "grid" and before.startswith("grid = ")
        grid = before.removeprefix("grid = ") if separate else call["grid"]
        found.append(
            DrawnLaunch(at, call["name"], grid, call["values"], at - 1 if separate else None)
        )
    return found


def _read_from_meta(launch: DrawnLaunch) -> str:
    """The grid with the blocks' names in the place of their numbers; "" where a number is nobody's."""
    left = dict(launch.constants)
    left.pop("num_warps", None)

    def named(found: re.Match[str]) -> str:
        name = next((n for n, value in left.items() if value == int(found["block"])), "")
        left.pop(name, None)
        return f'triton.cdiv({found["of"]}, meta["{name}"])'

    grid = BLOCK_COUNT_PATTERN.sub(named, launch.grid)
    return "" if '[""]' in grid else grid


def _put(host: list[str], launch: DrawnLaunch, grid: str, values: str) -> None:
    """The launch's line again. A grid that reads blocks is a lambda in a line of its own."""
    if "meta[" not in grid:
        where = "grid" if launch.grid_at is not None else grid
        host[launch.at] = f"{launch.name}[{where}]({values})"
        return
    written = f"grid = lambda meta: {grid}"
    host[launch.at] = f"{launch.name}[grid]({values})"
    if launch.grid_at is None:
        host.insert(launch.at, written)
    else:
        host[launch.grid_at] = written


def _meta_grids(kernels: list[str], host: list[str], inputs: set[str], rng: random.Random) -> None:
    for launch in reversed(_launches(host)):
        grid = _read_from_meta(launch)
        if grid:
            _put(host, launch, grid, launch.values)


# -------------------------------------------------------------- autotuned
def _tuned(kernels: list[str], host: list[str], inputs: set[str], rng: random.Random) -> None:
    """The first kernel that can be: one whose blocks nothing else on the host depends on."""
    launches = _launches(host)
    for launch in launches:
        at = next(i for i, text in enumerate(kernels) if f"def {launch.name}(" in text)
        configs, grid = _configs(launch, rng), _read_from_meta(launch)
        keys = _keys(kernels[at], launch, inputs)
        once = sum(other.name == launch.name for other in launches) == 1
        if configs and grid and keys and once and _free(launch, host, kernels[at]):
            kernels[at] = "\n".join([*_decorator(configs, keys), kernels[at]])
            _put(host, launch, grid, CONSTANT_PATTERN.sub("", launch.values))
            return


def _configs(launch: DrawnLaunch, rng: random.Random) -> list[str]:
    """The drawn one first, then one or two others."""
    given = launch.constants
    warps = given.get("num_warps", 4)
    drawn = (*(given[name] for name in launch.blocks), warps)
    others = (
        VECTOR_CONFIGURATIONS
        if launch.blocks == ("BLOCK",)
        else OTHER_CONFIGURATIONS.get(launch.blocks, ())
    )
    rest = [config for config in others if config[:-1] != drawn[:-1]]
    if not rest:
        return []
    chosen = [drawn, *rng.sample(rest, rng.choice((1, min(2, len(rest)))))]
    shown = [
        ", ".join(f'"{n}": {v}' for n, v in zip(launch.blocks, c, strict=False)) for c in chosen
    ]
    return [
        f"triton.Config({{{text}}}, num_warps={c[-1]})"
        for text, c in zip(shown, chosen, strict=True)
    ]


def _keys(kernel: str, launch: DrawnLaunch, inputs: set[str]) -> list[str]:
    """Up to three sizes that the kernel is given."""
    head = kernel[kernel.index("(") + 1 : kernel.index("):")]
    parameters = [p for p in head.split(", ") if "constexpr" not in p]
    values = _parted(launch.values)
    pairs = [(p, v) for p, v in zip(parameters, values, strict=False) if not p.endswith("_ptr")]
    return [p for p, v in pairs if re.fullmatch(r"[A-Za-z]\w*", v) and v not in inputs][:3]


def _parted(values: str) -> list[str]:
    """The arguments of a call."""
    parts, depth = [""], 0
    for letter in values:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _free(launch: DrawnLaunch, host: list[str], kernel: str) -> bool:
    """Whether the blocks may be others: nothing is added up in memory, and no number of blocks was counted before
    the launch.
    """
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
