// The state of the page: a snapshot, then changes. No document here: the tests run it in node.

export const FINAL = new Set(['COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'NODE_FAIL', 'REJECTED']);
export const ACTIVE = new Set(['STARTING', 'RUNNING', 'ADAPTING', 'COMPLETING']);
export const FAULTY = new Set(['FAILED', 'TIMEOUT', 'NODE_FAIL', 'REJECTED']);
const EVENTS_KEPT = 300;

export class Model {
  constructor() {
    this.jobs = new Map();
    this.nodes = new Map();
    this.order = [];  // nodes by name
    this.events = [];
    this.header = {now: 0, stats: {}, connected: false};
    this.window = 0;
    this.loaded = false;
  }

  /** Replace everything by a snapshot. */
  load(snapshot) {
    this.jobs = new Map(snapshot.jobs.map(job => [job.id, job]));
    this.nodes = new Map(snapshot.nodes.map(node => [node.name, node]));
    this.events = snapshot.events.slice();
    this.window = snapshot.window;
    this.loaded = true;
    this._setHeader(snapshot);
    this._setOrder();
  }

  /** Apply changes. They hold whole jobs and nodes, so applying them twice does no harm. */
  apply(changes) {
    for (const job of changes.jobs || []) this.jobs.set(job.id, job);
    for (const id of changes.gone || []) this.jobs.delete(id);
    for (const node of changes.nodes || []) this.nodes.set(node.name, node);
    for (const name of changes.nodes_removed || []) this.nodes.delete(name);
    if (changes.events) {
      const last = this.events.length ? this.events[this.events.length - 1].seq : 0;
      this.events.push(...changes.events.filter(e => e.seq > last));
      this.events.splice(0, Math.max(0, this.events.length - EVENTS_KEPT));
    }
    this._setHeader(changes);
    if (changes.nodes || changes.nodes_removed) this._setOrder();
  }

  _setHeader(message) {
    const {jobs, nodes, nodes_removed, events, gone, window, ...header} = message;
    this.header = {...this.header, ...header};
  }

  _setOrder() {
    this.order = [...this.nodes.values()].filter(n => !n.spare || n.state === 'UP').sort((a, b) => a.name.localeCompare(b.name, 'en', {numeric: true}));
    this.lane = new Map();   // processor -> row in the picture
    this.place = new Map();  // processor -> node
    this.cuts = new Set();
    let row = 0;
    for (const node of this.order) {
      node.lane = row;
      this.cuts.add(row);
      for (let k = 0; k < node.slots; k++) {
        this.place.set(node.first + k, node);
        this.lane.set(node.first + k, row++);
      }
    }
    this.processors = row;
  }

  get usable() { return this.order.reduce((sum, n) => sum + (n.state === 'UP' ? n.slots : 0), 0); }
  running() { return [...this.jobs.values()].filter(j => ACTIVE.has(j.state)); }
  waiting() {
    return [...this.jobs.values()].filter(j => j.state === 'PENDING')
      .sort((a, b) => (b.priority || 0) - (a.priority || 0) || a.submit - b.submit || a.id - b.id);
  }
}

/** Return how many processors a job holds now. */
export function held(job) {
  const last = job.segments[job.segments.length - 1];
  return last && last[1] == null ? last[2] : 0;
}

/** Return the processors that a text such as "0-3,6" names. */
export function ranges(text) {
  const found = [];
  for (const part of (text || '').split(',')) {
    if (!part) continue;
    const [first, last] = part.split('-').map(Number);
    for (let p = first; p <= (last ?? first); p++) found.push(p);
  }
  return found;
}

/** Return the job on each processor, by processor. */
export function holders(jobs) {
  const found = new Map();
  for (const job of jobs) {
    const last = job.segments[job.segments.length - 1];
    if (last && last[1] == null) for (const p of ranges(last[3])) found.set(p, job);
  }
  return found;
}

/** Return whether a job matches a search: words, user:ada, node:n3, state:failed. */
export function matches(job, query, place) {
  return query.toLowerCase().split(/\s+/).filter(Boolean).every(word => {
    const [, key, value] = /^(user|state|node|name):(.*)$/.exec(word) || [];
    if (key === 'user') return (job.user || '').toLowerCase() === value;
    if (key === 'state') return job.state.toLowerCase().startsWith(value);
    if (key === 'name') return (job.name || '').toLowerCase().includes(value);
    if (key === 'node') {
      const last = job.segments[job.segments.length - 1];
      return !!last && ranges(last[3]).some(p => place.get(p)?.name.toLowerCase() === value);
    }
    return String(job.id) === word || `${job.name} ${job.user} ${job.state}`.toLowerCase().includes(word);
  });
}
