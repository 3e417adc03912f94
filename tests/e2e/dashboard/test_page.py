"""The live page of a real cluster, in a headless Chromium.

With ``PLIANT_SCREENSHOTS=FOLDER``, pictures of all pages are saved there, for people to look at.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browserkit import Page, find_chromium
from browserkit.served import Served
from clusterkit.cluster import Cluster
from clusterkit.counter import Counter
from clusterkit.shared import running_cluster
from pliant.client.connection import Connection
from testkit import wait_until

pytest.importorskip("starlette")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202eevil"
#: Colours of a job's band in the picture, a few pixels left of now.
BAND = """(id => {
  const canvas = document.querySelector('#timeline'), ratio = canvas.width / canvas.clientWidth;
  const hits = pliant.page.hits.filter(p => p.job.id === id);
  const last = hits.reduce((a, b) => (b.x1 > a.x1 ? b : a));
  const x = Math.round((last.x1 - Math.min(3, (last.x1 - last.x0) / 2)) * ratio);
  const colour = getComputedStyle(document.documentElement).getPropertyValue('--c' + last.job.hue).trim();
  const data = canvas.getContext('2d').getImageData(x, 0, 1, canvas.height).data;
  let found = 0;
  for (let k = 0; k < data.length; k += 4) {
    const pixel = '#' + [data[k], data[k + 1], data[k + 2]].map(v => v.toString(16).padStart(2, '0')).join('');
    if (pixel === colour) found++;
  }
  return found / ratio;
})"""  # noqa: E501
LAYOUT = """(() => ({
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  unnamed: [...document.querySelectorAll('a,button,input,[tabindex]')].filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.id === 'main')).map(e => e.outerHTML.slice(0, 80)),
  images: document.querySelectorAll('img').length,
}))()"""  # noqa: E501


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """Return a cluster for all tests, on which only an operator resizes jobs."""
    find_chromium()
    with running_cluster("fcfs", "", nodes=4, slots=2) as cluster:
        yield cluster


@pytest.fixture
def served(cluster: Cluster, tmp_path: Path) -> Iterator[Served]:
    find_chromium()
    with Served(cluster.run, tmp_path / "dashboard.log") as dashboard:
        yield dashboard


@pytest.fixture
def page(served: Served) -> Iterator[Page]:
    """Return a page that shows the overview, signed in for actions."""
    with Page() as made:
        made.resize(1440, 900)
        made.open(served.address())
        made.until("document.querySelector('#live-text').textContent.startsWith('Live')")
        made.until("pliant.page.hits !== undefined")
        yield made


def height(page: Page, job: int) -> float:
    value = page.evaluate(f"{BAND}({job})")
    return float(value)


@pytest.mark.mpi
def test_a_band_changes_its_height_when_the_job_is_resized(
    cluster: Cluster, counter: Counter, page: Page
) -> None:
    held = f"pliant.page.hits.filter(p => p.job.id === {counter.id}).at(-1)?.n"
    page.until(f"{held} === 2")
    # A job that has just started is too narrow for a band of its own.
    wait_until(lambda: height(page, counter.id) > 0, what="the band of the job")
    before = height(page, counter.id)
    cluster.resize(counter.id, 4)
    page.until(f"{held} === 4")
    wait_until(lambda: 1.8 < height(page, counter.id) / before < 2.2, what="a band twice as high")
    words = "document.querySelector('.feed').textContent"
    page.until(f"{words}.includes('2 → 4')")
    cluster.resize(counter.id, 1)
    page.until(f"{held} === 1")
    wait_until(lambda: 0.4 < height(page, counter.id) / before < 0.6, what="a band half as high")
    page.evaluate(f"location.hash = '#/jobs/{counter.id}'")
    page.until("document.querySelectorAll('.talk .message.program').length >= 2")
    page.until("document.querySelectorAll('.pause').length === 2")
    assert page.errors == []
    counter.finish()


def test_hostile_names_are_harmless(cluster: Cluster, page: Page) -> None:
    job = cluster.client.submit("/bin/sleep", "600", name=HOSTILE, stdout="/dev/null")
    for path in ("#/", "#/jobs", f"#/jobs/{job}", "#/nodes", "#/nodes/n1"):
        page.evaluate(f"location.hash = '{path}'")
        page.until("document.querySelector('main').textContent.length > 40")
        page.until(f"pliant.model.jobs.has({job})")
        assert page.evaluate(LAYOUT)["images"] == 0
        text = page.evaluate("document.body.textContent")
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert page.errors == []
    cluster.client.cancel(job)


def test_every_page_fits_every_screen(cluster: Cluster, page: Page) -> None:
    long = "a-name-without-spaces-" * 8
    sleep = ("/bin/sleep", "600")
    job = cluster.client.submit(*sleep, sizes=2, name=long, stdout="/dev/null")
    waiting = cluster.client.submit(*sleep, sizes=8, name="waits", stdout="/dev/null")
    pictures = os.environ.get("PLIANT_SCREENSHOTS")
    paths = {"overview": "#/", "jobs": "#/jobs", "job": f"#/jobs/{job}", "nodes": "#/nodes"}
    paths["strategy"] = "#/strategy"
    page.until(f"pliant.model.jobs.get({job})?.state === 'RUNNING'")
    for width, tall in ((1440, 900), (1024, 800), (390, 844)):
        for dark in (False, True):
            page.resize(width, tall, dark=dark)
            for name, path in paths.items():
                page.evaluate(f"location.hash = '{path}'")
                page.until("document.querySelector('main').textContent.length > 40")
                page.evaluate("new Promise(done => requestAnimationFrame(() => done()))")
                layout: dict[str, Any] = page.evaluate(LAYOUT)
                assert layout == {"overflow": 0, "unnamed": [], "images": 0}, (name, width)
                if pictures:
                    page.evaluate("new Promise(done => setTimeout(done, 1200))")
                    shade = "dark" if dark else "light"
                    page.screenshot(Path(pictures) / f"{name}-{width}-{shade}.png")
    assert page.errors == []
    cluster.client.cancel(job, waiting)


def test_the_page_follows_a_restart_of_the_server(cluster: Cluster, page: Page) -> None:
    page.evaluate("window.same = true")
    cluster.kill("server")
    page.until("document.querySelector('#banner').textContent.includes('No word since')")
    page.until("document.querySelector('main').classList.contains('stale')")
    cluster.up()
    job = cluster.client.submit("/bin/sleep", "600", stdout="/dev/null")
    page.until("document.querySelector('#banner').textContent === ''")
    page.until(f"pliant.model.jobs.has({job})")
    assert page.evaluate("window.same") is True
    cluster.client.cancel(job)


def test_keys_lead_through_the_picture(cluster: Cluster, page: Page) -> None:
    job = cluster.client.submit("/bin/sleep", "600", name="first", stdout="/dev/null")
    page.until(f"pliant.page.hits.some(p => p.job.id === {job})")
    key = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{}', bubbles: true}}))"  # noqa: E501
    page.evaluate(key.format("/"))
    assert page.evaluate("document.activeElement.id") == "query"
    page.evaluate("document.querySelector('.chart').focus()")
    page.evaluate(key.format("ArrowUp"))
    page.until("document.querySelector('#say').textContent.includes('first')")
    page.evaluate(key.format("Enter"))
    page.until(f"location.hash === '#/jobs/{job}'")
    assert page.evaluate("document.activeElement.id") == "main"
    cluster.client.cancel(job)


def test_an_operator_cancels_a_job_and_a_viewer_cannot(
    cluster: Cluster, served: Served, page: Page
) -> None:
    job = cluster.client.submit("/bin/sleep", "600", stdout="/dev/null")
    button = (
        "[...document.querySelectorAll('.actions button')].find(b => b.textContent === 'Cancel…')"
    )
    with Page() as other:
        other.open(served.address("to share"))
        other.until("document.querySelector('#live-text').textContent.startsWith('Live')")
        other.evaluate(f"location.hash = '#/jobs/{job}'")
        other.until(button)
        assert other.evaluate(f"{button}.disabled") is True
    page.evaluate(f"location.hash = '#/jobs/{job}'")
    page.until(f"{button} && !{button}.disabled")
    page.evaluate(f"{button}.click()")
    page.evaluate("document.querySelector('dialog button[type=submit]').click()")
    cluster.wait_for(job, lambda found: found.state == "CANCELLED", "the job to be cancelled")


def test_an_operator_uses_another_strategy(cluster: Cluster, page: Page) -> None:
    page.evaluate("location.hash = '#/strategy'")
    page.until("document.querySelectorAll('#strategy-name option').length > 10")
    page.evaluate(
        "(e => { e.value = 'easy-avg'; e.dispatchEvent(new Event('change')) })"
        "(document.querySelector('#strategy-name'))"
    )
    for value, words in (("banana", "banana"), ("pool", "")):
        page.evaluate(f"document.querySelector('#option-agreement').value = '{value}'")
        page.evaluate("document.querySelector('.form .actions button').click()")
        page.until("document.querySelector('dialog').textContent.includes('easy-avg will plan')")
        page.evaluate("document.querySelector('dialog button[type=submit]').click()")
        if words:
            page.until(f"document.querySelector('dialog .fault').textContent.includes('{words}')")
            page.evaluate("document.querySelector('dialog').close()")
    page.until("document.querySelector('.force').textContent === 'easy-avg'")
    page.until("pliant.model.header.strategy === 'easy-avg'")
    with Connection(str(cluster.run)) as link:
        found = link.request("strategies")
        done = [e["data"] for e in link.request("audit")["events"] if e["operation"] == "strategy"]
        link.request("strategy", strategy="fcfs")  # that of the other tests
    assert (found["strategy"], found["options"]) == ("easy-avg", {"agreement": "pool"})
    assert done[-1]["strategy"] == "easy-avg"


def test_without_a_key_the_page_shows_nothing(cluster: Cluster, served: Served) -> None:
    cluster.client.nodes()
    with Page() as other:
        other.open(served.address().partition("#")[0])
        other.until("document.body.textContent.includes('needs a key')")
        assert other.evaluate("pliant.model.loaded") is False
        # Only the fragment differs, so the browser does not load the page again.
        other.evaluate(f"location.href = '{served.address()}'")
        other.until("document.querySelector('#live-text').textContent.startsWith('Live')")
        assert "login" not in other.evaluate("location.href")


def test_the_dashboard_ends_while_a_browser_looks(served: Served, page: Page) -> None:
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(30) in (0, 130)
    page.until("document.querySelector('#live-text').textContent === 'Not connected'")
