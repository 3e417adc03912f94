// Where bands lie in the picture: computation only. The tests run it in node, and compare it with charts/layout.py, which has
// the same rules for pictures in files.

export const MAX_BANDS = 60;       // jobs at the same time; above that, users are drawn
export const MAX_USERS = 9;        // users with a colour of their own; the others are drawn together
export const MIN_WIDTH = 1.5;      // pixels; narrower jobs are drawn together
export const MERGED = 0.5;         // pixels; changes that are closer together become one
export const OUTLINED = [14, 6];   // a band of this width and height has an outline, pixels
export const STEP_WIDTH = 4;       // likewise, if its steps are this wide on average
export const MARK_DISTANCE = 13;   // between two marks of negotiations, pixels
export const MAX_MARKS = 60;       // with more marks, the picture has ticks below it instead

/** Return the jobs that hold processors between two times, in no order: sorting takes longest. */
export function jobsBetween(jobs, t0, t1, now) {
  const found = [];
  for (const job of jobs) {
    const s = job.segments;
    if (s.length && s[0][0] < t1 && (s[s.length - 1][1] ?? now) > t0) found.push(job);
  }
  return found;
}

/** Put jobs into the order of their first start, in which they are stacked. */
export const byStart = jobs => jobs.sort((a, b) => a.segments[0][0] - b.segments[0][0] || a.id - b.id);

/** Return the largest number of jobs that hold processors at the same time. */
export function concurrency(jobs, t0, t1, now) {
  let count = 0;
  for (const job of jobs) count += job.segments.length;
  const starts = new Float64Array(count), ends = new Float64Array(count);
  let used = 0;
  for (const job of jobs) {
    for (const [start, end] of job.segments) {
      const a = Math.max(t0, start), b = Math.min(t1, end ?? now);
      if (a < b) { starts[used] = a; ends[used++] = b; }
    }
  }
  const begun = starts.subarray(0, used).sort(), ended = ends.subarray(0, used).sort();
  let top = 0;
  for (let i = 0, k = 0; i < used; i++) {
    while (ended[k] <= begun[i]) k++;
    top = Math.max(top, i - k + 1);
  }
  return top;
}

/**
 * Stack jobs, which are in the order of `byStart`, on each other. Return for each job its pieces {a, b, bottom, height}:
 * from time a to b it covers height processors above bottom. Changes that are closer together than `step` seconds become one.
 */
export function stack(jobs, t0, t1, now, step) {
  const changes = [];
  jobs.forEach((job, index) => {
    const segments = job.segments;
    for (let k = 0; k < segments.length; k++) {
      const [start, end, n] = segments[k];
      if ((end ?? now) <= t0 || start >= t1) continue;
      changes.push([Math.max(t0, start), index, n]);
      const next = segments[k + 1];
      if (end != null && (!next || next[0] > end)) changes.push([end, index, 0]);
    }
  });
  changes.sort((x, y) => x[0] - y[0]);
  const finish = Math.min(t1, now);
  const size = new Float64Array(jobs.length);
  const open = new Array(jobs.length).fill(null);
  const pieces = jobs.map(() => []);
  const active = [];  // indexes in ascending order, which is the order of first starts
  let k = 0;
  while (k < changes.length) {
    const t = changes[k][0];
    while (k < changes.length && changes[k][0] <= t + step) {
      const [, index, n] = changes[k++];
      if (size[index] === 0 && n > 0) insert(active, index);
      if (n === 0) remove(active, index);
      size[index] = n;
      if (n === 0) close(index, t);
    }
    let base = 0;
    for (const index of active) {
      const piece = open[index];
      if (!piece || piece.bottom !== base || piece.height !== size[index]) {
        close(index, t);
        open[index] = {a: t, b: finish, bottom: base, height: size[index]};
      }
      base += size[index];
    }
  }
  for (const index of active) close(index, finish);
  return pieces;

  function close(index, t) {
    const piece = open[index];
    if (piece && t > piece.a) { piece.b = Math.min(t, finish); pieces[index].push(piece); }
    open[index] = null;
  }
}

function insert(sorted, value) {
  let at = sorted.length;
  while (at > 0 && sorted[at - 1] > value) at--;
  if (sorted[at - 1] !== value) sorted.splice(at, 0, value);
}

function remove(sorted, value) {
  const at = sorted.indexOf(value);
  if (at >= 0) sorted.splice(at, 1);
}

/**
 * Return an area for each user, the largest first: the processors that its jobs hold, as a mean for each of `columns` columns of
 * the window. Users beyond the limit are one area.
 */
export function byUser(jobs, t0, t1, now, columns, counts = () => true) {
  const users = new Map();
  for (const job of jobs) {
    let row = users.get(job.user);
    if (!row) users.set(job.user, row = {user: job.user, users: 1, level: new Float64Array(columns + 1)});
    if (counts(job)) for (const [start, end, n] of job.segments) addMean(row.level, start, Math.min(t1, end ?? now), n, t0, t1, columns);
  }
  for (const row of users.values()) row.total = sumUp(row.level);
  const order = [...users.values()].sort((a, b) => b.total - a.total || (a.user < b.user ? -1 : 1));
  if (order.length <= MAX_USERS + 1) return order;
  const rest = order.splice(MAX_USERS), together = {user: `${rest.length} other users`, users: rest.length, level: new Float64Array(columns + 1), total: 0};
  for (const row of rest) { together.total += row.total; for (let c = 0; c <= columns; c++) together.level[c] += row.level[c]; }
  return [...order, together];
}

/** Add n from `start` to `finish` to the differences of columns, so that their running sums are the means of the columns. */
function addMean(level, start, finish, n, t0, t1, columns) {
  const per = columns / Math.max(1e-9, t1 - t0), a = (Math.max(t0, start) - t0) * per, b = (finish - t0) * per;
  if (b <= a) return;
  addStep(level, a, n, columns);
  addStep(level, b, -n, columns);
}

function addStep(level, place, n, columns) {
  const column = Math.min(columns, Math.floor(place)), part = place - column;
  level[column] += n * (1 - part);
  if (column < columns) level[column + 1] += n * part;
}

/** Replace differences by their running sums, without remainders of rounding. Return the sum of all. */
function sumUp(level) {
  let total = 0, all = 0;
  for (let c = 0; c < level.length; c++) {
    total += level[c];
    if (Math.abs(total) < 1e-6) total = 0;
    all += level[c] = total;
  }
  return all;
}

/**
 * Replace jobs that are narrower than a column of `column` seconds by one band above the others, which has the mean of what they
 * held in each column: so nothing that was in use looks idle. Jobs that still hold processors stay.
 */
export function mergeShort(jobs, t0, t1, now, column) {
  const shown = [], short = [];
  for (const job of jobs) {
    let held = 0;
    for (const [start, end] of job.segments) held += Math.max(0, Math.min(t1, end ?? now) - Math.max(t0, start));
    (held < column && job.segments[job.segments.length - 1][1] != null ? short : shown).push(job);
  }
  if (short.length < 2) return jobs;
  const columns = Math.max(1, Math.round((t1 - t0) / column)), level = new Float64Array(columns + 1), each = (t1 - t0) / columns;
  for (const job of short) for (const [start, end, n] of job.segments) addMean(level, start, Math.min(t1, end ?? now), n, t0, t1, columns);
  sumUp(level);
  const segments = [];
  for (let c = 0; c < columns; c++) {
    const start = t0 + c * each, n = Math.round(level[c] * 100) / 100, last = segments[segments.length - 1];
    if (n <= 0) continue;
    if (last && last[1] === start && last[2] === n) last[1] = start + each;
    else segments.push([start, start + each, n]);
  }
  const marks = short.flatMap(job => job.marks || []).sort((a, b) => a[0] - b[0]);
  return [...shown, {id: null, name: `${short.length} short jobs`, user: '', segments, marks}];
}

/** Return whether a band is large enough for an outline, which would cover a smaller one. Scales are in pixels. */
export function isOutlined(pieces, perSecond, perProcessor) {
  let width = 0, area = 0;
  for (const p of pieces) { width += (p.b - p.a) * perSecond; area += (p.b - p.a) * p.height * perSecond * perProcessor; }
  return pieces.length > 0 && width >= OUTLINED[0] && area >= width * OUTLINED[1] && width >= pieces.length * STEP_WIDTH;
}

/** Return the marks [x, y, kind] that do not cover each other, refusals first; null if there are too many. */
export function chooseMarks(places) {
  const found = [], rank = kind => (kind === 'refused' ? 0 : 1);
  const order = places.slice().sort((a, b) => rank(a[2]) - rank(b[2]) || a[0] - b[0] || a[1] - b[1]);
  for (const place of order) {
    if (found.some(f => Math.abs(f[0] - place[0]) < MARK_DISTANCE && Math.abs(f[1] - place[1]) < MARK_DISTANCE)) continue;
    found.push(place);
    if (found.length > MAX_MARKS) return null;
  }
  return found;
}

/** Return how many processors jobs hold in each of `columns` columns of the window. */
export function usedLevels(jobs, t0, t1, now, columns) {
  const add = adder(t0, t1, columns);
  for (const job of jobs) for (const [start, end, n] of job.segments) add(start, end ?? now, n);
  return add.levels();
}

/** Return how many jobs wait in each column: before their start, and between two runs. */
export function waitLevels(jobs, t0, t1, now, columns) {
  const add = adder(t0, t1, columns);
  for (const job of jobs) {
    let since = job.submit;
    if (since == null) continue;
    for (const [start, end] of job.segments) {
      if (start - since > 0.05) add(since, start, 1);
      since = end;
      if (since == null) break;
    }
    if (since != null && job.state === 'PENDING') add(since, now, 1);
    else if (since != null && !job.segments.length && job.end != null) add(since, job.end, 1);
  }
  return add.levels();
}

/** Return a function that adds an amount between two times. Its `levels` are the sums by column. */
function adder(t0, t1, columns) {
  const level = new Float64Array(columns + 1), per = columns / Math.max(1e-9, t1 - t0);
  const add = (start, end, n) => {
    const a = Math.max(0, Math.round((start - t0) * per)), b = Math.min(columns + 1, Math.round((end - t0) * per) + (end >= t1 ? 1 : 0));
    if (a >= b || a > columns) return;
    level[a] += n;
    if (b <= columns) level[b] -= n;
  };
  add.levels = () => {
    for (let c = 1; c <= columns; c++) level[c] += level[c - 1];
    return level;
  };
  return add;
}
