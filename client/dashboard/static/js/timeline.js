// The picture of processors over time: stacked, by job, or by processor.

import {BOLD, FONT, begin, hatch, label, line, mark, niceStep, nowLine, stepArea, text, timeAxis, timeScale} from './canvas.js';
import {COLOURS, fillOf, hueOf} from './colours.js';
import {number, stateWord} from './format.js';
import {MAX_BANDS, MERGED, MIN_WIDTH, byStart, byUser, chooseMarks, concurrency, isOutlined, jobsBetween, mergeShort, stack, usedLevels, waitLevels} from './layout.js';
import {ACTIVE, FAULTY, FINAL, held, ranges} from './model.js';

const FUTURE = 0.07;      // of the width, for estimates
const MOST_ROWS = 200;
const MOST_LANES = 512;
const RIGHT = 10;

/** Return the times at the edges of the picture. */
export function edges(view, now) {
  const t1 = view.end ?? now + view.span * FUTURE;
  return [t1 - view.span, t1];
}

export function leftOf(view, model, width) {
  if (view.mode === 'rows') return width < 560 ? 100 : 166;
  if (view.mode === 'lanes') return 56;
  return model.processors >= 1000 ? 50 : 34;
}

const isDim = (view, job) => (view.selected != null && view.selected !== job.id) || (view.matching && !view.matching.has(job.id));

/** Draw the picture. Return where jobs are (`hits`), and what was merged or left out. */
export function drawTimeline(canvas, model, view, height) {
  const now = model.header.now, [t0, t1] = edges(view, now);
  const jobs = jobsBetween(model.jobs.values(), t0, t1, now);
  if (view.mode === 'rows') return drawRows(canvas, model, view, height, t0, t1);
  if (view.mode === 'lanes' && model.processors <= MOST_LANES) return drawLanes(canvas, model, view, height, jobs, t0, t1);
  const [c, width] = begin(canvas, height);
  const scale = timeScale(t0, t1, leftOf({mode: 'stack'}, model, width), width - RIGHT);
  const total = Math.max(1, model.processors), top = 10, bottom = height - 24;
  const y = n => bottom - n / total * (bottom - top);
  timeAxis(c, scale, top, bottom);
  for (let n = 0; n <= total; n += niceStep(total / 4)) {
    line(c, scale.left, Math.round(y(n)) + 0.5, scale.right, Math.round(y(n)) + 0.5, COLOURS.line);
    text(c, number(n), scale.left - 7, y(n), COLOURS.ink3, 'right');
  }
  const peak = concurrency(jobs, t0, t1, now);
  let result;
  if (!jobs.length) {
    const middle = (scale.left + scale.right) / 2;
    text(c, 'No job ran in this time', middle, (top + bottom) / 2 - 10, COLOURS.ink2, 'center', BOLD);
    text(c, 'jobsub -n 1-8 python -m pliant.examples.heat', middle, (top + bottom) / 2 + 12, COLOURS.ink3, 'center');
    result = {hits: []};
  } else if (peak > MAX_BANDS) result = drawUsers(c, scale, view, jobs, now, y, peak);
  else result = drawBands(c, scale, view, byStart(jobs), now, y);
  drawUnusable(c, scale, model, now, y);
  nowLine(c, scale, now, top, bottom);
  return result;
}

function drawBands(c, scale, view, all, now, y) {
  const jobs = mergeShort(all, scale.t0, scale.t1, now, scale.seconds * MIN_WIDTH);
  const hits = [], pieces = stack(jobs, scale.t0, scale.t1, now, scale.seconds * MERGED), perProcessor = y(0) - y(1);
  jobs.forEach((job, index) => {
    const merged = job.id == null, outlined = !merged && isOutlined(pieces[index], 1 / scale.seconds, perProcessor);
    c.globalAlpha = isDim(view, job) ? 0.22 : 1;
    c.fillStyle = merged ? COLOURS.line2 : fillOf(job);
    for (const run of unbroken(pieces[index])) {
      outline(c, scale, run, y);
      c.fill();
      if (outlined) {
        c.strokeStyle = COLOURS.card;
        c.lineWidth = 1.5;
        c.stroke();
      }
      if (!merged) for (const p of run) hits.push({job, x0: scale.x(p.a), x1: scale.x(p.b), y0: y(p.bottom + p.height), y1: y(p.bottom), n: p.height, t: p.a});
    }
  });
  c.globalAlpha = 1;
  jobs.forEach((job, index) => { if (job.id != null && !isDim(view, job)) nameBand(c, scale, job, pieces[index], y); });
  const marks = chooseMarks(jobs.flatMap((job, index) => (isDim(view, job) ? [] : placeMarks(scale, job, pieces[index], y))));
  if (marks) for (const [x, top, kind] of marks) mark(c, x, top, kind);
  else drawTicks(c, scale, jobs, y(0));
  return {hits, short: all.length - jobs.filter(job => job.id != null).length};
}

function unbroken(pieces) {
  const runs = [];
  for (const piece of pieces) {
    const run = runs[runs.length - 1];
    if (run && run[run.length - 1].b === piece.a) run.push(piece);
    else runs.push([piece]);
  }
  return runs;
}

function outline(c, scale, run, y) {
  c.beginPath();
  c.moveTo(scale.x(run[0].a), y(run[0].bottom));
  for (const p of run) { c.lineTo(scale.x(p.a), y(p.bottom + p.height)); c.lineTo(scale.x(p.b), y(p.bottom + p.height)); }
  for (const p of run.slice().reverse()) { c.lineTo(scale.x(p.b), y(p.bottom)); c.lineTo(scale.x(p.a), y(p.bottom)); }
  c.closePath();
}

/** Write the name where most of it fits, and again at the end of the band if that is far away. */
function nameBand(c, scale, job, pieces, y) {
  let best = null;
  for (let k = 0; k < pieces.length; k++) {
    const room = roomFrom(scale, pieces, k, y);
    if (room.height >= 13 && room.width > 34 && (!best || room.area > best.area)) best = room;
  }
  if (!best) return;
  const name = `${job.id} ${job.name}`, colour = COLOURS.onHue[hueOf(job)];
  const write = room => label(c, name, room.x + 6, (room.top + room.bottom) / 2, room.width - 4, colour);
  write(best);
  const last = roomFrom(scale, pieces, pieces.length - 1, y);
  if (held(job) && last.x > best.x + best.width - 1 && last.width > 40 && last.height >= 13 && last.x - best.x > 140) write(last);
}

/** Return the largest rectangle inside a band that begins with a piece and goes on to the right. */
function roomFrom(scale, pieces, first, y) {
  const x = scale.x(pieces[first].a);
  let best = {area: 0, height: 0, width: 0, x}, top = -Infinity, bottom = Infinity;
  for (let k = first; k < Math.min(pieces.length, first + 12); k++) {
    const p = pieces[k];
    if (k > first && pieces[k - 1].b !== p.a) break;
    top = Math.max(top, y(p.bottom + p.height));
    bottom = Math.min(bottom, y(p.bottom));
    const height = bottom - top, width = scale.x(p.b) - x, area = Math.min(130, width) * Math.min(24, height) + width / 100;
    if (height < 13) break;
    if (area > best.area) best = {area, height, width, x, top, bottom};
    if (width >= 130) break;  // a name fits: a longer piece would only be lower
  }
  return best;
}

/** Return the places [x, y, kind] of counter-offers and refusals. Accepted offers show as the step itself. */
function placeMarks(scale, job, pieces, y) {
  const found = [];
  for (const [t, kind] of job.marks) {
    if (t < scale.t0 || t > scale.t1 || kind === 'withdrawn') continue;
    const piece = pieces.find(p => p.a <= t + 1e-6 && p.b >= t - 1e-6);
    if (piece) found.push([scale.x(t), y(piece.bottom + piece.height), kind]);
  }
  return found;
}

/** Draw a tick below the picture for each refusal and counter-offer, where marks would be too many. */
function drawTicks(c, scale, jobs, bottom) {
  for (const [kind, colour, top] of [['counter', COLOURS.warn, bottom - 7], ['refused', COLOURS.bad, bottom - 3]]) {
    const columns = new Set();
    for (const job of jobs) for (const [t, k] of job.marks) if (k === kind && t >= scale.t0 && t <= scale.t1) columns.add(Math.floor(scale.x(t) / MIN_WIDTH));
    c.fillStyle = colour;
    for (const column of columns) c.fillRect(column * MIN_WIDTH, top, MIN_WIDTH, 5);
  }
}

function drawUsers(c, scale, view, jobs, now, y, peak) {
  const columns = Math.max(1, Math.ceil(scale.right - scale.left));
  const users = byUser(jobs, scale.t0, scale.t1, now, columns, job => !view.matching || view.matching.has(job.id));
  const base = new Float64Array(columns + 1);
  users.forEach((row, index) => {
    row.hue = (index * 3 + 3) % 10;
    row.colour = row.users > 1 ? 'line2' : 'c' + row.hue;
    c.fillStyle = COLOURS[row.colour];
    c.beginPath();
    c.moveTo(scale.left, y(base[0]));
    for (let k = 0; k <= columns; k++) c.lineTo(scale.left + k, y(base[k] + row.level[k]));
    for (let k = columns; k >= 0; k--) c.lineTo(scale.left + k, y(base[k]));
    c.fill();
    for (let k = 0; k <= columns; k++) base[k] += row.level[k];
  });
  drawTicks(c, scale, jobs, y(0));
  return {hits: [], users, peak};
}

/** Draw how many processors were usable, and hatch those of drained and lost nodes. */
function drawUnusable(c, scale, model, now, y) {
  const steps = model.header.usable || [], until = Math.min(now, scale.t1);
  c.setLineDash([4, 3]);
  steps.forEach(([start, n], k) => {
    const a = Math.max(scale.t0, start), b = Math.min(until, steps[k + 1]?.[0] ?? until);
    if (a >= b) return;
    line(c, scale.x(a), y(n), scale.x(b), y(n), COLOURS.ink3, 1.25);
    if (k && start >= scale.t0) line(c, scale.x(a), y(steps[k - 1][1]), scale.x(a), y(n), COLOURS.ink3, 1.25);
    c.setLineDash([]);
    if (n < model.processors) hatch(c, scale.x(a), y(model.processors), scale.x(b) - scale.x(a), y(n) - y(model.processors), COLOURS.line2);
    c.setLineDash([4, 3]);
  });
  c.setLineDash([]);
}

function drawRows(canvas, model, view, height, t0, t1) {
  const now = model.header.now;
  const all = [...model.jobs.values()].filter(job => (job.submit ?? 0) < t1 && (job.end ?? now) > t0 && (!view.matching || view.matching.has(job.id)))
    .sort((a, b) => a.submit - b.submit || a.id - b.id);
  const jobs = all.slice(-MOST_ROWS);
  const largest = job => Math.max(1, ...job.segments.map(s => s[2]));
  const rowHeight = job => Math.max(22, 16 + Math.min(44, largest(job) * 5.5));
  const full = Math.max(height, 50 + jobs.reduce((sum, job) => sum + rowHeight(job) + 6, 0));
  const [c, width] = begin(canvas, full), left = leftOf(view, model, width), hits = [];
  const scale = timeScale(t0, t1, left, width - RIGHT), bottom = full - 24;
  timeAxis(c, scale, 18, bottom);
  let top = 24;
  for (const job of jobs) {
    const tall = rowHeight(job), foot = top + tall, unit = Math.min(44, largest(job) * 5.5) / largest(job);
    c.globalAlpha = isDim(view, job) ? 0.3 : 1;
    c.save();
    c.beginPath();
    c.rect(0, top - 4, left - 10, tall + 8);
    c.clip();
    c.fillStyle = fillOf(job);
    c.fillRect(14, foot - unit * largest(job), 4, unit * largest(job));
    text(c, `${job.id} ${job.name}`, 24, tall > 36 ? foot - 24 : foot - 8, COLOURS.ink, 'left', BOLD);
    if (tall > 36) text(c, `${ACTIVE.has(job.state) ? `on ${held(job)} · ` : ''}sizes ${job.sizes}`, 24, foot - 8, COLOURS.ink3);
    c.restore();
    line(c, left, foot + 0.5, width - RIGHT, foot + 0.5, COLOURS.line);
    c.save();
    c.beginPath();
    c.rect(left, 0, width - RIGHT - left, full);
    c.clip();
    drawRow(c, scale, job, foot, unit, now);
    c.restore();
    hits.push({job, x0: 0, x1: width, y0: top, y1: foot});
    top = foot + 6;
  }
  c.globalAlpha = 1;
  if (!jobs.length) text(c, 'No job in this time', width / 2, full / 2, COLOURS.ink3, 'center');
  nowLine(c, scale, now, 6, bottom);
  return {hits, more: all.length - jobs.length};
}

function drawRow(c, scale, job, foot, unit, now) {
  let since = job.submit;
  c.setLineDash([2, 4]);
  for (const [start, end] of job.segments) {
    if (start > since + 0.05) line(c, scale.x(since), foot - 3, scale.x(start), foot - 3, COLOURS.ink3, 1.5);
    since = end ?? now;
  }
  if (job.state === 'PENDING') line(c, scale.x(since), foot - 3, scale.x(now), foot - 3, COLOURS.ink3, 1.5);
  c.setLineDash([]);
  c.fillStyle = fillOf(job);
  for (const [start, end, n] of job.segments) c.fillRect(scale.x(start), foot - n * unit, Math.max(1, scale.x(end ?? now) - scale.x(start)), n * unit);
  const n = held(job);
  if (n && job.expected_end > now) {
    const alpha = c.globalAlpha;
    c.globalAlpha = alpha * 0.22;
    c.fillRect(scale.x(now), foot - n * unit, scale.x(job.expected_end) - scale.x(now), n * unit);
    c.globalAlpha = alpha;
  }
  let last = -Infinity;
  for (const [t, kind] of job.marks) {
    const x = scale.x(t);
    if (x < scale.left || x - last < 13) continue;
    last = x;
    const at = job.segments.find(s => s[0] <= t && (s[1] ?? now) >= t);
    mark(c, x, foot - (at ? at[2] : 0) * unit - 7, kind);
  }
  if (FINAL.has(job.state) && job.state !== 'COMPLETED') text(c, stateWord(job.state).toLowerCase(), scale.x(job.end) + 5, foot - 7, FAULTY.has(job.state) ? COLOURS.bad : COLOURS.ink3);
}

function drawLanes(canvas, model, view, height, jobs, t0, t1) {
  const now = model.header.now, n = Math.max(1, model.processors);
  const unit = n <= 16 ? Math.max(16, Math.floor((height - 34) / n)) : n <= 128 ? 8 : 4;
  const full = Math.max(height, 34 + n * unit), [c, width] = begin(canvas, full), hits = [];
  const scale = timeScale(t0, t1, leftOf(view, model, width), width - RIGHT), top = 8, bottom = top + unit * n;
  timeAxis(c, scale, top, bottom);
  c.save();
  c.beginPath();
  c.rect(scale.left, top, scale.right - scale.left, bottom - top);
  c.clip();
  for (const job of jobs) {
    for (const [start, end, count, text_] of job.segments) {
      const a = scale.x(start), b = scale.x(end ?? now);
      if (b < scale.left || a > scale.right) continue;
      for (const [row, tall] of laneRuns(model, text_)) {
        const y0 = top + row * unit, hh = tall * unit;
        c.globalAlpha = isDim(view, job) ? 0.2 : 1;
        c.fillStyle = fillOf(job);
        c.fillRect(a, y0 + 0.75, Math.max(1, b - a - 1), hh - 1.5);
        hits.push({job, x0: a, x1: b, y0, y1: y0 + hh, n: count, t: start});
        const x = Math.max(scale.left, a);
        if (hh >= 12 && b - x > 44 && !isDim(view, job)) label(c, `${job.id} ${job.name}`, x + 6, y0 + hh / 2, b - x - 4, COLOURS.onHue[hueOf(job)]);
      }
    }
  }
  c.globalAlpha = 1;
  c.restore();
  c.font = FONT;
  for (const node of model.order) {
    const y0 = top + node.lane * unit, hh = node.slots * unit;
    line(c, 0, Math.round(y0) + 0.5, scale.right, Math.round(y0) + 0.5, COLOURS.line2);
    if (hh >= 13) text(c, node.name.slice(0, 8), scale.left - 8, y0 + hh / 2, COLOURS.ink2, 'right');
    if (node.state !== 'UP') hatch(c, scale.x(Math.min(now, t1)), y0, scale.right, hh, node.state === 'LOST' ? COLOURS.bad : COLOURS.warn);
  }
  nowLine(c, scale, now, top, bottom);
  return {hits};
}

/** Return the rows of processors as [first row, number], cut at the borders of nodes. */
function laneRuns(model, text_) {
  const rows = ranges(text_).map(p => model.lane.get(p)).filter(r => r != null).sort((a, b) => a - b), runs = [];
  for (const row of rows) {
    const last = runs[runs.length - 1];
    if (last && last[0] + last[1] === row && !model.cuts.has(row)) last[1]++;
    else runs.push([row, 1]);
  }
  return runs;
}

/** Draw processors in use and waiting jobs under the same time axis. */
export function drawLoad(canvas, model, view) {
  const height = 116, [c, width] = begin(canvas, height), now = model.header.now;
  const [t0, t1] = edges(view, now), scale = timeScale(t0, t1, leftOf(view, model, width), width - RIGHT);
  const until = Math.min(now, t1), jobs = [...model.jobs.values()], total = Math.max(1, model.processors);
  const columns = Math.max(1, Math.round(scale.x(until) - scale.left));
  const used = usedLevels(jobs, t0, until, now, columns), waiting = waitLevels(jobs, t0, until, now, columns);
  const most = waiting.reduce((a, b) => Math.max(a, b), 0), last = levels => levels[levels.length - 1];
  const rows = [[used, total, 20, 52, COLOURS.accent, `Busy ${Math.round(Math.min(1, last(used) / total) * 100)} %`],
    [waiting, Math.max(4, most), 76, 110, COLOURS.warn, `Waiting ${last(waiting)}${most ? ` (most ${most})` : ''}`]];
  for (const [levels, top, y0, y1, colour, words] of rows) {
    timeAxis(c, scale, y0, y1, false);
    line(c, scale.left, y1 + 0.5, scale.right, y1 + 0.5, COLOURS.line);
    if (until > t0) stepArea(c, scale.left, levels, v => y1 - Math.min(1, v / top) * (y1 - y0), y1, colour);
    text(c, words, scale.left, y0 - 10, colour);
  }
  nowLine(c, scale, now, 20, 110);
}
