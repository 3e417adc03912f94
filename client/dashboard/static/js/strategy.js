// The strategy: which one plans, with which options, and a form for another one.

import {card, h, put, setText} from './dom.js';
import {capital} from './format.js';

export class Strategy {
  constructor(app) {
    this.app = app;
    this.loaded = undefined;  // the strategy in force when the values were asked for
    this.element = h('div', null, h('div.title', null, h('h1', null, 'Strategy')),
      h('div.pile', null,
        card('In force', null, h('div.body', null, this.force = h('p.force'), this.options = h('dl.facts'))),
        card('Use another one', null, h('div.body', null, this.form = h('div.form'), this.answer = h('p', {role: 'status'})))));
  }

  update() {
    const name = this.app.model.header.strategy;
    if (this.button) this.button.disabled = !this.app.live.mayAct;
    if (name !== this.loaded) this._load(name);
  }

  async _load(name) {
    this.loaded = name;
    try {
      this._show(await this.app.live.request('api/strategies'));
    } catch (error) { put(this.form, h('p.fault', null, error.message)); }
  }

  _show(found) {
    setText(this.force, found.strategy);
    put(this.options, Object.entries(found.options).flatMap(([name, value]) => [h('dt', null, name), h('dd', null, String(value))]));
    const choice = h('select', {id: 'strategy-name'}, found.strategies.map(each => h('option', {value: each.name, selected: each.name === found.strategy}, each.name)));
    const fields = h('div');
    const build = () => put(fields, found.strategies.find(each => each.name === choice.value)?.options.map(option => optionField(option)));
    choice.addEventListener('change', build);
    build();
    const values = () => Object.fromEntries([...fields.querySelectorAll('input')].filter(input => input.value.trim()).map(input => [input.name, input.value.trim()]));
    this.button = this.app.button('Use this strategy…', {
      path: 'api/strategy',
      question: () => `${choice.value} will plan instead of ${this.force.textContent}. Running jobs keep their processors until it plans otherwise. The change is recorded with your name, and it holds after a restart of the server, too.`,
      body: () => ({strategy: choice.value, options: values()}),
      done: message => { setText(this.answer, message); this._load(choice.value); },
    });
    put(this.form, h('div.field', null, h('label', {for: 'strategy-name'}, 'Strategy'), choice), fields, h('div.actions', null, this.button));
  }
}

function optionField(option) {
  const id = `option-${option.name}`, preset = option.default == null ? 'none' : String(option.default);
  return h('div.field', null, h('label', {for: id}, option.name),
    h('input', {id, name: option.name, 'aria-label': option.name, placeholder: preset, maxlength: 200, 'aria-describedby': `${id}-help`}),
    h('p.muted', {id: `${id}-help`}, `${option.help ? `${capital(option.help)}${/[.!?]$/.test(option.help) ? '' : '.'} ` : ''}Expected: ${option.expected}. Without a value: ${preset}.`));
}
