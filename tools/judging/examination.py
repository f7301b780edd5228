"""Examines a candidate at a size: the problem's own inputs, other weights, other input
distributions, later calls, own work.

At the base size, in order: own inputs twice with different poison and program order; own inputs
without launches (decoys); other weights; each distribution of `rules.distributions_for`; matrices
with structures; a search for untested branches of the kernels. At other sizes: a single call on a
draw in turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kernelwright.tools.comparing.special_values import NO_ANSWER
from kernelwright.tools.comparing.wrong_elements import POISON_BYTES
from kernelwright.tools.expected.dependence import require_inputs_read
from kernelwright.tools.expected.drawn_exponents import parts_of_inputs
from kernelwright.tools.expected.exactness.absorbed_infinities import absorbs_infinities
from kernelwright.tools.expected.movement import (
    converts_inputs,
    draws_of,
    gives_back_inputs,
    only_moves,
)
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs
from kernelwright.tools.expected.searched_draws import searched_outputs
from kernelwright.tools.expected.weights import WEIGHT_SCALES, require_visible_weights
from kernelwright.tools.judging import own_work
from kernelwright.tools.judging.rules import (
    ChecksOf,
    Evidence,
    Rules,
    Thoroughness,
    distributions_for,
)
from kernelwright.tools.judging.searching.outcome_search import OutcomeSearch
from kernelwright.tools.judging.searching.replayed_outcomes import told_outcomes
from kernelwright.tools.judging.size_checks import (
    NUMERIC_FAULTS,
    POISONS,
    SizeChecks,
    refusal_elsewhere,
)
from kernelwright.tools.judging.surroundings.earlier_calls import EarlierCalls
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.input_distributions import WITH_INFINITIES, WITH_NAN, Draw
from kernelwright.tools.references.redrawing.matrix_structures import (
    STRUCTURE_COUNT,
    parts_of_structures,
)
from kernelwright.tools.replaying.noise import NOISE
from kernelwright.tools.report import Cheat, Failed, Failure, Fault, OwnWork, clean_text
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.trace.alternatives import configuration_named, configurations_not_taken
from kernelwright.tools.tracing.client import TracedCandidate

if TYPE_CHECKING:
    from kernelwright.tools.judging.judge import Judge

DRAWS_IN_TURNS = (Draw.ISOLATED, Draw.AGREEING, Draw.MIXED_ROWS)
"""Draws in turn at sizes with a single call."""
OF_THE_BASE = (
    Draw.MINUS_INFINITE_ROWS,
    Draw.SUBNORMAL,
    Draw.NEGATIVE_NAN,
    Draw.EXPONENTS,
)
"""Draws of single numbers, for which the length of a row is irrelevant."""
WITH_TIES = (Draw.ISOLATED, Draw.STRUCTURED)
"""Draws with many equal numbers, whose order is undefined in a sort."""
SEARCH_SEED = 611953
"""Offset of the seed for searched draws."""


class Examination:
    """Examines a candidate at a size. Findings are added to `evidence`, also if a check fails."""

    def __init__(
        self, judge: Judge, candidate: TracedCandidate, size: AtSize, checks: SizeChecks, evidence: Evidence,
        seed: int, rules: Rules, seconds_left: Callable[[], float], progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._judge = judge
        self._candidate = candidate
        self._size = size
        self._problem = size.problem
        self._checks = checks
        self._evidence = evidence
        self._seed = seed
        self._rules = rules
        self._seconds_left = seconds_left
        self._progress = progress
        self._first_call_works_ahead = False

    def examine(self, how: Thoroughness) -> None:
        """Checks own inputs, other weights, and as many distributions as `how` says. Raises Failed."""
        try:
            self._own_inputs(how)
            perturbed = self._checks.calls.has_weights
            if perturbed:
                self._other_weights()
            else:
                self._second_draw()
            draws = self._distributions() if how is Thoroughness.ALL else self._few_distributions()
            self._checks.watched_draw = None  # the next draw may be of gigabytes, too
            for number, draw in enumerate(draws, 2):
                self._distribution(draw, number, perturbed)
            if how is Thoroughness.ALL and not self._beside_interpreter:
                self._matrix_structures(perturbed)
                self._search_outcomes()
        finally:
            self._evidence.add(self._checks)

    def examine_one_call(
        self, size_text: str, *, every_distribution: bool, every_configuration: bool
    ) -> None:
        """Checks a single draw, or two at the largest size, on other weights than the
        constructor's.

        size_text: the size in words. every_configuration: checks all autotuned configurations, if
        every distribution is checked. Raises Failed and ProblemError.
        """
        checks = self._checks
        index = self._size.index
        try:
            if checks.calls.missing:
                self._require_weights(self._judge.expected(self._problem, self._seed, Draw.OWN, 0))
            for draw in self._draws_of_one_call():
                expected = self._drawn(draw, checks.calls.has_weights)
                if self._size.is_degenerate and not expected.finite():
                    raise ProblemError("the reference is not finite at an extent of 1")
                if checks.calls.has_weights:
                    checks.calls.load_weights(expected.weights)
                for number in range(
                    1 + checks.calls.keeps_state
                ):  # a later call may ask for something else
                    poison, shuffle = (
                        POISON_BYTES[(index + number) % 2],
                        self._shuffle(index + 40 + 100 * number),
                    )
                    checks.check(expected, poison, shuffle, name=f"sizes: {size_text}", watch=True)
                    self._judge_watched()
            self._every_exponent(f" at {size_text}")
            self._own_work_elsewhere()
            if every_distribution:
                self._every_distribution(expected, every_configuration, f" at {size_text}")
        finally:
            self._evidence.add(checks)

    def _draws_of_one_call(self) -> list[Draw]:
        """Returns the draws of this size: in turn few numbers among zeros, inputs that agree except
        for few numbers, mixed rows.

        The largest size also gets the problem's own numbers with indices at their ends: among
        zeros, an index that is off by one reads the same number.
        """
        draw = DRAWS_IN_TURNS[self._size.turn % len(DRAWS_IN_TURNS)]
        if self._checks.prepared.reference.sorts:  # the order of many equal zeros is open
            return [Draw.SPECIAL if draw is Draw.AGREEING else Draw.OWN]
        return [draw, Draw.INDEX_ENDS] if self._size.turn == 0 else [draw]

    def _every_exponent(self, at: str) -> None:
        """Checks elementwise references on numbers of every exponent: at the largest size with all
        drawn mantissas. Raises Failed."""
        if self._checks.prepared.mixes_elements or self._beside_interpreter:
            return
        own = self._judge.expected(self._problem, self._seed, Draw.OWN, 0)
        parts = parts_of_inputs(own.inputs)
        for part in range(parts if self._size.turn == 0 else min(parts, 1)):
            self._distribution(Draw.EXPONENTS, 2, self._checks.calls.has_weights, at, part=part)

    def _drawn(self, draw: Draw, perturbed: bool) -> ExpectedOutputs:
        """Returns a draw at this size; the problem's own if the reference is not finite on it."""
        with contextlib.suppress(ProblemError):
            drawn = self._judge.expected(self._problem, self._seed, draw, 0, perturbed=perturbed)
            if drawn.finite():
                return drawn
        return self._judge.expected(self._problem, self._seed, Draw.OWN, 0, perturbed=perturbed)

    def _second_draw(self) -> None:
        """Checks another draw of the problem's own distribution, over noise. The draw is freed on
        return. Raises Failed."""
        expected = self._judge.expected(self._problem, self._seed, Draw.OWN, 1)
        self._checks.check(expected, NOISE, self._shuffle(3))

    def _own_inputs(self, how: Thoroughness) -> None:
        """Checks the problem's own inputs twice. The draw, possibly gigabytes, is freed on return.
        Raises Failed."""
        first = self._judge.expected(self._problem, self._seed, Draw.OWN, 0)
        self._require_weights(first)
        self._progress("checking own inputs")
        self._judge.give_way()
        outputs = self._checks.check(first, POISON_BYTES[0], self._shuffle(0), watch=True)
        needed = self._evidence.work.needed if self._evidence.work is not None else None
        self._first_call_works_ahead = own_work.first_call_works_ahead(
            self._checks.trace, self._checks.watched
        )
        self._evidence.work = self._own_work(needed=needed)
        agreed = self._checks.check_again(
            first, outputs, self._shuffle(1), watch=self._checks.calls.keeps_state
        )
        if self._judge.device != "cpu":
            # The interpreter runs one program by itself and the others as one batch, and NumPy sums and exponentiates
            # the two differently in the last bit: there bits say nothing of the kernel.
            self._evidence.deterministic = agreed
        if self._checks.calls.keeps_state:
            self._evidence.work = self._own_work(needed=needed)
            like_first = self._judge.draw_with_equal_edges(self._problem, self._seed, first)
            self._checks.check(
                like_first, POISON_BYTES[0], self._shuffle(60), name="own, equal at its edges"
            )
        if how is Thoroughness.ALL:
            self._other_configurations(first)
            self._earlier_calls(first)
            decoy = self._checks.right_without_launches(first, self._shuffle(2))
            self._evidence.work = self._own_work(needed=not decoy)

    def _require_weights(self, first: ExpectedOutputs) -> None:
        """Raises Failed if a relevant weight is not loaded, or if the set-up computes on weights."""
        require_visible_weights(self._checks.prepared, first, self._checks.calls.missing)
        if self._rules.own_work.mode != "report":
            own_work.require_no_work_on_weights(self._checks.trace, self._checks.calls.bound)

    def _other_weights(self) -> None:
        """Checks other weights. Raises Failed."""
        self._progress("checking other weights")
        expected = self._judge.expected(self._problem, self._seed, Draw.OWN, 1, perturbed=True)
        if self._first_call_works_ahead and not self._checks.follows_weights(
            expected, self._shuffle(61)
        ):
            raise Failed(
                Failure(fault=Fault.CHEAT, cheat=Cheat.WEIGHTS, message=own_work.FOLDED_WEIGHTS)
            )
        self._checks.calls.load_weights(expected.weights)
        self._checks.check(expected, NOISE, self._shuffle(3), name="other_weights")

    def _other_configurations(self, drawn: ExpectedOutputs, at: str = "") -> None:
        """Checks configurations of autotuned launches that the calls on own inputs have not taken;
        all at another size. Raises Failed."""
        covered_numbers = () if at else (self._shuffle(0), self._shuffle(1))
        numbers = configurations_not_taken(
            own_work.steps_of(self._checks.trace), self._candidate.traced, covered_numbers
        )
        for number in numbers:
            self._checks.calls.configuration = number
            try:
                self._checks.check(
                    drawn, POISON_BYTES[0], self._shuffle(70 + number), name=f"own{at}"
                )
            except Failed as failed:
                label = configuration_named(own_work.steps_of(self._checks.trace), number)
                message = f"with the configuration {label}: {failed.failure.message}"
                raise Failed(failed.failure.with_(message=clean_text(message, 700))) from failed
        self._checks.calls.configuration = None

    def _earlier_calls(self, first: ExpectedOutputs) -> None:
        """Looks at answers after what is kept between calls was changed. Raises Failed."""
        calls = EarlierCalls(
            ask=lambda message: self._judge.replayer.ask(message, seconds=self._seconds_left()),
            check=lambda drawn: self._checks.check(
                drawn, POISON_BYTES[0], self._shuffle(0), name="own"
            ),
        )
        other = partial(self._judge.expected, self._problem, self._seed, Draw.OWN, 1)
        self._evidence.moves_on = calls.examine(first, other, self._shuffle(62))

    def _few_distributions(self) -> list[Draw]:
        """Returns the draws at a large size: signed numbers, and isolated ones for outputs in half
        precision. Isolated numbers show whether every element of a long row has an effect.
        """
        in_half = self._checks.prepared.rounds_to_half
        return [Draw.SIGNED, *([Draw.ISOLATED] if in_half else ())]

    def _distributions(self) -> list[Draw]:
        assert self._checks.watched_draw is not None
        draws = distributions_for(
            self._candidate.traced, self._checks.prepared, self._checks.watched_draw.inputs
        )
        return [d for d in draws if not (self._beside_interpreter and d in OF_THE_BASE)]

    @property
    def _beside_interpreter(self) -> bool:
        return self._rules.checks is ChecksOf.GPU_BESIDE_INTERPRETER

    def _distribution(
        self, draw: Draw, number: int, perturbed: bool, at: str = "", *, part: int = 0
    ) -> None:
        """Checks a distribution. at: suffix that names a size other than the base. part: index
        within a draw of several calls. Raises Failed."""
        if draw in WITH_TIES and self._checks.prepared.reference.sorts:
            return
        try:
            expected = self._judge.expected(
                self._problem, self._seed, draw, number, perturbed=perturbed, part=part
            )
        except ProblemError as error:
            self._evidence.notes.append(f"{draw}: not used, {error}")
            return
        if draw in WITH_INFINITIES and any(
            hasattr(output, "is_floating_point") and not output.is_floating_point()
            for output in expected.eager
        ):
            return  # where a NaN arises on the way, an index or a comparison does not show it
        if draw is Draw.MINUS_INFINITE_ROWS and not absorbs_infinities(
            self._checks.prepared, expected
        ):
            return
        if draw not in (*WITH_INFINITIES, *WITH_NAN, Draw.ZERO_ROWS) and not expected.finite():
            self._evidence.notes.append(f"{draw}: not used, the reference is not finite on it")
            return
        self._progress(f"checking {draw}")
        self._judge.give_way()
        if expected.weights is not self._checks.calls.model and perturbed:
            self._checks.calls.load_weights(expected.weights)
        poison = POISONS[number % len(POISONS)]
        compared = len(self._checks.checks)
        try:
            with refusal_elsewhere(draw):
                self._checks.check(expected, poison, self._shuffle(number + 3), name=f"{draw}{at}")
        except Failed as failed:
            # No operator of torch makes a NaN with a sign of numbers on a GPU: it costs the reward alone.
            if draw is not Draw.NEGATIVE_NAN or failed.failure.fault not in NUMERIC_FAULTS:
                raise
            del self._checks.checks[compared:]
            self._evidence.reads_sign_of_nan = True
        notes = {check.note for check in self._checks.checks[compared:]}
        self._evidence.has_no_answer |= draw is Draw.MINUS_INFINITE_ROWS and NO_ANSWER in notes

    def _matrix_structures(self, perturbed: bool) -> None:
        """Checks matrices with structures as inputs and as weights, loaded for each draw. Raises
        Failed."""
        if self._checks.prepared.reference.sorts:
            return
        model = self._checks.calls.model
        own = self._judge.expected(self._problem, self._seed, Draw.OWN, 0).inputs
        parts = parts_of_structures(own, [*model.parameters()] if perturbed else [])
        scales = range(STRUCTURE_COUNT, STRUCTURE_COUNT + len(WEIGHT_SCALES)) if perturbed else ()
        for part in dict.fromkeys([*parts, *scales]):
            self._distribution(Draw.MATRICES, 2, perturbed, part=part)
        if perturbed:
            self._checks.calls.load_weights(model)

    def _search_outcomes(self) -> None:
        """Searches for draws on which comparisons in the kernels change their outcome, if outcomes
        are observed. Raises Failed."""
        if self._judge.device != "cpu":
            return
        self._progress("searching for outcomes of comparisons")
        prepared = self._checks.prepared
        model = self._checks.calls.model
        seed = (self._seed >> 16) + SEARCH_SEED
        search = OutcomeSearch(
            expect=lambda change: searched_outputs(prepared, change, seed, model),
            check=self._check_searched,
            tell=partial(told_outcomes, self._judge.replayer, self._seconds_left),
        )
        self._evidence.search = search
        search.run()

    def _check_searched(self, expected: ExpectedOutputs, number: int) -> None:
        with refusal_elsewhere(Draw.SEARCHED):
            self._checks.check(
                expected, POISONS[number % len(POISONS)], self._shuffle(200 + number)
            )

    def _every_distribution(self, drawn: ExpectedOutputs, configurations: bool, at: str) -> None:
        """Checks distributions at a long size, since loops over several blocks may fail on inputs
        that short rows pass.

        The first long size takes all configurations and draws, the others every second draw. Raises
        Failed.
        """
        if configurations:
            self._other_configurations(drawn, at)
        draws = [draw for draw in self._distributions() if draw not in OF_THE_BASE]
        for number, draw in enumerate(draws, 2):
            if not configurations and (number + self._seed) % 2:
                continue
            self._distribution(draw, number, self._checks.calls.has_weights, at)

    def _own_work_elsewhere(self) -> None:
        drawn, census = (
            self._checks.watched_draw,
            own_work.census_of(self._checks.trace, self._candidate.traced),
        )
        if not census.launches and drawn is not None and gives_back_inputs(drawn):
            return  # a shortcut, as for a roll by a whole row: there is nothing to be done
        earlier_work = self._evidence.work
        try:
            self._own_work(needed=earlier_work.needed if earlier_work else None)
        finally:
            self._evidence.work = earlier_work

    def _own_work(self, needed: bool | None) -> OwnWork:
        work = OwnWork(
            mode=self._rules.own_work.text,
            census=own_work.census_of(self._checks.trace, self._candidate.traced),
            needed=needed,
        )
        watched = self._checks.watched
        operations = self._checks.prepared.operations
        if (
            self._judge.device == "cpu"
            and work.census.launches
            and watched is not None
            and operations
        ):
            self._evidence.share = max(0.0, 1.0 - watched.operations / operations)
        if self._evidence.share is not None:
            work = work.with_(share=self._evidence.share, share_of="operations")
        self._evidence.work = work
        judged = own_work.judge(
            work, self._rules.own_work, own_work.depends_on_a_launch(self._checks.trace)
        )
        self._judge_watched()
        return judged

    def _judge_watched(self) -> None:
        """Judges the observations of the last watched call, once. Raises Failed."""
        watched = self._checks.watched
        drawn = self._checks.watched_draw
        self._checks.watched = None
        own_work.require_inputs_left_alone(
            watched, self._checks.prepared, self._checks.calls.unchanged_names()
        )
        if watched is not None and drawn is not None and watched.unread:
            require_inputs_read(self._checks.prepared, drawn, watched.unread)
        if drawn is not None and not gives_back_inputs(drawn) and not self._size.is_degenerate:
            own_work.judge_watched(
                watched,
                self._rules.own_work,
                self._only_moves,
                only_converts=converts_inputs(drawn),
            )

    def _only_moves(self) -> bool:
        """Returns True if the problem only moves values; at a size too large to examine, by the
        result of earlier sizes."""
        moves_only, before = (
            only_moves(draws_of(self._checks.prepared, self._seed)),
            self._evidence.only_moves,
        )
        if moves_only is not None:
            self._evidence.only_moves = moves_only and before is not False
        return bool(self._evidence.only_moves)

    def _shuffle(self, number: int) -> int:
        return (self._seed * 31 + number * 7919) & 0x7FFFFFFF
