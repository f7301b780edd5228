"""A judged kernel with everything needed for a package: texts, contract, verdict and the form of
its reference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kernelwright.agent.candidates.candidate_files import read_candidate
from kernelwright.agent.contracts.contract import Contract, Mode
from kernelwright.agent.contracts.guard_text import without_guard
from kernelwright.agent.contracts.guarded import (
    GuardedKernel,
    guarded_kernel,
    without_header,
)
from kernelwright.agent.export.kernels import author_of_turn, problem_of_turn
from kernelwright.agent.exporting.packaged_gradients import PackagedGradients, stored_gradients
from kernelwright.agent.exporting.reference_form import ReferenceForm, reference_form
from kernelwright.agent.reporting.samples import ReportedSample
from kernelwright.errors import InputError
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter, Order, Turn
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.reference_trials.eval_mode import in_eval_mode
from kernelwright.tools.references.small_sizes import shrink
from kernelwright.tools.report import Report, Value, clean_text
from kernelwright.tools.shapes.judged_shapes import judged_shapes, problem_to_judge, without_shapes

CANDIDATE_LINE = re.compile(r"^# candidate +(\d+),.* in (\S+)$", re.MULTILINE)
"""Line of a kernel file with the number of its candidate and its database."""


class PackagedKernel(Value):
    """A kernel of a package."""

    name: str
    """Name of the operator and of its folder: `fused_softmax`."""
    problem: Problem
    text: str
    """The kernel with the checks of its contract."""
    lines: tuple[str, ...]
    """The contract as comments."""
    contract: Contract
    report: Report
    form: ReferenceForm
    author: str = ""
    by_card: dict[str, str] = {}
    """Texts tuned on other GPUs, by the name of the GPU."""
    gradients: PackagedGradients | None = None

    @property
    def class_name(self) -> str:
        """Name of the module's class: `FusedSoftmax`."""
        return "".join(part[:1].upper() + part[1:] for part in self.name.split("_")) or "Kernel"

    @property
    def small_problems(self) -> list[SmallProblem]:
        """Returns the reference at sizes that Triton's interpreter can run, at each of its shapes."""
        problem = without_shapes(self.problem)
        shapes = judged_shapes(self.problem)
        if not shapes:
            return [SmallProblem(source=_small_source(problem))]
        smalls: list[SmallProblem] = []
        for shape in shapes:
            source = _small_source(problem_to_judge(self.problem, shape))
            smalls.append(SmallProblem(source=source, shape=shape.name, dtype=shape.dtype))
        return smalls


class SmallProblem(Value):
    """A reference at small sizes, for the tests of a package."""

    source: str
    shape: str = ""
    """Name of the shape; empty if the kernel was judged at the problem's own."""
    dtype: str = ""
    """Dtype to which the tests cast the module; empty for no cast."""


def _small_source(problem: Problem) -> str:
    small = shrink(problem)
    return problem.with_sizes(small.sizes).source if small.fits else problem.source


def package_kernel(
    problem: Problem, source: str, report: Report, author: str = "", text: str = ""
) -> PackagedKernel:
    """Returns a judged kernel for a package. text: the kernel with its checks, if any.

    Raises InputError for a kernel without a contract, or unfit as an operator of torch.
    """
    guarded = guarded_kernel(problem, source, report)
    contract = _require_contract(problem, guarded)
    judged = (in_eval_mode(problem) or problem) if report.eval_mode else problem
    small = shrink(judged)
    try:
        form = reference_form(judged.with_sizes(small.sizes) if small.fits else judged)
    except ProblemError as error:
        raise InputError(f"{problem.name} cannot be packaged: {error}") from None
    return PackagedKernel(
        name=stem_of(problem.name),
        problem=problem,
        text=text or guarded.text,
        lines=guarded.lines,
        contract=contract,
        report=report,
        form=form,
        author=author,
    )


def _require_contract(problem: Problem, guarded: GuardedKernel) -> Contract:
    if guarded.contract is None:
        reason = guarded.lines[-1].removeprefix("# contract   none").strip()
        raise InputError(f"{problem.name} cannot be packaged without a contract: {reason}")
    if guarded.contract.mode is Mode.MIXED:
        raise InputError(
            f"{problem.name} cannot be packaged: its layers were judged in different modes"
        )
    return guarded.contract


def packaged_samples(store: Store, samples: Sequence[ReportedSample]) -> list[PackagedKernel]:
    """Returns the best kernel of each problem among the samples."""
    best: dict[str, ReportedSample] = {}
    for sample in samples:
        if sample.correct and sample.candidate_id is not None:
            other = best.get(sample.problem_hash)
            if other is None or (sample.speedup or 0.0) > (other.speedup or 0.0):
                best[sample.problem_hash] = sample
    kernels: list[PackagedKernel] = []
    for sample in best.values():
        assert sample.candidate_id is not None
        kernels.append(packaged_turn(store, store.turn(sample.candidate_id)))
    return with_distinct_names(kernels)


def packaged_file(store: Store, path: Path) -> PackagedKernel:
    """Returns the kernel of a file written by `agent solve`. Raises InputError for a file changed
    after its verdict.
    """
    file_text = read_candidate(path)
    header = _candidate_line(file_text)
    if header is None:
        raise InputError(
            f"{path} names no candidate of a database: name its problem with --problem"
        )
    turn = store.turn(int(header[1]))
    text = without_header(file_text)
    if turn.source is None or without_guard(text).strip() != without_guard(turn.source).strip():
        raise InputError(
            f"{path} is not candidate {header[1]} of {store.where}: name its problem with --problem"
        )
    return packaged_turn(store, turn, text)


def database_of(path: Path) -> str | None:
    """Returns the database named in a kernel file; None without one."""
    header = _candidate_line(read_candidate(path))
    return header[2] if header else None


def _candidate_line(text: str) -> re.Match[str] | None:
    # Long comments are wrapped: continuation lines begin with "#" and many spaces.
    return CANDIDATE_LINE.search(re.sub(r"\n# {5,}", " ", text))


def packaged_turn(store: Store, turn: Turn, text: str = "") -> PackagedKernel:
    """Returns the kernel of a stored candidate. text: the kernel with its checks, if any.

    Raises InputError for an incorrect candidate, or one unfit for a package.
    """
    if turn.source is None or turn.report is None or not turn.report.correct:
        raise InputError(f"candidate {turn.candidate_id} is not a correct kernel")
    problem, author = problem_of_turn(store, turn), author_of_turn(store, turn)
    kernel = package_kernel(problem, turn.source, turn.report, author, text)
    update = {
        "by_card": _tuned_texts(store, turn, problem),
        "gradients": stored_gradients(store, problem),
    }
    return kernel.model_copy(update=update)


def _tuned_texts(store: Store, turn: Turn, problem: Problem) -> dict[str, str]:
    """Returns the fastest correct kernel of the problem on each other GPU."""
    criteria = CandidateFilter(problem_hash=turn.problem_hash, correct=True)
    texts: dict[str, str] = {}
    for entry in store.candidates(criteria, order=Order.FASTEST, limit=None):
        other = store.turn(entry.candidate.id)
        report = other.report
        assert report is not None
        if report.judged_on not in texts and other.source is not None:
            texts[report.judged_on] = guarded_kernel(problem, other.source, report).text
    own_card = turn.report.judged_on if turn.report is not None else ""
    return {card: text for card, text in texts.items() if card != own_card}


def with_distinct_names(kernels: Sequence[PackagedKernel]) -> list[PackagedKernel]:
    """Returns the kernels with numbers appended to repeated names."""
    distinct: list[PackagedKernel] = []
    names: set[str] = set()
    for kernel in kernels:
        name, number = kernel.name, 2
        while name in names:
            name, number = f"{kernel.name}_{number}", number + 1
        names.add(name)
        distinct.append(kernel.model_copy(update={"name": name}))
    return distinct


def stem_of(name: str) -> str:
    """Returns a Python name for a problem's name: `block` for `path/block.py:Block`."""
    stem = re.sub(r"\.py(?=:|$)", "", name.rpartition("/")[2])
    stem = re.sub(r"\W+", "_", clean_text(stem, 60)).strip("_").lower()
    return stem if stem[:1].isalpha() else f"kernel_{stem}".strip("_")
