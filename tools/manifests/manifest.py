"""What each problem cannot tell from right, measured once and kept by its hash (docs/explanation/trust.md, check 5).

Facts only: numbers, flags, the problem's name and hash.

python -m kernelwright.tools.manifests.manifest --suite kernelbench --path DIR [--device cuda:0] [--out FILE]
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Number, Value
from kernelwright.tools.timing.roofline import Work

DATA_FOLDER = Path(__file__).parent / "data"
SCHEMA_VERSION = 1
TRIVIAL_ANSWERS = ("zeros", "constant", "row_0", "other_input")
"""Names of the wrong answers that compute nothing from the problem's own inputs: a problem on which one of them passes
is degenerate, whatever else it tests.
"""
KB_TOLERANCE_FP32, KB_TOLERANCE_HALF = 1e-4, 1e-2


class Passing(Value):
    """The rules that one wrong answer passes."""

    kb_fp32: bool = False
    """KernelBench's allclose at 1e-4, on the problem's own inputs."""
    kb_half: bool = False
    """KernelBench's allclose at 1e-2."""
    own: bool = False
    """Our tolerance, on the problem's own inputs."""
    ours: bool = False
    """Our tolerance on every draw, with weights moved from where they began: nothing that the judge does can tell
    it.
    """


class Manifest(Value):
    """One problem, measured on one device."""

    problem: str
    hash: str
    """The hash of the problem at its own sizes."""
    device: str = "cpu"
    sizes: dict[str, int] = {}
    """Module-level integers that it was measured with where they are not its own."""
    passing: dict[str, Passing] = {}
    """Wrong answers that pass somewhere. `without_relu_3`: that call returns what it is given."""
    tried: int = 0
    """Number of wrong answers that were tried."""
    random: bool = False
    """The reference's output depends on the generator: live dropout."""
    finite: bool = True
    """Whether eager's outputs are finite on the problem's own inputs."""
    eager_rms: Number | None = None
    """rms(eager - float64) over rms(float64)."""
    eager_row: Number | None = None
    """99th percentile over the rows of max |eager - float64| over the row's scale."""
    work: Work | None = None
    """The work of one call at full sizes."""
    failure: str = ""
    """The reason why nothing was measured: the reference fails, or takes too long."""
    seconds: Number = 0.0

    @property
    def degenerate(self) -> tuple[str, ...]:
        """Wrong answers that the judge itself accepts: such a problem earns no reward.

        Calls that do nothing are no wrong answers: leaving one out is work saved.
        """
        return tuple(
            n for n, where in self.passing.items() if where.ours and not n.startswith("without_")
        )

    @property
    def degenerate_kb(self) -> tuple[str, ...]:
        """Answers that need no input of this call and pass KernelBench's own rule for fp32."""
        return tuple(
            name for name in TRIVIAL_ANSWERS if name in self.passing and self.passing[name].kb_fp32
        )

    @property
    def dead(self) -> tuple[str, ...]:
        """Calls and inputs' identities that make no difference on the problem's own inputs, by KernelBench's rule
        for fp32.
        """
        return tuple(
            n for n, w in self.passing.items() if w.kb_fp32 and n.startswith(("without_", "input_"))
        )


def load_manifest(problem: Problem, directory: Path | None = None) -> Manifest | None:
    """Reads a manifest from `directory` first, where one was kept, then from what is shipped."""
    if directory and (kept := directory / f"manifest_{problem.hash}.json").is_file():
        return Manifest.model_validate_json(kept.read_text())
    return _shipped().get(problem.hash)


def save_manifest(manifest: Manifest, directory: Path) -> None:
    """Writes a manifest into a folder, whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    place = directory / f"manifest_{manifest.hash}.json"
    part = place.with_suffix(".part")
    part.write_text(manifest.model_dump_json())
    part.replace(place)


@functools.cache
def _shipped() -> dict[str, Manifest]:
    found: dict[str, Manifest] = {}
    for name in ("manifest_kernelbench.json", "manifest_catalogue.json"):
        if (DATA_FOLDER / name).is_file():
            found |= {m.hash: m for m in read_manifests(DATA_FOLDER / name)}
    return found


def read_manifests(path: Path) -> list[Manifest]:
    """Reads a file that `write_manifests` made. Raises ValueError where it has another schema."""
    told = json.loads(path.read_text())
    if told.get("schema") != SCHEMA_VERSION:
        raise ValueError(f"{path} is not a manifest of schema {SCHEMA_VERSION}: compute it again")
    return [Manifest.model_validate(m) for m in told["problems"]]


def write_manifests(manifests: list[Manifest], path: Path) -> None:
    """A problem a line, defaults left out, so that a change of one is a change of one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(m.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
        for m in manifests
    ]
    part = path.with_suffix(".part")
    part.write_text(f'{{"schema": {SCHEMA_VERSION}, "problems": [\n' + ",\n".join(lines) + "\n]}\n")
    part.replace(path)


if __name__ == "__main__":
    from kernelwright.tools.manifests.suite import main

    main()
