"""The HTML pages in a real browser: what is shown, that the plots are painted, and that nothing is asked of any
network.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.reporting.files import run_page, trajectory_page
from kernelwright.agent.reporting.run_report import report_run
from kernelwright.agent.reporting.trajectory_report import report_trajectory
from kernelwright.policies.base import Completion, FinishReason, Message, Request, Role, Usage
from kernelwright.store.models import Action
from kernelwright.store.records import TrajectoryStart
from kernelwright.tools.report import Failure, Fault, ProfileResult, Report, Roofline, Rung, Timing

CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
"""The last one: whatever the browser wants for itself, nothing leaves this machine."""
BLUE = (0x1F, 0x77, 0xB4)
"""Of matplotlib's first line."""
PIXEL = "http://pixel.invalid/pixel.png"

pytestmark = pytest.mark.skipif(
    not CHROMIUM.is_file(), reason="no browser here: apt-get install chromium"
)


@pytest.fixture
def browse(tmp_path):
    """`browse(html, *flags)`: the page as the browser has built it, and the addresses that were asked for."""

    def browsed(html, *flags):
        page, log = tmp_path / "page.html", tmp_path / "net.json"
        page.write_text(html, encoding="utf-8")
        told = (
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--log-net-log={log}",
            *flags,
            page.as_uri(),
        )
        done = subprocess.run(
            [CHROMIUM, *QUIET, *told], capture_output=True, text=True, timeout=500
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout, [
            url for url in _asked_by_pages(log) if not url.startswith(("file:", "data:"))
        ]

    return browsed


def _asked_by_pages(log):
    """What the browser wants for itself (time, updates) has no origin."""
    text = log.read_text().rstrip()
    try:
        events = json.loads(text)["events"]
    except json.JSONDecodeError:
        events = json.loads(text.rstrip(",") + "]}")[
            "events"
        ]  # the browser was gone before it had closed the list
    asked = [event["params"] for event in events if "url" in event.get("params", {})]
    return [
        told["url"] for told in asked if told.get("initiator", "not an origin") != "not an origin"
    ]


def verdict(problem, speedup=None):
    timing = Timing(median=1.0, low=0.9, high=1.1, mean=1.0, std=0.01, minimum=0.9, calls=50)
    base = Report(
        problem=problem.name,
        problem_hash=problem.hash,
        candidate_hash=str(speedup),
        rung=Rung.COMPILE,
    )
    if speedup is None:
        return base.with_(failure=Failure(fault=Fault.COMPILE, message="tl.sigmoidal is not there"))
    roof = Roofline(
        bytes=10**9,
        operations=10**9,
        bytes_per_second=4.8e12,
        operations_per_second=6.7e13,
        rate_name="fp32",
        bound="memory",
    )
    own = timing.with_(median=1.0 / speedup)
    profile = ProfileResult(
        device="NVIDIA H200", candidate=own, eager=timing, speedup=speedup, roofline=roof
    )
    return base.with_(rung=Rung.PROFILE, correct=True, judged_on="NVIDIA H200", profile=profile)


@pytest.fixture
def shown(store):
    """Trajectory 1 of the run `fast`: broken, then 1.5x, then 2.5x; 2 is another sample."""
    problem, run = (
        find_by_name("fused_silu"),
        store.open_run("fast", {"problems": ["fused_silu", "vector_add"]}),
    )
    for sample in range(2):
        row = store.begin(
            TrajectoryStart(problem=problem, policy="openai:m"), run_id=run.id, sample=sample
        )
        parent = None
        for turn, speedup in enumerate([None, 1.5, 2.5]):
            asked = Message(role=Role.USER, content=f"please <b>{turn}</b> <img src={PIXEL}>")
            action = Action.REPAIR if parent else Action.DRAFT
            made = store.draft(row.id, Request(messages=(asked,)), action=action, parent_id=parent)
            code = f"BLOCK = {turn}\n# <script>document.title = 'run'</script>\n"
            usage = Usage(prompt_tokens=5, completion_tokens=7)
            store.complete(
                made.id,
                Completion(text=code, finish=FinishReason.STOP, usage=usage, policy="m"),
                code,
            )
            store.judge(made.id, verdict(problem, speedup))
            parent = made.id
        store.finish(row.id, "turns", best_id=parent)
    return store


def words(dom):
    return re.sub(
        r"\s+",
        " ",
        re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", dom, flags=re.DOTALL)),
    )


def svgs(dom):
    """Label, and text, of each plot."""
    return {
        label: words(svg)
        for label, svg in re.findall(r'<svg[^>]*aria-label="([^"]+)"(.*?)</svg>', dom, re.DOTALL)
    }


def colours(png):
    from matplotlib.image import imread

    pixels = (imread(png)[:, :, :3] * 255).round().astype(int).reshape(-1, 3)
    return {tuple(pixel) for pixel in pixels[(abs(pixels - BLUE) <= 2).all(axis=1)][:1]}


@pytest.mark.slow
def test_a_trajectory_in_the_browser_shows_its_turns_and_plots_and_asks_no_network(
    shown, browse, tmp_path
):
    html = trajectory_page(report_trajectory(shown, 1))
    dom, asked = browse(html, "--dump-dom")
    text = words(dom)
    for part in (
        "Turn 1: draft", "compile: tl.sigmoidal is not there", "correct, 2.5x eager PyTorch", "verdict in full",
        "prompt as sent", "please &lt;b&gt;1",
        "-BLOCK = 0", "+BLOCK = 1", "3 repair correct 2.5x *", "class Model(nn.Module)", "judged on NVIDIA H200",
    ):  # fmt: skip
        assert part in text, part
    plots = svgs(dom)
    assert set(plots) == {"speed per turn", "roofline"}
    for part in ("speedup over eager PyTorch", "best so far", "not correct", "1.0"):
        assert part in plots["speed per turn"]
    for part in ("operations a byte", "roof, fp32", "turn 3", "eager"):
        assert part in plots["roofline"]
    assert "<title>fused_silu, trajectory 1</title>" in dom, "no script of a candidate's has run"
    assert asked == []
    picture = tmp_path / "page.png"
    browse(html, f"--screenshot={picture}", "--window-size=1200,1200")
    assert colours(picture), "the line of the plot is painted"


def test_a_run_in_the_browser_shows_its_figures_and_plots_and_asks_no_network(shown, browse):
    dom, asked = browse(run_page(report_run(shown, "fast")), "--dump-dom")
    text = words(dom)
    for part in (
        "Run fast",
        "fast_1",
        "pass@2",
        "2.5x",
        "best trajectory",
        "never attempted",
        "openai:m",
    ):
        assert part in text, part
    assert "fast_p (% of problems)" in svgs(dom)["fast_p"]
    assert "pass@k (% of problems)" in svgs(dom)["pass@k"]
    assert asked == []


def test_the_page_itself_forbids_what_would_be_loaded(shown, browse):
    """Were something loaded, this test would see it: the same page without its policy does ask."""
    html = trajectory_page(report_trajectory(shown, 1)).replace(
        "</body>", f'<img src="{PIXEL}"></body>'
    )
    assert browse(html, "--dump-dom")[1] == []
    unguarded = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    assert set(browse(unguarded, "--dump-dom")[1]) == {PIXEL}
