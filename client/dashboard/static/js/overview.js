// The first page: how full the machine is, who gave what to whom, nodes and queue.

import {card, choice, h, icon, list, put, say} from './dom.js';
import {cssColour} from './colours.js';
import {clock, duration, many, milliseconds, number, stateWord} from './format.js';
import {FAULTY, held, holders} from './model.js';
import {eventItem, isTalk, nodeCard, nodeTone, queueItem} from './parts.js';
import {drawLoad, drawTimeline} from './timeline.js';

const WINDOWS = [[60, '1 m'], [180, '3 m'], [900, '15 m'], [3600, '1 h'], [86400, '24 h']];
const LATE_S = 600;
const SHOWN_EVENTS = 12, SHOWN_WAITING = 8, SHOWN_NODES = 64;

export class Overview {
  constructor(app) {
    this.app = app;
    this.hits = [];
    const legend = (tone, image, words) => h('span', null, h('span.tone.' + tone, null, icon(image)), words);
    this.element = h('div', null, h('h1.hidden', null, 'Overview'), this.figures = h('dl.card.figures'),
      h('div.columns', null,
        h('div.pile', null,
          card('Processors over time', null, this.hint = h('p.hint'), this.chart = this._chartBox(), h('div.chart', {'aria-hidden': 'true'}, this.load = h('canvas')),
            this.users = h('div.legend'),
            h('div.legend', {'aria-label': 'Marks'}, legend('counter', 'counter', 'counter-offer'), legend('no', 'no', 'refused, expired or rolled back'), h('span', null, 'dashed: usable processors · hatched: drained, lost or not there · ticks below: too many marks'))),
          card('Talks and events', this.eventsHead = h('span.fill'), this.events = h('ol.feed'))),
        h('div.pile.side', null,
          card('Nodes', [this.nodesSub = h('span.muted'), h('span.fill'), h('a.link', {href: '#/nodes'}, 'All nodes')], this.nodes = h('div.body')),
          card('Queue', [this.queueSub = h('span.muted'), h('span.fill'), h('a.link', {href: '#/jobs?state=waiting'}, 'All jobs')], this.queue = h('ol.queue')))));
    this.chartHead = this.chart.parentNode.querySelector('.head');
    this.eventsChoice = h('span');
    this.eventsHead.after(this.eventsChoice);
    this.chartChoices = h('span.fill');
    this.chartHead.append(this.chartChoices, this.back = h('span'), this.modes = h('span'), this.spans = h('span'));
    this.choices();
  }

  /** Show which view, window and kind of events are chosen. */
  choices() {
    const {view} = this.app;
    const set = (key, value) => { view[key] = value; this.app.remember(); this.choices(); this.app.draw(); };
    put(this.modes, choice('How jobs are drawn', [['stack', 'Stacked'], ['rows', 'By job'], ['lanes', 'By processor']], view.mode, v => set('mode', v)));
    put(this.spans, choice('Window', WINDOWS, view.span, v => { this.app.live.need(v); set('span', v); }));
    put(this.back, view.end == null ? null : h('button.button', {type: 'button', onclick: () => set('end', null)}, 'Back to now'));
    put(this.eventsChoice, choice('Which events', [['talks', 'Talks'], ['all', 'Everything']], view.events, v => set('events', v)));
  }

  update() {
    const {model, view} = this.app;
    const running = model.running(), waiting = model.waiting(), now = model.header.now;
    this._figures(running, waiting, now);
    const height = innerWidth < 720 ? 260 : 330;
    const result = drawTimeline(this.canvas, model, view, height);
    this.hits = result.hits;
    drawLoad(this.load, model, view);
    this._hint(result, running);
    this._nodes(running);
    this._queue(waiting, now);
    this._events();
  }

  _figures(running, waiting, now) {
    const {model} = this.app, stats = model.header.stats, total = model.processors;
    const used = running.reduce((sum, job) => sum + held(job), 0), answers = stats.accepted + stats.refused + stats.countered;
    const counts = {};
    for (const node of model.order) counts[node.state] = (counts[node.state] || 0) + 1;
    const away = Object.entries(counts).filter(([s]) => s !== 'UP').map(([s, n]) => `${n} ${s.toLowerCase()}`);
    let failed = 0;
    for (const job of model.jobs.values()) if (FAULTY.has(job.state) && job.end > now - 3600) failed++;
    if (failed) away.push(`${many(failed, 'job')} failed`);
    const longest = waiting.reduce((most, job) => Math.max(most, now - job.submit), 0);
    const resizable = running.filter(j => j.class === 'malleable' || j.class === 'evolving').length;
    const rows = [
      ['Processors busy', number(used), `of ${number(total)}`, this._bar(running, used, total)],
      ['Running', number(running.length), `${resizable} can resize`, `${running.filter(j => j.state === 'ADAPTING').length} adapting now`],
      ['Waiting', number(waiting.length), '', waiting.length ? `longest ${duration(longest)}` : 'nobody waits'],
      ['Resizes, last hour', number(stats.resizes || 0), '', stats.median_pause_s != null ? `median pause ${milliseconds(stats.median_pause_s)}` : 'none'],
      ['Offers accepted', answers ? `${Math.round(stats.accepted / answers * 100)} %` : '–', '', answers ? `${stats.countered} countered, ${stats.refused} refused of ${answers}` : 'none made'],
      ['Nodes up', `${counts.UP || 0} / ${model.order.length}`, '', away.join(', ') || 'all well'],
    ];
    list(this.figures, rows, r => r[0], r => (r[3].nodeType ? `${r[1]}${r[2]}${r[3].dataset.sign}` : r.join('|')),
      ([name, value, small, more]) => h('div', null, h('dt', null, name), h('dd', null, value, small ? h('small', null, small) : null, more.nodeType ? more : h('p', null, more))));
  }

  _bar(running, used, total) {
    const jobs = running.filter(held).sort((a, b) => a.segments[0][0] - b.segments[0][0]);
    const part = (n, background) => h('i', {style: {width: `${n / Math.max(1, total) * 100}%`, background}});
    const bar = h('div.bar', {role: 'img', 'aria-label': `${used} of ${total} processors busy`},
      jobs.length <= 40 ? jobs.map(job => part(held(job), cssColour(job))) : part(used, 'var(--accent)'));
    bar.dataset.sign = jobs.length <= 40 ? jobs.map(job => `${job.id}:${held(job)}`).join() : String(used);
    return bar;
  }

  _hint(result, running) {
    const {view} = this.app, now = new Map();
    for (const job of running) now.set(job.user, (now.get(job.user) || 0) + held(job));
    list(this.users, (result.users || []).slice().reverse(), u => u.user, u => `${u.colour}:${now.get(u.user) || 0}`,
      u => h('span', null, h('span.swatch', {style: {background: `var(--${u.colour})`}}), u.user, u.users > 1 ? null : h('b', null, number(now.get(u.user) || 0))));
    const words = result.users ? `Drawn by user: up to ${number(result.peak)} jobs at once are too many to tell apart. Choose a shorter window, or search.`
      : result.short > 0 ? `${number(result.short)} jobs that are too short for a band are drawn together in grey, as their mean.`
      : result.more > 0 ? `The latest 200 of ${number(result.more + 200)} jobs.` : '';
    const selected = view.selected != null ? this.app.model.jobs.get(view.selected) : null;
    const sign = `${words}${selected?.id ?? ''}`;
    if (this.hint.dataset.sign === sign) return;
    this.hint.dataset.sign = sign;
    put(this.hint, words, selected ? ['job ', String(selected.id), ' is selected · ', h('a.link', {href: `#/jobs/${selected.id}`}, 'open its page')] : null);
  }

  _nodes(running) {
    const {model, view} = this.app, byProcessor = holders(running);
    put(this.nodesSub, [...new Set(model.order.map(n => n.cluster).filter(Boolean))].join(', '));
    if (model.order.length > SHOWN_NODES) return squares(this.nodes, model, byProcessor);
    if (!this.nodeGrid) put(this.nodes, this.nodeGrid = h('div.nodes'));
    const dim = job => view.selected != null && view.selected !== job.id;
    list(this.nodeGrid, model.order, n => n.name,
      n => [n.state, n.reason, n.slots, view.selected, ...Array.from({length: n.slots}, (_, k) => byProcessor.get(n.first + k)?.id ?? '')].join('|'),
      n => nodeCard(n, byProcessor, dim));
  }

  _queue(waiting, now) {
    const {model, view} = this.app;
    put(this.queueSub, waiting.length ? `${many(waiting.length, 'job')} wait${waiting.length === 1 ? 's' : ''}` : '');
    const parked = [...model.jobs.values()].filter(j => j.state === 'HELD' || j.state === 'SUSPENDED').slice(0, 4);
    const shown = waiting.filter(j => !view.matching || view.matching.has(j.id)).slice(0, SHOWN_WAITING);
    const items = [...shown.map(job => [job, waiting.indexOf(job) + 1]), ...parked.map(job => [job, ''])];
    if (!items.length) {
      if (this.queue.dataset.sign !== 'empty') put(this.queue, h('li.empty', null, h('b', null, 'Nobody waits'), 'A new job starts within milliseconds.'));
      this.queue.dataset.sign = 'empty';
      return;
    }
    delete this.queue.dataset.sign;
    list(this.queue, items, ([job]) => job.id, ([job, place]) => queueItem(job, place, now, LATE_S).textContent, ([job, place]) => queueItem(job, place, now, LATE_S));
  }

  _events() {
    const {model, view} = this.app;
    const shown = model.events.filter(e => (view.events === 'all' || isTalk(e)) && (view.selected == null || e.job === view.selected)
      && (!view.matching || e.job == null || view.matching.has(e.job))).slice(-SHOWN_EVENTS).reverse();
    if (!shown.length) return list(this.events, [0], () => 'none', () => '', () => h('li', null, h('span'), h('span'), h('span.muted', null, 'Nothing yet.')));
    list(this.events, shown, e => e.seq, () => '', e => eventItem(e, model));
  }

  _chartBox() {
    const {view} = this.app;
    this.canvas = h('canvas', {id: 'timeline', 'aria-hidden': 'true'});
    this.tip = h('div.tip', {hidden: true});
    const box = h('div.chart', {tabindex: 0, role: 'application', 'aria-roledescription': 'chart',
      'aria-label': 'Processors over time. Up and down: another job. Left and right: its sizes. Enter: its page. Plus and minus: zoom. Escape: no job. The page Jobs has the same as a table.'}, this.canvas, this.tip);
    const jobAt = event => {
      const at = this.canvas.getBoundingClientRect(), x = event.clientX - at.left, y = event.clientY - at.top;
      return [this.hits.findLast(p => x >= p.x0 && x <= p.x1 && y >= p.y0 && y <= p.y1), x, y];
    };
    let drag = null;
    box.addEventListener('pointermove', event => {
      if (drag) return this._pan(drag, event);
      const [hit, x, y] = jobAt(event);
      this.canvas.style.cursor = hit ? 'pointer' : 'default';
      this.tip.hidden = !hit;
      if (!hit) return;
      const {job} = hit;
      put(this.tip, h('b', null, `${job.id} ${job.name}`), h('br'), `${stateWord(job.state)} · sizes ${job.sizes}`,
        hit.t != null ? [h('br'), `${many(hit.n, 'processor')} from ${clock(hit.t)}`] : null);
      this.tip.style.left = `${Math.max(0, Math.min(x + 14, this.canvas.clientWidth - 230))}px`;
      this.tip.style.top = `${y + 16}px`;
    });
    box.addEventListener('pointerleave', () => { this.tip.hidden = true; });
    box.addEventListener('pointerdown', event => { drag = {x: event.clientX, end: view.end ?? this.app.model.header.now + view.span * 0.07, moved: false}; });
    addEventListener('pointerup', () => setTimeout(() => { drag = null; }));
    box.addEventListener('click', event => {
      if (drag?.moved) return;
      const [hit] = jobAt(event);
      this.app.select(hit && view.selected !== hit.job.id ? hit.job.id : null);
    });
    box.addEventListener('dblclick', event => { const [hit] = jobAt(event); if (hit) location.hash = `#/jobs/${hit.job.id}`; });
    box.addEventListener('wheel', event => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this._zoom(event.deltaY > 0 ? 1.25 : 0.8);
    }, {passive: false});
    box.addEventListener('keydown', event => this._key(event));
    return box;
  }

  _pan(drag, event) {
    const {view, model} = this.app, by = event.clientX - drag.x;
    if (Math.abs(by) < 4 && !drag.moved) return;
    drag.moved = true;
    view.end = drag.end - by / this.canvas.clientWidth * view.span;
    if (view.end >= model.header.now) view.end = null;
    else this.app.live.need(Math.min(86400, model.header.now - view.end + view.span));
    this.choices();
    this.app.draw();
  }

  _zoom(factor) {
    const {view} = this.app;
    view.span = Math.min(86400, Math.max(10, view.span * factor));
    this.app.live.need(view.span);
    say(`Window ${duration(view.span)}`);
    this.choices();
    this.app.draw();
  }

  _key(event) {
    const {view, model} = this.app, jobs = [...new Map(this.hits.map(p => [p.job.id, p.job])).values()].sort((a, b) => a.id - b.id);
    const at = jobs.findIndex(j => j.id === view.selected), job = jobs[at];
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      if (!jobs.length) return;
      const from = at < 0 && event.key === 'ArrowUp' ? 0 : at;  // the last one, if none is selected
      const next = jobs[(from + (event.key === 'ArrowDown' ? 1 : -1) + jobs.length) % jobs.length];
      this.segment = next.segments.length - 1;
      this.app.select(next.id);
      say(`Job ${next.id} ${next.name}, ${stateWord(next.state)}${held(next) ? ` on ${many(held(next), 'processor')}` : ''}, ${many(next.segments.length, 'size')} so far`);
    } else if ((event.key === 'ArrowLeft' || event.key === 'ArrowRight') && job) {
      this.segment = Math.max(0, Math.min(job.segments.length - 1, this.segment + (event.key === 'ArrowLeft' ? -1 : 1)));
      const [start, end, n] = job.segments[this.segment] || [];
      if (n) say(`${many(n, 'processor')} from ${clock(start)} ${end ? `to ${clock(end)}` : 'until now'}`);
    } else if (event.key === 'Enter' && job) location.hash = `#/jobs/${job.id}`;
    else if (event.key === '+' || event.key === '-') this._zoom(event.key === '-' ? 1.6 : 0.625);
    else if (event.key === 'Escape') this.app.select(null);
    else return;
    event.preventDefault();
  }
}

/** Show many nodes as squares: how much of a square is filled tells how busy the node is. */
export function squares(parent, model, byProcessor) {
  const use = new Map();
  for (const p of byProcessor.keys()) { const n = model.place.get(p); if (n) use.set(n.name, (use.get(n.name) || 0) + 1); }
  const bad = model.order.filter(n => n.state !== 'UP');
  const sign = model.order.map(n => `${n.state[0]}${use.get(n.name) || 0}`).join('');
  if (parent.dataset.sign === sign) return;
  parent.dataset.sign = sign;
  put(parent, h('div.squares', {role: 'img', 'aria-label': `${model.order.length} nodes, ${bad.length} not up`},
    model.order.map(n => h('i' + (nodeTone(n.state) ? '.' + nodeTone(n.state) : ''), null, h('b', {style: {opacity: (use.get(n.name) || 0) / n.slots}})))),
  h('p.muted', null, 'One square for each node: the stronger its colour, the more of its processors are busy.'),
  bad.slice(0, 6).map(n => h('a.link', {href: `#/nodes/${encodeURIComponent(n.name)}`}, `${n.name} ${n.state.toLowerCase()} `)));
}
