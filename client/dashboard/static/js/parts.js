// Pieces that several pages share: states, the queue, nodes, sentences about events.

import {cssColour, COLOURS, hueOf} from './colours.js';
import {h, icon} from './dom.js';
import {STATES, bytes, capital, clock, duration, many, milliseconds, stateWord} from './format.js';
import {ACTIVE} from './model.js';

export function chip(state) {
  const [image, word, tone] = STATES[state] || ['ask', stateWord(state), ''];
  return h('span.chip' + (tone ? '.' + tone : ''), null, icon(image), word);
}

export const swatch = (job) => h('span.swatch', {style: {background: ACTIVE.has(job.state) ? cssColour(job) : 'var(--line2)', marginRight: '8px'}});
export const jobLink = (job, id) => h('a.link', {href: `#/jobs/${id}`}, job ? `${id} ${job.name}` : `job ${id}`);

export const nodeTone = state => (state === 'LOST' ? 'bad' : state === 'UP' || state === 'SPARE' ? '' : 'wait');
export const nodeIcon = state => (state === 'UP' ? 'ok' : state === 'LOST' ? 'no' : 'warn');

/** Return when a waiting job starts, in words. "start unknown" is an honest answer. */
export function startWords(job, now) {
  if (job.reserved) return job.donors?.length ? `freed by ${job.donors.join(', ')}` : 'being freed';
  if (job.forecast == null) return 'start unknown';
  return job.forecast <= now ? 'next' : `about ${clock(job.forecast, false)}`;
}

export function queueItem(job, place, now, lateAfter) {
  const waits = job.state === 'PENDING', since = waits ? now - job.submit : 0;
  const wait = waits ? `waited ${duration(since)}` : `since ${clock(job.submit)}`;
  return h('li', null, h('a', {href: `#/jobs/${job.id}`},
    h('div.first', null, h('span.place', null, place), h('span.name', null, h('span.number', null, `${job.id} `), job.name),
      h('span.when', null, waits ? startWords(job, now) : chip(job.state))),
    h('div.more', null, `wants ${job.sizes} · `, h('span', {class: since > lateAfter ? 'late' : ''}, wait), job.reason ? h('div', null, job.reason) : null)));
}

export function nodeCard(node, byProcessor, dim) {
  const tone = nodeTone(node.state), slots = Array.from({length: node.slots}, (_, k) => byProcessor.get(node.first + k));
  const described = slots.map((job, k) => (job ? `slot ${k}: job ${job.id} ${job.name}` : `slot ${k}: idle`)).join(', ');
  return h('a.node' + (tone ? '.' + tone : ''), {href: `#/nodes/${encodeURIComponent(node.name)}`,
    'aria-label': `${node.name}, ${node.state.toLowerCase()}${node.reason ? `: ${node.reason}` : ''}; ${described}`},
  h('header', null, node.name, h('span', null, icon(nodeIcon(node.state)), node.state.toLowerCase())),
  h('div.slots', {'aria-hidden': 'true'}, slots.map(job => (job
    ? h('div.slot', {style: {background: cssColour(job), color: COLOURS.onHue[hueOf(job)], opacity: dim?.(job) ? 0.3 : 1}}, job.id)
    : h('div.slot' + (node.state === 'UP' ? '.idle' : '.off'), null, node.state === 'UP' ? 'idle' : '')))),
  node.reason ? h('p', null, node.reason) : null);
}

/** Return the tone and the words of an event. */
export function sentence(event, model) {
  const d = event.data || {}, kind = event.kind, job = event.job != null ? model.jobs.get(event.job) : null;
  const who = event.job != null ? jobLink(job, event.job) : '', note = words => h('span.muted', null, words ? ` – ${words}` : '');
  switch (kind) {
    case 'offer.answered':
      if (d.answer === 'REJECT') return ['no', [who, ` refused ${many(d.size, 'processor')}`, note(d.reason)]];
      if (d.answer === 'COUNTER') return ['counter', [who, ` would rather have ${d.wanted || 'another size'}`, note(d.reason)]];
      return ['ok', [who, ` agreed to ${many(d.size, 'processor')}`]];
    case 'job.resized': {
      const total = d.seconds?.total;
      const parts = [total != null && `paused ${milliseconds(total)}`, d.bytes_moved && `${bytes(d.bytes_moved)} moved`, d.cause];
      return ['adapt', [who, d.direction === 'grow' ? ' grew ' : ' shrank ', h('b', null, `${d.from} → ${d.to}`), note(parts.filter(Boolean).join(', '))]];
    }
    case 'job.started': return ['ask', [who, ` started on ${many((d.processors || []).length, 'processor')}`]];
    case 'job.submitted': return ['ask', [who, ` was submitted by ${d.user || '?'}, sizes ${d.sizes || '?'}`]];
    case 'job.ended': return [d.state === 'COMPLETED' ? 'ok' : d.state === 'CANCELLED' ? 'ask' : 'no', [who, ` ${stateWord(d.state).toLowerCase()}`, note(d.state === 'COMPLETED' ? '' : event.text)]];
    case 'node.state': return [d.state === 'LOST' ? 'no' : d.state === 'UP' ? 'ok' : 'counter', [capital(event.text)]];
    case 'resize.rolled_back': case 'offer.expired': return ['no', [who, ' ', event.text]];
    default: return ['ask', [who, who ? ' ' : '', event.text]];
  }
}

export const TONE_ICON = {ok: 'ok', no: 'no', counter: 'counter', ask: 'ask', adapt: 'adapt'};
const TALKS = new Set(['job.resized', 'job.ended', 'node.state', 'job.survived', 'resize.rolled_back', 'offer.expired',
  'offer.withdrawn', 'offer.escalated', 'strategy.failed', 'strategy.replaced', 'node.warning', 'job.warning',
  'job.suspended', 'request.granted', 'request.refused', 'plan.refused']);
export const isTalk = event => TALKS.has(event.kind) || (event.kind === 'offer.answered' && event.data.answer !== 'ACCEPT');

export function eventItem(event, model) {
  const [tone, words] = sentence(event, model);
  return h('li', null, h('time', {title: new Date(event.time * 1000).toISOString()}, clock(event.time)),
    h('span.tone.' + tone, null, icon(TONE_ICON[tone])), h('span', null, words));
}
