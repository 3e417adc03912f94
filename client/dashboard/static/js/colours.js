// Colours from the style sheet, for canvases.

const NAMES = ['page', 'card', 'sunk', 'line', 'line2', 'ink', 'ink2', 'ink3', 'accent', 'ok', 'warn', 'bad', 'adapt', 'idle',
  ...Array.from({length: 10}, (_, k) => 'c' + k)];
export const COLOURS = {onHue: []};

/** Read the colours again, after the theme has changed. */
export function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of NAMES) COLOURS[name] = style.getPropertyValue('--' + name).trim();
  for (let k = 0; k < 10; k++) COLOURS.onHue[k] = luminance(COLOURS['c' + k]) > 0.18 ? '#000000' : '#ffffff';
}

export const hueOf = job => job.hue ?? (job.id * 3) % 10;
export const fillOf = job => COLOURS['c' + hueOf(job)];
export const cssColour = job => `var(--c${hueOf(job)})`;

function luminance(hex) {
  const n = parseInt(hex.slice(1), 16);
  const linear = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  return 0.2126 * linear(n >> 16) + 0.7152 * linear((n >> 8) & 255) + 0.0722 * linear(n & 255);
}
