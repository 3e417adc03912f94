// Negotiations as conversations. Grouping is computation only: the tests run it in node.

import {bytes, capital, milliseconds} from './format.js';

const KEYS = [['resize', 'r'], ['number', 'q'], ['suspension', 's']];

/** Group the events of a job by the resize, request or suspension that they belong to. */
export function groupTalks(events) {
  const talks = [], byKey = new Map();
  for (const event of events) {
    const data = event.data || {}, found = KEYS.find(([name]) => data[name] != null);
    if (!found || event.kind === 'job.warning') continue;
    const key = found[1] + data[found[0]];
    let talk = byKey.get(key);
    if (!talk) { byKey.set(key, talk = {key, kind: found[1], time: event.time, events: []}); talks.push(talk); }
    talk.events.push(event);
  }
  for (const talk of talks) describe(talk);
  return talks;
}

function describe(talk) {
  const first = kind => talk.events.find(e => e.kind === kind);
  const answers = talk.events.filter(e => e.kind === 'offer.answered');
  talk.offer = first('offer.sent');
  talk.done = first('job.resized');
  talk.countered = answers.some(e => e.data.answer === 'COUNTER');
  if (talk.kind === 'q') {
    const closed = talk.events.find(e => /^request\.(granted|refused|cancelled|expired)$/.test(e.kind));
    talk.outcome = closed ? closed.kind.slice(8) : 'open';
  } else if (talk.kind === 's') talk.outcome = first('job.suspended') ? 'done' : first('suspend.failed') ? 'refused' : 'open';
  else talk.outcome = talk.done ? 'done' : first('resize.rolled_back') ? 'back' : first('offer.expired') ? 'expired'
    : answers.at(-1)?.data.answer === 'REJECT' ? 'rejected' : first('offer.declined') ? 'declined' : first('offer.withdrawn') ? 'withdrawn' : 'open';
}

/** Tone, icon and words of each outcome. */
export const OUTCOMES = {
  done: ['run', 'ok', 'Agreed and done'], rejected: ['bad', 'no', 'Refused'], refused: ['bad', 'no', 'Refused'],
  withdrawn: ['', 'no', 'Withdrawn'], expired: ['bad', 'no', 'No answer'], back: ['bad', 'no', 'Rolled back'],
  declined: ['wait', 'no', 'Counter-offer declined'], open: ['adapt', 'wait', 'In progress'],
  granted: ['run', 'ok', 'Granted'], cancelled: ['', 'no', 'Replaced by a later one'],
};

export function talkTitle(talk) {
  if (talk.kind === 's') return 'Suspension';
  if (talk.kind === 'q') return `Request ${talk.key.slice(1)} of the program`;
  const d = talk.offer?.data;
  if (!d) return 'Resize';
  return `${d.direction === 'release' ? 'Shrink' : 'Grow'} ${d.from} → ${talk.done ? talk.done.data.to : d.size}`;
}

/** Return the messages of a talk: {side: server|program, tone, words, note}. */
export function messages(talk, name) {
  const found = [], cost = talk.events.find(e => e.kind === 'offer.cost')?.data.seconds;
  for (const {kind, data: d, text} of talk.events) {
    if (kind === 'offer.sent' || kind === 'offer.repeated') {
      const cause = /\(([^)]*)\)/.exec(text);
      const words = d.direction === 'release' ? `Could you do with ${d.size} instead of ${d.from}?` : `Would ${d.size} instead of ${d.from} help you?`;
      found.push({side: 'server', words, note: ['Pliant', cause && cause[1], d.round > 1 && `round ${d.round}`, d.price && `price ${d.price}`]});
    } else if (kind === 'offer.answered') {
      const said = d.reason ? ` ${capital(d.reason)}.` : '', note = [name, d.seconds != null && `after ${milliseconds(d.seconds)}`, d.price && `price ${d.price}`];
      if (d.answer === 'ACCEPT') found.push({side: 'program', words: 'Yes.' + said, note: [...note, cost && `expects to lose ${milliseconds(cost)}`]});
      else if (d.answer === 'COUNTER') found.push({side: 'program', tone: 'counter', words: `Rather ${d.wanted || 'another size'}.${said}`, note});
      else found.push({side: 'program', tone: 'no', words: `No.${said}`, note});
    } else if (kind === 'request.received') found.push({side: 'program', words: capital(text.replace(/^request \d+: /, '')), note: [name]});
    else if (/^(offer\.(countered|declined|expired|withdrawn|escalated)|request\.(granted|refused|cancelled|expired)|suspend\.)/.test(kind)) found.push({side: 'server', words: capital(text.replace(/^request \d+: /, '')), note: ['Pliant']});
  }
  return found.map(m => ({...m, note: m.note.filter(Boolean).join(' · ')}));
}

/** Return what happened after the agreement, as short phrases. */
export function chain(talk) {
  const first = kind => talk.events.find(e => e.kind === kind), phrases = [];
  const prepared = first('resize.prepared'), go = first('resize.go'), begun = first('resize.begun'), back = first('resize.rolled_back');
  if (prepared?.data.seconds) phrases.push(`joining ranks ready in ${milliseconds(prepared.data.seconds)}, in the background`);
  if (go && begun) phrases.push(`safe point after ${milliseconds(begun.time - go.time)}`);
  const d = talk.done?.data;
  if (d?.seconds?.total != null) phrases.push(`paused ${milliseconds(d.seconds.total)}`);
  if (d?.bytes_moved) phrases.push(`${bytes(d.bytes_moved)} moved`);
  if (back) phrases.push(back.text);
  return phrases;
}
