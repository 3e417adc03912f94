// Arranges jobs from stdin as the live page does; test_page_layout.py compares the result with Python's.

import {readFileSync} from 'node:fs';

const layout = await import(`${process.env.PLIANT_PAGE}/layout.js`);
const {MAX_BANDS, MAX_USERS, MIN_WIDTH, MERGED, OUTLINED, STEP_WIDTH, MARK_DISTANCE, MAX_MARKS} = layout;
const found = JSON.parse(readFileSync(0, 'utf8')).map(({jobs, start, end, now, pixel}) => {
  const shown = layout.byStart(layout.jobsBetween(jobs, start, end, now));
  const merged = layout.mergeShort(shown, start, end, now, pixel * MIN_WIDTH);
  const pieces = layout.stack(merged, start, end, now, pixel * MERGED);
  return {
    order: shown.map(job => job.id),
    concurrency: layout.concurrency(shown, start, end, now),
    merged: merged.map(job => [job.id, job.segments.map(([a, b, n]) => [a, b, n])]),
    pieces: pieces.map(own => own.map(p => [p.a, p.b, p.bottom, p.height])),
    outlined: pieces.map(own => layout.isOutlined(own, 1 / pixel, 3)),
    users: layout.byUser(shown, start, end, now, 50).map(row => [row.user, row.users, [...row.level]]),
    marks: layout.chooseMarks(jobs.map(job => [job.id * 7 % 200, job.segments.length * 5, job.id % 3 ? 'counter' : 'refused'])),
  };
});
console.log(JSON.stringify({found, constants: {MAX_BANDS, MAX_USERS, MIN_WIDTH, MERGED, OUTLINED, STEP_WIDTH, MARK_DISTANCE, MAX_MARKS}}));
