"""Kernels along an axis: a row a program for the last axis, a tile of neighbouring columns for
other axes.

Both walk the axis in blocks, so any length works, and differ only in their index arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.rl.data.synth.blocks.chain import ChainNeeds, ChainSite, Step, kernel_lines
from kernelwright.rl.data.synth.engine.program import kernel
from kernelwright.rl.data.synth.engine.sketch import Sketch


@dataclass(frozen=True)
class Axis:
    """The index arithmetic of a layout; lines without indentation."""

    name: str
    sizes: tuple[str, ...]
    """Integer parameters of the kernel."""
    blocks: tuple[str, ...]
    head: tuple[str, ...]
    loop: str
    inside: tuple[str, ...]
    offsets: str
    mask: str
    lanes: str
    """Shape of an accumulator."""
    count: str
    """Length of the axis."""
    index: str
    """Index along the axis."""
    spread: str
    """Suffix of a reduced value used with elements again."""
    out: str
    """Offset of a reduced value."""
    out_mask: str


ROW_AXIS = Axis(
    name="row",
    sizes=("columns",),
    blocks=("BLOCK",),
    head=("row = tl.program_id(0).to(tl.int64)",),
    loop="for start in range(0, columns, BLOCK):",
    inside=("cols = start + tl.arange(0, BLOCK)", "mask = cols < columns"),
    offsets="row * columns + cols",
    mask="mask",
    lanes="(BLOCK,)",
    count="columns",
    index="cols",
    spread="",
    out="row",
    out_mask="",
)
INNER_AXIS = Axis(
    name="inner",
    sizes=("length", "inner"),
    blocks=("BLOCK_L", "BLOCK"),
    head=(
        "outer = tl.program_id(0).to(tl.int64)",
        "cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
    ),
    loop="for start in range(0, length, BLOCK_L):",
    inside=(
        "rows = start + tl.arange(0, BLOCK_L)[:, None]",
        "offs = (outer * length + rows) * inner + cols[None, :]",
        "mask = (rows < length) & (cols[None, :] < inner)",
    ),
    offsets="offs",
    mask="mask",
    lanes="(BLOCK_L, BLOCK)",
    count="length",
    index="rows",
    spread="[None, :]",
    out="outer * inner + cols",
    out_mask="cols < inner",
)


@dataclass
class AxisKernel:
    """A kernel along an axis, assembled pass by pass."""

    sketch: Sketch
    axis: Axis
    before: list[Step]
    """The chain between the load and the reduction."""
    other: str = "0.0"
    columns: str = ""
    """The host's expression for the length of a row, if a row is more than the last axis."""
    leading: bool = False
    """Whether the axis is the first: no axis lies outside it."""
    extra: ChainNeeds = field(default_factory=ChainNeeds)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines += ["    " + line for line in self.axis.head]

    def at(self, *lines: str) -> None:
        """Appends lines outside of any loop."""
        self.lines += ["    " + line for line in lines]

    def each(self, *lines: str) -> None:
        """Appends a pass: the loop, the load, the chain, then these lines."""
        axis, cast = self.axis, self.sketch.cast
        self.lines.append("    " + axis.loop)
        body = [
            *axis.inside,
            f"x = tl.load(x_ptr + {axis.offsets}, mask=mask, other={self.other}){cast}",
        ]
        self.lines += ["        " + line for line in body]
        # The chain is repeated in every pass: nothing is stored between passes.
        self.lines += self.chain(self.before, "x", "        ")
        self.lines += ["        " + line for line in lines]

    def chain(self, steps: list[Step], value: str, indent: str) -> list[str]:
        """Returns the lines of an element-wise chain over elements of the axis."""
        axis = self.axis
        # Along an inner axis the channel's mask is that of the row alone.
        channel = (axis.index, "mask" if not axis.spread else f"{axis.index} < length")
        site = ChainSite(value, axis.offsets, "mask", *channel, indent=indent)
        return kernel_lines(self.sketch, steps, site, self.extra)

    def after(self, steps: list[Step], value: str) -> None:
        """Appends a chain over reduced values."""
        axis = self.axis
        site = ChainSite(value, axis.out, axis.out_mask, indent="    ")
        self.lines += kernel_lines(self.sketch, steps, site, self.extra)

    def masked(self, identity: str) -> str:
        """Returns x, with the reduction's identity for masked elements unless the load already
        inserted it.
        """
        return (
            "x" if self.other == identity and not self.before else f"tl.where(mask, x, {identity})"
        )

    def accumulator(self, name: str, start: str, dtype: str = "tl.float32") -> None:
        """Appends the line that makes an accumulator: a block of `start` over the lanes, outside
        of any loop.
        """
        filled = (
            f"tl.zeros({self.axis.lanes}, {dtype})"
            if start == "0.0"
            else f"tl.full({self.axis.lanes}, {start}, {dtype})"
        )
        self.at(f"{name} = {filled}")

    def store_elements(self, value: str) -> str:
        """Returns the statement that stores a value for each element of a pass, masked at the end
        of the row.
        """
        return f"tl.store(out_ptr + {self.axis.offsets}, {value}, mask=mask)"

    def store_reduced(self, value: str) -> None:
        """Appends the line that stores a value for each row, masked if rows share a program."""
        mask = f", mask={self.axis.out_mask}" if self.axis.out_mask else ""
        self.at(f"tl.store(out_ptr + {self.axis.out}, {value}{mask})")

    def launch(self, name: str, target: str, shape: str, dtype: str = "") -> None:
        """Appends the kernel and the host code. shape: the output's shape in Python; empty for
        the input's shape.
        """
        sketch, axis, source = self.sketch, self.axis, self.sketch.current
        parameters = ["x_ptr", *self.extra.parameters, "out_ptr", *axis.sizes, *axis.blocks]
        sketch.kernels.append(kernel(name, parameters, self.lines))
        # The host computes sizes from the tensor's shape, allocates the output, and launches.
        sketch.host += self._sizes(source)
        kind = dtype or f"{source}.dtype"
        output = (
            f"torch.empty({shape}, device={source}.device, dtype={kind})"
            if shape
            else f"torch.empty_like({source})"
        )
        sketch.host.append(f"{target} = {output}")
        values = ", ".join([source, *self.extra.values, target, *axis.sizes])
        sketch.host.append(f"{name}[{self._grid(source)}]({values}, {self._blocks()})")
        sketch.current = target

    def _sizes(self, source: str) -> list[str]:
        if self.axis.spread:
            at = 0 if self.leading else 1
            return [f"length, inner = {source}.shape[{at}], {source}.stride({at})"]
        return [
            f"columns = {self.columns or f'{source}.shape[-1]'}",
            f"rows = {source}.numel() // columns",
        ]

    def _grid(self, source: str) -> str:
        if not self.axis.spread:
            return "(rows,)"
        return f"({'1' if self.leading else f'{source}.shape[0]'}, triton.cdiv(inner, 128))"

    def _blocks(self) -> str:
        return "BLOCK=1024" if not self.axis.spread else "BLOCK_L=16, BLOCK=128"
