// The frame around the pages: routes, search, theme, connection, and dialogs for actions.

import {readColours} from './colours.js';
import {$, h, icon, put, say, setText} from './dom.js';
import {clock, number} from './format.js';
import {Job} from './job.js';
import {Jobs} from './jobs.js';
import {Live} from './live.js';
import {FINAL, Model, matches} from './model.js';
import {Nodes} from './nodes.js';
import {Overview} from './overview.js';
import {Strategy} from './strategy.js';

const parameters = new URLSearchParams(location.search);

class App {
  constructor() {
    this.model = new Model();
    this.view = {
      mode: ['stack', 'rows', 'lanes'].includes(parameters.get('view')) ? parameters.get('view') : 'stack',
      span: Math.min(86400, Math.max(10, Number(parameters.get('span')) || 180)),
      end: null, selected: null, matching: null, events: 'talks', query: parameters.get('q') || '',
    };
    this.live = new Live(this.model, () => this.draw());
    this.live.wanted = this.view.span;
    this.page = null;
    this.cost = 0;
    this._theme(localStorage.getItem('theme') || 'auto');
    this._bind();
    this.route();
    this.live.start();
  }

  _bind() {
    addEventListener('hashchange', () => {
      if (location.hash.startsWith('#login=')) this.live.start();  // the page was open already
      this.route();
    });
    addEventListener('resize', () => this.draw());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColours(); this.draw(); });
    $('#skip').addEventListener('click', event => { event.preventDefault(); $('#main').focus(); });
    $('#theme').append(icon('sun'));
    $('#theme').addEventListener('click', () => {
      const next = {auto: 'light', light: 'dark', dark: 'auto'}[document.documentElement.dataset.theme];
      this._theme(next);
      say(`Colours: ${next === 'auto' ? 'as the system' : next}`);
      this.draw();
    });
    $('#query').value = this.view.query;
    $('#query').addEventListener('input', event => { this.view.query = event.target.value; this.remember(); this.draw(); });
    $('#search').addEventListener('submit', event => {
      event.preventDefault();
      const id = Number(this.view.query);
      location.hash = Number.isInteger(id) && this.model.jobs.has(id) ? `#/jobs/${id}` : '#/jobs';
    });
    addEventListener('keydown', event => {
      if (event.key !== '/' || event.ctrlKey || event.metaKey || /INPUT|TEXTAREA/.test(document.activeElement.tagName)) return;
      event.preventDefault();
      $('#query').focus();
    });
  }

  _theme(name) {
    document.documentElement.dataset.theme = name;
    localStorage.setItem('theme', name);
    readColours();
  }

  /** Keep view, window and search in the address, so that it can be shared. */
  remember() {
    const next = new URLSearchParams({view: this.view.mode, span: String(Math.round(this.view.span))});
    if (this.view.query) next.set('q', this.view.query);
    history.replaceState(null, '', `?${next}${location.hash}`);
  }

  route() {
    const hash = location.hash.startsWith('#login=') ? '' : location.hash.slice(1);
    const [path, query] = (hash || '/').split('?'), parts = path.split('/').filter(Boolean).map(decodeURIComponent);
    const moved = this.page !== null;
    this.page?.close?.();
    document.title = 'Pliant';
    if (parts[0] === 'jobs' && /^\d+$/.test(parts[1] || '')) this.page = new Job(this, Number(parts[1]));
    else if (parts[0] === 'jobs') this.page = new Jobs(this, new URLSearchParams(query));
    else if (parts[0] === 'nodes') this.page = new Nodes(this, parts[1]);
    else if (parts[0] === 'strategy') this.page = new Strategy(this);
    else this.page = new Overview(this);
    for (const link of document.querySelectorAll('.tabs a')) {
      if (link.dataset.page === (parts[0] || 'overview')) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    this.shown = false;
    this.drawNow();
    if (moved) {
      $('#main').focus({preventScroll: true});
      scrollTo(0, 0);
    }
  }

  select(id) { this.view.selected = id; this.draw(); }

  /** Draw in the next frame, and not more often than a tenth of the time is spent on it. */
  draw() {
    if (this.drawing || document.hidden) return;
    this.drawing = true;
    const wait = Math.max(0, (this.last || 0) + this.cost * 9 - performance.now());
    setTimeout(() => requestAnimationFrame(() => { this.drawing = false; this.drawNow(); }), wait);
  }

  drawNow() {
    const begun = performance.now();
    this._frame();
    if (this.model.loaded) {
      if (!this.shown) { put($('#main'), this.page.element); this.shown = true; }
      const {query} = this.view;
      this.view.matching = query ? new Set([...this.model.jobs.values()].filter(job => matches(job, query, this.model.place)).map(job => job.id)) : null;
      this.page.update();
    }
    this.last = performance.now();
    this.cost = this.last - begun;
    (this.costs ||= []).push(this.cost);
    this.costs.splice(0, this.costs.length - 50);
  }

  _frame() {
    const {live, model} = this, main = $('#main');
    if (!model.loaded && live.state === 'login') put(main, this._loginCard());
    else if (!model.loaded && !main.childElementCount) put(main, h('h1.hidden', null, 'Loading'), h('div.skeleton'), h('div.skeleton'));
    main.classList.toggle('stale', live.state === 'lost');
    $('#live').className = `live ${live.state === 'live' ? '' : live.state === 'loading' ? 'loading' : 'lost'}`;
    setText($('#live-text'), {live: `Live · ${clock(model.header.now)}`, loading: 'Loading', lost: 'Not connected', login: 'Not signed in'}[live.state]);
    const lost = live.state === 'lost' ? `No word since ${clock(live.since / 1000)}: ${live.why}. Jobs go on without this page.` : live.state === 'login' && model.loaded ? live.why : '';
    const banner = $('#banner');
    if (banner.dataset.text !== lost) {
      banner.dataset.text = lost;
      put(banner, lost ? [h('span', null, lost), h('button.button', {type: 'button', onclick: () => live.open()}, 'Try now')] : null);
    }
    setText($('#cluster'), model.loaded ? `${number(model.processors)} processors` : '');
    let open = 0;
    for (const job of model.jobs.values()) if (!FINAL.has(job.state)) open++;
    setText($('#job-count'), number(open));
    setText($('#node-count'), number(model.order.length));
    setText($('#who'), live.session ? `${live.session.user} · ${live.session.role}` : '');
    $('#who').title = model.header.strategy ? `strategy ${model.header.strategy}` : '';
  }

  _loginCard() {
    return h('section.card', null, h('div.empty', null, h('h1', null, 'This page needs a key'), h('p', null, this.live.why), h('p', null, 'The address has the key after #login=. The command prints it when it starts.')));
  }

  /** Return a button that asks before it acts, and shows the server's answer where the question was. */
  button(words, action) {
    const may = this.live.mayAct;
    return h('button.button' + (action.danger ? '.danger' : ''), {type: 'button', disabled: !may, title: may ? null : 'This session may only look.', onclick: () => this._ask(words, action)}, words);
  }

  _ask(words, {path, question, field, danger, body, done}) {
    const dialog = $('#dialog'), fault = h('p.fault', {role: 'alert'});
    const input = field ? h('input', {id: 'dialog-field', value: field[2], maxlength: 200}) : null;
    const act = async event => {
      event.preventDefault();
      try {
        const fields = body ? body() : field ? {[field[0]]: (field[3] || String)(input.value)} : {};
        const message = await this.live.act(path, fields);
        dialog.close();
        say(message || 'Done');
        done?.(message);
      } catch (error) { setText(fault, error.message); }
    };
    put(dialog, h('form', {onsubmit: act}, h('h2', {id: 'dialog-title'}, words.replace('…', '')), h('p', null, typeof question === 'function' ? question() : question),
      field ? h('div.field', null, h('label', {for: 'dialog-field'}, field[1]), input) : null, fault,
      h('div.answers', null, h('button.button', {type: 'button', onclick: () => dialog.close()}, 'Back'), h('button.button' + (danger ? '.danger' : '.first'), {type: 'submit'}, words.replace('…', '')))));
    dialog.showModal();
  }
}

globalThis.pliant = new App();  // for tests
