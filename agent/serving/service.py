"""The judge service without HTTP: queues submissions, reuses known verdicts, assigns verdicts to
judges.

A lock guards the waiting line, the quotas and the order of changes in the record. A verdict whose
judge died is begun again here, as a further attempt in the record, up to MAX_VERDICT_ATTEMPTS
attempts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from kernelwright.agent.judging.pool import (
    MAX_VERDICT_ATTEMPTS,
    DeviceKind,
    JudgeEnded,
    JudgeLost,
    JudgePool,
    PoolClosed,
    VerdictCancelled,
    VerdictOverdue,
)
from kernelwright.agent.serving.content import (
    PreparedSubmission,
    Preparing,
    RequestRefused,
    no_such_verdict,
)
from kernelwright.agent.serving.queueing.estimates import VerdictSeconds
from kernelwright.agent.serving.queueing.quotas import (
    BUDGET_WINDOW_SECONDS,
    QuotaLimits,
    Quotas,
)
from kernelwright.agent.serving.queueing.running_verdicts import (
    DEFAULT_VERDICT_SECONDS,
    RunningVerdicts,
)
from kernelwright.agent.serving.queueing.waiting_line import WaitingEntry, WaitingLine
from kernelwright.agent.serving.record import (
    RememberedVerdict,
    VerdictDatabase,
    VerdictTexts,
    failed_columns,
    finished_columns,
)
from kernelwright.agent.serving.retention import Deletion
from kernelwright.agent.serving.scoring import score_of
from kernelwright.agent.serving.wire import (
    Attempt,
    Code,
    Outcome,
    State,
    Status,
    Submission,
    first_line,
)
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import Report

log = logging.getLogger(__name__)


class JudgeService:
    """Judge service. Thread-safe. `changed` is called with the id of each changed verdict."""

    def __init__(
        self, record: VerdictDatabase, pool: JudgePool, preparing: Preparing, limits: QuotaLimits, observe: Any,
        verdict_seconds: float = DEFAULT_VERDICT_SECONDS,
        budget_of: Callable[[str], float | None] = lambda client: None,
    ) -> None:  # fmt: skip
        """observe: metrics.ServiceMetrics. verdict_seconds: wall-clock limit of a verdict.
        budget_of: judge seconds of a client within an hour; None: those of the limits.
        """
        self.record, self.pool, self.preparing, self.limits = record, pool, preparing, limits
        self.changed: Callable[[str], None] = lambda verdict_id: None
        self.ended: Callable[[str], None] = lambda verdict_id: None
        """Called with a verdict's id after its end at a judge, or after its last lost attempt."""
        self.closing = False
        self._observe = observe
        self._lock = threading.RLock()
        self._line = WaitingLine()
        spent = record.spent_since(time.time() - BUDGET_WINDOW_SECONDS)
        self._quotas = Quotas(limits, budget_of, spent)
        self._running = RunningVerdicts(pool, self._lock, verdict_seconds)
        self._seconds = VerdictSeconds(record.recent_seconds)
        self.deletion = Deletion(record, self._lock)
        evaluator = pool.environment(pool.devices[0]).evaluator
        # References tried by another version of the evaluator are tried again.
        pool.memory.load(record.references(evaluator))
        pool.memory.save = partial(record.keep_reference, evaluator)
        self._sequence = record.last_sequence()

    # -------------------------------------------------------------- beginning and end
    def start(self) -> None:
        """Continues an earlier server's work: waiting verdicts wait, running ones count as lost."""
        unfinished = self.record.unfinished()
        attempts = self.record.attempts([remembered.id for remembered in unfinished])
        clients_by_verdict = self.record.wanted_by([remembered.id for remembered in unfinished])
        self._running.start_clock()
        with self._lock:
            for remembered in unfinished:
                for client in clients_by_verdict[remembered.id]:
                    self._quotas.add(client, remembered.id)
                if remembered.state is State.RUNNING:
                    self._lose(
                        remembered.id,
                        attempts[remembered.id],
                        "the server ended in the middle of this verdict",
                    )
                    if (
                        again := self.record.find(remembered.id)
                    ) is None or again.state is not State.QUEUED:
                        continue
                if remembered.id not in self._line:
                    self._wait(remembered)
            self._dispatch()

    def close(self) -> None:
        """Ends the judges. Running verdicts are queued in the record for the next server."""
        with self._lock:
            self.closing = True
        self._running.close()
        self.pool.close()
        self.record.close()

    # -------------------------------------------------------------- asking
    def submit(self, client: str, submission: Submission) -> Status:
        """Returns the status of a submission: known, or queued now. Raises RequestRefused."""
        with self._lock:
            if self.closing:
                raise RequestRefused(
                    Code.CLOSING, "the server is being stopped: ask again later", 5
                )
            # Before its text is parsed, which takes most of the time.
            self._check_quotas(client, submission.device or self.pool.devices[0])
        ready = self.preparing.prepare(submission, client)
        with self._lock:
            remembered = self.record.find(ready.verdict_id)
            is_known = remembered is not None
            if (
                remembered is None
                or remembered.may_be_judged_anew
                or (submission.force and remembered.state.ended)
            ):
                remembered = self._queue(client, ready, submission.priority)
            else:
                self.record.submission(remembered.id, client, ready.group)
                remembered = self._raise_priority(remembered, submission.priority)
            if not remembered.state.ended:
                self._quotas.add(client, remembered.id)
            self._observe.submitted(client, is_known)
            self._dispatch()
            # Still waiting, so the row is current and need not be read again.
            if remembered.id in self._line:
                return self.status_of(
                    remembered,
                    client,
                    self.record.attempts([remembered.id])[remembered.id] if is_known else (),
                    None,
                    is_known,
                )
            return self.status(client, remembered.id).model_copy(update={"known": is_known})

    def _check_quotas(self, client: str, device: DeviceKind) -> None:
        """Counts a submission. Raises RequestRefused above a quota of the client."""
        self._quotas.count_arrival(client)
        self._quotas.check_pending(client, self.seconds_per_verdict(device))
        self._quotas.check_budget(client)

    def _raise_priority(self, remembered: RememberedVerdict, priority: int) -> RememberedVerdict:
        """Moves a waiting verdict forward after a submission with a larger priority."""
        if priority <= remembered.priority or remembered.id not in self._line:
            return remembered
        remembered = remembered.model_copy(update={"priority": priority})
        self.record.set_priority(remembered.id, priority)
        self._line.remove(remembered.id)
        self._wait(remembered)
        return remembered

    def _queue(self, client: str, ready: PreparedSubmission, priority: int) -> RememberedVerdict:
        if len(self._line) >= self.limits.queue:
            wait = max(1, round(self.seconds_per_verdict(ready.device) or 1.0))
            raise RequestRefused(
                Code.QUEUE_FULL, f"{len(self._line)} verdicts wait: ask again in {wait} s", wait
            )
        self._sequence += 1
        remembered = RememberedVerdict(
            id=ready.verdict_id, sequence=self._sequence, state=State.QUEUED, problem=ready.problem.name,
            problem_hash=ready.problem.hash, candidate_hash=ready.candidate_hash, device=ready.device,
            domain=ready.domain, priority=priority, submitted=time.time(),
        )  # fmt: skip
        options = ready.options.model_dump_json()
        texts = VerdictTexts(
            problem=ready.problem.model_dump_json(), candidate=ready.candidate, options=options
        )
        self.record.queue(remembered, texts, client, ready.group)
        self._quotas.add(client, remembered.id)
        self._wait(remembered)
        return remembered

    def cancel(self, client: str, verdict_id: str) -> Status:
        """Withdraws a client's interest; may stop the verdict. Raises RequestRefused."""
        with self._lock:
            self._find(verdict_id)
            self.record.withdraw(verdict_id, client)
            self._quotas.drop(verdict_id, client)
            if not self._quotas.is_wanted(verdict_id):
                if verdict_id in self._line:
                    self._line.remove(verdict_id)
                    self.record.set_state(verdict_id, State.CANCELLED)
                    self._observe.ended("cancelled")
                    self.changed(verdict_id)
                else:
                    self._running.cancel(verdict_id)
        return self.status(client, verdict_id)

    def judge_again(
        self, client: str | None, problem: str | None, ended_after: float | None
    ) -> int:
        """Queues ended verdicts again under their ids, and returns their number."""
        with self._lock:
            verdict_ids = self.record.ended(client, problem, ended_after)
            for verdict_id in verdict_ids:
                self._sequence += 1
                self.record.queue_again(verdict_id, self._sequence)
                self._wait(self._find(verdict_id))
            self._dispatch()
        for verdict_id in verdict_ids:
            self.changed(verdict_id)
        return len(verdict_ids)

    def judge_one_again(self, client: str, verdict_id: str) -> Status:
        """Queues an ended verdict again under its id. Raises RequestRefused."""
        with self._lock:
            remembered = self._find(verdict_id)
            if remembered.state.ended:
                self._check_quotas(client, remembered.device)
                self._sequence += 1
                self.record.queue_again(verdict_id, self._sequence)
                self._quotas.add(client, verdict_id)
                self._wait(self._find(verdict_id))
                self._dispatch()
        self.changed(verdict_id)
        return self.status(client, verdict_id)

    def running_by_judge(self) -> dict[str, list[tuple[str, str, float]]]:
        """Returns each busy judge's verdicts: id, step, and seconds since the start."""
        with self._lock:
            return self._running.by_judge()

    def status(self, client: str, verdict_id: str, with_report: bool = True) -> Status:
        """Returns the status of a verdict. Raises RequestRefused for an unknown verdict."""
        remembered = self._find(verdict_id)
        attempts = self.record.attempts([verdict_id])[verdict_id]
        report = (
            self.record.report(verdict_id)
            if with_report and remembered.state is State.FINISHED
            else None
        )
        return self.status_of(remembered, client, attempts, report)

    def status_of(
        self, remembered: RememberedVerdict, client: str, attempts: tuple[Attempt, ...] = (),
        report: Report | None = None,
        known: bool = False,
    ) -> Status:  # fmt: skip
        """Returns the status of a verdict for a client."""
        with self._lock:
            position = self._line.position(remembered.id) or (
                1 if remembered.state is State.QUEUED else None
            )
            return Status(
                verdict_id=remembered.id,
                known=known,
                position=position,
                eta_seconds=self._eta(remembered, position),
                doing=self._running.step(remembered.id),
                attempts=attempts,
                pending=self._quotas.pending(client),
                pending_quota=self.limits.client_pending,
                judge_seconds=round(self._quotas.spent(client), 1),
                judge_seconds_quota=self._quotas.budget(client),
                report=report,
                **remembered.model_dump(
                    exclude={"id", "sequence", "domain", "priority", "score", "error"}
                ),
                score=remembered.score,
                error=remembered.error,
            )

    def _find(self, verdict_id: str) -> RememberedVerdict:
        if (remembered := self.record.find(verdict_id)) is None:
            raise no_such_verdict(verdict_id)
        return remembered

    # -------------------------------------------------------------- estimates
    def seconds_per_verdict(self, device: DeviceKind) -> float | None:
        """Returns the mean duration of the newest verdicts; None before the first."""
        return self._seconds.mean(device)

    def _eta(self, remembered: RememberedVerdict, position: int | None) -> float | None:
        if remembered.state.ended:
            return None
        return self._seconds.until_end(
            remembered.device, remembered.started, position, self.pool.capacity(remembered.device)
        )

    def counts(self, device: DeviceKind) -> tuple[int, int]:
        """Returns the numbers of waiting and running verdicts on a kind of device."""
        with self._lock:
            return self._line.length(device), self._running.count(device)

    # -------------------------------------------------------------- judging
    def _dispatch(self) -> None:
        """Hands verdicts to the pool up to its capacity. The caller holds the lock."""
        for device in self.pool.devices:
            while not self.closing and self._running.count(device) < self.pool.capacity(device):
                entry = self._line.first(device, partial(self.pool.fits, device))
                if entry is None:
                    break
                self._begin(entry)

    def _begin(self, entry: WaitingEntry) -> None:
        verdict_id, device = entry.verdict_id, entry.device
        texts = self.record.texts(verdict_id)

        def began(judge: str) -> None:
            self._running.begin(verdict_id, judge)
            self._observe.begun(device.value, time.monotonic() - entry.since)
            self.record.begin(verdict_id, judge, time.time())
            self.changed(verdict_id)

        def progress(doing: str) -> None:
            self._running.set_step(verdict_id, doing)
            self.changed(verdict_id)

        problem, options = (
            Problem.model_validate_json(texts.problem),
            Options.model_validate_json(texts.options),
        )
        future = self._running.add(
            verdict_id,
            device,
            lambda: self.pool.submit(
                problem, texts.candidate, options, progress, device, began, entry.domain
            ),
        )
        future.add_done_callback(lambda done: self._end(entry, done))

    def _end(self, entry: WaitingEntry, future: Future[Report]) -> None:
        """Stores the end of a verdict. Runs in a thread of the pool."""
        verdict_id, device = entry.verdict_id, entry.device
        error = future.exception()
        # Outside the lock: writing a report as JSON takes time.
        report_columns = (
            finished_columns(future.result(), score_of(future.result())) if error is None else {}
        )
        with self._lock:
            # Charged before `remove`, which forgets the start.
            self._quotas.spend(entry.client, self._running.age(verdict_id))
            self._running.remove(verdict_id)
            try:
                self._write_end(verdict_id, device, future, report_columns)
                self._dispatch()
            except Exception:
                log.exception("the end of verdict %s was not written", verdict_id)
        self.changed(verdict_id)
        self.ended(verdict_id)

    def _write_end(
        self,
        verdict_id: str,
        device: DeviceKind,
        future: Future[Report],
        report_columns: Mapping[str, Any],
    ) -> None:
        """Writes an attempt's outcome and report; queues a lost verdict again."""
        error, record = future.exception(), self.record
        queued = {"state": State.QUEUED.value, "started": None}
        match error:
            case None:
                record.end_attempt(verdict_id, Outcome.FINISHED, "", report_columns)
                self._note(verdict_id, device, future.result())
            case PoolClosed():
                record.end_attempt(
                    verdict_id, Outcome.INTERRUPTED, "the server was stopped", queued
                )
                return
            case JudgeEnded():
                record.end_attempt(verdict_id, Outcome.INTERRUPTED, first_line(error), queued)
                self._wait_again(verdict_id)
                return
            case VerdictOverdue():
                record.end_attempt(
                    verdict_id,
                    Outcome.TIMED_OUT,
                    first_line(error),
                    failed_columns(Code.TIMEOUT, first_line(error)),
                )
                self._observe.ended("timed_out")
            case JudgeLost():
                self._lose(verdict_id, record.attempts([verdict_id])[verdict_id], first_line(error))
                return
            # Submitted again before the cancelled verdict had stopped.
            case VerdictCancelled() if self._quotas.is_wanted(verdict_id):
                record.end_attempt(verdict_id, Outcome.CANCELLED, "", queued)
                self._wait_again(verdict_id)
                return
            case VerdictCancelled():
                changes = {"state": State.CANCELLED.value, "ended": time.time()}
                record.end_attempt(verdict_id, Outcome.CANCELLED, first_line(error), changes)
                self._observe.ended("cancelled")
            case _:
                code = Code.PROBLEM if isinstance(error, ProblemError) else Code.INFRASTRUCTURE
                record.end_attempt(
                    verdict_id,
                    Outcome.FAILED,
                    first_line(error),
                    failed_columns(code, first_line(error)),
                )
                self._observe.ended("failed")
        self._quotas.drop(verdict_id)

    def _note(self, verdict_id: str, device: DeviceKind, report: Report) -> None:
        remembered = self.record.find(verdict_id)
        took = (
            remembered.ended - remembered.started
            if remembered is not None and remembered.ended and remembered.started
            else report.seconds
        )
        self._seconds.add(device, took)
        self._observe.judged(device.value, report, took)

    def _lose(self, verdict_id: str, attempts: tuple[Attempt, ...], why: str) -> None:
        """Queues a lost verdict again, or gives up after MAX_VERDICT_ATTEMPTS losses in a row."""
        lost = 1
        for attempt in reversed(attempts[:-1]):  # the last one is the one that is lost now
            if attempt.outcome is not Outcome.LOST:
                break
            lost += 1
        if lost < MAX_VERDICT_ATTEMPTS:
            queued = {"state": State.QUEUED.value, "started": None}
            self.record.end_attempt(verdict_id, Outcome.LOST, why, queued)
            self._wait_again(verdict_id)
        else:
            message = f"given up after {lost} attempts: {why}"
            self.record.end_attempt(
                verdict_id, Outcome.LOST, why, failed_columns(Code.LOST, message)
            )
            self._quotas.drop(verdict_id)
            self._observe.ended("lost")

    def _wait_again(self, verdict_id: str) -> None:
        """Puts a verdict back at its old place in the line."""
        self._wait(self._find(verdict_id))

    def _wait(self, remembered: RememberedVerdict) -> None:
        """Puts a verdict into the line, at the turn of an interested client."""
        client = self._quotas.first_client(remembered.id) or remembered.domain
        since = time.monotonic()
        self._line.add(
            WaitingEntry(
                remembered.id,
                remembered.device,
                remembered.sequence,
                client,
                remembered.domain,
                remembered.priority,
                since,
            )
        )
