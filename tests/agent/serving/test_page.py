"""The page for people in a real browser."""

import re
import subprocess
from pathlib import Path

import pytest

CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--virtual-time-budget=4000", "--dump-dom",
)  # fmt: skip
"""Nothing leaves this machine; the page has four seconds of its own time, in which answers of the server are waited
for.
"""

pytestmark = pytest.mark.skipif(
    not CHROMIUM.is_file(), reason="no browser here: apt-get install chromium"
)


@pytest.fixture
def browse(tmp_path):
    """`browse(address)`: the page as the browser has built it, as text without tags, and as it is."""

    def browsed(address):
        command = [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / 'profile'}", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr[-2000:]
        dom = re.sub(r"<(script|style)>.*?</\1>", "", done.stdout, flags=re.DOTALL)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", dom)), dom

    return browsed


def judged(http, bodies):
    for body in bodies:
        verdict_id = http.post("/v1/verdicts", json=body).json()["verdict_id"]
        assert (
            http.get(f"/v1/verdicts/{verdict_id}", params={"wait": 60}).json()["state"]
            == "finished"
        )


def test_the_page_shows_queue_verdicts_and_reward_health_and_runs_no_script_of_a_candidate(
    http, server, browse, submission, text_only, right_code
):
    source = http.get("/v1/problems/fused_silu").json()["source"]
    named = {"name": "<img src=x onerror=\"document.title='run'\">", "source": source}
    mine = [submission(text_only(("page", k)), group="page") for k in range(2)]
    judged(
        http, [*mine, submission(right_code), {**submission(text_only("named")), "problem": named}]
    )
    text, dom = browse(f"{server.url}/#token=alice-0123456789abcdef")
    for part in (
        "ok, cpu:0",
        "1 of 1",
        "fused_silu",
        "correct",
        "entry_point",
        "candidates",
        "groups are flat",
    ):
        assert part in text, part
    assert "&lt;img src=x onerror=" in dom
    assert "<title>Kernelwright judge</title>" in dom
    assert re.search(r"<rect [^>]*><title>[^<]*: [\d.]+ % of \d+</title>", dom)
    assert 'id="asking" hidden' in dom


def test_without_a_token_the_page_asks_for_one_and_shows_nothing(server, browse):
    text, dom = browse(f"{server.url}/")
    assert "Token" in text
    assert 'id="shown" hidden' in dom
    assert "fused_silu" not in text
    assert "the server does not know this token" in browse(f"{server.url}/#token=wrong")[0]


@pytest.mark.slow
def test_the_page_lists_the_trajectories_of_a_database(serve, batched, browse):
    import httpx2

    server = serve("--db", str(batched))
    text, _ = browse(server.url)
    assert "vector_add" in text
    listed = httpx2.get(f"{server.url}/v1/trajectories").json()["trajectories"]
    assert len(listed) == 6
    page = httpx2.get(f"{server.url}/v1/trajectories/{listed[0]['id']}", timeout=500)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "Content-Security-Policy" in page.text
    assert httpx2.get(f"{server.url}/v1/trajectories/999").status_code == 404
