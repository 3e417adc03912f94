// Building and updating the document. Texts of jobs become text nodes: nothing here parses HTML.

export const $ = (selector, root = document) => root.querySelector(selector);

/** Return an element: h('div.card', {title: 'x'}, child, 'text'). Null children are left out. */
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split('.');
  const element = document.createElement(name || 'div');
  if (classes.length) element.className = classes.join(' ');
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value == null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'style') Object.assign(element.style, value);
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(9).filter(c => c != null && c !== false)
    .map(c => (c.nodeType ? c : document.createTextNode(safe(c))));
}

/** Replace the children of an element. */
export const put = (element, ...children) => element.replaceChildren(...nodes(children));

/** Set a text if it is another one, so that a selection in it survives. */
export function setText(element, text) {
  const shown = safe(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** Update a list: elements whose key and signature are the same stay as they are, with their focus. */
export function list(parent, items, key, signature, render) {
  const before = new Map([...parent.children].map(e => [e.dataset.key, e]));
  const wanted = items.map(item => {
    const id = String(key(item)), sign = signature(item), old = before.get(id);
    if (old && old.dataset.sign === sign) return old;
    const fresh = render(item);
    fresh.dataset.key = id;
    fresh.dataset.sign = sign;
    if (old && old.contains(document.activeElement)) {
      const place = focusables(old).indexOf(document.activeElement);
      queueMicrotask(() => focusables(fresh)[place]?.focus());
    }
    return fresh;
  });
  const same = wanted.length === parent.children.length && wanted.every((e, i) => e === parent.children[i]);
  if (!same) parent.replaceChildren(...wanted);
}

const focusables = e => [...(e.matches('a,button') ? [e] : []), ...e.querySelectorAll('a,button,input')];

const SVG = 'http://www.w3.org/2000/svg';
const SHAPES = {
  run: [['path', {d: 'M5 3.2v9.6l7.6-4.8z', fill: 'currentColor', stroke: 'none'}]],
  wait: [['circle', {cx: 8, cy: 8, r: 5.6}], ['path', {d: 'M8 4.9V8l2 1.4'}]],
  hold: [['path', {d: 'M5.5 3.5v9M10.5 3.5v9'}]],
  adapt: [['path', {d: 'M5 13V3.5M2.6 6L5 3.4 7.4 6M11 3v9.5M8.6 10l2.4 2.6L13.4 10'}]],
  ok: [['path', {d: 'M3 8.5l3.3 3.3L13 4.8'}]],
  no: [['path', {d: 'M4 4l8 8M12 4l-8 8'}]],
  counter: [['path', {d: 'M8 2.4L13.6 8 8 13.6 2.4 8z'}]],
  ask: [['path', {d: 'M2.5 8h10M9 4.5L12.5 8 9 11.5'}]],
  warn: [['path', {d: 'M8 2.6l6 10.6H2zM8 6.6v3M8 11.4v.1'}]],
  stop: [['rect', {x: 4, y: 4, width: 8, height: 8, rx: 1}]],
  find: [['circle', {cx: 7, cy: 7, r: 4.4}], ['path', {d: 'M10.4 10.4L14 14'}]],
  sun: [['circle', {cx: 8, cy: 8, r: 3}],
    ['path', {d: 'M8 1.5v1.6M8 12.9v1.6M1.5 8h1.6M12.9 8h1.6M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M3.4 12.6l1.1-1.1M11.5 4.5l1.1-1.1'}]],
};

/** Return an icon. It is always next to a word, so screen readers skip it. */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  for (const [k, v] of Object.entries({class: 'icon', viewBox: '0 0 16 16', 'aria-hidden': 'true'})) svg.setAttribute(k, v);
  for (const [tag, attributes] of SHAPES[name] || SHAPES.ask) {
    const shape = document.createElementNS(SVG, tag);
    for (const [k, v] of Object.entries(attributes)) shape.setAttribute(k, v);
    svg.append(shape);
  }
  return svg;
}

const LONGEST = 2000;
// Control characters, and characters that change the direction of the text around them.
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Return a text in which control and direction characters are visible, cut at a length. */
export function safe(value, longest = LONGEST) {
  const text = String(value).replace(UNSAFE, c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
  return text.length > longest ? text.slice(0, longest - 1) + '…' : text;
}

/** Tell users of screen readers something once. */
export function say(text) { $('#say').textContent = safe(text); }

export const card = (title, sub, ...body) => h('section.card', {'aria-label': title},
  h('div.head', null, h('h2', null, title), sub), ...body);

/** Return buttons of which one is pressed. */
export const choice = (label, items, current, on) => h('div.choice', {role: 'group', 'aria-label': label},
  items.map(([value, text]) => h('button', {
    type: 'button', 'aria-pressed': String(value === current), onclick: () => on(value),
  }, text)));
