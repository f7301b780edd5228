"""Trivial and wrong answers passing a problem's checks, measured once and stored by the
problem's hash (docs/explanation/trust.md, check 5).

Facts only: numbers, flags, the problem's name and hash.

python -m kernelwright.tools.manifests.manifest --suite kernelbench --path DIR [--device cuda:0]
[--out FILE]
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Number, Value
from kernelwright.tools.timing.roofline import Work

DATA_FOLDER = Path(__file__).parent / "data"
MANIFEST_SCHEMA_VERSION = 1
TRIVIAL_ANSWERS = ("zeros", "constant", "row_0", "other_input")
"""Wrong answers which compute nothing from the problem's inputs: a problem which accepts any of
them is degenerate.
"""
KB_TOLERANCE_FP32 = 1e-4
KB_TOLERANCE_HALF = 1e-2


class Passing(Value):
    """Acceptance rules passed by a wrong answer."""

    kb_fp32: bool = False
    """KernelBench's allclose at 1e-4, on the problem's own inputs."""
    kb_half: bool = False
    """Whether KernelBench's allclose at 1e-2 accepts the answer."""
    own: bool = False
    """Our tolerance, on the problem's own inputs."""
    ours: bool = False
    """Whether this judge's tolerance accepts the answer on every draw, with perturbed weights:
    the judge cannot detect it.
    """


class Manifest(Value):
    """Wrong answers of a problem, measured on a device."""

    problem: str
    hash: str
    """The hash of the problem at its own sizes."""
    device: str = "cpu"
    sizes: dict[str, int] = {}
    """Module-level integers used for the measurement, if other than the problem's own."""
    passing: dict[str, Passing] = {}
    """Wrong answers which pass some rule. `without_relu_3`: the third relu call returns its
    argument.
    """
    tried: int = 0
    """Number of wrong answers tried."""
    random: bool = False
    """The reference's output depends on the generator: live dropout."""
    finite: bool = True
    """Whether eager's outputs are finite on the problem's own inputs."""
    eager_rms: Number | None = None
    """rms(eager - float64) over rms(float64)."""
    eager_row: Number | None = None
    """99th percentile over the rows of max |eager - float64| over the row's scale."""
    work: Work | None = None
    """Work of a call at full sizes."""
    failure: str = ""
    """The reason why nothing was measured: the reference fails, or takes too long."""
    seconds: Number = 0.0

    @property
    def degenerate(self) -> tuple[str, ...]:
        """Wrong answers which the judge accepts: such a problem earns no reward.

        Calls without effect are no wrong answers: leaving them out saves work.
        """
        return tuple(
            n for n, rules in self.passing.items() if rules.ours and not n.startswith("without_")
        )

    @property
    def degenerate_kb(self) -> tuple[str, ...]:
        """Answers independent of this call's inputs which pass KernelBench's own rule for fp32."""
        return tuple(
            name for name in TRIVIAL_ANSWERS if name in self.passing and self.passing[name].kb_fp32
        )

    @property
    def dead(self) -> tuple[str, ...]:
        """Calls and inputs' identities without influence on the problem's own inputs, by
        KernelBench's rule for fp32.
        """
        return tuple(
            n for n, w in self.passing.items() if w.kb_fp32 and n.startswith(("without_", "input_"))
        )


def load_manifest(problem: Problem, directory: Path | None = None) -> Manifest | None:
    """Loads a manifest from `directory`, else from the shipped manifests."""
    if directory and (manifest_path := directory / f"manifest_{problem.hash}.json").is_file():
        return Manifest.model_validate_json(manifest_path.read_text())
    return _shipped().get(problem.hash)


@functools.cache
def _shipped() -> dict[str, Manifest]:
    manifests: dict[str, Manifest] = {}
    for name in ("manifest_kernelbench.json", "manifest_catalogue.json"):
        if (DATA_FOLDER / name).is_file():
            manifests |= {m.hash: m for m in read_manifests(DATA_FOLDER / name)}
    return manifests


def read_manifests(path: Path) -> list[Manifest]:
    """Reads a file written by `write_manifests`. Raises ValueError for another schema."""
    content = json.loads(path.read_text())
    if content.get("schema") != MANIFEST_SCHEMA_VERSION:
        raise ValueError(
            f"{path} is not a manifest of schema {MANIFEST_SCHEMA_VERSION}: compute it again"
        )
    return [Manifest.model_validate(m) for m in content["problems"]]


def write_manifests(manifests: list[Manifest], path: Path) -> None:
    """Writes a problem per line, without defaults, for line-wise comparison."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(m.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
        for m in manifests
    ]
    part = path.with_suffix(".part")
    part.write_text(
        f'{{"schema": {MANIFEST_SCHEMA_VERSION}, "problems": [\n' + ",\n".join(lines) + "\n]}\n"
    )
    part.replace(path)


if __name__ == "__main__":
    from kernelwright.tools.manifests.suite import main

    main()
