// Where bands lie in the picture: computation only. The tests run it in node.

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
 * Stack jobs, which are in the order of `byStart`, on each other. Return for each job its pieces {a, b, lo, n}: from time a to b it covers
 * n processors above lo. Changes that are closer together than `step` seconds become one.
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
      if (!piece || piece.lo !== base || piece.n !== size[index]) {
        close(index, t);
        open[index] = {a: t, b: finish, lo: base, n: size[index]};
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

/** Return per user how many processors its jobs hold in each of `columns` columns of the window. */
export function byUser(jobs, t0, t1, now, columns, counts = () => true) {
  const users = new Map(), per = columns / (t1 - t0);
  for (const job of jobs) {
    let row = users.get(job.user);
    if (!row) users.set(job.user, row = {user: job.user, total: 0, level: new Float64Array(columns + 1)});
    if (!counts(job)) continue;
    for (const [start, end, n] of job.segments) {
      const a = Math.max(0, (start - t0) * per), b = Math.min(columns, ((end ?? now) - t0) * per);
      if (b <= 0 || a >= columns || b <= a) continue;
      row.level[Math.floor(a)] += n;
      row.level[Math.floor(b)] -= n;
      row.total += n * (b - a);
    }
  }
  for (const row of users.values()) for (let c = 1; c <= columns; c++) row.level[c] += row.level[c - 1];
  return [...users.values()].sort((a, b) => b.total - a.total);
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
