"""Reads earlier winners for kernels of the same kind on this GPU from the store: configurations
to try first.

A tuned candidate is a row with the action `tune`; its numbers are read from its source text, so
no further record is needed. Parameters are matched by their role and by the tile's position in
its kernel, not by their names.

Example: a stored winner has tiles BLOCK_M 128, BLOCK_N 64 and num_warps 8. A new file whose
kernel has the tiles ROWS and COLUMNS and an option num_warps gets the prior {ROWS: 128, COLUMNS:
64, num_warps: 8}.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from kernelwright.agent.tuning.journal import Journal
from kernelwright.store.database import Store
from kernelwright.store.models import Action
from kernelwright.store.records import CandidateFilter, Turn
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report
from kernelwright.tools.tuning.kernel_text.parameters import (
    Parameter,
    ParameterRole,
    ParameterSpace,
    Setting,
)
from kernelwright.tools.tuning.kernel_text.reading import read_file

MAX_CANDIDATES_READ = 200
"""Maximum number of tuned candidates that are read, the latest first."""
MAX_PRIORS = 4
"""Maximum number of earlier winners tried first, most frequent first."""

Priors = Callable[[], list[dict[str, Setting]]]
PRIORS_KIND = "priors"
"""Kind of the journal's row that holds the priors."""

Shape = tuple[tuple[str, bool, int], ...]
"""Kind of a kernel: its parameters' roles, whether they place programs, and their number."""


def kind_of(parameters: Sequence[Parameter]) -> Shape:
    """Returns the kind of a kernel. Kernels with the same tiles and options are of one kind,
    whatever their names.
    """
    counts: Counter[tuple[str, bool]] = Counter()
    for parameter in parameters:
        if parameter.role is not ParameterRole.CTAS:
            counts[parameter.role.value, parameter.places_programs] += 1
    return tuple(sorted((role, placed, count) for (role, placed), count in counts.items()))


def no_priors() -> list[dict[str, Setting]]:
    """Returns no configurations: there is no store to read."""
    return []


def priors_of_journal(journal: Journal, priors: Priors) -> list[dict[str, Setting]]:
    """Reads the priors once per journal, so a continued tuning starts from the same
    configurations.
    """
    configurations = journal.find(PRIORS_KIND, "")
    if configurations is None:
        configurations = priors()
        journal.add(PRIORS_KIND, "", configurations)
    return [dict(configuration) for configuration in configurations]


def priors_for(
    store: Store, problem: Problem, device: str, source: str
) -> list[dict[str, Setting]]:
    """Returns configurations for this file, the most frequent winner first; winners of the same
    problem before others.

    device: the GPU's name; cpu: winners of any GPU, as only the compiler ranks there.
    """
    try:
        space = read_file(source).space
    except (SyntaxError, ValueError, RecursionError):
        return []
    winners: list[str] = []
    winners_of_problem: list[str] = []
    for turn in _tuned(store):
        if turn.report is not None and _won_on(turn.report, device):
            winners.append(turn.source or "")
            if turn.report.problem_hash == problem.hash:
                winners_of_problem.append(turn.source or "")
    # Winners of the same problem stand twice, so that they count double.
    return priors_from([*winners_of_problem, *winners], space)


def _won_on(report: Report, device: str) -> bool:
    measured = report.profile is not None
    return measured and device in ("cpu", report.judged_on, report.environment.gpu)


def priors_from(winners: Iterable[str], space: ParameterSpace) -> list[dict[str, Setting]]:
    """Returns the most frequent values of tuned kernels for the kernels of this space.

    winners: source texts of tuned kernels.
    """
    target_kernels = _by_kernel(space)
    frequencies: Counter[tuple[tuple[str, Setting], ...]] = Counter()
    for text in winners:
        try:
            tuned_kernels = _by_kernel(read_file(text).space)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for parameters in target_kernels.values():
            for tuned_parameters in tuned_kernels.values():
                if kind_of(tuned_parameters) == kind_of(parameters):
                    frequencies[tuple(sorted(_carried(parameters, tuned_parameters).items()))] += 1
    return [
        dict(configuration)
        for configuration, _ in frequencies.most_common(MAX_PRIORS)
        if configuration
    ]


def _carried(
    parameters: Sequence[Parameter], tuned_parameters: Sequence[Parameter]
) -> dict[str, Setting]:
    """Returns the tuned values for parameters of the same role and position, if they are legal
    there.
    """
    carried: dict[str, Setting] = {}
    for role in ParameterRole:
        for placed in (True, False):
            targets = _of_role(parameters, role, placed)
            sources = _of_role(tuned_parameters, role, placed)
            for target, source in zip(targets, sources, strict=False):
                if source.start in target.values:
                    carried[target.name] = source.start
    return carried


def _of_role(parameters: Sequence[Parameter], role: ParameterRole, placed: bool) -> list[Parameter]:
    """Returns the parameters of a role, in the order of the text; placed: those on the grid."""
    return [p for p in parameters if p.role is role and p.places_programs is placed]


def _by_kernel(space: ParameterSpace) -> dict[str, list[Parameter]]:
    groups: dict[str, list[Parameter]] = {}
    for parameter in space.parameters:
        groups.setdefault(parameter.kernels[0], []).append(parameter)
    return groups


def _tuned(store: Store) -> list[Turn]:
    """Returns the tuned turns, the latest first."""
    turns = deque(
        store.samples(CandidateFilter(action=Action.TUNE, correct=True)), maxlen=MAX_CANDIDATES_READ
    )
    return list(reversed(turns))
