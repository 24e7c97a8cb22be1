// Functions with which cards make HTML elements and find the elements of page.html. Text from files of a run never
// becomes HTML, because make() adds text as text nodes.

const find = (id) => document.getElementById(id);

// Makes an element. Children that are strings become text nodes.
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'style') {
      Object.assign(element.style, value);
    } else if (name in element && name !== 'list') {
      element[name] = value;
    } else {
      element.setAttribute(name, value);
    }
  }
  const isThere = (child) => child !== null && child !== undefined && child !== '';
  element.append(...children.filter(isThere));
  return element;
}

// Make the texts of a card: a `sentence` in place of the figures, a text below the figures (`after`), and a `banner` or
// a `warning` above the figures.
const sentence = (...words) => make('p', {className: 'empty'}, ...words);
const after = (...words) => make('p', {className: 'after'}, ...words);
const banner = (words) => make('p', {className: 'banner'}, words);
const warning = (words) => make('p', {className: 'banner warn'}, words);
const mono = (text) => make('span', {className: 'mono'}, text);
const dot = (colour) => make('span', {className: 'dot', style: {background: colour}});

// Makes an entry of a list that explains what the colours mean.
const key = (colour, share, words) => make('li', {}, dot(colour), make('b', {}, share), words);

// Makes a bar that is filled up to `share`.
function track(tag, properties, share, colour) {
  const width = `${100 * Math.min(1, Math.max(0, Number.isFinite(share) ? share : 0))}%`;
  const style = colour ? {width, background: colour} : {width};
  return make(tag, properties, make('span', {style}));
}

// Makes a bar with a text to its right.
function meter(share, text, colour) {
  return make('div', {}, track('i', {}, share, colour), make('b', {}, text));
}

// Makes a bar of parts side by side. A part is [words, colour, value, text], and a value of `total` fills the bar.
function stack(properties, parts, total) {
  const shown = parts.filter(([, , value]) => value > 0);
  return make('div', properties, ...shown.map(([words, colour, value, text]) => {
    const style = {background: colour, flex: `${value / total} 1 0`};
    return make('span', {title: `${words}: ${text}`, style});
  }));
}

// Makes a table. A column is [title, cell] or [title, cell, kind], where cell(row) is text or an element, and `kind` is
// the CSS class of the column's cells, such as 'number'. decorate(line, row) is called for each row. Each cell has the
// title of its column, which narrow screens show beside the cell (page.css).
function table(columns, rows, decorate = () => {}) {
  const titles = columns.map(([title, , kind]) => make('th', {className: kind || ''}, title));
  const lines = rows.map((row) => {
    const line = make('tr', {}, ...columns.map(([title, cell, kind]) => {
      const content = cell(row);
      const isEmpty = content === undefined || content === '';
      const words = typeof title === 'string' ? title : title.textContent;
      return make('td', {className: kind || '', 'data-title': words}, isEmpty ? '–' : content);
    }));
    decorate(line, row);
    return line;
  });
  const head = make('thead', {}, make('tr', {}, ...titles));
  return make('table', {}, head, make('tbody', {}, ...lines));
}

// Fills a <select> with options that have these values and texts, and selects the value `chosen`. Hides the <select> if
// there are no values.
function choose(select, values, texts, chosen) {
  select.hidden = values.length === 0;
  select.replaceChildren(...values.map((value, i) => {
    return make('option', {value: String(value), selected: value === chosen}, texts[i]);
  }));
}
