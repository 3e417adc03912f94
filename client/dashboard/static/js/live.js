// The connection to the dashboard's process: session, snapshot, stream, requests.

const RETRY_MS = 2000;
const HIDDEN_MS = 60000;
const SILENCE_MS = 10000;

export class LoginNeeded extends Error {}

export class Live {
  constructor(model, changed) {
    this.model = model;
    this.changed = changed;
    this.session = null;
    this.state = 'loading';  // loading, live, lost, login
    this.why = '';
    this.since = Date.now();
    this.source = null;
    this.heard = 0;
    document.addEventListener('visibilitychange', () => this._visibility());
    setInterval(() => this._watchSilence(), 2000);
  }

  async start() {
    const token = new URLSearchParams(location.hash.slice(1)).get('login');
    if (token) {
      history.replaceState(null, '', location.pathname + location.search + '#/');
      try { this.session = await this._login(token); } catch (error) { return this._lose(error); }
    }
    await this.open();
  }

  async _login(token) {
    return this.request('api/login', {method: 'POST', body: JSON.stringify({token}), headers: {'Content-Type': 'application/json'}});
  }

  /** Load the state, and follow its changes. */
  async open() {
    this.close();
    try {
      this.session = await this.request('api/session');
      await this.load(Math.max(this.model.window, this.wanted || 3600));
    } catch (error) { return this._lose(error); }
    const source = this.source = new EventSource('api/stream');
    this.heard = Date.now();
    source.addEventListener('delta', event => {
      this.heard = Date.now();
      this.model.apply(JSON.parse(event.data));
      this._set(this.model.header.connected ? 'live' : 'lost', this.model.header.lost_why);
    });
    source.addEventListener('reset', () => this.load(this.model.window).catch(error => this._lose(error)));
    source.onerror = () => { if (this.source === source) this._lose(new Error('the dashboard does not answer')); };
  }

  /** Load the jobs of a window of time, seconds. */
  async load(window) {
    this.model.load(await this.request(`api/snapshot?window=${window}`));
    this._set(this.model.header.connected ? 'live' : 'lost', this.model.header.lost_why);
  }

  /** Make sure that jobs of a window are there. */
  need(window) {
    this.wanted = window;
    if (this.model.loaded && window > this.model.window) this.load(window).catch(error => this._lose(error));
  }

  async request(path, options = {}) {
    const response = await fetch(path, {credentials: 'same-origin', ...options});
    const answer = await response.json().catch(() => ({error: `the answer is not JSON (${response.status})`}));
    if (response.status === 401) throw new LoginNeeded(answer.error);
    if (!response.ok) throw new Error(answer.error || `the request failed (${response.status})`);
    return answer;
  }

  /** Ask for an action; return the server's message. */
  async act(path, fields = {}) {
    const headers = {'Content-Type': 'application/json', 'X-Pliant-CSRF': this.session?.csrf || ''};
    return (await this.request(path, {method: 'POST', headers, body: JSON.stringify(fields)})).message;
  }

  get mayAct() { return this.session?.role === 'operator' && this.state === 'live'; }

  close() {
    if (this.source) this.source.close();
    this.source = null;
    clearTimeout(this.retry);
  }

  _lose(error) {
    this.close();
    const login = error instanceof LoginNeeded;
    this._set(login ? 'login' : 'lost', error.message);
    if (!login) this.retry = setTimeout(() => this.open(), RETRY_MS);
  }

  _set(state, why = '') {
    if (state !== this.state) this.since = Date.now();
    this.state = state;
    this.why = why;
    this.changed();
  }

  _watchSilence() {
    if (this.source && this.state !== 'login' && Date.now() - this.heard > SILENCE_MS) this._lose(new Error('the dashboard is silent'));
  }

  _visibility() {
    clearTimeout(this.hide);
    if (document.hidden) this.hide = setTimeout(() => this.close(), HIDDEN_MS);
    else if (!this.source && this.state === 'live') this.open();
  }
}
