"""`agent tune` without its options: reads the file's numbers, prunes by compiling, and where there is a GPU measures,
judges the winner in full and writes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kernelwright.agent.tuning.files import tuned_text
from kernelwright.agent.tuning.journal import Journal
from kernelwright.agent.tuning.measuring import HalvingResult, TrialMeasuring
from kernelwright.agent.tuning.precision_classes import best_of_classes
from kernelwright.agent.tuning.priors import Priors, no_priors, priors_of_journal
from kernelwright.agent.tuning.pruning import prune
from kernelwright.agent.tuning.settings import TuneSettings, precision_class_of
from kernelwright.agent.tuning.tuned import (
    ConfigurationOutcome,
    JudgedConfiguration,
    ParameterGroup,
    PrintedParameter,
    TuningResult,
)
from kernelwright.errors import InputError
from kernelwright.tools.hardware.machine_info import version
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report
from kernelwright.tools.tuning.compile_scores import CompileScore, score_by_compiling
from kernelwright.tools.tuning.kernel_text.parameters import (
    ParameterSpace,
    Setting,
    changed_settings,
    key_of,
)
from kernelwright.tools.tuning.kernel_text.reading import TunableFile, read_file
from kernelwright.tools.tuning.kernel_text.rewriting import rewrite
from kernelwright.tools.tuning.kernel_text.writing_lists import with_list
from kernelwright.tools.tuning.tunable_space import TunableSpace, find_tunable_space

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options
    from kernelwright.tools.judging.trials import TrialTimes

Say = Callable[[str], None]
JUDGED_KIND = "judged"
"""Kind of the journal's rows with a full verdict."""
NO_AUTOTUNE_LIST_MESSAGE = (
    "the shapes have different winners, and the file has no @triton.autotune list that could hold them: those of the "
    "first shape were written"
)
MAX_JUDGED_CONFIGURATIONS = 4
"""Configurations that are judged, at most, for each right one that is wanted."""


class Tuner:
    """Tunes one kernel file for one problem."""

    def __init__(
        self, evaluator: Evaluator, problem: Problem, source: str, settings: TuneSettings, journal: Journal,
        say: Say = lambda _: None, *, kernel: str = "kernel.py", priors: Priors = no_priors,
    ) -> None:  # fmt: skip
        """kernel: the file's name, to be printed. priors: gives configurations that are tried before others."""
        from kernelwright.tools.evaluation.pipeline import Options

        self._evaluator, self._problem, self._settings = evaluator, problem, settings
        self._journal, self._say, self._kernel = journal, say, kernel
        self._file = _read(source, kernel)
        self._first = priors_of_journal(journal, priors)
        self._options = Options(
            targets=(settings.target,), own_work=settings.own_work, torch_compile=False
        )

    @property
    def file(self) -> TunableFile:
        """The file and its numbers."""
        return self._file

    def run(self, check: int = 0) -> tuple[TuningResult, str]:
        """What was found, and the tuned text: empty where nothing was measured, or nothing is certainly faster.

        check: on a CPU, so many of the best are judged under the interpreter. Raises ProblemError where the reference
        cannot be used, InfrastructureError for this machine's trouble.
        """
        followed = self._followed()
        tuned = TuningResult(
            problem=self._problem.name, kernel=self._kernel, target=self._settings.target, device="cpu",
            parameters=tuple(_printed(p) for p in followed.space.parameters), refused=followed.space.refused,
            failure=_failure(followed), journal=str(self._journal.path), resumed=self._journal.resumed,
        )  # fmt: skip
        if tuned.failure:
            return tuned, ""
        space = followed.space
        groups = prune(
            self._file, space, self._settings, self._score, self._journal, self._say, self._first
        )
        if not self._evaluator.on_gpu:
            return tuned.with_(groups=self._checked(space, groups, check)), ""
        return self._measured(tuned, space, groups)

    def pruned(self) -> tuple[ParameterSpace, tuple[ParameterGroup, ...]]:
        """The parameters that reach a launch of this problem, and what compiling alone says of their configurations.

        Raises InputError where there are none.
        """
        followed = self._followed()
        if why := _failure(followed):
            raise InputError(f"{self._kernel} cannot be tuned for {self._problem.name}: {why}")
        groups = prune(
            self._file,
            followed.space,
            self._settings,
            self._score,
            self._journal,
            self._say,
            self._first,
        )
        return followed.space, groups

    def _followed(self) -> TunableSpace:
        self._say("tuning: tracing the kernel")
        front, target = self._evaluator.front(), self._settings.target
        return find_tunable_space(
            self._file,
            lambda text: front.traced_at_own_size(self._problem, text, target, self._options),
            parse_target(target).capability,
            self._say,
        )

    def _score(self, text: str) -> CompileScore:
        front, target = self._evaluator.front(), self._settings.target
        return score_by_compiling(
            text,
            lambda one: front.traced_at_own_size(self._problem, one, target, self._options),
            lambda traced, one: front.compiled_at_own_size(
                traced, target, one, self._options, texts=("ptx", "amdgcn")
            ),
            target,
        )

    # -------------------------------------------------------------- on a CPU
    def _checked(
        self, space: ParameterSpace, groups: Sequence[ParameterGroup], count: int
    ) -> tuple[ParameterGroup, ...]:
        """The best that remain of each group, judged under the interpreter until so many are right; what is wrong there
        remains no more.
        """
        found = []
        for group in groups:
            rows, fine = list(group.rows), 0
            for row in [row for row in group.remaining() if not row.start][
                : MAX_JUDGED_CONFIGURATIONS * count
            ]:
                if fine == count:
                    break
                report = self._judged(space, row.configuration)
                told = report.interpreted is not None
                note = "" if report.correct else report.explanation
                fate = row.fate if report.correct or not told else ConfigurationOutcome.WRONG
                right = report.correct if told else None
                fine += report.correct
                rows[rows.index(row)] = row.with_(right_on_cpu=right, note=note, fate=fate)
            found.append(group.with_(rows=tuple(rows)))
        return tuple(found)

    def _judged(self, space: ParameterSpace, configuration: Mapping[str, Setting]) -> Report:
        """The full verdict, from the journal where it is there already."""
        key = key_of(dict(configuration))
        known = self._journal.find(JUDGED_KIND, key)
        if known is None:
            self._say(
                "tuning: judging "
                + ", ".join(f"{n} {v}" for n, v in changed_settings(space, configuration).items())
            )
            text = rewrite(self._file.source, space, configuration)
            known = json.loads(
                self._evaluator.evaluate(self._problem, text, self._options).model_dump_json()
            )
            self._journal.add(JUDGED_KIND, key, known)
        known.pop("explanation", None)
        return Report.model_validate(known)

    # -------------------------------------------------------------- on a GPU
    def _measured(
        self, tuned: TuningResult, space: ParameterSpace, groups: Sequence[ParameterGroup]
    ) -> tuple[TuningResult, str]:
        """Halving at every shape, then the full verdict of what won; the next best where that is not right."""
        shapes = self._settings.shapes or ({},)
        found = [self._at(space, groups, shape) for shape in shapes]
        first = found[0]
        chosen: list[JudgedConfiguration] = []
        report: Report | None = None
        for shape, one in zip(shapes, found, strict=True):
            right, its = self._first_right(space, one)
            if right is None:
                continue
            report = report or its
            if right not in [dict(c.configuration) for c in chosen] and len(chosen) < max(
                self._settings.keep, 1
            ):
                chosen.append(self._chosen(space, right, one, shape))
        judged = (lambda one: self._judged(space, one)) if self._settings.classes else None
        classes = best_of_classes(space, first, judged)
        tuned = tuned.with_(
            device=self._evaluator.environment().gpu, measured=True, groups=first.groups, eager=first.eager,
            before=first.before, chosen=tuple(chosen), report=report, by_precision=classes,
            launches=sum(one.launches for one in found), gpu_seconds=sum(one.seconds for one in found),
            notes=("stopped by its budget",) if any(one.stopped_by_budget for one in found) else (),
        )  # fmt: skip
        if not chosen or not any(c.changes for c in chosen):
            return tuned, ""
        winners = [c.configuration for c in chosen]
        if len(winners) > 1 and not with_list(self._file, space, winners):
            tuned = tuned.with_(notes=(*tuned.notes, NO_AUTOTUNE_LIST_MESSAGE))
        return tuned, tuned_text(self._file, space, winners)

    def _at(
        self, space: ParameterSpace, groups: Sequence[ParameterGroup], shape: Mapping[str, int]
    ) -> HalvingResult:
        problem = self._problem.with_sizes(dict(shape)) if shape else self._problem
        clock = _TrialClock(self._evaluator, problem, self._options)
        return TrialMeasuring(
            self._file, space, self._settings, clock, self._journal, self._say, shape
        ).run(groups)

    def _first_right(
        self, space: ParameterSpace, measured: HalvingResult
    ) -> tuple[dict[str, Setting] | None, Report | None]:
        """The fastest configuration that passes the full verdict; the file's own where none other does."""
        start = space.start()
        if not self._settings.verdict:
            return dict(measured.best), None
        for one in [measured.best, *(r for r in measured.ranked if r != measured.best)][:4]:
            report = self._judged(space, one)
            if report.correct:
                return dict(one), report
            if one == start:
                break
        report = self._judged(space, start)
        return (start, report) if report.correct else (None, report)

    def _chosen(
        self,
        space: ParameterSpace,
        configuration: dict[str, Setting],
        measured: HalvingResult,
        shape: Mapping[str, int],
    ) -> JudgedConfiguration:
        return JudgedConfiguration(
            configuration=configuration, changes=changed_settings(space, configuration),
            precision=precision_class_of(space, configuration),
            timing=measured.after if configuration == measured.best else None, shape=dict(shape),
        )  # fmt: skip


class _TrialClock:
    """The evaluator's trials at one size."""

    def __init__(self, evaluator: Evaluator, problem: Problem, options: Options) -> None:
        self._evaluator, self._problem, self._options = evaluator, problem, options

    def time(self, source: str, calls: int) -> TrialTimes:
        """Times `calls` calls of one configuration's text. Raises what `Evaluator.trial` raises."""
        return self._evaluator.trial(self._problem, source, calls, self._options)


def identity_of(problem: Problem, source: str, settings: TuneSettings, device: str) -> str:
    """Returns a hash of everything that decides what a journal's rows say.

    device: cpu, or the GPU's name: what was compiled on a CPU is not made again on a GPU of the same target, but times
    are of one GPU only.
    """
    compiled = [
        problem.hash,
        source,
        settings.target,
        settings.own_work,
        version("triton"),
        version("torch"),
    ]
    told = settings.model_dump_json(exclude={"device"})
    return hashlib.sha256("\0".join([*map(str, compiled), told, device]).encode()).hexdigest()


def _read(source: str, kernel: str) -> TunableFile:
    """Raises InputError for what is not Python, or has nothing to tune."""
    try:
        file = read_file(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(
            f"{kernel} is not Python: {error}: correct it (agent check shows the line)"
        ) from None
    if not file.space.parameters:
        raise InputError(
            f"{kernel} launches no @triton.jit kernel by its name: there is nothing to tune"
        )
    return file


def _failure(followed: TunableSpace) -> str:
    if followed.failure is not None:
        return " ".join(followed.failure.message.split())[:300]
    return (
        ""
        if followed.space.parameters
        else "no number of the file changes what is launched at this problem's size"
    )


def _printed(parameter: object) -> PrintedParameter:
    told = {n: getattr(parameter, n) for n in ("name", "line", "start", "values")}
    return PrintedParameter(role=str(getattr(parameter, "role", "")), **told)
