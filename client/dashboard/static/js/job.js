// The page of one job: sizes, conversation, why, iteration times, pauses, output, facts, actions.

import {begin, line, mark, niceStep, text, timeAxis, timeScale} from './canvas.js';
import {COLOURS, fillOf} from './colours.js';
import {card, h, icon, list, put, setText} from './dom.js';
import {bytes, clock, duration, many, milliseconds} from './format.js';
import {ACTIVE, FINAL, held, ranges} from './model.js';
import {chip} from './parts.js';
import {OUTCOMES, chain, groupTalks, messages, talkTitle} from './talks.js';

const REFRESH_MS = 1000;
const SHOWN_TALKS = 30, SHOWN_PAUSES = 8;
const STEPS = [['join', 'join', 'c7'], ['check', 'check', 'c1'], ['move', 'move data', 'c0'], ['commit', 'commit', 'c4']];

export class Job {
  constructor(app, id) {
    this.app = app;
    this.id = id;
    this.events = [];
    this.text = ['Loading'];
    this.output = {path: '', text: null};
    this.iterations = new Map();  // seconds by size
    this.element = h('div', null, this.title = h('div.title'), h('div.columns', null,
      h('div.pile', null,
        card('Processors over time', this.sizeSub = h('span.muted'), h('div.body', null, this.size = h('canvas', {role: 'img'}))),
        card('Conversation with the application', this.talkSub = h('span.muted'), h('div.body', null, this.talks = h('div')))),
      h('div.pile.side', null,
        card('Why it is where it is', null, h('div.body', null, this.why = h('ul.why'))),
        card('Time of an iteration', null, h('div.body', null, this.speed = h('canvas', {role: 'img'}), this.speedNote = h('p.muted'))),
        card('Pauses for resizes', this.pauseSub = h('span.muted'), h('div.body', null, this.pauses = h('div'))),
        card('Output', this.outputSub = h('span.muted'), h('div.body', null, this.out = h('pre', {tabindex: 0, 'aria-label': 'Last lines of the output'}))),
        card('Facts', null, h('div.body', null, this.facts = h('dl.facts'))))));
    this.timer = setInterval(() => this._ask(), REFRESH_MS);
    this._ask();
  }

  close() { clearInterval(this.timer); }

  /** Ask for what the stream does not have. The process asks the server at most once a second. */
  async _ask() {
    const job = this.app.model.jobs.get(this.id);
    if (document.hidden || this.asking || (this.asked && job && FINAL.has(job.state) && this.askedFinal)) return;
    this.asking = true;
    const {live} = this.app, path = `api/jobs/${this.id}`;
    const results = await Promise.allSettled([live.request(`${path}/history`), live.request(`${path}/why`), live.request(`${path}/output`)]);
    const [past, why, output] = results.map(r => (r.status === 'fulfilled' ? r.value : null));
    if (past) this.events = past.events;
    this.text = why ? why.text : results[1].reason ? [results[1].reason.message] : this.text;
    if (why?.facts) this.given = why.facts;
    if (output) this.output = output;
    this.asked = true;
    this.askedFinal = !!job && FINAL.has(job.state);
    this.asking = false;
    this.app.draw();
  }

  update() {
    const {model} = this.app, job = model.jobs.get(this.id) || this._fromPast();
    if (!job) {
      const words = this.asked ? `There is no job ${this.id}, or you may not see it` : 'Loading';
      return put(this.title, h('h1', null, words), this.asked ? h('a.link', {href: '#/jobs'}, 'All jobs') : null);
    }
    document.title = `${job.id} ${job.name} – Pliant`;
    const talks = groupTalks(this.events);
    this._title(job);
    this._size(job, talks);
    this._talks(job, talks);
    list(this.why, this.text.map((t, k) => [k, t]), ([k]) => k, ([, t]) => t, ([, t]) => h('li', null, t.replace(/^job \d+ \(.*?\) is /, '')));
    this._speed(job);
    this._pauses();
    this._output(job);
    this._facts(job);
  }

  /** Make a job that the page has forgotten from what the server says about it. */
  _fromPast() {
    return this.given?.id === this.id ? {...this.given, segments: [], marks: [], hue: null} : null;
  }

  _title(job) {
    const may = this.app.live.mayAct, sign = [job.name, job.state, may].join('|');
    if (this.title.dataset.sign === sign) return;
    this.title.dataset.sign = sign;
    const {app} = this, path = `api/jobs/${job.id}/`, on = ACTIVE.has(job.state), resizes = job.class === 'malleable' || job.class === 'evolving';
    const actions = [];
    if (job.state === 'PENDING') actions.push(app.button('Hold', {path: path + 'hold', question: `Keep job ${job.id} from starting?`}));
    if (job.state === 'HELD') actions.push(app.button('Release', {path: path + 'release', question: `Let job ${job.id} start?`}));
    if (on && resizes) actions.push(app.button('Resize…', {path: path + 'resize', question: `Offer job ${job.id} another size? It keeps this size until you enter 0, which lets the strategy choose again.`, field: ['size', `Processors (${job.sizes})`, String(held(job)), Number]}));
    if (on && resizes) actions.push(app.button('Suspend', {path: path + 'suspend', question: `Save job ${job.id} at its next safe point, and free its processors?`}));
    if (job.state === 'SUSPENDED') actions.push(app.button('Resume', {path: path + 'resume_job', question: `Let job ${job.id} continue?`}));
    if (!FINAL.has(job.state)) actions.push(app.button('Cancel…', {path: path + 'cancel', question: `End job ${job.id} ${job.name}? What it has computed since its last checkpoint is lost.`, danger: true}));
    put(this.title, h('h1', null, h('span.number', null, `${job.id} `), job.name), chip(job.state), h('span.muted', null, [job.class, job.user, `sizes ${job.sizes}`].filter(Boolean).join(' · ')), h('div.actions', null, actions));
  }

  _size(job, talks) {
    const now = this.app.model.header.now, end = job.end ?? now, t0 = job.submit ?? job.start ?? end, t1 = t0 + Math.max(1, end - t0) * 1.04;
    const [c, width] = begin(this.size, 170), scale = timeScale(t0, t1, 28, width - 12), top = 18, bottom = 146;
    const largest = Math.max(1, ...job.segments.map(s => s[2]), ...(String(job.sizes).match(/\d+/g) || []).map(Number).filter(n => n <= this.app.model.processors));
    const y = n => bottom - n / largest * (bottom - top);
    timeAxis(c, scale, top, bottom);
    for (let n = 0; n <= largest; n += niceStep(largest / 4)) {
      line(c, 28, Math.round(y(n)) + 0.5, width - 12, Math.round(y(n)) + 0.5, COLOURS.line);
      text(c, String(n), 21, y(n), COLOURS.ink3, 'right');
    }
    c.fillStyle = fillOf(job);
    for (const [start, stop, n] of job.segments) c.fillRect(scale.x(start), y(n), Math.max(1, scale.x(stop ?? now) - scale.x(start)), bottom - y(n));
    const at = t => job.segments.find(s => s[0] <= t + 1e-6 && (s[1] ?? now) >= t)?.[2] ?? 0;
    let last = -Infinity;
    for (const talk of talks.filter(t => t.kind === 'r')) {
      const x = scale.x(talk.time), kind = talk.outcome === 'done' ? (talk.countered ? 'counter' : 'accepted') : ['withdrawn', 'open'].includes(talk.outcome) ? 'withdrawn' : 'refused';
      if (x - last < 13) continue;
      last = x;
      mark(c, x, Math.max(8, y(at(talk.time)) - 9), kind);
    }
    this.size.setAttribute('aria-label', `Processors over time: ${job.segments.slice(-20).map(s => `${s[2]} from ${clock(s[0])}`).join(', ')}`);
    const total = job.segments.reduce((sum, [start, stop, n]) => sum + ((stop ?? now) - start) * n, 0);
    setText(this.sizeSub, job.segments.length ? `${many(job.segments.length, 'size')} · ${duration(total)} of processor time` : 'it has not started');
  }

  _talks(job, talks) {
    const shown = talks.filter(t => t.outcome !== 'cancelled').reverse().slice(0, SHOWN_TALKS), replaced = talks.filter(t => t.outcome === 'cancelled').length;
    setText(this.talkSub, talks.length ? `${many(talks.length, 'talk')}, the latest first${replaced ? `; ${replaced} replaced requests are left out` : ''}` : '');
    if (!shown.length) return list(this.talks, [0], () => 'none', () => `${job.class}${this.asked}`, () => h('p.muted', null, !this.asked ? 'Loading' : job.class === 'rigid' ? 'A rigid job keeps its size: there is nothing to talk about.' : 'No offer has been made yet.'));
    list(this.talks, shown, t => t.key, t => `${t.outcome}${t.events.length}`, t => talkCard(t, job.name));
  }

  _speed(job) {
    for (const [n, s] of Object.entries(job.progress?.seconds_per_iteration || {})) this.iterations.set(Number(n), s);
    const points = [...this.iterations].sort((a, b) => a[0] - b[0]), [c, width] = begin(this.speed, points.length ? 150 : 1);
    setText(this.speedNote, points.length ? 'Measured by the program between safe points, by number of processors. Dashed: perfect speed-up from the smallest size.' : 'Nothing is measured yet. The program reports at safe points.');
    this.speed.setAttribute('aria-label', `Seconds of an iteration: ${points.map(([n, s]) => `${milliseconds(s)} on ${n}`).join(', ') || 'not measured'}`);
    if (!points.length) return;
    const top = 10, bottom = 128, left = 52, most = Math.max(...points.map(p => p[1])) * 1.12, sizes = [points[0][0], Math.max(points[0][0] + 1, points[points.length - 1][0])];
    const x = n => left + 12 + (n - sizes[0]) / (sizes[1] - sizes[0]) * (width - left - 36), y = s => bottom - s / most * (bottom - top);
    for (const s of [0, most / 2, most]) {
      line(c, left, Math.round(y(s)) + 0.5, width - 8, Math.round(y(s)) + 0.5, COLOURS.line);
      text(c, s ? milliseconds(s) : '0', left - 6, y(s), COLOURS.ink3, 'right');
    }
    c.setLineDash([3, 4]);
    c.beginPath();
    for (let k = 0; k <= 40; k++) { const n = sizes[0] + (sizes[1] - sizes[0]) * k / 40; c.lineTo(x(n), y(points[0][1] * points[0][0] / n)); }
    c.strokeStyle = COLOURS.ink3;
    c.stroke();
    c.setLineDash([]);
    c.beginPath();
    points.forEach(([n, s]) => c.lineTo(x(n), y(s)));
    c.strokeStyle = fillOf(job);
    c.lineWidth = 2;
    c.stroke();
    for (const [n, s] of points) {
      c.beginPath();
      c.arc(x(n), y(s), n === held(job) ? 6 : 4, 0, 7);
      c.fillStyle = fillOf(job);
      c.fill();
      if (n === held(job)) { c.strokeStyle = COLOURS.ink; c.stroke(); }
      text(c, String(n), x(n), bottom + 12, COLOURS.ink3, 'center');
    }
  }

  _pauses() {
    const resizes = this.events.filter(e => e.kind === 'job.resized' && e.data.seconds?.total != null), total = resizes.reduce((sum, e) => sum + e.data.seconds.total, 0);
    setText(this.pauseSub, resizes.length ? `${many(resizes.length, 'resize')}, ${milliseconds(total)} together` : '');
    const most = Math.max(1e-9, ...resizes.map(e => e.data.seconds.total));
    const rows = [{seq: 'legend'}, ...resizes.slice(-SHOWN_PAUSES).reverse()];
    if (!resizes.length) return list(this.pauses, [0], () => 'none', () => String(this.asked), () => h('p.muted', null, this.asked ? 'No resize yet.' : 'Loading'));
    list(this.pauses, rows, e => e.seq, () => String(most), e => {
      if (e.seq === 'legend') return h('div.legend', null, STEPS.map(([, words, colour]) => h('span', null, h('span.swatch', {style: {background: `var(--${colour})`}}), words)));
      const s = e.data.seconds, parts = STEPS.filter(([key]) => s[key]);
      return h('div.pause', {title: `${clock(e.time)} ${e.data.cause || ''}`}, h('span', null, `${e.data.from} → ${e.data.to}`),
        h('span.parts', {role: 'img', 'aria-label': parts.map(([key, words]) => `${words} ${milliseconds(s[key])}`).join(', ')}, parts.map(([key, , colour]) => h('i', {style: {width: `${s[key] / most * 100}%`, background: `var(--${colour})`}}))),
        h('span.total', null, milliseconds(s.total)));
    });
  }

  _output(job) {
    const {path, text: words} = this.output;
    setText(this.outputSub, words == null ? '' : 'the end of it');
    const shown = !this.asked ? 'Loading' : words == null ? (path ? `It is in ${path}` : 'The output is for the owner of the job.') : words.trim() || (FINAL.has(job.state) ? 'Nothing was printed.' : 'Nothing was printed yet.');
    if (this.out.dataset.shown === shown) return;
    const sticks = this.out.scrollTop + this.out.clientHeight >= this.out.scrollHeight - 4;
    this.out.dataset.shown = shown;
    this.out.textContent = shown.slice(-20000);
    if (sticks) this.out.scrollTop = this.out.scrollHeight;
  }

  _facts(job) {
    const last = job.segments[job.segments.length - 1], names = new Set(last && last[1] == null ? ranges(last[3]).map(p => this.app.model.place.get(p)?.name) : []);
    const p = job.progress;
    const rows = [['Command', job.command], ['Directory', job.cwd], ['Output', job.stdout], ['Submitted', job.submit && clock(job.submit)],
      ['Started', job.start && `${clock(job.start)}, after ${duration(job.start - job.submit)}`], ['Ended', job.end && clock(job.end)],
      ['Expected end', job.expected_end && !job.end && clock(job.expected_end)], ['Time limit', job.time_limit_s && duration(job.time_limit_s)],
      ['Progress', p?.iteration != null && `iteration ${p.iteration}${p.iterations ? ` of ${p.iterations}` : ''}`], ['Memory', job.memory_bytes && bytes(job.memory_bytes)],
      ['Nodes', [...names].filter(Boolean).join(', ')], ['Exit code', job.end && job.exit_code != null && String(job.exit_code)], ['Run, epoch', `${job.run ?? 0}, ${job.epoch ?? 0}`]];
    list(this.facts, rows.filter(r => r[1]).flatMap(([name, value]) => [[name, name, 'dt'], [`${name}=`, value, 'dd']]), r => r[0], r => String(r[1]), r => h(r[2], null, r[1]));
  }
}

function talkCard(talk, name) {
  const [tone, image, words] = OUTCOMES[talk.outcome] || ['', 'ask', talk.outcome], phrases = chain(talk);
  return h('article.talk', {'aria-label': talkTitle(talk)},
    h('header', null, h('b', null, talkTitle(talk)), h('span.chip' + (tone ? '.' + tone : ''), null, icon(image), words), h('time', null, clock(talk.time))),
    h('div.messages', null, messages(talk, name).map(m => h('div.message' + (m.side === 'program' ? '.program' : '') + (m.tone ? '.' + m.tone : ''), null, m.words, h('small', null, m.note))),
      phrases.length ? h('div.chain', null, phrases.map((p, k) => [k ? h('span', {'aria-hidden': 'true'}, '→') : null, h('span', null, p)])) : null));
}
