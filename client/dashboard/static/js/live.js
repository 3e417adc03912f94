// The connection to the dashboard's process: session, snapshot, stream, requests.

const RETRY_MS = 2000;
const HIDDEN_MS = 60000;
const SILENCE_MS = 10000;
// Where the key of the session is kept: a storage that other ports of the host cannot read.
const KEY = 'key';

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
    const session = await this.request('api/login', {method: 'POST', body: JSON.stringify({token}), headers: {'Content-Type': 'application/json'}});
    localStorage.setItem(KEY, session.csrf);
    return session;
  }

  /** Load the state, and follow its changes. */
  async open() {
    this.close();
    const source = this.source = new AbortController();
    this.heard = Date.now();
    try {
      this.session = await this.request('api/session', {signal: source.signal});
      // The stream is there before the state is asked for, so no change in between is missed.
      const stream = await this._fetch('api/stream', {signal: source.signal});
      if (this.source !== source) return;
      this.load(Math.max(this.model.window, this.wanted || 3600));
      await this._follow(source, stream.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch (error) { if (this.source === source) this._lose(error); }
  }

  /** Apply the events of a stream until it ends. */
  async _follow(source, reader) {
    let rest = '';
    for (;;) {
      const {value, done} = await reader.read();
      if (done) throw new Error('the dashboard does not answer');
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        await this.loading;  // a state that is on its way may be older than this event
        if (this.source !== source) return;
        this.heard = Date.now();
        this._take(block);
      }
    }
  }

  _take(block) {
    const fields = Object.fromEntries(block.split('\n').map(line => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)]));
    if (fields.event === 'reset') this.load(this.model.window);
    if (fields.event !== 'delta') return;
    this.model.apply(JSON.parse(fields.data));
    this._set(this.model.header.connected ? 'live' : 'lost', this.model.header.lost_why);
  }

  /** Load the jobs of a window of time, seconds. Events of the stream wait until they are there. */
  load(window) {
    this.loading = this._load(window);
    this.loading.catch(error => this._lose(error));
  }

  async _load(window) {
    this.model.load(await this.request(`api/snapshot?window=${window}`));
    this._set(this.model.header.connected ? 'live' : 'lost', this.model.header.lost_why);
  }

  /** Make sure that jobs of a window are there. */
  need(window) {
    this.wanted = window;
    if (this.model.loaded && window > this.model.window) this.load(window);
  }

  async request(path, options = {}) {
    const response = await this._fetch(path, options);
    return response.json().catch(() => { throw new Error('the answer is not JSON'); });
  }

  async _fetch(path, options) {
    const headers = {'X-Pliant-CSRF': localStorage.getItem(KEY) || '', ...options.headers};
    const response = await fetch(path, {credentials: 'same-origin', ...options, headers});
    if (response.ok) return response;
    const answer = await response.json().catch(() => ({}));
    if (response.status === 401) throw new LoginNeeded(answer.error);
    throw new Error(answer.error || `the request failed (${response.status})`);
  }

  /** Ask for an action; return the server's message. */
  async act(path, fields = {}) {
    const headers = {'Content-Type': 'application/json'};
    return (await this.request(path, {method: 'POST', headers, body: JSON.stringify(fields)})).message;
  }

  get mayAct() { return this.session?.role === 'operator' && this.state === 'live'; }

  close() {
    if (this.source) this.source.abort();
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
