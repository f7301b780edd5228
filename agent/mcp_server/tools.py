"""The tools that a coding agent sees. What a docstring says is what the agent reads before it calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Literal

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from kernelwright.agent.mcp_server.answers import (
    AnswerState,
    HistoryAnswer,
    ProblemAnswer,
    ProblemLine,
    ProblemsAnswer,
    Question,
    ToolAnswer,
    VerdictAnswer,
)
from kernelwright.agent.mcp_server.judging import JudgeRequest, ServerJudge
from kernelwright.agent.mcp_server.requests import MAX_NAME_CHARACTERS, find_problem
from kernelwright.errors import InputError
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.report import InfrastructureError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

PROGRESS: ContextVar[Callable[[float, str], Awaitable[None]] | None] = ContextVar(
    "progress", default=None
)
"""Sends the client of the current call the seconds that have passed, and the step that its verdict is at."""
TOOL_ANSWER_SECONDS = 45.0
"""How long a tool waits for its own verdict before it answers `running`: clients give up after 60 seconds."""

ProblemArgument = Annotated[
    str,
    Field(
        description='A name ("fused softmax"), kernelbench:LEVEL/NUMBER, or on a local server a .py file or a text.'
    ),
]
SourceArgument = Annotated[
    str,
    Field(
        description="The candidate's whole Python text with `class ModelNew`; on a local server also a .py file."
    ),
]
TargetsArgument = Annotated[
    list[str] | None,
    Field(description="sm_80, sm_86, sm_89, sm_90, sm_100, sm_120 or gfx942. The first decides."),
]
SeedArgument = Annotated[
    int | None, Field(ge=0, description="Repeats the verdict that told this seed.")
]
BaselineArgument = Annotated[
    Literal["eager", "compile"], Field(description="PyTorch eager or torch.compile.")
]
VerdictId = Annotated[
    str, Field(max_length=MAX_NAME_CHARACTERS, description="As an earlier answer named it.")
]

PROGRESS_SECONDS = 1.0
"""Seconds between two looks at the step of a verdict that is waited for."""
TOOL_TITLES = {
    "problem_list": "List problems",
    "problem_show": "Show a problem",
    "compile": "Compile a kernel",
    "interpret": "Interpret a kernel",
    "check": "Check a kernel",
    "bench": "Time a kernel",
    "profile": "Profile a kernel",
    "submit": "Begin a verdict",
    "result": "Fetch a verdict",
    "cancel": "Cancel a verdict",
    "history": "List verdicts",
}
"""What a client shows a person for each tool."""
CANDIDATE_CONTRACT = (
    "One Python file. `class ModelNew(torch.nn.Module)` takes the arguments of `Model.__init__` (get_init_inputs) and "
    "its forward those of `Model.forward`, and returns a new tensor of the same shape and dtype. Every computation is "
    "done by @triton.jit kernels of the file: torch only allocates, views and copies. It must be right at other sizes "
    "than its own and on unusual values (large, special, constant rows); host code may not depend on what tensors hold."
)


def tool_result(answer: ToolAnswer, failed: bool = False) -> CallToolResult:
    """An answer as MCP has it: structured, and the same as compact JSON for clients that show text.

    Fields that say nothing are left out of both; `answers.py` has the model of each.
    """
    told = answer.model_dump_json(exclude_defaults=True)
    structured = answer.model_dump(mode="json", exclude_defaults=True)
    return CallToolResult(
        content=[TextContent(type="text", text=told)],
        structured_content=structured,
        is_error=failed,
    )


class Tools:
    """The tools of one server. None raises: trouble is in `error`, a broken kernel in `outcome`."""

    def __init__(self, judging: ServerJudge) -> None:
        self._judging = judging

    def add_to(self, server: MCPServer) -> None:
        """Registers every tool. Their schemas of answers are not sent: they would be nine tenths of a tool list."""
        for tool in (
            self.problem_list, self.problem_show, self.compile, self.interpret, self.check, self.bench, self.profile,
            self.submit, self.result, self.cancel, self.history,
        ):  # fmt: skip
            title = TOOL_TITLES[tool.__name__]
            annotations = ToolAnnotations(
                title=title, read_only_hint=tool.__name__ != "cancel", destructive_hint=False,
                idempotent_hint=tool.__name__ != "submit", open_world_hint=False,
            )  # fmt: skip
            server.add_tool(tool, title=title, annotations=annotations, structured_output=False)

    # -------------------------------------------------------------- problems
    def problem_list(
        self,
        query: Annotated[
            str,
            Field(
                max_length=MAX_NAME_CHARACTERS, description="Words to look for; all where empty."
            ),
        ] = "",
        limit: Annotated[int, Field(ge=1, le=500)] = 100,
    ) -> CallToolResult:
        """List the problems of the catalogue by name, title and family; with a query the nearest first."""
        from kernelwright.agent.problems.finding import catalogue, nearest_problems

        found = nearest_problems(query, limit) if query.strip() else catalogue()[:limit]
        lines = tuple(
            ProblemLine(name=one.name, title=one.title, family=one.family) for one in found
        )
        return tool_result(
            ProblemsAnswer(
                verdict_id=None,
                budget=self._judging.budget.left(),
                problems=lines,
                total=len(catalogue()),
            )
        )

    def problem_show(self, problem: ProblemArgument) -> CallToolResult:
        """Show one problem: the PyTorch reference to agree with, and what a candidate must look like."""
        left = self._judging.budget.left()
        try:
            found = find_problem(problem, self._judging.access)
        except (InputError, ProblemError, OSError) as error:
            return tool_result(
                ProblemAnswer(verdict_id=None, budget=left, error=" ".join(str(error).split())),
                failed=True,
            )
        return tool_result(
            ProblemAnswer(
                verdict_id=None,
                budget=left,
                name=found.name,
                title=found.title,
                family=found.family,
                problem_hash=found.hash,
                reference=found.source,
                contract=CANDIDATE_CONTRACT,
            )
        )

    # -------------------------------------------------------------- verdicts
    async def compile(
        self, problem: ProblemArgument, source: SourceArgument, targets: TargetsArgument = None
    ) -> CallToolResult:
        """Compile every kernel of a candidate ahead of time, without a GPU: errors with line and caret, registers,
        spills, shared memory and occupancy. The quickest question: ask it first.
        """
        return await self._ask(
            JudgeRequest(
                question=Question.COMPILE,
                problem=problem,
                source=source,
                targets=tuple(targets or ()),
            )
        )

    async def interpret(
        self, problem: ProblemArgument, source: SourceArgument, seed: SeedArgument = None
    ) -> CallToolResult:
        """Run a candidate's kernels under Triton's interpreter at small sizes and compare with the reference, without
        a GPU and without compiling.
        """
        return await self._ask(
            JudgeRequest(question=Question.INTERPRET, problem=problem, source=source, seed=seed)
        )

    async def check(
        self, problem: ProblemArgument, source: SourceArgument, targets: TargetsArgument = None,
        seed: SeedArgument = None,
    ) -> CallToolResult:  # fmt: skip
        """Judge a candidate: does it compile, is it right at several sizes and on unusual values, do its own kernels
        do the work? On the GPU where the server has one, else under the interpreter. `correct` here is the verdict.
        """
        return await self._ask(
            JudgeRequest(
                question=Question.CHECK,
                problem=problem,
                source=source,
                targets=tuple(targets or ()),
                seed=seed,
            )
        )

    async def bench(
        self, problem: ProblemArgument, source: SourceArgument,
        baseline: BaselineArgument = "eager",
        seed: SeedArgument = None,
    ) -> CallToolResult:  # fmt: skip
        """Judge a candidate and time it against PyTorch: faster, slower, inconclusive, incorrect or invalid; needs_gpu
        where the server has none.
        """
        return await self._ask(
            JudgeRequest(
                question=Question.BENCH,
                problem=problem,
                source=source,
                baseline=baseline,
                seed=seed,
            )
        )

    async def profile(
        self, problem: ProblemArgument, source: SourceArgument, targets: TargetsArgument = None
    ) -> CallToolResult:
        """Say where a correct candidate's time goes: milliseconds of every launch, roofline, speed of light, registers
        and occupancy. Without a GPU only what the compiler says.
        """
        return await self._ask(
            JudgeRequest(
                question=Question.PROFILE,
                problem=problem,
                source=source,
                targets=tuple(targets or ()),
            )
        )

    def submit(
        self, question: Annotated[Question, Field(description="The tool to ask.")], problem: ProblemArgument,
        source: SourceArgument, targets: TargetsArgument = None, seed: SeedArgument = None,
        baseline: BaselineArgument = "eager",
    ) -> CallToolResult:  # fmt: skip
        """Begin a verdict and answer at once with its verdict_id: ask `result` for it. For several candidates side by
        side.
        """
        asked = JudgeRequest(
            question=question, problem=problem, source=source, targets=tuple(targets or ()), seed=seed,
            baseline=baseline,
        )  # fmt: skip
        return _told(self._judging.submit(asked))

    async def result(
        self, verdict_id: VerdictId,
        wait_seconds: Annotated[float, Field(ge=0.0, le=TOOL_ANSWER_SECONDS, description="For a running one.")] = 20.0,
        report: Annotated[bool, Field(description="Answer the whole report as JSON too.")] = False,
        source: Annotated[bool, Field(description="Answer the candidate's text too.")] = False,
    ) -> CallToolResult:  # fmt: skip
        """The verdict of that id, of this or an earlier server: waits for a running one, and says its step where it
        has not ended.
        """
        await self._wait(verdict_id, wait_seconds)
        return _told(await asyncio.to_thread(self._judging.result, verdict_id, report, source))

    def cancel(self, verdict_id: VerdictId) -> CallToolResult:
        """Stop a verdict that waits or runs: at its next step, or after some seconds with its processes. Ask `result`
        for its end.
        """
        return _told(self._judging.cancel(verdict_id))

    def history(
        self, problem: Annotated[str, Field(description="A problem's name; all where empty.")] = "",
        limit: Annotated[int, Field(ge=1, le=200)] = 20,
    ) -> CallToolResult:  # fmt: skip
        """The newest verdicts, those of earlier servers too. `result` gives one with its report and text."""
        left = self._judging.budget.left()
        try:
            name = find_problem(problem, self._judging.access).name if problem.strip() else ""
            lines, total = self._judging.history.newest(name, limit)
        except (InputError, ProblemError, InfrastructureError, OSError) as error:
            return tool_result(
                HistoryAnswer(verdict_id=None, budget=left, error=" ".join(str(error).split())),
                failed=True,
            )
        return tool_result(
            HistoryAnswer(verdict_id=None, budget=left, verdicts=tuple(lines), total=total)
        )

    async def _ask(self, asked: JudgeRequest) -> CallToolResult:
        begun = await asyncio.to_thread(self._judging.submit, asked)
        if begun.state is not AnswerState.RUNNING or begun.verdict_id is None:
            return _told(begun)
        await self._wait(begun.verdict_id, TOOL_ANSWER_SECONDS)
        return _told(await asyncio.to_thread(self._judging.result, begun.verdict_id))

    async def _wait(self, verdict_id: str, seconds: float) -> None:
        """Waits until the verdict has ended or so many seconds have passed. A client that hangs up ends no verdict."""
        running = self._judging.running(verdict_id)
        if running is None:
            return
        ending, began, report = asyncio.wrap_future(running), time.monotonic(), PROGRESS.get()
        while not ending.done() and (passed := time.monotonic() - began) < seconds:
            if report is not None:
                await report(passed, self._judging.step(verdict_id) or "waiting")
            await asyncio.wait([ending], timeout=min(PROGRESS_SECONDS, seconds - passed))


def _told(answer: VerdictAnswer) -> CallToolResult:
    return tool_result(answer, failed=answer.state in (AnswerState.REFUSED, AnswerState.FAILED))
