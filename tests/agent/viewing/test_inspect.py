"""The viewer, driven by textual's pilot over a real database, and the same as plain text and JSON."""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from kernelwright.agent.cli import main
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.viewing.viewer.app import Viewer
from kernelwright.agent.viewing.viewer.dialogs import ChoiceDialog, HelpDialog, LineDialog
from kernelwright.agent.viewing.viewer.filtering import parse_filter
from kernelwright.agent.viewing.viewer.views import View
from kernelwright.errors import InputError
from kernelwright.policies.base import Completion, FinishReason, Message, Request, Role, Usage
from kernelwright.store.database import Store
from kernelwright.store.models import Action
from kernelwright.store.records import CandidateFilter, TrajectoryStart
from kernelwright.tools.report import Environment, Failure, Fault, ProfileResult, Report, Rung, SourceLine, Timing

ROOT = Path(__file__).parents[3]
SILU = (ROOT / "tests" / "kernels" / "good" / "fused_silu.py").read_text()
ENVIRONMENT = Environment(evaluator="1", torch="2.13.0", triton="3.9.0", gpu="NVIDIA H200")


def fast(problem, speedup):
    """A verdict as a GPU gives it."""
    time = Timing(median=1 / speedup, low=0.9, high=1.1, mean=1.0, std=0.01, minimum=0.9, calls=50)
    profile = ProfileResult(device="NVIDIA H200", candidate=time, speedup=speedup, speedup_low=speedup)
    return Report(
        problem=problem.name, problem_hash=problem.hash, candidate_hash=str(speedup), rung=Rung.PROFILE, correct=True,
        judged_on="NVIDIA H200",
        profile=profile, environment=ENVIRONMENT,
    )  # fmt: skip


def broken(problem, fault, rung=Rung.COMPILE):
    where = SourceLine(line=3, text="import triton.language as tl")
    failure = Failure(fault=fault, message=f"it is a {fault.value}, and zanzibar is why", where=where)
    return Report(
        problem=problem.name,
        problem_hash=problem.hash,
        candidate_hash=fault.value,
        rung=rung,
        failure=failure,
        environment=ENVIRONMENT,
    )


def turn(store, trajectory, action, parent, source, report, reply=None):
    asked = Message(role=Role.USER, content=f"please {action.value} it\x1b[2J [bold]not markup[/bold]")
    row = store.draft(trajectory.id, Request(messages=(asked,)), action=action, parent_id=parent, prompt_version="v1")
    if reply is None:
        reply = f"Here it is.\n```python\n{source}\n```\n"
    usage = Usage(prompt_tokens=100, completion_tokens=50, dollars=0.01)
    store.complete(
        row.id, Completion(text=reply, finish=FinishReason.STOP, usage=usage, policy="m", latency=1.5), source
    )
    store.judge(row.id, report, tool_seconds=0.5)
    return row.id


def fill(store, finished=True):
    """Trajectory 1: five turns that branch at the third. 2: a reply without code. 3: asked, not answered."""
    silu, adding = find_by_name("fused_silu"), find_by_name("vector_add")
    run = store.open_run("night")
    one = store.begin(TrajectoryStart(problem=silu, policy="openai:m", options={"targets": ["sm_90"]}), run_id=run.id)
    sources = [SILU.replace("import triton\n", f"import triton\n\nNUMBER = {number}\n", 1) for number in range(5)]
    a = turn(store, one, Action.DRAFT, None, sources[0], broken(silu, Fault.MISMATCH, Rung.INTERPRETED))
    b = turn(store, one, Action.REPAIR, a, sources[1], fast(silu, 0.9))
    c = turn(store, one, Action.REFINE, b, sources[2], fast(silu, 1.5))
    turn(store, one, Action.REFINE, c, sources[3], broken(silu, Fault.COMPILE))
    e = turn(store, one, Action.REFINE, c, sources[4], fast(silu, 2.25))
    if finished:
        store.finish(one.id, "turns", best_id=e, spent={"turns": 5})
    two = store.begin(TrajectoryStart(problem=adding, policy="embedded"))
    turn(store, two, Action.DRAFT, None, None, broken(adding, Fault.NO_CODE, Rung.SOURCE), reply="I would rather not.")
    store.finish(two.id, "turns")
    three = store.begin(TrajectoryStart(problem=find_by_name("row_sum"), policy="embedded"))
    store.draft(three.id, Request(messages=(Message(role=Role.USER, content="sum"),)), action=Action.DRAFT)


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
            places.append(viewer.position.place)
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
        assert isinstance(viewer.screen, LineDialog), "what cannot be a filter is said, and can be mended"
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
        first = viewer.query_one("#body").found
        assert first[0] == 1
        assert first[1] > 3
        assert "match 1 of" in line(viewer)
        await press(pilot, "n", "n", "N")
        assert viewer.query_one("#body").found[0] == 2
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
        for key in ("h, left", "$", "H", "L", "d ", "p ", "c ", "o ", "f ", "/", "t ", "x ", "?", "q"):
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
            turn(writer, row, Action.REFINE, 5, SILU + "# new\n", fast(find_by_name("fused_silu"), 3.0))
            await press(pilot, "r")
            assert viewer.position.entry.candidate.turn == 5, "from the last turn to the new last one"
            assert "correct 3x *" in tree(viewer)
            await press(pilot, "F")
            assert viewer.position.viewed.row.id == 3
            four = writer.begin(TrajectoryStart(problem=find_by_name("matmul"), policy="embedded"))
            turn(writer, four, Action.DRAFT, None, SILU, broken(find_by_name("matmul"), Fault.SHAPE))
            viewer._look()
            await pilot.pause()
            assert viewer.position.viewed.row.id == 4
            assert "[following]" in line(viewer, "heading")
            await press(pilot, "F")
            assert "no longer" in line(viewer)

        drive(test, path=path)


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


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", CandidateFilter()),
        ("fault:mismatch action:repair", CandidateFilter(fault=Fault.MISMATCH, action=Action.REPAIR)),
        ("correct speedup>=1.2x", CandidateFilter(correct=True, min_speedup=1.2)),
        ("problem:'a b' rung:compile unfinished", CandidateFilter(problem="a b", rung=Rung.COMPILE, finished=False)),
    ],
)
def test_a_filter_is_read_as_people_write_it(text, wanted):
    assert parse_filter(text) == wanted


@pytest.mark.parametrize("text", ["moon", "fault:", "fault:moon", "speedup:fast", "'open", "correct incorrect"])
def test_what_is_no_filter_is_refused_in_one_line(text):
    with pytest.raises(InputError) as refused:
        parse_filter(text)
    assert "\n" not in str(refused.value)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def agent(capsys, monkeypatch):
    """The command as `main` runs it, in this process."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")

    def called(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["inspect", *map(str, arguments)])
        return Done(end.value.code, *capsys.readouterr())

    return called


def test_where_stdout_is_no_terminal_it_is_plain_text(kept, agent):
    listed = agent("--db", kept).stdout
    assert listed.splitlines()[0].split() == ["id", "run", "problem", "policy", "turns", "best", "stopped"]
    assert "correct 2.25x" in listed
    assert "night" in listed
    whole = agent("1", "--db", kept).stdout
    for part in (
        "=== turn 1: draft",
        "=== turn 5: refine",
        "└─5 refine correct 2.25x *",
        "--- diff",
        "please repair it",
    ):
        assert part in whole, part
    assert "\x1b" not in whole
    code = agent("1", "--show", "code", "--turn", "2", "--db", kept).stdout
    assert code.strip() == SILU.replace("import triton\n", "import triton\n\nNUMBER = 1\n", 1).strip(), "fit for a file"
    assert "please draft it" in agent("1", "--turn", 1, "--show", "prompt", "--db", kept).stdout
    assert "mismatch" not in agent("--filter", "fault:no_code", "--db", kept).stdout


def test_json_holds_the_lineage_and_every_turn(kept, agent):
    found = json.loads(agent("1", "--json", "--db", kept).stdout)
    assert found["lineage"] == [[1, 2], [2, 3], [3, 4], [3, 5]]
    assert [turn["report"]["correct"] for turn in found["turns"]] == [False, True, True, False, True]
    assert found["best"] == 5
    rows = json.loads(agent("--json", "--db", kept).stdout)
    assert [row["id"] for row in rows] == [3, 2, 1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("99",), "no trajectory 99"),
        (("moon",), "give its number, or last"),
        (("1", "--turn", "9"), "choose 1 to 5"),
        (("1", "--show", "sass"), "choose turn, prompt, code, diff, ptx"),
        (("2", "--show", "code"), "holds no code"),
        (("2", "--show", "ptx"), "nothing to compile"),
        (("--turn", "1"), "give its number"),
        (("--filter", "moon"), "is no filter"),
    ],
)
def test_what_is_not_there_is_one_line(kept, line, said, agent):
    done = agent(*line, "--db", kept)
    assert done.returncode in (2, 3)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_empty_database_and_a_missing_one_are_one_line_each(tmp_path, agent):
    Store.open(tmp_path / "empty.db").close()
    for name, said in (("empty.db", "holds no trajectory yet"), ("missing.db", "missing.db")):
        done = agent("--db", tmp_path / name)
        assert done.returncode in (2, 3)
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_in_a_real_terminal_the_viewer_starts_and_q_ends_it(kept):
    main, side = pty.openpty()
    told = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color", "COLUMNS": "110", "LINES": "30"}
    command = [sys.executable, "-m", "kernelwright.agent", "inspect", "1", "--db", str(kept)]
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=told) as process:
        os.close(side)
        seen, asked = b"", False
        deadline = time.monotonic() + 400
        while time.monotonic() < deadline:
            try:
                seen += os.read(main, 65536)
            except OSError:
                break
            if b"fused_silu" in seen and not asked:
                os.write(main, b"q")
                asked = True
        assert process.wait(500) == 0
    os.close(main)
    assert b"fused_silu" in seen
    assert b"Traceback" not in seen


def test_a_run_that_was_killed_is_not_said_to_be_running(tmp_path, agent):
    def said():
        return agent("--db", tmp_path / "runs.db").stdout.splitlines()[1].rstrip().split("  ")[-1]

    start = TrajectoryStart(problem=find_by_name("fused_silu"), policy="embedded")
    with Store.open(tmp_path / "runs.db") as store:
        trajectory = store.begin(start)
        assert said() == "running"
    assert said() == "cut off", "as after kill -9: nobody said that it stopped"
    with Store.open(tmp_path / "runs.db") as store:
        store.begin(start)
        store.pause(trajectory.id, "interrupted")
    assert said() == "interrupted"
