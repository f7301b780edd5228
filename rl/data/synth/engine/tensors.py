"""First inputs: tensors of one to five axes with common names."""

from __future__ import annotations

from kernelwright.rl.data.synth.engine.sketch import Sketch

ROW_NAMES = ("batch_size", "batch_size", "rows", "M", "N", "num_tokens")
COLUMN_NAMES = ("dim", "dim", "features", "columns", "hidden_size", "input_dim", "D")
WIDE_SIZES = (4096, 8192, 16384, 5000, 12288, 65536)
TALL_SIZES = (128, 512, 1024, 4096, 2048)
SMALL_ROWS = (3, 4, 5)
SMALL_COLUMNS = (67, 67, 131, 45, 1100)


def draw_dtype(sketch: Sketch) -> None:
    """Draws the dtype, mostly fp32. Half precision has no parameters: torch would return fp32."""
    sketch.dtype = sketch.rng.choices(("float32", "float16", "bfloat16"), (16, 1, 1))[0]


def start(sketch: Sketch, axes: int = 0, name: str = "x") -> None:
    """Adds the first input, of `axes` axes (0: any), and makes it the sketch's current tensor."""
    axes = axes or sketch.rng.choices((1, 2, 3, 4), (1, 6, 1.5, 1.5))[0]
    sketch.shape = {1: _draw_shape, 2: _two, 3: _three, 4: _four, 5: _five}[axes](sketch)
    sketch.input(name, sketch.shape)
    sketch.current = name


def _draw_shape(sketch: Sketch) -> tuple[str, ...]:
    return (
        sketch.size(
            sketch.pick(("n", "size", "length", "N")), (50000001, 16777216, 30000000), (1031, 2053)
        ),
    )


def _two(sketch: Sketch) -> tuple[str, ...]:
    return (
        sketch.size(sketch.pick(ROW_NAMES), TALL_SIZES, SMALL_ROWS),
        sketch.size(sketch.pick(COLUMN_NAMES), WIDE_SIZES, SMALL_COLUMNS),
    )


def _three(sketch: Sketch) -> tuple[str, ...]:
    first, second, third = sketch.pick(
        (
            ("batch_size", "dim1", "dim2"),
            ("batch_size", "seq_len", "hidden_size"),
            ("B", "T", "D"),
            ("batch_size", "channels", "length"),
        )
    )
    return (
        sketch.size(first, (16, 32, 64, 128), (2, 3)),
        sketch.size(second, (256, 512, 1024, 4096), (5, 19, 37)),
        sketch.size(third, (256, 1024, 4095, 2048), (7, 33, 70)),
    )


def _four(sketch: Sketch) -> tuple[str, ...]:
    names = sketch.pick(
        (
            ("batch_size", "channels", "height", "width"),
            ("batch_size", "features", "dim1", "dim2"),
            ("N", "C", "H", "W"),
        )
    )
    return (
        sketch.size(names[0], (16, 32, 64, 112), (2, 3)),
        sketch.size(names[1], (32, 64, 128), (4, 6)),
        sketch.size(names[2], (56, 128, 256), (5, 7)),
        sketch.size(names[3], (56, 128, 256), (6, 9)),
    )


def _five(sketch: Sketch) -> tuple[str, ...]:
    names = ("batch_size", "channels", "depth", "height", "width")
    full = ((8, 16), (16, 32, 64), (16, 32), (32, 64), (32, 64))
    cpu = ((2,), (4, 6), (3, 4), (4, 5), (5, 6))
    return tuple(sketch.size(n, f, c) for n, f, c in zip(names, full, cpu, strict=True))
