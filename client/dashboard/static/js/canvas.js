// What all pictures share: the canvas, the time axis, marks and labels.

import {COLOURS} from './colours.js';
import {clock} from './format.js';

export const FONT = '12px Inter, system-ui, sans-serif';
export const BOLD = '550 12px Inter, system-ui, sans-serif';
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Prepare a canvas of a height; return its context and width. */
export function begin(canvas, height) {
  const width = canvas.clientWidth || canvas.parentNode.clientWidth, ratio = Math.min(2, devicePixelRatio || 1);
  const w = Math.round(width * ratio), hh = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== hh) {
    canvas.width = w;
    canvas.height = hh;
    canvas.style.height = height + 'px';
  }
  const c = canvas.getContext('2d');
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  c.font = FONT;
  c.textBaseline = 'middle';
  return [c, width];
}

/** Return the scale from times to places. */
export function timeScale(t0, t1, left, right) {
  const per = (right - left) / (t1 - t0);
  return {t0, t1, left, right, x: t => left + (t - t0) * per, seconds: 1 / per};
}

export function timeAxis(c, scale, top, bottom, labels = true) {
  const wanted = (scale.t1 - scale.t0) / Math.max(2, (scale.right - scale.left) / 110);
  const step = STEPS.find(s => s >= wanted) || 86400;
  const zone = new Date(scale.t1 * 1000).getTimezoneOffset() * 60;
  c.lineWidth = 1;
  for (let local = Math.ceil((scale.t0 - zone) / step) * step; local <= scale.t1 - zone; local += step) {
    const x = Math.round(scale.x(local + zone)) + 0.5;
    if (x < scale.left) continue;
    line(c, x, top, x, bottom, COLOURS.line);
    if (labels && x > scale.left + 18 && x < scale.right - 20) text(c, clock(local + zone, step < 60), x, bottom + 11, COLOURS.ink3, 'center');
  }
}

/** Return a round step for an axis of amounts. */
export function niceStep(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= value && s % 1 === 0) || 10 * power;
}

export function line(c, x0, y0, x1, y1, colour, width = 1) {
  c.strokeStyle = colour;
  c.lineWidth = width;
  c.beginPath();
  c.moveTo(x0, y0);
  c.lineTo(x1, y1);
  c.stroke();
}

export function text(c, words, x, y, colour, align = 'left', font = FONT) {
  c.font = font;
  c.fillStyle = colour;
  c.textAlign = align;
  c.fillText(words, x, y);
  c.font = FONT;
}

/** Write a label if at least a few letters of it fit. */
export function label(c, words, x, y, width, colour) {
  c.font = BOLD;
  let shown = words;
  while (shown.length > 3 && c.measureText(shown === words ? shown : shown + '…').width > width - 8) shown = shown.slice(0, -1);
  const fits = shown.length > 3 || shown === words && c.measureText(shown).width <= width - 8;
  if (fits) text(c, shown === words ? shown : shown + '…', x, y, colour, 'left', BOLD);
  c.font = FONT;
  return fits;
}

export function hatch(c, x, y, width, height, colour) {
  if (width <= 0 || height <= 0) return;
  c.save();
  c.beginPath();
  c.rect(x, y, width, height);
  c.clip();
  c.strokeStyle = colour;
  c.lineWidth = 1;
  c.beginPath();
  for (let k = -height; k < width; k += 6) {
    c.moveTo(x + k, y + height);
    c.lineTo(x + k + height, y);
  }
  c.stroke();
  c.restore();
}

const TONES = {refused: 'bad', counter: 'warn', accepted: 'ok', withdrawn: 'ink3'};

/** Draw the mark of a negotiation that went another way than it was offered. */
export function mark(c, x, y, kind) {
  c.save();
  c.lineWidth = 1.6;
  c.fillStyle = COLOURS.card;
  c.strokeStyle = COLOURS[TONES[kind] || 'ink3'];
  c.beginPath();
  if (kind === 'counter') {
    c.moveTo(x, y - 6); c.lineTo(x + 6, y); c.lineTo(x, y + 6); c.lineTo(x - 6, y);
    c.closePath();
  } else c.arc(x, y, 6, 0, 7);
  c.fill();
  c.stroke();
  c.beginPath();
  if (kind === 'refused') { c.moveTo(x - 2.4, y - 2.4); c.lineTo(x + 2.4, y + 2.4); c.moveTo(x + 2.4, y - 2.4); c.lineTo(x - 2.4, y + 2.4); }
  else if (kind === 'accepted') { c.moveTo(x - 2.8, y + 0.2); c.lineTo(x - 0.6, y + 2.3); c.lineTo(x + 3, y - 2.2); }
  else if (kind === 'withdrawn') { c.moveTo(x - 2.4, y); c.lineTo(x + 2.4, y); }
  c.stroke();
  c.restore();
}

/** Shade what lies in the future. */
export function nowLine(c, scale, now, top, bottom) {
  if (now > scale.t1) return;
  const x = scale.x(now);
  c.globalAlpha = 0.75;
  c.fillStyle = COLOURS.sunk;
  c.fillRect(x, top, scale.right - x, bottom - top);
  c.globalAlpha = 1;
  line(c, x, top - 3, x, bottom, COLOURS.accent, 1.5);
}

/** Draw levels, one for each pixel from `left` on, as a line over a filled area. */
export function stepArea(c, left, levels, y, bottom, colour) {
  c.beginPath();
  c.moveTo(left, y(levels[0]));
  for (let k = 1; k < levels.length; k++) {
    if (levels[k] === levels[k - 1]) continue;
    c.lineTo(left + k, y(levels[k - 1]));
    c.lineTo(left + k, y(levels[k]));
  }
  c.lineTo(left + levels.length - 1, y(levels[levels.length - 1]));
  c.strokeStyle = c.fillStyle = colour;
  c.lineWidth = 1.5;
  c.stroke();
  c.lineTo(left + levels.length - 1, bottom);
  c.lineTo(left, bottom);
  c.closePath();
  c.globalAlpha = 0.18;
  c.fill();
  c.globalAlpha = 1;
}
