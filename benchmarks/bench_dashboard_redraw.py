"""Time to draw the live page again after a change, with 12,000 jobs within 24 hours.

A headless Chromium opens the files of the page from a local web server. Instead of a cluster, a
made-up state is loaded: 1,000 nodes of 16 processors and 12,000 jobs of 12 users. Then a job
changes and the page is drawn, ``RUNS`` times. The overview shows the whole day.

The figure is the median. Other work on the machine makes it larger, so compare it on an idle one.
Budget: 50 ms.

``python benchmarks/bench_dashboard_redraw.py [PICTURE.png]``
"""

from __future__ import annotations

import functools
import http.server
import statistics
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from browserkit import Page

RUNS, BUDGET_MS = 60, 50.0
STATIC = Path(__file__).parents[1] / "client" / "dashboard" / "static"

#: Loads the state. Random numbers have a fixed seed.
LOAD = """(() => {
  const now = 1.7e9, jobs = [], nodes = [];
  let seed = 7;
  const random = n => (seed = (seed * 16807) % 2147483647) % n;
  for (let id = 1; id <= 12000; id++) {
    const submit = now - 86400 + id * 7.2, segments = [];
    let at = submit + random(60);
    for (let k = 0; k <= random(3) && at < now; k++) {
      const end = at + 100 + random(1500), n = 1 + random(64), first = random(15900);
      segments.push([at, end > now ? null : end, n, `${first}-${first + n - 1}`]);
      at = end;
    }
    if (!segments.length) continue;
    const end = segments[segments.length - 1][1];
    jobs.push({id, name: `job${id}`, user: `u${random(12)}`, class: 'malleable', sizes: '1-64',
      state: end == null ? 'RUNNING' : 'COMPLETED', submit, start: segments[0][0], end, segments,
      hue: id % 10, marks: random(10) ? [] : [[segments[0][0] + 5, 'refused']]});
  }
  for (let k = 0; k < 1000; k++) {
    nodes.push({name: `n${k}`, state: 'UP', first: k * 16, slots: 16, reason: ''});
  }
  const stats = {resizes: 0, accepted: 0, refused: 0, countered: 0};
  pliant.live._lose = () => {};
  pliant.live.session = {user: 'ann', role: 'viewer'};
  pliant.live.state = 'live';
  pliant.model.load({v: 1, seq: 1, generation: 1, now, strategy: 'equipartition', connected: true,
    stats, window: 86400, usable: [[now - 86400, 16000]], nodes, jobs, events: []});
  pliant.view.span = 86400;
  return jobs.length;
})()"""
#: Changes a job and draws the page; the result is the time of both in milliseconds.
UPDATE = """(() => {
  const {model} = pliant, begin = performance.now();
  model.apply({...model.header, now: model.header.now + 1, jobs: [{...model.jobs.get(11000)}]});
  pliant.drawNow();
  return performance.now() - begin;
})()"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def main(picture: str | None) -> int:
    handler = functools.partial(_Quiet, directory=str(STATIC))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, Page() as page:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.resize(1440, 900)
        page.open(f"http://127.0.0.1:{server.server_port}/?span=86400")
        page.until("window.pliant")
        jobs = page.evaluate(LOAD)
        times = sorted(float(page.evaluate(UPDATE)) for _ in range(RUNS))
        if picture is not None:
            page.screenshot(Path(picture))
        server.shutdown()
    median = statistics.median(times)
    verdict = "ok" if median <= BUDGET_MS else "OVER"
    print(
        f"update of the overview, {jobs:,} jobs: median {median:.1f} ms, "
        f"{times[0]:.1f}-{times[-1]:.1f}, budget {BUDGET_MS:.0f} ms, {verdict}"
    )
    return int(median > BUDGET_MS)


if __name__ == "__main__":
    raise SystemExit(main(*(sys.argv[1:] or [None])))
