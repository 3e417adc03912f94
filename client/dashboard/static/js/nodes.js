// The nodes: a map, and a table with those in trouble first.

import {card, h, list, put} from './dom.js';
import {bytes, many} from './format.js';
import {held, holders} from './model.js';
import {chip, jobLink, nodeCard, nodeTone} from './parts.js';
import {icon} from './dom.js';
import {nodeIcon} from './parts.js';
import {squares} from './overview.js';

const SHOWN = 64, ROWS = 200;

export class Nodes {
  constructor(app, name) {
    this.app = app;
    this.name = name;
    this.element = h('div', null, this.title = h('div.title', null, h('h1', null, name || 'Nodes')),
      h('div.pile', null, card('Map', this.sub = h('span.muted'), this.map = h('div.body')),
        card(name ? 'Jobs on this node' : 'Nodes', null, h('div.body', null, this.table = h('div')))));
    if (name) this.title.append(this.actions = h('div.actions'));
  }

  update() {
    const {model} = this.app, byProcessor = holders(model.running());
    const nodes = this.name ? model.order.filter(n => n.name === this.name) : model.order;
    put(this.sub, many(nodes.length, 'node'));
    if (!nodes.length) return put(this.map, h('div.empty', null, h('b', null, this.name ? `There is no node ${this.name}` : 'No node has registered yet'), 'nodestat shows the same.'));
    if (nodes.length > SHOWN) squares(this.map, model, byProcessor);
    else {
      if (!this.grid) put(this.map, this.grid = h('div.nodes'));
      list(this.grid, nodes, n => n.name, n => [n.state, n.reason, ...Array.from({length: n.slots}, (_, k) => byProcessor.get(n.first + k)?.id ?? '')].join('|'), n => nodeCard(n, byProcessor));
    }
    if (this.name) this._one(nodes[0], byProcessor);
    else this._all(nodes, byProcessor);
  }

  _all(nodes, byProcessor) {
    const use = new Map();
    for (const p of byProcessor.keys()) { const n = this.app.model.place.get(p); if (n) use.set(n.name, (use.get(n.name) || 0) + 1); }
    const bad = n => (nodeTone(n.state) === 'bad' ? 0 : nodeTone(n.state) ? 1 : 2);
    const sorted = nodes.slice().sort((a, b) => bad(a) - bad(b)).slice(0, ROWS);
    if (!this.rows) put(this.table, h('table.plain', null, h('thead', null, h('tr', null, ['Node', 'State', 'Busy', 'Memory', 'Reason'].map(t => h('th', {scope: 'col'}, t)))), this.rows = h('tbody')));
    list(this.rows, sorted, n => n.name, n => [n.state, n.reason, use.get(n.name) || 0, n.connected].join('|'), n => h('tr', null,
      h('td', null, h('a.link', {href: `#/nodes/${encodeURIComponent(n.name)}`}, n.name)), h('td', null, h('span.chip' + (nodeTone(n.state) ? '.' + nodeTone(n.state) : '.run'), null, icon(nodeIcon(n.state)), n.state.toLowerCase())),
      h('td', null, `${use.get(n.name) || 0} of ${n.slots}`), h('td', null, n.memory_bytes ? bytes(n.memory_bytes) : '–'), h('td', null, n.reason || (n.connected ? '' : 'not connected'))));
  }

  _one(node, byProcessor) {
    const jobs = new Map();
    for (let k = 0; k < node.slots; k++) { const job = byProcessor.get(node.first + k); if (job) jobs.set(job.id, job); }
    if (!this.rows) put(this.table, h('table.plain', null, h('thead', null, h('tr', null, ['Job', 'State', 'Processors'].map(t => h('th', {scope: 'col'}, t)))), this.rows = h('tbody')));
    list(this.rows, [...jobs.values()], j => j.id, j => `${j.state}${held(j)}`, j => h('tr', null, h('td', null, jobLink(j, j.id)), h('td', null, chip(j.state)), h('td', null, String(held(j)))));
    const drained = node.state === 'DRAINED' || node.state === 'DRAINING';
    const sign = `${drained}${this.app.live.mayAct}`;
    if (this.actions.dataset.sign === sign) return;
    this.actions.dataset.sign = sign;
    const path = `api/nodes/${encodeURIComponent(node.name)}/`;
    put(this.actions, drained ? this.app.button('Resume', {path: path + 'resume', question: `Give ${node.name} new work again?`})
      : this.app.button('Drain…', {path: path + 'drain', question: `Give ${node.name} no more work? Malleable jobs are asked to leave it, others finish.`, field: ['reason', 'Reason', '']}));
  }
}
