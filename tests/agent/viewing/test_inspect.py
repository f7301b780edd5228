"""The viewer, driven by textual's pilot over a real database, and the same as plain text and JSON."""

import asyncio
import re
import threading
import time
from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.viewing.viewer.app import Viewer
from kernelwright.agent.viewing.viewer.dialogs import ChoiceDialog, HelpDialog, LineDialog
from kernelwright.agent.viewing.viewer.views import View
from kernelwright.store.database import Store
from kernelwright.store.models import Action
from kernelwright.store.records import TrajectoryStart
from kernelwright.tools.report import Fault
from tests.agent.viewing.filled_database import broken, fast, fill, turn

ROOT = Path(__file__).parents[3]
SILU = (ROOT / "tests" / "kernels" / "good" / "fused_silu.py").read_text()


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "runs.db"
    with Store.open(path) as store:
        fill(store)
    return path


@pytest.fixture
def drive(kept):
    """`drive(test, trajectory, size=..., **options)`: the coroutine gets the viewer and its pilot."""

    def driven(test, trajectory=1, size=(120, 40), path=kept, **options):
        async def inside(store):
            viewer = Viewer(store, trajectory, **options)
            async with viewer.run_test(size=size) as pilot:
                await pilot.pause()
                await test(viewer, pilot)

        with Store.open(path, readonly=True) as store:
            asyncio.run(inside(store))

    return driven


async def press(pilot, *keys):
    await pilot.press(*keys)
    await pilot.pause()


def body(viewer):
    return viewer.screen_stack[0].query_one("#body").text


def tree(viewer):
    return viewer.screen_stack[0].query_one("#lineage").text


def line(viewer, id="status"):
    return str(viewer.screen_stack[0].query_one(f"#{id}").render())


def test_the_keys_step_through_turns_and_trajectories(drive):
    async def test(viewer, pilot):
        places = []
        for key in ("l", "right", "h", "left", "$", "0", "l", "l"):
            await press(pilot, {"$": "dollar_sign"}.get(key, key))
            places.append(viewer.position.index)
        assert places == [1, 2, 1, 0, 4, 0, 1, 2]
        assert "turn 3 of 5, refine" in line(viewer, "heading")
        assert "correct 1.5x" in line(viewer, "heading")
        await press(pilot, "0", "h")
        assert "this is the first turn" in line(viewer)
        await press(pilot, "L")
        assert "I would rather not." in body(viewer)
        await press(pilot, "L")
        assert "not answered yet" in body(viewer)
        await press(pilot, "L")
        assert "this is the last trajectory" in line(viewer)
        await press(pilot, "H", "H", "H")
        assert "this is the first trajectory" in line(viewer)
        await press(pilot, "q")

    drive(test)


def test_j_and_k_scroll(drive):
    async def test(viewer, pilot):
        pager = viewer.query_one("#body")
        await press(pilot, "c", "j", "j", "down")
        assert pager.scroll_offset.y == 3
        await press(pilot, "k", "up")
        assert pager.scroll_offset.y == 1
        await press(pilot, "G")
        assert pager.scroll_offset.y == pager.max_scroll_y > 1
        await press(pilot, "g", "space")
        assert pager.scroll_offset.y > 3
        await press(pilot, "b")
        assert pager.scroll_offset.y == 0

    drive(test, size=(100, 12))


def test_each_view_shows_its_part_and_what_a_model_said_is_only_text(drive):
    async def test(viewer, pilot):
        assert "it is a mismatch" in body(viewer)
        assert "Here it is." in body(viewer)
        await press(pilot, "p")
        assert "--- user" in body(viewer)
        assert "[bold]not markup[/bold]" in body(viewer)
        assert "\x1b" not in body(viewer)
        await press(pilot, "c")
        assert re.search(r"3 > import|3 > ", body(viewer)), "the line that failed is marked"
        assert "def silu_kernel" in body(viewer)
        await press(pilot, "d")
        assert "a draft has no parent" in body(viewer)
        await press(pilot, "l")
        assert "against turn 1: +1 -1" in body(viewer)
        assert "+NUMBER = 1" in body(viewer)
        await press(pilot, "d")
        assert viewer.shown is View.TURN, "the same key again goes back"
        await press(pilot, "p", "escape")
        assert viewer.shown is View.TURN

    drive(test)


def test_the_lineage_is_a_tree_with_the_speedup_at_each_node(drive):
    async def test(viewer, pilot):
        lines = [text.rstrip() for text in tree(viewer).splitlines()]
        assert lines[:5] == [
            ">1 draft mismatch",
            " 2 repair correct 0.9x",
            " 3 refine correct 1.5x",
            " ├─4 refine compile",
            " └─5 refine correct 2.25x *",
        ]
        assert "stopped turns" in tree(viewer), "and under it what is known of the whole trajectory"

    drive(test)


def test_a_filter_leaves_only_what_fits_it(drive):
    async def ask(viewer, pilot, text):
        await press(pilot, "f")
        viewer.screen.query_one("Input").value = text
        await press(pilot, "enter")

    async def test(viewer, pilot):
        await ask(viewer, pilot, "correct speedup:1.2")
        assert viewer.position.entry.candidate.turn == 2
        assert "[filter: 2 of 5]" in line(viewer, "heading")
        await press(pilot, "l")
        assert viewer.position.entry.candidate.turn == 4
        await press(pilot, "l")
        assert "last turn that fits the filter" in line(viewer)
        await ask(viewer, pilot, "fault:no_code")
        assert viewer.position.viewed.row.id == 2, "it goes to where something fits"
        await press(pilot, "H")
        assert "first trajectory that fits" in line(viewer)
        await ask(viewer, pilot, "fault:deadlock_of_the_moon")
        assert isinstance(viewer.screen, LineDialog), (
            "what cannot be a filter is said, and can be mended"
        )
        assert "is not known" in str(viewer.screen.query_one("#refused").render())
        await press(pilot, "escape")
        await ask(viewer, pilot, "cheat:cache")
        assert "nothing fits" in line(viewer)
        assert viewer.position.viewed.row.id == 2
        await ask(viewer, pilot, "")
        await press(pilot, "H")
        assert viewer.position.viewed.row.id == 1

    drive(test)


def test_a_search_finds_text_in_the_turn_and_in_the_whole_database(drive):
    async def ask(viewer, pilot, text):
        await press(pilot, "slash")
        viewer.screen.query_one("Input").value = text
        await press(pilot, "enter")

    async def test(viewer, pilot):
        await press(pilot, "c")
        await ask(viewer, pilot, "TL.")
        first = viewer.query_one("#body").match_position
        assert first[0] == 1
        assert first[1] > 3
        assert "match 1 of" in line(viewer)
        await press(pilot, "n", "n", "N")
        assert viewer.query_one("#body").match_position[0] == 2
        await ask(viewer, pilot, "xylophone")
        assert "//xylophone searches the whole database" in line(viewer)
        await ask(viewer, pilot, "/rather")
        assert isinstance(viewer.screen, ChoiceDialog)
        await press(pilot, "enter")
        assert viewer.position.viewed.row.id == 2
        await ask(viewer, pilot, "/xylophone")
        assert "nothing in the database holds" in line(viewer)
        await ask(viewer, pilot, "/--")
        assert "nothing to search for" in line(viewer)

    drive(test)


def test_the_list_of_trajectories_opens_the_one_chosen(drive):
    async def test(viewer, pilot):
        assert isinstance(viewer.screen, ChoiceDialog), "without a number the list comes first"
        assert viewer.screen.query_one("DataTable").row_count == 3
        await press(pilot, "escape", "t", "k", "enter")
        assert viewer.position.viewed.row.id == 2
        await press(pilot, "t", "q")
        assert viewer.position.viewed.row.id == 2
        assert len(viewer.screen_stack) == 1

    drive(test, listing=True)


def test_the_first_list_ends_with_q_and_explains_its_keys(drive):
    async def test(viewer, pilot):
        await press(pilot, "question_mark")
        assert isinstance(viewer.screen, HelpDialog)
        await press(pilot, "q")
        assert isinstance(viewer.screen, ChoiceDialog), "closing the help goes back to the list"
        assert viewer.is_running
        await press(pilot, "q")
        assert not viewer.is_running, "nothing was opened yet, so q ends the program"

    drive(test, listing=True)


def test_what_is_typed_replaces_the_text_of_the_last_filter_and_search(drive):
    async def test(viewer, pilot):
        for key, place in (("f", "position"), ("slash", "body")):
            await press(pilot, key, *"correct", "enter")
            await press(pilot, key)
            assert viewer.screen.query_one("Input").value == "correct", place
            await press(pilot, *"finished")
            assert viewer.screen.query_one("Input").value == "finished", place
            await press(pilot, "escape")

    drive(test)


def test_a_kernel_is_exported_and_nobody_elses_file_is_overwritten(drive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("mine\n")

    async def test(viewer, pilot):
        await press(pilot, "dollar_sign", "x", "enter")
        assert "written to fused_silu_trajectory_1_turn_5.py" in line(viewer)
        written = (tmp_path / "fused_silu_trajectory_1_turn_5.py").read_text()
        assert "NUMBER = 4" in written
        assert "2.25x the speed of eager" in written
        await press(pilot, "x")
        viewer.screen.query_one("Input").value = "mine.py"
        await press(pilot, "enter")
        assert "was not written by this program" in line(viewer)
        assert (tmp_path / "mine.py").read_text() == "mine\n"
        await press(pilot, "L", "x")
        assert "holds no code" in line(viewer)

    drive(test)


def test_help_names_every_key(drive):
    async def test(viewer, pilot):
        await press(pilot, "question_mark")
        assert isinstance(viewer.screen, HelpDialog)
        shown = viewer.screen.query_one("#keys").text
        for key in (
            "h, left",
            "$",
            "H",
            "L",
            "d ",
            "p ",
            "c ",
            "o ",
            "f ",
            "/",
            "t ",
            "x ",
            "?",
            "q",
        ):
            assert key in shown, key
        await press(pilot, "j", "k", "q")
        assert len(viewer.screen_stack) == 1

    drive(test)


def test_a_terminal_that_is_too_small_says_so_and_goes_on_when_it_grows(drive):
    async def test(viewer, pilot):
        assert "too small: 30 by 5" in line(viewer, "small")
        assert viewer.query_one("#small").display
        for key in ("l", "d", "t", "escape", "question_mark", "escape"):
            await press(pilot, key)
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert not viewer.query_one("#small").display
        assert "against turn 1" in body(viewer)
        await pilot.resize_terminal(1, 1)
        await pilot.pause()

    drive(test, size=(30, 5))


def test_it_reads_again_and_follows_while_a_batch_writes(drive, tmp_path):
    path = tmp_path / "live.db"
    with Store.open(path) as writer:
        fill(writer, finished=False)

        async def test(viewer, pilot):
            await press(pilot, "dollar_sign", "r")
            assert "nothing new" in line(viewer)
            row = writer.trajectory(1)
            turn(
                writer,
                row,
                Action.REFINE,
                5,
                SILU + "# new\n",
                fast(find_by_name("fused_silu"), 3.0),
            )
            await press(pilot, "r")
            assert viewer.position.entry.candidate.turn == 5, (
                "from the last turn to the new last one"
            )
            assert "correct 3x *" in tree(viewer)
            await press(pilot, "F")
            assert viewer.position.viewed.row.id == 3
            four = writer.begin(TrajectoryStart(problem=find_by_name("matmul"), policy="embedded"))
            turn(
                writer, four, Action.DRAFT, None, SILU, broken(find_by_name("matmul"), Fault.SHAPE)
            )
            viewer._look()
            await pilot.pause()
            assert viewer.position.viewed.row.id == 4
            assert "[following]" in line(viewer, "heading")
            await press(pilot, "F")
            assert "no longer" in line(viewer)

        drive(test, path=path)


@pytest.mark.slow
def test_ptx_is_compiled_again_offline_and_a_turn_without_it_says_why(drive):
    async def settled(viewer, pilot):
        deadline = time.monotonic() + 400
        while "compiling for" in body(viewer) and time.monotonic() < deadline:
            await pilot.pause(0.1)

    async def test(viewer, pilot):
        await press(pilot, "o")
        assert "compiling for sm_90, offline" in body(viewer)
        await settled(viewer, pilot)
        assert ".target sm_90" in body(viewer)
        assert "// silu_kernel for sm_90" in body(viewer)
        assert "registers" in body(viewer)
        await press(pilot, "L")
        assert "no PTX: this turn holds no code" in body(viewer)

    drive(test)


def test_quitting_does_not_wait_for_the_compiler(drive):
    async def test(viewer, pilot):
        await press(pilot, "o", "q")

    drive(test)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "assembling")
