// Tests of the connection to the dashboard's process, with a server that answers when it is told to.
// Run by test_page_model.py.

import assert from 'node:assert/strict';
import {test} from 'node:test';

const at = process.env.PLIANT_PAGE;
const storage = new Map();
globalThis.document = {addEventListener() {}, hidden: false};
globalThis.localStorage = {getItem: key => storage.get(key) ?? null, setItem: (key, value) => storage.set(key, value)};
globalThis.location = {hash: '#login=token', pathname: '/', search: ''};
globalThis.history = {replaceState() { globalThis.location.hash = '#/'; }};
const interval = globalThis.setInterval;
globalThis.setInterval = (...given) => interval(...given).unref();
const {Live} = await import(`${at}/live.js`);
const {Model} = await import(`${at}/model.js`);

const header = {v: 1, seq: 1, now: 100, stats: {}, connected: true};
const job = state => ({id: 1, name: 'a', user: 'ann', state, sizes: '1', segments: [], marks: []});
const answer = value => new Response(JSON.stringify(value), {headers: {'Content-Type': 'application/json'}});

test('no change is lost between the state and the stream, and each request has the key', async () => {
  const asked = [], encoder = new TextEncoder();
  let stream, answerSnapshot;
  const send = (kind, value) => stream.enqueue(encoder.encode(`event: ${kind}\ndata: ${JSON.stringify(value)}\n\n`));
  const snapshots = [];
  globalThis.fetch = async (path, {headers}) => {
    asked.push([path.split('?')[0], headers['X-Pliant-CSRF']]);
    if (path === 'api/login') return answer({role: 'viewer', user: 'ann', csrf: 'secret'});
    if (path === 'api/session') return answer({role: 'viewer', user: 'ann'});
    if (path === 'api/stream') return new Response(new ReadableStream({start(controller) { stream = controller; }}));
    return new Promise(resolve => { snapshots.push(resolve); answerSnapshot?.(); });
  };
  const requested = count => new Promise(resolve => {
    answerSnapshot = () => { if (snapshots.length >= count) resolve(); };
    answerSnapshot();
  });
  const model = new Model();
  let waiting = null, loads = 0;
  const load = model.load.bind(model);
  model.load = state => { loads++; load(state); };
  const live = new Live(model, () => waiting?.());
  const until = condition => new Promise(resolve => { waiting = () => { if (condition()) resolve(); }; waiting(); });
  const snapshot = state => answer({...header, window: 3600, usable: [], nodes: [], events: [], jobs: [job(state)]});
  live.start();
  await requested(1);
  assert.deepEqual(asked.map(([path]) => path), ['api/login', 'api/session', 'api/stream', 'api/snapshot']);
  assert.deepEqual(asked.slice(1).map(([, key]) => key), ['secret', 'secret', 'secret']);
  send('delta', {...header, now: 102, jobs: [job('COMPLETED')]});  // arrives before the older state
  snapshots[0](snapshot('RUNNING'));
  await until(() => loads === 1 && model.header.now === 102);
  assert.equal(model.jobs.get(1).state, 'COMPLETED');
  send('reset', {});
  await requested(2);
  send('delta', {...header, now: 104, jobs: [job('FAILED')]});
  snapshots[1](snapshot('RUNNING'));
  await until(() => loads === 2 && model.header.now === 104);
  assert.equal(model.jobs.get(1).state, 'FAILED');
  assert.equal(live.state, 'live');
  live.close();
});
