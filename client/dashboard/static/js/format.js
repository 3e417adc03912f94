// Times, durations and amounts as text; the names of states.

const pad = n => String(n).padStart(2, '0');

export function clock(t, seconds = true) {
  const d = new Date(t * 1000);
  return `${pad(d.getHours())}:${pad(d.getMinutes())}${seconds ? ':' + pad(d.getSeconds()) : ''}`;
}
export const isoTime = t => new Date(t * 1000).toISOString();

export function duration(s) {
  if (s == null || !isFinite(s)) return '–';
  s = Math.max(0, s);
  if (s < 10) return `${s.toFixed(1).replace(/\.0$/, '')} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${pad(Math.floor(s % 60))} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${pad(Math.floor((s % 3600) / 60))} m`;
  return `${Math.floor(s / 86400)} d ${pad(Math.floor((s % 86400) / 3600))} h`;
}

export function milliseconds(s) {
  if (s >= 1) return `${s.toFixed(2)} s`;
  return `${s * 1000 < 10 ? (s * 1000).toFixed(1) : Math.round(s * 1000)} ms`;
}

export function bytes(b) {
  if (!b) return '0 B';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (b >= 1024 && i < 4) { b /= 1024; i++; }
  return `${b < 10 && i ? b.toFixed(1) : Math.round(b)} ${units[i]}`;
}

export const number = n => Number(n).toLocaleString('en');
export const many = (n, word) => `${number(n)} ${word}${n === 1 ? '' : 's'}`;
export const capital = s => (s ? s[0].toUpperCase() + s.slice(1) : s);

/** Icon, word and tone of each state. */
export const STATES = {
  HELD: ['hold', 'Held', ''], PENDING: ['wait', 'Waiting', 'wait'], STARTING: ['run', 'Starting', 'run'],
  RUNNING: ['run', 'Running', 'run'], ADAPTING: ['adapt', 'Adapting', 'adapt'],
  COMPLETING: ['stop', 'Ending', ''], SUSPENDED: ['hold', 'Suspended', ''],
  COMPLETED: ['ok', 'Completed', ''], FAILED: ['no', 'Failed', 'bad'], CANCELLED: ['no', 'Cancelled', ''],
  TIMEOUT: ['wait', 'Time limit', 'bad'], NODE_FAIL: ['no', 'Node lost', 'bad'],
  REJECTED: ['no', 'Rejected', 'bad'],
};
export const stateWord = state => (STATES[state] || ['ask', capital(String(state).toLowerCase()), ''])[1];
