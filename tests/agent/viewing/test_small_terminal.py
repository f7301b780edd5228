"""A terminal of 80 columns and 24 lines: every screen of the viewer and every printed table stays readable there."""

import asyncio

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.viewing.viewer.app import Viewer
from kernelwright.agent.viewing.viewer.assembling import AssemblyProgress
from kernelwright.agent.viewing.viewer.dialogs import ChoiceDialog, HelpDialog, LineDialog
from kernelwright.agent.viewing.viewer.layout import HINTS
from kernelwright.agent.viewing.viewer.views import View
from kernelwright.policies.base import Completion, FinishReason, Message, Request, Role, Usage
from kernelwright.store.database import Store
from kernelwright.store.models import Action
from kernelwright.store.records import TrajectoryStart
from kernelwright.tools.report import (
    CompileResult,
    Environment,
    Failure,
    Fault,
    KernelResources,
    Report,
    Rung,
)

COLUMNS, LINES = SIZE = (80, 24)
KERNEL = KernelResources(
    name="fused_residual_layer_norm_forward_kernel", config={"BLOCK_ROWS": 32, "BLOCK_COLUMNS": 128, "num_warps": 8},
    registers=255, spills=1024, shared=232448, occupancy=0.125, occupancy_limit="registers", tensor_core="wgmma",
    mma_types=("bf16", "e4m3"), vector_bits=128,
)  # fmt: skip
REFUSED = Failure(
    fault=Fault.RESOURCES, message="shared memory 232448 over 101376 bytes that this target has"
)
COMPILED = (
    CompileResult(target="sm_90", kernels=(KERNEL, KERNEL), seconds=12.5),
    CompileResult(target="sm_120", kernels=(KERNEL,), failure=REFUSED, seconds=1.5),
    CompileResult(target="gfx942", kernels=(KERNEL,), seconds=0.5),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two turns of one trajectory, of a run, a problem and a policy with long names."""
    path = tmp_path_factory.mktemp("small") / "runs.db"
    problem = find_by_name("fused_silu")
    with Store.open(path) as store:
        run = store.open_run("night-of-the-long-benchmark")
        row = store.begin(
            TrajectoryStart(problem=problem, policy="openai:a-model-with-a-rather-long-name"),
            run_id=run.id,
        )
        parent = None
        for action, compiles in ((Action.DRAFT, COMPILED), (Action.REPAIR, COMPILED[:1])):
            request = Request(messages=(Message(role=Role.USER, content="write it " * 40),))
            drafted = store.draft(row.id, request, action=action, parent_id=parent)
            source = f"import triton\n\nNUMBER = {drafted.id}\n"
            usage = Usage(prompt_tokens=9, completion_tokens=9)
            completion = Completion(
                text=f"```python\n{source}```\n", finish=FinishReason.STOP, usage=usage, policy="m"
            )
            store.complete(drafted.id, completion, source)
            report = Report(
                problem=problem.name, problem_hash=problem.hash, candidate_hash=str(drafted.id), rung=Rung.COMPILE,
                failure=REFUSED, compiles=compiles, environment=Environment(evaluator="1"),
            )  # fmt: skip
            store.judge(drafted.id, report, tool_seconds=0.5)
            parent = drafted.id
    return path


def drive(path, test, size=SIZE, **options):
    async def inside(store):
        viewer = Viewer(store, 1, **options)
        async with viewer.run_test(size=size) as pilot:
            await pilot.pause()
            await test(viewer, pilot)

    with Store.open(path, readonly=True) as store:
        asyncio.run(inside(store))


def test_the_list_of_trajectories_has_whole_headings_and_its_keys_work(written):
    async def test(viewer, pilot):
        assert isinstance(viewer.screen, ChoiceDialog)
        columns = viewer.screen.query_one("DataTable").ordered_columns
        assert [str(one.label) for one in columns if one.content_width < len(str(one.label))] == []
        inside(viewer.screen.query_one(".dialog").region)
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(viewer.screen, HelpDialog)
        inside(viewer.screen.query_one(".dialog").region)
        await pilot.press("q", "q")
        await pilot.pause()
        assert not viewer.is_running

    drive(written, test, listing=True)


def inside(region) -> None:
    """A dialog stands in the middle of the screen."""
    assert region.x > 0
    assert region.y > 0
    assert region.right < COLUMNS
    assert region.bottom < LINES
    assert abs(region.x - (COLUMNS - region.right)) <= 1
    assert abs(region.y - (LINES - region.bottom)) <= 1


def test_the_filter_is_in_the_middle_and_typing_replaces_the_last_one(written):
    async def test(viewer, pilot):
        await pilot.press("f", *"incorrect", "enter")
        await pilot.press("f")
        await pilot.pause()
        assert isinstance(viewer.screen, LineDialog)
        inside(viewer.screen.query_one(".dialog").region)
        await pilot.press(*"correct")
        assert viewer.screen.query_one("Input").value == "correct"

    drive(written, test)


def test_the_compile_tables_of_a_turn_have_whole_headings(written):
    async def test(viewer, pilot):
        headings = ("registers", "spills", "shared", "occupancy", "tensor")
        for wanted in (
            ("sm_90", "sm_120", "gfx942", "why not", "seconds"),
            (KERNEL.name, "config", "loads"),
        ):
            shown = viewer.query_one("#body").text
            assert [word for word in (*headings, *wanted) if word not in shown] == []
            await pilot.press("l")
            await pilot.pause()

    drive(written, test)


@pytest.mark.parametrize("size", [SIZE, (120, 40)])
@pytest.mark.parametrize("view", list(View))
def test_no_line_of_a_text_lies_under_the_scroll_bar(written, view, size):
    """A text that is longer than the screen has a bar beside it, which must not take the place of its last words."""

    async def test(viewer, pilot):
        await pilot.press("l")
        await pilot.pause()
        body = viewer.query_one("#body")
        assert max(map(len, body.text.splitlines())) <= body.scrollable_content_region.width
        shown = [
            "".join(part.text for part in row) for row in viewer.screen._compositor.render_strips()
        ]
        top = body.region.y
        for place, line in enumerate(body.text.splitlines()[: body.size.height]):
            assert line in shown[top + place]

    drive(written, test, size=size, view=view)


@pytest.mark.parametrize("view", list(View))
def test_every_view_of_a_candidate_fits(written, view):
    async def test(viewer, pilot):
        await pilot.press("l")
        await pilot.pause()
        body = viewer.query_one("#body")
        assert all(len(line) <= COLUMNS for line in body.text.splitlines())
        assert not viewer.query_one("#lineage").display
        assert body.size.width == COLUMNS - 2

    drive(written, test, view=view)


def test_the_last_line_says_how_far_the_compiler_is(written):
    async def test(viewer, pilot):
        viewer.shown = View.PTX
        viewer.post_message(
            AssemblyProgress(viewer.position.entry.candidate.id, "compiling the second kernel")
        )
        await pilot.pause()
        assert "compiling the second kernel" in str(viewer.query_one("#status").render())

    drive(written, test)


def status_line(viewer) -> str:
    return str(viewer.screen_stack[0].query_one("#status").render())


def bottom_row(viewer) -> str:
    return "".join(
        part.text for part in viewer.screen._compositor.render_strips()[LINES - 1]
    ).rstrip()


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_line_of_hints_ends_with_a_whole_hint(written, columns):
    async def test(viewer, pilot):
        shown = bottom_row(viewer).strip()
        assert shown == status_line(viewer)
        assert shown.startswith("? help  q quit")
        assert shown.split("  ")[-1] in HINTS
        assert ("x export" in shown) == (columns == 200)

    drive(written, test, size=(columns, LINES))


def test_a_heading_that_is_too_long_says_so(written):
    async def test(viewer, pilot):
        await pilot.press("f", *"incorrect", "enter", "p")
        await pilot.pause()
        first = "".join(part.text for part in viewer.screen._compositor.render_strips()[0]).rstrip()
        assert len(first) < COLUMNS
        assert first.endswith("…")

    drive(written, test)


def test_the_keys_that_scroll_a_text_scroll_the_help(written):
    async def test(viewer, pilot):
        await pilot.press("question_mark")
        await pilot.pause()
        keys = viewer.screen.query_one("#keys")
        places = []
        for key in ("space", "b", "G", "g"):
            await pilot.press(key)
            await pilot.pause()
            places.append(keys.scroll_offset.y)
        assert places[0] > 0
        assert places[2] == keys.max_scroll_y > 0
        assert places[1] == places[3] == 0

    drive(written, test)


def test_slashes_before_a_search_of_the_database_are_no_part_of_it(written):
    async def test(viewer, pilot):
        await pilot.press("slash", "slash", "slash", *"NUMBER", "enter")
        await pilot.pause()
        assert isinstance(viewer.screen, ChoiceDialog)
        assert "2 turns with 'NUMBER'" in str(viewer.screen.query_one("Static").render())

    drive(written, test)


def test_every_column_of_the_list_is_seen_at_once_and_a_cell_that_is_cut_says_so(written):
    async def test(viewer, pilot):
        table = viewer.screen.query_one("DataTable")
        assert table.max_scroll_x == 0
        rows = [
            "".join(part.text for part in row) for row in viewer.screen._compositor.render_strips()
        ]
        (shown,) = [row for row in rows if "fused_silu" in row and "│" in row]
        assert "…" in shown
        assert "cut off" in shown

    drive(written, test, listing=True)
