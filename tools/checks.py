"""The checks of one candidate, one after the other: every draw, poison, mutation, aliasing, margins, weights, hidden sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tools.buffers import Buffers
from tools.compare import Measured, failure_of, measure, right
from tools.conversation import Conversation
from tools.draws import Draw
from tools.examine import check_form, check_side_effects
from tools.exchange import MARGIN_BYTE, Exchange, state_of
from tools.ownwork import Rule, evidence, judge_own_work, operations_told
from tools.problem import ProblemError
from tools.results import Census, Cheat, Check, CorrectnessResult, Failed, Failure, Fault, OwnWork, clean_text
from tools.situation import (
    EXACT_SECONDS,
    Expected,
    Situation,
    expect,
    moved_outputs,
    names_as_good,
    precise,
    same_bits,
    shaken_model,
)

POISONS = (0xFF, 0x4B)
"""NaN in every floating type, and a large finite number."""


class Checks:
    """One conversation about one problem. Raises Failed at the first thing that is wrong."""

    def __init__(
        self, situation: Situation, talk: Conversation, buffers: Buffers, seed: int, progress: Callable[[str], None]
    ) -> None:
        self.situation, self._seed, self._progress = situation, seed, progress
        self.exchange = Exchange(situation, talk, buffers)
        self.checks: list[Check] = []
        self.notes: list[str] = list(situation.notes)
        self.census = Census()
        self._operations = 0
        """That torch computed beside the kernels in one call, the most of any."""
        self.deterministic: bool | None = None
        self.needed: bool | None = None
        self.first: Expected | None = None
        self.model = situation.model
        """The reference that the candidate's weights are those of."""
        self._drawn = 0
        self._tolerances: list[Any] = []
        self.steady: dict[str, int] | None = None
        """Launches by name that every checked call made: what a timed call must make too. A CUDA graph replays without any."""
        self.doubted: Expected | None = None
        """A draw whose answer was wrong while it was timed."""

    def load(self, source: str) -> None:
        """The candidate's module and model, and its parameters matched with the reference's."""
        self._progress("loading")
        self.exchange.load(source)
        if self.exchange.reloaded is False:
            self.notes.append(
                "the parameters cannot be matched with the reference's by name or order: both were drawn from one seed, and never reloaded"
            )

    # -------------------------------------------------------------- draws
    def all_draws(self, after_first: Callable[[], object] = lambda: None) -> None:
        """TRUST.md, checks 1 to 5 and 7. after_first: asked once the first call is known to be right, before the rest is paid for."""
        self.first = self.expect(Draw.OWN)
        self.exchange.open(self.first)
        outputs = self._checked(self.first, POISONS[0])
        self._again(self.first, outputs)
        self._one(self.expect(Draw.OWN, edges=self.first.inputs))
        self._without_launches(self.first)
        after_first()
        self._unwatched(self.expect(Draw.OWN))
        model = None
        if self.exchange.weights:
            model = shaken_model(self.situation, self._seed)
            self.exchange.load_weights(model)
            self._one(self.expect(Draw.OWN, model), name="other_weights")
        for draw in (Draw.SIGNED, Draw.WIDE, Draw.LARGE, Draw.CONSTANT_ROWS, Draw.SPECIAL):
            self._other(draw, model)

    def _other(self, draw: Draw, model: Any) -> None:
        try:
            expected = self.expect(draw, model)
        except ProblemError as error:
            self.notes.append(f"{draw}: not used, {error}")
            return
        if expected.finite():
            self._one(expected)
        else:
            self.notes.append(f"{draw}: not used, the reference is not finite on it")

    def expect(self, draw: Draw, model: Any = None, *, exact: bool = True, edges: list[Any] | None = None) -> Expected:
        """A fresh draw, and what should come of it; float64 where it can be had in time."""
        self._drawn += 1
        seconds = self.situation.exact_seconds
        exact = exact and seconds is not None and (seconds < EXACT_SECONDS or not self._tolerances)
        return expect(self.situation, draw, self._seed + 7919 * self._drawn, model=model, exact=exact, edges=edges)

    def _one(self, expected: Expected, name: str = "") -> None:
        self.exchange.refill(expected)
        self._checked(expected, POISONS[self._drawn % 2], name=name)

    def _unwatched(self, expected: Expected) -> None:
        """A call without census, margins or mask, as timed calls are: who works only while watched is wrong here."""
        self.exchange.refill(expected)
        reply = self.exchange.run(expected, POISONS[0], "plain")
        check_form(self.exchange, reply, expected)
        try:
            self.compare(self.exchange.got(), expected, "own")
        except Failed as failed:
            raise Failed(
                failed.failure.with_(
                    message=f"right while it is watched, wrong when it is not: {failed.failure.message}"
                )
            ) from failed

    def _checked(self, expected: Expected, poison: int, name: str = "") -> list[Any]:
        """One call, everything looked at. Returns the outputs as they lie in the places."""
        self._progress(f"checking {name or expected.draw}")
        reply = self.exchange.run(expected, poison, "check")
        self.census = evidence(self.census, reply)
        self._operations = max(self._operations, operations_told(reply))
        launched = {str(k): int(v) for k, v in reply["launches"].items()}
        self.steady = (
            launched if self.steady is None else {k: min(n, launched.get(k, 0)) for k, n in self.steady.items()}
        )
        check_form(self.exchange, reply, expected)
        check_side_effects(self.exchange, reply, expected)
        got = self.exchange.got()
        self.compare(got, expected, name or expected.draw)
        return got

    def compare(self, got: list[Any], expected: Expected, name: str, *, diagnose: bool = True) -> None:
        """Every output against what should have come. Where an answer is wrong only by what the reference itself moves by, it is right. Raises Failed."""
        moved = cache(lambda: moved_outputs(self.situation, expected))
        for number, mine in enumerate(got):
            may_move = expected.draw != "own" or expected.exact is None or not mine.is_floating_point()
            measured = self._measured(mine, expected, name, number, moved if may_move else None)
            if not (measured.check.passed or mine.is_floating_point() or mine.is_complex()) and names_as_good(
                self.situation, expected, number, mine
            ):
                measured = Measured(check=measured.check.with_(passed=True, note="an index among near equals"))
            if expected.exact is not None and len(self._tolerances) <= number:
                self._tolerances.append(measured.tolerance)
            self.checks.append(measured.check)
            if failure := failure_of(measured):
                raise Failed(self._diagnosed(failure, expected) if diagnose else failure)

    def _measured(
        self, mine: Any, expected: Expected, name: str, number: int, moved: Callable[[], list[Any]] | None
    ) -> Measured:
        exact = None if expected.exact is None else expected.exact[number]
        tolerance = None if exact is not None else self.tolerance(number)
        shaken = None if moved is None else lambda: moved()[number]
        return measure(mine, expected.eager[number], exact, draw=name, tolerance=tolerance, output=number, moved=shaken)

    def _diagnosed(self, failure: Failure, expected: Expected) -> Failure:
        """Why an answer is wrong, found out by asking again with one thing changed."""
        try:
            if self._right(expected, "check"):
                return (
                    failure  # right when it is asked again: an earlier answer, or a race, and nothing else to find out
                )
            if self.exchange.buffers.device == "cpu" and self._right(expected, "bare"):
                message = "right only where host code sees what tensors hold: the host computes (numpy, plain Python, torch in a thread or behind the census)"
                return Failure(fault=Fault.FALLBACK, message=message)
            before = self._outputs(expected)
            for shared in self.exchange.inputs:
                shared.fill_margins(0)
            other = self._outputs(expected)
            for shared in self.exchange.inputs:
                shared.fill_margins(MARGIN_BYTE)
            if not _equal(before, other) and _equal(before, self._outputs(expected)):
                message = "the output depends on memory beyond the inputs: a missing mask on a load"
                return Failure(fault=Fault.OUT_OF_BOUNDS, message=message, mismatch=failure.mismatch)
        except Failed:
            return failure
        return failure

    def _outputs(self, expected: Expected, mode: str = "check") -> list[Any]:
        """The same call once more; copies of what it returns."""
        self.exchange.refill(expected)
        self.exchange.run(expected, POISONS[0], mode)
        return [p.tensor.clone() for p in self.exchange.places]

    def _right(self, expected: Expected, mode: str) -> bool:
        got = self._outputs(expected, mode)
        exact = expected.exact or [None] * len(got)
        return all(right(g, e, x) for g, e, x in zip(got, expected.eager, exact, strict=False))

    def _again(self, expected: Expected, outputs: list[Any]) -> None:
        """The same inputs, other poison: both must be right, and whether they agree bit for bit is noted."""
        import torch

        kept = [o.clone() for o in outputs]
        self.exchange.refill(expected)
        try:
            second = self._checked(expected, POISONS[1], name="own, again")
        except Failed as failed:
            if failed.failure.fault in (Fault.MISMATCH, Fault.NON_FINITE, Fault.PRECISION):
                again = failed.failure.with_(
                    fault=Fault.NONDETERMINISM,
                    message=f"right once, wrong the second time on the same inputs (unwritten memory or a race): {failed.failure.message}",
                )
                raise Failed(again) from failed
            raise
        self.deterministic = all(
            same_bits(a, b) for a, b in zip(kept, second, strict=True) if isinstance(a, torch.Tensor)
        )

    def _without_launches(self, expected: Expected) -> None:
        """An earlier call again with the candidate's launches turned off: an output that is right never needed them, or was kept.

        Not the last call: what a static buffer still holds from that is honest.
        """
        self.exchange.refill(expected)
        try:
            reply = self.exchange.run(expected, POISONS[1], "off")
            if not reply["launches"]:
                return  # nothing to turn off: a CUDA graph replays. The profiler tells whose kernels ran
            got = self.exchange.got()
            tensors = zip(got, expected.eager, expected.exact or [None] * len(got), strict=True)
            self.needed = not (all(reply.get("copied", [False])) and all(right(g, e, x) for g, e, x in tensors))
        except Failed:
            self.needed = True
        self.exchange.refill(expected)

    def new_weights(self) -> None:
        """Weights that neither model has had so far, for the timed calls: an answer that folded the old ones is wrong."""
        if self.exchange.weights:
            self.model = shaken_model(self.situation, self._seed + 1)
            self.exchange.load_weights(self.model)

    def timed(self, expected: Expected) -> None:
        """A timed answer, compared as any other; where eager alone finds it wrong, the same bits once more with float64 beside it. Raises Failed.

        The bits are copied first: work that ends late, outside of the time, must not be there when they are looked at again.
        """
        import torch

        places, before = [p.tensor for p in self.exchange.places], len(self.checks)
        try:
            copied = [place.clone() for place in places]
        except torch.cuda.OutOfMemoryError:
            copied = []
        try:
            self.compare(copied or places, expected, "timed", diagnose=False)
            return
        except Failed:
            self.doubted = expected
            if not copied:
                raise
        expected.exact = precise(self.situation, expected)
        del self.checks[before:]
        self.compare(copied, expected, "timed", diagnose=False)
        self.doubted = None

    def anew(self, expected: Expected) -> None:
        """The first calls of this process, all on one draw. Raises Failed where one is wrong."""
        self.exchange.open(expected)
        if self.exchange.weights:
            self.exchange.load_weights(expected.weights)
        for poison in (*POISONS, POISONS[0]):
            self.exchange.refill(expected)
            self._checked(expected, poison)

    # -------------------------------------------------------------- other sizes
    def hidden(self, situation: Situation, sizes: dict[str, int], rule: Rule) -> None:
        """The same candidate, the same weights, other sizes: right by its own work, or an exception of its own (which is noted)."""
        if {n: t.shape for n, t in state_of(situation.model).items()} != {
            n: t.shape for n, t in state_of(self.situation.model).items()
        }:
            return
        name = "hidden: " + ", ".join(f"{k}={v}" for k, v in sizes.items())
        other = Checks(situation, self.exchange.talk, self.exchange.buffers, self._seed + 1, self._progress)
        other.exchange.weights = self.exchange.weights
        if self.exchange.weights:
            other.exchange.load_weights(situation.model)
        expected = other.expect(Draw.OWN)
        other.exchange.open(expected)
        try:
            other._checked(expected, POISONS[0], name=name)
            judge_own_work(other, rule)
        except Failed as failed:
            if failed.failure.fault in (Fault.RUNTIME, Fault.LAUNCH):
                self.notes.append(f"{name}: refused by the candidate ({failed.failure.message[:120]})")
                return
            raise Failed(
                failed.failure.with_(
                    message=f"at other sizes ({name.removeprefix('hidden: ')}): {failed.failure.message}"
                )
            ) from failed
        finally:
            self.checks += other.checks
            if self.first is not None:
                self.exchange.open(self.first)
                if self.exchange.weights:
                    self.exchange.load_weights(self.situation.model)

    def integrity(self) -> None:
        """What the candidate replaced in torch, triton or the service."""
        patched = self.exchange.talk.ask("integrity")["patched"]
        if patched:
            names = ", ".join(clean_text(name, 60) for _, name in patched[:3])
            raise Failed(Failure(fault=Fault.CHEAT, cheat=Cheat.TAMPER, message=f"the candidate replaced {names}"))

    def tolerance(self, number: int) -> Any:
        """Eager's error on the problem's own inputs, as measured in the checks."""
        return self._tolerances[number] if number < len(self._tolerances) else None

    def note_foreign(self, kernels: dict[str, int]) -> None:
        """GPU activity that is not the candidate's own, from the profiler."""
        self.census = self.census.with_(foreign_kernels={clean_text(k, 160): n for k, n in kernels.items()})

    # -------------------------------------------------------------- the result
    def partial_work(self, rule: Rule) -> OwnWork:
        """What is known of it so far. On a CPU the share is of operations: what torch did not compute, the kernels had to."""
        work = OwnWork(mode=rule.text, census=self.census, needed=self.needed)
        if self.situation.reference.device != "cpu" or not self.census.launches or not self.situation.operations:
            return work
        left = max(0.0, 1.0 - self._operations / self.situation.operations)
        return work.with_(share=left, share_of="operations")

    def result(self, device: str, failure: Failure | None, work: OwnWork | None, seed: int) -> CorrectnessResult:
        own = [c.passed_kb for c in self.checks if c.draw == "own"]
        return CorrectnessResult(
            device=device, interpreted=device == "cpu", failure=failure, checks=tuple(self.checks), correct_kb=bool(own) and all(own) if own or failure else None, own_work=work,
            weights_reloaded=self.exchange.reloaded, deterministic=self.deterministic, seed=seed, notes=tuple(self.notes),
        )  # fmt: skip


def _equal(a: list[Any], b: list[Any]) -> bool:
    return all(same_bits(x, y) for x, y in zip(a, b, strict=True))
