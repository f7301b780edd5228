"""The page for people in a real browser, at the width of a desktop and of a phone."""

import httpx2
import pytest

from .browser import CHROMIUM, DESKTOP, PHONE, running_browser
from .conftest import ALICE, BOB

pytestmark = pytest.mark.skipif(
    not CHROMIUM.is_file(), reason="no browser here: apt-get install chromium"
)
LISTED = (
    "document.querySelectorAll('#verdicts tbody a').length > 0 && !document.getElementById('overview').hidden "
    "&& document.querySelectorAll('#throughput rect, #totals:not(:empty)').length > 1"
)
ROWS = "[...document.querySelectorAll('#verdicts tbody tr')].map(row => row.innerText)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with running_browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(autouse=True)
def _forgets(browser, server):
    browser.resize(DESKTOP)
    yield
    browser.run("sessionStorage.clear()")


@pytest.fixture
def page(server):
    return f"{server.url}/#token={ALICE}"


def judged(http, body, token=ALICE):
    headers = {"Authorization": f"Bearer {token}"}
    verdict_id = http.post("/v1/verdicts", json=body, headers=headers).json()["verdict_id"]
    while http.get(f"/v1/verdicts/{verdict_id}", params={"wait": 60}).json()["state"] in (
        "queued",
        "running",
    ):
        pass
    return verdict_id


def test_the_page_shows_the_service_and_runs_no_script_of_a_candidate(
    http, browser, page, submission, text_only
):
    source = http.get("/v1/problems/fused_silu").json()["source"]
    named = {"name": "<img src=x onerror=\"document.title='run'\">", "source": source}
    judged(http, {**submission(text_only("named")), "problem": named, "group": "<b>page</b>"})
    browser.open(page, LISTED)
    text = browser.text()
    for part in (
        "ok",
        "1 of 1",
        "cpu:0",
        "entry_point",
        "Verdicts ended",
        "Latency",
        "candidates",
        "restarts",
    ):
        assert part in text, part
    assert "<img src=x onerror=" in text
    assert "<b>page</b>" in text
    assert browser.run("document.title") == "Kernelwright judge"
    assert "token" not in browser.run("location.href"), "an address that is shared holds no token"
    assert browser.run("document.querySelectorAll('#throughput rect').length") == 48


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_nothing_is_wider_than_the_screen(browser, page, size, http, submission, text_only):
    verdict_id = judged(http, submission(text_only("wide"), group="g" * 150))
    browser.resize(size)
    browser.open(page, LISTED)
    assert browser.run("document.documentElement.scrollWidth") == size[0]
    browser.run(f"location.hash = '#verdict={verdict_id}'")
    browser.wait("document.querySelectorAll('#candidate div').length > 2")
    assert browser.run("document.documentElement.scrollWidth") == size[0]


@pytest.mark.slow
def test_a_verdict_has_a_link_that_shows_its_candidate_with_the_marked_line(
    http, server, browser, page, submission, right_code
):
    broken = right_code.replace("tl.store(", "tl.no_such_store(")
    verdict_id = judged(http, submission(broken, group="step-7"))
    browser.open(page, LISTED)
    browser.open(
        f"{server.url}/#verdict={verdict_id}", "document.querySelector('#candidate .marked')"
    )
    assert "no_such_store(" in browser.run("document.querySelector('#candidate .marked').innerText")
    text = browser.text()
    for part in (
        "fused_silu",
        "does not compile",
        "step-7",
        "by alice",
        "cpu:0",
        "finished",
        verdict_id,
    ):
        assert part in text, part
    assert '"candidate_hash"' in browser.run("document.getElementById('report').textContent")
    assert "class Model(" in browser.run("document.getElementById('reference').textContent")


def test_filters_are_part_of_the_address(http, server, browser, page, submission, text_only):
    judged(http, submission(text_only("of bob"), group="filtered"), BOB)
    judged(http, submission(text_only("of alice"), group="filtered"))
    browser.open(page, LISTED)
    browser.run("document.querySelector('#filters [name=group]').value = 'filtered'")
    browser.run("document.querySelector('#filters').dispatchEvent(new Event('change'))")
    browser.wait(f"{ROWS}.length === 2")
    address = browser.run("location.href")
    assert address.endswith("#group=filtered")
    browser.open(f"{address}&client=bob", f"{ROWS}.length === 1 && {ROWS}[0].includes('bob')")
    browser.open(f"{address}&client=nobody", f"{ROWS}[0] === 'No verdict matches the filters.'")


def test_a_verdict_is_cancelled_and_judged_again_by_buttons(
    http, server, browser, page, submission, text_only
):
    browser.open(page, "!document.getElementById('overview').hidden")
    with server.frozen_judge():
        http.post("/v1/verdicts", json=submission(text_only("before the button")))
        verdict_id = http.post("/v1/verdicts", json=submission(text_only("button"))).json()[
            "verdict_id"
        ]
        browser.run(f"location.hash = '#verdict={verdict_id}'")
        browser.wait("!document.getElementById('cancel').hidden")
        browser.run("document.getElementById('cancel').click()")
        browser.wait("document.getElementById('action-note').textContent === 'Cancelled.'")
        browser.wait("!document.getElementById('again').hidden")
        browser.run("document.getElementById('again').click()")
        browser.wait("!document.getElementById('cancel').hidden")
        assert http.get(f"/v1/verdicts/{verdict_id}").json()["state"] == "queued"
    assert http.get(f"/v1/verdicts/{verdict_id}", params={"wait": 60}).json()["state"] == "finished"


def test_without_a_token_the_page_asks_for_one_and_shows_nothing(server, browser):
    browser.open(f"{server.url}/", "!document.getElementById('token-form').hidden")
    assert "Token" in browser.text()
    assert "fused_silu" not in browser.text()
    refused = "document.getElementById('token-refused').textContent === 'the server does not know this token'"
    browser.open(f"{server.url}/#token=wrong", refused)


@pytest.mark.slow
@pytest.mark.nightly
def test_the_page_lists_the_trajectories_of_a_database(serve, batched, browser):
    server = serve("--db", str(batched))
    browser.open(server.url, "document.querySelector('#trajectories button')?.offsetParent")
    assert "vector_add" in browser.text()
    listed = httpx2.get(f"{server.url}/v1/trajectories").json()["trajectories"]
    assert len(listed) == 6
    page = httpx2.get(f"{server.url}/v1/trajectories/{listed[0]['id']}", timeout=500)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "Content-Security-Policy" in page.text
    assert httpx2.get(f"{server.url}/v1/trajectories/999").status_code == 404
