// Where bands lie in the picture: computation only. The tests run it in node.

/** Return the jobs that hold processors between two times, in the order of their first start. */
export function jobsBetween(jobs, t0, t1, now) {
  const found = [];
  for (const job of jobs) {
    const s = job.segments;
    if (s.length && s[0][0] < t1 && (s[s.length - 1][1] ?? now) > t0) found.push(job);
  }
  return found.sort((a, b) => a.segments[0][0] - b.segments[0][0] || a.id - b.id);
}

/** Return the largest number of jobs that hold processors at the same time. */
export function concurrency(jobs, t0, t1, now) {
  const steps = [];
  for (const job of jobs) {
    for (const [start, end] of job.segments) {
      const a = Math.max(t0, start), b = Math.min(t1, end ?? now);
      if (a < b) steps.push([a, 1], [b, -1]);
    }
  }
  steps.sort((x, y) => x[0] - y[0] || x[1] - y[1]);
  let level = 0, top = 0;
  for (const [, step] of steps) top = Math.max(top, level += step);
  return top;
}

/**
 * Stack jobs on each other. Return for each job its pieces {a, b, lo, n}: from time a to b it covers
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

/** Return the steps of a sum over time: processors in use, or jobs that wait. */
export function steps(changes, t0, t1) {
  changes.sort((a, b) => a[0] - b[0]);
  const found = [];
  let level = 0, k = 0;
  while (k < changes.length && changes[k][0] <= t0) level += changes[k++][1];
  found.push([t0, level]);
  while (k < changes.length && changes[k][0] < t1) {
    const t = changes[k][0];
    while (k < changes.length && changes[k][0] === t) level += changes[k++][1];
    found.push([t, level]);
  }
  found.push([t1, level]);
  return found;
}

export function usedChanges(jobs) {
  const changes = [];
  for (const job of jobs) {
    for (const [start, end, n] of job.segments) {
      changes.push([start, n]);
      if (end != null) changes.push([end, -n]);
    }
  }
  return changes;
}

/** Return when jobs began and ceased to wait: before their start, and between two runs. */
export function waitChanges(jobs, isFinal) {
  const changes = [];
  for (const job of jobs) {
    let since = job.submit;
    if (since == null) continue;
    for (const [start, end] of job.segments) {
      if (start - since > 0.05) changes.push([since, 1], [start, -1]);
      since = end;
      if (since == null) break;
    }
    if (since != null && job.state === 'PENDING') changes.push([since, 1]);
    else if (since != null && isFinal(job) && !job.segments.length && job.end != null) changes.push([since, 1], [job.end, -1]);
  }
  return changes;
}
