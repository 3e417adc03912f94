// Tests of the parts of the page that need no document. Run by test_page_model.py.

import assert from 'node:assert/strict';
import {test} from 'node:test';

const at = process.env.PLIANT_PAGE;
const {Model, held, holders, matches, ranges} = await import(`${at}/model.js`);
const {byStart, byUser, concurrency, jobsBetween, stack, usedLevels, waitLevels} = await import(`${at}/layout.js`);
const {chain, groupTalks, messages, talkTitle} = await import(`${at}/talks.js`);

const job = (id, segments, more = {}) => ({id, name: `job${id}`, user: 'ann', state: 'RUNNING', sizes: '1-8', submit: segments[0]?.[0] ?? 0, segments, marks: [], ...more});
const header = {v: 1, seq: 1, now: 100, stats: {}, connected: true};

test('changes replace jobs and nodes, and applying them twice does no harm', () => {
  const model = new Model();
  model.load({...header, window: 60, jobs: [job(1, [[10, null, 4, '0-3']])], nodes: [{name: 'n1', first: 0, slots: 4, state: 'UP'}], events: []});
  const changes = {...header, now: 101, jobs: [job(1, [[10, 50, 4, '0-3'], [50, null, 2, '0-1']]), job(2, [])], events: [{seq: 5, kind: 'x'}]};
  for (let k = 0; k < 2; k++) model.apply(changes);
  assert.equal(held(model.jobs.get(1)), 2);
  assert.equal(model.jobs.size, 2);
  assert.equal(model.events.length, 1);
  assert.equal(model.header.now, 101);
  model.apply({...header, gone: [2], nodes_removed: ['n1']});
  assert.deepEqual([...model.jobs.keys()], [1]);
  assert.equal(model.processors, 0);
});

test('ranges and holders', () => {
  assert.deepEqual(ranges('0-2,7'), [0, 1, 2, 7]);
  assert.deepEqual(ranges(''), []);
  assert.deepEqual([...holders([job(1, [[0, null, 2, '3-4']]), job(2, [[0, 5, 1, '9']])]).keys()], [3, 4]);
});

test('a band changes its height when a job is resized, and lies above older jobs', () => {
  const jobs = [job(1, [[0, 50, 4, ''], [50, null, 2, '']]), job(2, [[50, null, 2, '']])];
  const [first, second] = stack(jobs, 0, 100, 100, 0);
  assert.deepEqual(first, [{a: 0, b: 50, bottom: 0, height: 4}, {a: 50, b: 100, bottom: 0, height: 2}]);
  assert.deepEqual(second, [{a: 50, b: 100, bottom: 2, height: 2}]);
});

test('bands never overlap and their sum is what is held', () => {
  let seed = 7;
  const random = n => (seed = (seed * 16807) % 2147483647) % n;
  const jobs = [];
  for (let id = 1; id <= 60; id++) {
    const segments = [];
    let t = random(800);
    for (let k = 0; k <= random(4); k++) { const end = t + 1 + random(80); segments.push([t, end, 1 + random(8), '']); t = end + (random(3) ? 0 : random(20)); }
    jobs.push(job(id, segments));
  }
  const shown = byStart(jobsBetween(jobs, 100, 900, 1000)), pieces = stack(shown, 100, 900, 1000, 0);
  for (let t = 100.5; t < 900; t++) {
    const here = pieces.flat().filter(p => p.a <= t && t < p.b).sort((a, b) => a.bottom - b.bottom);
    let base = 0;
    for (const p of here) { assert.equal(p.bottom, base); base += p.height; }
    const expected = shown.flatMap(j => j.segments).filter(([a, b]) => a <= t && t < b).reduce((sum, s) => sum + s[2], 0);
    assert.equal(base, expected);
  }
});

test('jobs of many users become areas with the same sum', () => {
  const jobs = [job(1, [[0, 10, 4, '']]), job(2, [[5, 10, 2, '']], {user: 'bob'})];
  const users = byUser(jobs, 0, 10, 10, 10);
  assert.deepEqual(users.map(u => u.user), ['ann', 'bob']);
  assert.equal(users[0].level[3] + users[1].level[3], 4);
  assert.equal(users[0].level[7] + users[1].level[7], 6);
  assert.equal(concurrency(jobs, 0, 10, 10), 2);
});

test('use and waiting over time', () => {
  const jobs = [job(1, [[10, 20, 4, '']], {submit: 4}), job(2, [], {submit: 12, state: 'PENDING'})];
  const runs = levels => levels.reduce((found, v, k) => (k && v === levels[k - 1] ? found : [...found, [k, v]]), []);
  assert.deepEqual(runs(usedLevels(jobs, 0, 30, 30, 30)), [[0, 0], [10, 4], [20, 0]]);
  assert.deepEqual(runs(waitLevels(jobs, 0, 30, 30, 30)), [[0, 0], [4, 1], [10, 0], [12, 1]]);
  assert.equal(usedLevels([job(1, [[10, null, 4, '']])], 0, 30, 30, 30).at(-1), 4);
});

test('jobs that follow each other are not concurrent', () => {
  assert.equal(concurrency([job(1, [[0, 10, 1, '']]), job(2, [[10, 20, 1, '']]), job(3, [[5, 15, 1, '']])], 0, 20, 20), 2);
});

test('search', () => {
  const one = job(17, [[0, null, 1, '2']], {name: 'Heat', user: 'ada'}), place = new Map([[2, {name: 'n3'}]]);
  for (const query of ['17', 'heat', 'user:ada', 'node:n3', 'state:run heat']) assert.ok(matches(one, query, place), query);
  for (const query of ['18', 'user:ad', 'node:n1', 'state:failed']) assert.ok(!matches(one, query, place), query);
});

const event = (kind, data, text = '', time = 0) => ({seq: 1, kind, data, text, time});

test('a negotiation reads as a conversation', () => {
  const [talk] = groupTalks([
    event('offer.sent', {resize: 3, direction: 'release', from: 3, size: 1, round: 1}, 'offered 1 processor instead of 3 (equipartition, for job 5)'),
    event('offer.answered', {resize: 3, answer: 'COUNTER', size: 1, wanted: '2', seconds: 0.004}),
    event('resize.go', {resize: 3}, '', 1), event('resize.begun', {resize: 3}, '', 1.5),
    event('job.resized', {resize: 3, from: 3, to: 2, seconds: {total: 0.02}, bytes_moved: 2048}),
  ]);
  assert.equal(talkTitle(talk), 'Shrink 3 → 2');
  assert.deepEqual([talk.outcome, talk.countered], ['done', true]);
  assert.deepEqual(messages(talk, 'heat').map(m => [m.side, m.words]), [['server', 'Could you do with 1 instead of 3?'], ['program', 'Rather 2.']]);
  assert.deepEqual(chain(talk), ['safe point after 500 ms', 'paused 20 ms', '2.0 KiB moved']);
});

test('refusals have their reason', () => {
  const [talk] = groupTalks([event('offer.sent', {resize: 1, direction: 'grow', from: 1, size: 2}), event('offer.answered', {resize: 1, answer: 'REJECT', size: 2, reason: 'too late'})]);
  assert.equal(talk.outcome, 'rejected');
  assert.equal(messages(talk, 'x')[1].words, 'No. Too late.');
});

test('a day of 12,000 jobs is drawn by user', () => {
  const jobs = [];
  for (let id = 0; id < 12000; id++) { const t = id * 7; jobs.push(job(id, [[t, t + 300, 4, ''], [t + 300, t + 700, 8, '']], {user: `u${id % 9}`})); }
  const shown = jobsBetween(jobs, 0, 86400, 86400);
  assert.ok(concurrency(shown, 0, 86400, 86400) > 60);
  assert.equal(byUser(shown, 0, 86400, 86400, 1000).length, 9);
});
