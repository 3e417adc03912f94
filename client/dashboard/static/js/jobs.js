// The table of all jobs. Only the rows that are visible exist.

import {h, list, put} from './dom.js';
import {duration, number} from './format.js';
import {ACTIVE, FAULTY, FINAL, held} from './model.js';
import {chip, swatch} from './parts.js';

const FILTERS = {
  all: () => true,
  running: j => ACTIVE.has(j.state),
  waiting: j => ['PENDING', 'HELD', 'SUSPENDED'].includes(j.state),
  failed: j => FAULTY.has(j.state),
  ended: j => FINAL.has(j.state),
};
const TITLES = [['id', 'Job'], ['name', 'Name'], ['user', 'User'], ['class', 'Class'], ['state', 'State'],
  ['processors', 'Processors'], ['sizes', 'Sizes'], ['time', 'Time'], ['reason', 'Why']];

export class Jobs {
  constructor(app, query) {
    this.app = app;
    this.filter = FILTERS[query.get('state')] ? query.get('state') : 'all';
    this.sort = ['id', -1];
    this.rows = [];
    this.element = h('div', null, h('h1.hidden', null, 'Jobs'), this.tools = h('div.tools'),
      h('section.card', {'aria-label': 'Jobs'}, this.table = h('div.table', {role: 'table', 'aria-label': 'Jobs', tabindex: 0})));
    this.table.append(this.titles = h('div', {role: 'rowgroup'}), this.space = h('div', {'aria-hidden': 'true'}), this.body = h('div', {role: 'rowgroup'}));
    this.table.addEventListener('scroll', () => this._show());
  }

  update() {
    const {model, view} = this.app, all = [...model.jobs.values()], now = model.header.now;
    const counts = Object.fromEntries(Object.entries(FILTERS).map(([name, test]) => [name, all.filter(test).length]));
    list(this.tools, [...Object.keys(FILTERS), 'found'], n => n, n => `${counts[n]}${this.filter === n}${view.matching?.size}`, n => (n === 'found'
      ? h('span.muted', {role: 'status'}, view.matching ? `${number(view.matching.size)} match` : '')
      : h('button.button', {type: 'button', 'aria-pressed': String(this.filter === n), onclick: () => { location.hash = `#/jobs?state=${n}`; }}, `${n[0].toUpperCase()}${n.slice(1)} `, h('span', null, number(counts[n])))));
    const keys = {id: j => j.id, name: j => j.name, user: j => j.user, class: j => j.class || '', state: j => j.state,
      processors: held, sizes: j => j.sizes, time: j => time(j, now), reason: j => j.reason || ''};
    const key = keys[this.sort[0]];
    this.rows = all.filter(j => FILTERS[this.filter](j) && (!view.matching || view.matching.has(j.id)));
    this.rows.sort((a, b) => (key(a) > key(b) ? 1 : key(a) < key(b) ? -1 : b.id - a.id) * this.sort[1]);
    this._show();
  }

  _show() {
    const small = innerWidth <= 720, tall = small ? 64 : 40, head = small ? 0 : 34, now = this.app.model.header.now;
    const count = this.rows.length, first = Math.max(0, Math.floor(this.table.scrollTop / tall) - 3);
    const shown = this.rows.slice(first, first + Math.ceil((this.table.clientHeight || 700) / tall) + 6);
    list(this.titles, small ? [] : [0], () => 'titles', () => this.sort.join(), () => this._titles());
    this.table.setAttribute('aria-rowcount', count + 1);
    this.space.style.height = `${count * tall}px`;
    if (!count) {
      list(this.body, [0], () => 'none', () => String(!!this.app.view.matching), () => h('div.empty', null, h('b', null, 'No job'), this.app.view.matching ? 'Nothing matches. Try a name, a number, user:NAME, node:NAME or state:failed.' : 'Submit one: jobsub -n 1-8 python app.py'));
    } else {
      list(this.body, shown, j => j.id, j => [small, j.state, held(j), j.reason, j.name, duration(time(j, now)), j.hue].join('|'), j => (small ? narrow(j, now) : wide(j, now)));
      shown.forEach((job, k) => {
        const row = this.body.children[k];
        row.style.top = `${head + (first + k) * tall}px`;
        row.setAttribute('aria-rowindex', first + k + 2);
      });
    }
    const room = innerHeight - this.table.getBoundingClientRect().top - scrollY - 22;
    this.table.style.height = `${Math.max(240, Math.min(room, count * tall + head + 2))}px`;
  }

  _titles() {
    return h('div.row.titles', {role: 'row'}, TITLES.map(([key, words]) => {
      const active = this.sort[0] === key, up = this.sort[1] > 0;
      return h('span' + (key === 'time' ? '.right' : ''), {role: 'columnheader', 'aria-sort': active ? (up ? 'ascending' : 'descending') : 'none'},
        h('button', {type: 'button', onclick: () => { this.sort = [key, active ? -this.sort[1] : 1]; this.update(); }}, words + (active ? (up ? ' ↑' : ' ↓') : '')));
    }));
  }
}

const time = (job, now) => (job.end ?? now) - (job.start ?? job.submit ?? now);
const why = job => job.reason || (job.exit_code ? `exit code ${job.exit_code}` : '');

function wide(job, now) {
  const cell = (...children) => h('span', {role: 'cell'}, ...children);
  return h('a.row', {role: 'row', href: `#/jobs/${job.id}`}, cell(swatch(job), String(job.id)), h('span.name', {role: 'cell', title: job.name}, job.name),
    cell(job.user), cell(job.class || ''), cell(chip(job.state)), cell(held(job) ? String(held(job)) : '–'),
    cell(job.sizes + (job.prefer ? ` (${job.prefer})` : '')), h('span.right', {role: 'cell'}, duration(time(job, now))), h('span.muted', {role: 'cell', title: why(job)}, why(job)));
}

function narrow(job, now) {
  return h('a.row', {role: 'row', href: `#/jobs/${job.id}`}, h('span.name', {role: 'cell'}, swatch(job), h('span.number', null, `${job.id} `), job.name), h('span', {role: 'cell'}, chip(job.state)),
    h('span.wide', {role: 'cell'}, `${held(job) ? `on ${held(job)}, ` : ''}sizes ${job.sizes} · ${duration(time(job, now))}${why(job) ? ` · ${why(job)}` : ''}`));
}
