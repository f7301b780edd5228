"""Command line of the suite of layers.

    PYTHONPATH=src:. python -m bench.layer_suite --device cuda:0 --half dev

On a GPU a draft is correct where its largest error against the layer in float64 is at most twice that of eager, plus
one part in a thousand of the largest value; eager, torch.compile and drafts are timed as CUDA graphs. On a CPU nothing
is timed: the judge checks drafts at tiny sizes under Triton's interpreter. `--draft-only --drafts FOLDER` drafts for a
GPU on a machine without one. The results are written after every layer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.layer_suite.drafting import LayerDrafter
from bench.layer_suite.gpu_groups import GroupLimits, MeasuredLayer, measure_in_groups
from bench.layer_suite.gpu_process import RowKey
from bench.layer_suite.interpreted import verdict
from bench.layer_suite.layer import Layer, LayerSize
from bench.layer_suite.rows import CORRECT, LayerRow, machine_description, summary, write_rows
from bench.layer_suite.suite import LAYERS, half_of_layers
from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.inductor.draft import Draft, DraftMode


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the suite. Returns 0, or 1 where a row is not correct."""
    options = _options(arguments)
    run = _Run(options)
    layers = [layer for layer in run.chosen_layers() if run.is_installed(layer)]
    print(f"{len(layers)} layers", file=sys.stderr, flush=True)
    with Drafter(seconds=options.draft_seconds) as drafter:
        folder = Path(options.drafts) if options.drafts else None
        on_gpu = options.device != "cpu" or options.draft_only
        drafts = LayerDrafter(drafter, folder, for_gpu=on_gpu)
        if options.draft_only:
            run.draft_only(layers, drafts)
        elif on_gpu:
            run.measure(layers, drafts)
        else:
            run.interpret(layers, drafts)
    if options.json:
        print(json.dumps([row.model_dump(mode="json") for row in run.rows.values()]))
    if run.rows:
        print(summary(list(run.rows.values())), file=sys.stderr)
    return int(any(row.correct != CORRECT for row in run.rows.values()))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.layer_suite", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:N to time as well")
    parser.add_argument("--half", choices=["dev", "kept"], help="default: both halves")
    parser.add_argument("--modes", default="strict,share", help="strict, share or both")
    parser.add_argument(
        "--sizes", default="large,small", help="sizes on a GPU: large, small or both"
    )
    parser.add_argument("--only", default="", help="names of layers, separated by commas")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON at the end")
    parser.add_argument("--out", default="", help="Markdown file; a JSON file is written beside it")
    parser.add_argument("--resume", action="store_true", help="keep the rows of --out's JSON file")
    parser.add_argument(
        "--drafts", default="", help="folder that drafts are read from and written to"
    )
    parser.add_argument(
        "--draft-only", action="store_true", help="draft for a GPU, measure nothing"
    )
    parser.add_argument("--draft-seconds", type=float, default=90.0, help="seconds for one draft")
    parser.add_argument(
        "--max-autotune", action="store_true", help="time max-autotune-no-cudagraphs"
    )
    parser.add_argument(
        "--profile", action="store_true", help="write milliseconds by kernel to the JSON file"
    )
    parser.add_argument(
        "--processes", type=int, default=12, help="layers prepared side by side on a GPU"
    )
    parser.add_argument(
        "--prepare-seconds", type=float, default=60.0, help="limit of a group's preparation"
    )
    parser.add_argument(
        "--compile-seconds", type=int, default=25, help="limit of one torch.compile"
    )
    return parser.parse_args(arguments)


class _Run:
    """One run over the chosen layers, and its rows so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.modes = [DraftMode(mode) for mode in options.modes.split(",")]
        self.sizes = [LayerSize(size) for size in options.sizes.split(",")]
        self.rows: dict[tuple[str, LayerSize, DraftMode], LayerRow] = {}
        self._halves = half_of_layers()
        if options.resume and options.out:
            path = Path(options.out).with_suffix(".json")
            earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
            for fields in earlier:
                self._keep(LayerRow.model_validate(fields))

    def chosen_layers(self) -> list[Layer]:
        """Returns the layers of the chosen half and names that have no rows yet."""
        names = self.options.only.split(",") if self.options.only else list(LAYERS)
        done = {layer for layer, _, _ in self.rows}
        return [
            LAYERS[name] for name in names
            if name not in done and self.options.half in (None, self._halves[name].value)
        ]  # fmt: skip

    def is_installed(self, layer: Layer) -> bool:
        """Whether the layer's package is installed; prints the layer's name where it is not."""
        if not layer.installed:
            print(f"{layer.name}: {layer.package} is not installed", file=sys.stderr)
        return layer.installed

    def draft_only(self, layers: list[Layer], drafts: LayerDrafter) -> None:
        """Drafts every layer for a GPU, and prints the drafts' facts."""
        for layer in layers:
            for size in self.sizes:
                for mode in self.modes:
                    draft = drafts.draft(layer, size, mode)
                    reason = draft.refused or f"{draft.kernels} kernels, fixed: {draft.fixed_sizes}"
                    print(f"{layer.name} {size} {mode} {draft.seconds:.0f} s: {reason}", flush=True)

    def interpret(self, layers: list[Layer], drafts: LayerDrafter) -> None:
        """Judges every layer at tiny sizes on the CPU."""
        from kernelwright.tools.evaluation.pipeline import Evaluator

        with Evaluator(device="cpu") as evaluator:
            for layer in layers:
                for mode in self.modes:
                    draft = drafts.draft(layer, LayerSize.TINY, mode)
                    start = time.monotonic()
                    try:
                        correct = verdict(evaluator, layer, draft, mode)
                    except Exception as error:  # the next layer is judged all the same
                        correct = f"no: {type(error).__name__}: {str(error)[:160]}"
                    row = self._row(layer, LayerSize.TINY, mode, draft)
                    seconds = time.monotonic() - start
                    self._report([row.with_(correct=correct, first_call_seconds=seconds)])

    def measure(self, layers: list[Layer], drafts: LayerDrafter) -> None:
        """Checks and times every layer on a GPU."""
        # A pool of compiling processes for each of the forked processes would be more processes than cores.
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        import transformers  # noqa: F401  (imported before the processes are forked)

        measured = []
        for layer in layers:
            layer_drafts: dict[RowKey, Draft] = {}
            for size in self.sizes:
                for mode in self.modes:
                    layer_drafts[size, mode] = drafts.draft(layer, size, mode)
            rows = {key: self._row(layer, *key, draft) for key, draft in layer_drafts.items()}
            measured.append(MeasuredLayer(layer, rows, layer_drafts))
        limits = GroupLimits(
            self.options.device, self.options.processes, self.options.prepare_seconds,
            self.options.compile_seconds, self.options.max_autotune, self.options.profile,
        )  # fmt: skip
        measure_in_groups(measured, limits, lambda done: self._report(list(done.rows.values())))

    def _row(self, layer: Layer, size: LayerSize, mode: DraftMode, draft: Draft) -> LayerRow:
        refused = "" if draft.usable else f"no draft: {draft.refused[:160]}".replace("|", "/")
        return LayerRow(
            layer=layer.name, half=self._halves[layer.name], size=size, mode=mode, correct=refused,
            kernels=draft.kernels, library_calls=draft.library_calls, draft_seconds=draft.seconds,
        )  # fmt: skip

    def _keep(self, row: LayerRow) -> None:
        self.rows[row.layer, row.size, row.mode] = row

    def _report(self, rows: list[LayerRow]) -> None:
        """Prints rows, and writes the table again."""
        for row in rows:
            self._keep(row)
            print(row.line(), flush=True, file=sys.stderr if self.options.json else sys.stdout)
        if self.options.out:
            words = [f"--device {self.options.device}"]
            words += [f"--half {self.options.half}"] if self.options.half else []
            command = "python -m bench.layer_suite " + " ".join(words)
            write_rows(
                Path(self.options.out), self.rows.values(), command,
                machine_description(self.options.device),
            )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
