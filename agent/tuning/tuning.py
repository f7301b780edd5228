"""`agent tune` without its options: reads the file's numbers and prunes by compiling; on a GPU
also measures, judges the winner in full and writes it.
"""

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
from kernelwright.agent.tuning.pruning import Pruner
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
    Parameter,
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
"""Maximum number of judged configurations for each correct configuration that is wanted."""


class Tuner:
    """Tunes one kernel file for one problem."""

    def __init__(
        self, evaluator: Evaluator, problem: Problem, source: str, settings: TuneSettings, journal: Journal,
        say: Say = lambda _: None, *, kernel: str = "kernel.py", priors: Priors = no_priors,
    ) -> None:  # fmt: skip
        """kernel: name of the file for messages. priors: returns configurations that are tried
        before others.
        """
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
        """Returns the parsed kernel file with its numbers."""
        return self._file

    def run(self, check: int = 0) -> tuple[TuningResult, str]:
        """Tunes the file. Returns the result and the tuned text; the text is empty if nothing was
        measured, or nothing is certainly faster.

        check: number of the best configurations that are judged under the interpreter, on a CPU.
        Raises ProblemError if the reference cannot be used, InfrastructureError for this
        machine's trouble.
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
        groups = self._pruned_groups(space)
        if not self._evaluator.on_gpu:
            return tuned.with_(groups=self._checked(space, groups, check)), ""
        return self._measured(tuned, space, groups)

    def pruned(self) -> tuple[ParameterSpace, tuple[ParameterGroup, ...]]:
        """Returns the parameters that reach a launch of this problem, and the groups ranked by
        compiling alone.

        Raises InputError if no parameter reaches a launch.
        """
        followed = self._followed()
        if why := _failure(followed):
            raise InputError(f"{self._kernel} cannot be tuned for {self._problem.name}: {why}")
        return followed.space, self._pruned_groups(followed.space)

    def _pruned_groups(self, space: ParameterSpace) -> tuple[ParameterGroup, ...]:
        pruner = Pruner(self._file, space, self._settings, self._score, self._journal, self._say)
        return pruner.run(self._first)

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
            lambda text: front.traced_at_own_size(self._problem, text, target, self._options),
            lambda traced, text: front.compiled_at_own_size(
                traced, target, text, self._options, texts=("ptx", "amdgcn")
            ),
            target,
        )

    # -------------------------------------------------------------- on a CPU
    def _checked(
        self, space: ParameterSpace, groups: Sequence[ParameterGroup], count: int
    ) -> tuple[ParameterGroup, ...]:
        """Judges the best configurations of each group under the interpreter until `count` are
        correct; incorrect configurations are marked as wrong.
        """
        checked_groups = []
        for group in groups:
            rows, passed = list(group.rows), 0
            candidates = [row for row in group.remaining() if not row.start]
            for row in candidates[: MAX_JUDGED_CONFIGURATIONS * count]:
                if passed == count:
                    break
                report = self._judged(space, row.configuration)
                was_interpreted = report.interpreted is not None
                note = "" if report.correct else report.explanation
                fate = (
                    row.fate
                    if report.correct or not was_interpreted
                    else ConfigurationOutcome.WRONG
                )
                right = report.correct if was_interpreted else None
                passed += report.correct
                rows[rows.index(row)] = row.with_(right_on_cpu=right, note=note, fate=fate)
            checked_groups.append(group.with_(rows=tuple(rows)))
        return tuple(checked_groups)

    def _judged(self, space: ParameterSpace, configuration: Mapping[str, Setting]) -> Report:
        """Returns the full verdict on a configuration, from the journal if it is stored there."""
        key = key_of(dict(configuration))
        stored_report = self._journal.find(JUDGED_KIND, key)
        if stored_report is None:
            changes = changed_settings(space, configuration)
            shown = ", ".join(f"{name} {value}" for name, value in changes.items())
            self._say(f"tuning: judging {shown}")
            text = rewrite(self._file.source, space, configuration)
            report = self._evaluator.evaluate(self._problem, text, self._options)
            stored_report = json.loads(report.model_dump_json())
            self._journal.add(JUDGED_KIND, key, stored_report)
        stored_report.pop("explanation", None)  # computed from the other fields
        return Report.model_validate(stored_report)

    # -------------------------------------------------------------- on a GPU
    def _measured(
        self, tuned: TuningResult, space: ParameterSpace, groups: Sequence[ParameterGroup]
    ) -> tuple[TuningResult, str]:
        """Measures by halving at every shape, then judges the winner in full, and the next best
        if the winner is not correct.
        """
        # An empty shape is the problem's own size.
        shapes = self._settings.shapes or ({},)
        results = [self._at(space, groups, shape) for shape in shapes]
        first = results[0]
        chosen: list[JudgedConfiguration] = []
        report: Report | None = None
        for shape, result in zip(shapes, results, strict=True):
            winner, winner_report = self._first_right(space, result)
            if winner is None:
                continue
            report = report or winner_report
            is_new = all(winner != dict(judged.configuration) for judged in chosen)
            if is_new and len(chosen) < max(self._settings.keep, 1):
                chosen.append(self._chosen(space, winner, result, shape))
        judged = (
            (lambda configuration: self._judged(space, configuration))
            if self._settings.classes
            else None
        )
        classes = best_of_classes(space, first, judged)
        tuned = tuned.with_(
            device=self._evaluator.environment().gpu, measured=True, groups=first.groups, eager=first.eager,
            before=first.before, chosen=tuple(chosen), report=report, by_precision=classes,
            launches=sum(result.launches for result in results), gpu_seconds=sum(result.seconds for result in results),
            notes=("stopped by its budget",) if any(result.stopped_by_budget for result in results) else (),
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
        measuring = TrialMeasuring(
            self._file, space, self._settings, clock, self._journal, self._say
        )
        return measuring.run(groups, shape)

    def _first_right(
        self, space: ParameterSpace, measured: HalvingResult
    ) -> tuple[dict[str, Setting] | None, Report | None]:
        """Returns the fastest configuration that passes the full verdict; the file's own if no
        other does.
        """
        start = space.start()
        if not self._settings.verdict:
            return dict(measured.best), None
        runners_up = [ranked for ranked in measured.ranked if ranked != measured.best]
        for configuration in [measured.best, *runners_up][:MAX_JUDGED_CONFIGURATIONS]:
            report = self._judged(space, configuration)
            if report.correct:
                return dict(configuration), report
            if configuration == start:
                break
        # None of the fastest is correct: the file itself, if at least that is.
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
    """Times trials with the evaluator, at one size of the problem."""

    def __init__(self, evaluator: Evaluator, problem: Problem, options: Options) -> None:
        self._evaluator, self._problem, self._options = evaluator, problem, options

    def time(self, source: str, calls: int) -> TrialTimes:
        """Times `calls` calls of a configuration's text. Raises the exceptions of
        `Evaluator.trial`.
        """
        return self._evaluator.trial(self._problem, source, calls, self._options)


def identity_of(problem: Problem, source: str, settings: TuneSettings, device: str) -> str:
    """Returns a hash of all inputs that determine a journal's rows.

    device: cpu, or the GPU's name: times are of one GPU only, but compilations are valid for
    every GPU of the same target.
    """
    compiled = [
        problem.hash,
        source,
        settings.target,
        settings.own_work,
        version("triton"),
        version("torch"),
    ]
    settings_json = settings.model_dump_json(exclude={"device"})
    return hashlib.sha256(
        "\0".join([*map(str, compiled), settings_json, device]).encode()
    ).hexdigest()


def _read(source: str, kernel: str) -> TunableFile:
    """Parses the kernel file. Raises InputError if the text is not Python, or has nothing to
    tune.
    """
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
    if followed.space.parameters:
        return ""
    return "no number of the file changes what is launched at this problem's size"


def _printed(parameter: Parameter) -> PrintedParameter:
    return PrintedParameter(
        name=parameter.name,
        role=str(parameter.role),
        line=parameter.line,
        start=parameter.start,
        values=parameter.values,
    )
