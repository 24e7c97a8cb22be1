// Charts on canvases: lines with the interval from the least to the greatest value of each column, and stacked shares.
// The charts of a group share their x: a place that the pointer shows in one is shown in all, and so is a part into
// which the user zooms by dragging.
//
// A chart reads no data by itself and makes no HTML from text.
'use strict';

// Numbers as text.
const Text = {
  // Four significant digits.
  number(value) {
    if (!Number.isFinite(value)) return '–';
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e7)) {
      return value.toExponential(2).replace(/\.?0+e/, 'e').replace('e+', 'e');
    }
    if (size >= 1000) return Math.round(value).toLocaleString('en-US');
    return String(Number(value.toPrecision(4)));
  },
  percent(value) {
    if (!Number.isFinite(value)) return '–';
    const percent = 100 * value;
    return `${percent !== 0 && Math.abs(percent) < 1 ? Number(percent.toPrecision(1)) : Math.round(percent)}\u00a0%`;
  },
  bytes(value) {
    if (!Number.isFinite(value)) return '–';
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit + 1 < units.length) {
      value /= 1024;
      ++unit;
    }
    return `${Number(value.toPrecision(3))}\u00a0${units[unit]}`;
  },
  duration(seconds) {
    if (!Number.isFinite(seconds)) return '–';
    if (seconds < 60) return `${Number(seconds.toPrecision(3))}\u00a0s`;
    const minutes = Math.floor(seconds / 60);
    const two = (number) => String(number).padStart(2, '0');
    const both = (large, unit, small, smaller) => `${large}${unit}${small > 0 ? `${two(small)}${smaller}` : ''}`;
    if (minutes < 60) return both(minutes, 'm', Math.floor(seconds % 60), 's');
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? both(hours, 'h', minutes % 60, 'm') : both(Math.floor(hours / 24), 'd', hours % 24, 'h');
  },
  withUnit: (unit) => (value) => (Number.isFinite(value) ? `${Text.number(value)}\u00a0${unit}` : '–'),
};

// Places for ticks.
const Ticks = {
  // About `count` round numbers from `low` to `high`.
  linear(low, high, count) {
    const rough = (high - low) / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(rough));
    const share = rough / power;
    const step = power * (share < 1.45 ? 1 : share < 3.2 ? 2 : share < 7.2 ? 5 : 10);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) {
      ticks.push(Number((i * step).toPrecision(12)));
    }
    return ticks;
  },
  // Round numbers of bytes.
  bytes(low, high, count) {
    const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(high, 1)) / Math.log(1024)));
    return Ticks.linear(low / unit, high / unit, count).map((tick) => tick * unit);
  },
  // Decades, and between few of them further numbers.
  logarithmic(low, high, count) {
    const first = Math.floor(Math.log10(low));
    const last = Math.ceil(Math.log10(high));
    const decades = Math.log10(high / low);
    const bases = decades <= 2 ? [1, 2, 5] : decades <= 4 ? [1, 3] : [1];
    const every = Math.max(1, Math.ceil((last - first) / count));
    const ticks = [];
    for (let power = first; power <= last; ++power) {
      for (const base of bases) {
        const tick = base * 10 ** power;
        if (tick >= low * 0.999 && tick <= high * 1.001 && (bases.length > 1 || (power - first) % every === 0)) {
          ticks.push(tick);
        }
      }
    }
    return ticks.length > 1 ? ticks : Ticks.linear(low, high, count);
  },
  steps: (low, high, count) => Ticks.linear(low, high, count).filter(Number.isInteger),
  time(low, high, count) {
    const rough = (high - low) / Math.max(1, count);
    const step = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400,
      172800, 432000].find((seconds) => seconds >= rough * 0.7);
    if (rough < 1 || !step) return Ticks.linear(low, high, count);
    const ticks = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push(at);
    return ticks;
  },
};

// What stands below charts.
const Axes = {
  step: { ticks: Ticks.steps, text: (value) => Math.round(value).toLocaleString('en-US'), name: 'step' },
  time: { ticks: Ticks.time, text: Text.duration, name: 'trained for' },
};

// How charts show values: always from `low`, always up to `high`, and at least up to `most`.
const Units = {
  number: { text: Text.number, ticks: Ticks.linear },
  count: { text: Text.number, ticks: Ticks.linear, low: 0 },
  share: { text: Text.percent, ticks: Ticks.linear, low: 0, high: 1 },
  part: { text: Text.percent, ticks: Ticks.linear, low: 0, most: 0.1 },
  bytes: { text: Text.bytes, ticks: Ticks.bytes, low: 0 },
  watt: { text: Text.withUnit('W'), ticks: Ticks.linear, low: 0 },
  celsius: { text: Text.withUnit('°C'), ticks: Ticks.linear },
  megahertz: { text: Text.withUnit('MHz'), ticks: Ticks.linear, low: 0 },
};

// Makes an element. Children that are text stay text.
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'style') Object.assign(element.style, value);
    else if (name in element && name !== 'list') element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ''));
  return element;
}

// Returns the index of the last number of `list` that is not greater than `value`; -1 if there is none.
function indexBelow(list, value) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// Returns the index of the number of `list` that is nearest to `value`; -1 if the list is empty.
function indexNearest(list, value) {
  const below = indexBelow(list, value);
  if (below < 0) return list.length > 0 ? 0 : -1;
  if (below + 1 >= list.length) return below;
  return value - list[below] <= list[below + 1] - value ? below : below + 1;
}

// Returns an exponential mean of the values, without the weight that its beginning would give to zero.
function smoothed(values, weight) {
  if (weight <= 0) return values;
  let mean = 0;
  let scale = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    scale = weight * scale + (1 - weight);
    return mean / scale;
  });
}

// What the charts of a group have in common.
class Group {
  constructor(axis) {
    this.axis = axis; // one of Axes
    this.zoom = null; // [from, to], or null for everything
    this.at = null; // the x below the pointer
    this.smoothing = 0;
    this.charts = [];
    this.onZoom = () => {};
  }

  pointAt(x) {
    this.at = x;
    for (const chart of this.charts) chart.drawPointer();
  }

  zoomTo(range) {
    this.zoom = range;
    this.draw();
    this.onZoom(range);
  }

  draw() {
    for (const chart of this.charts) chart.draw();
  }
}

// The part of a chart that knows nothing of what is drawn in it: title, canvases, axes, pointer, zoom.
class Plot {
  constructor(host, group, { title, unit = Units.number, hasLog = false, label = title }) {
    this.group = group;
    this.unit = unit;
    this.label = label;
    this.isLog = false;
    this.now = make('span', { className: 'now' });
    this.own = make('span', { className: 'own' });
    this.canvas = make('canvas', { role: 'img' });
    this.overlay = make('canvas', { 'aria-hidden': 'true' });
    this.area = make('div', { className: 'plot' }, this.canvas, this.overlay);
    this.note = make('p', { className: 'note', hidden: true });
    this.empty = make('p', { className: 'empty', hidden: true });
    this.tip = make('div', { className: 'tip', hidden: true });
    this.figure = make('figure', { className: 'chart' },
      make('figcaption', {}, make('span', { className: 'name' }, title), this.now, this.own),
      this.empty, this.note, this.area, this.tip);
    if (hasLog) {
      const button = make('button', { 'aria-pressed': 'false', title: 'logarithmic scale' }, 'log');
      button.addEventListener('click', () => {
        this.isLog = !this.isLog;
        button.setAttribute('aria-pressed', String(this.isLog));
        this.draw();
      });
      this.own.append(button);
    }
    host.append(this.figure);
    group.charts.push(this);
    new ResizeObserver(() => this.draw()).observe(this.area);
    this.listen();
  }

  // Shows a sentence in place of the chart; none: the chart.
  say(sentence) {
    this.empty.textContent = sentence;
    this.empty.hidden = sentence === '';
    this.area.hidden = sentence !== '';
    this.own.hidden = sentence !== '';
  }

  listen() {
    let from = null; // where a selection began, in pixels
    const xOf = (event) => event.clientX - this.area.getBoundingClientRect().left;
    this.overlay.addEventListener('pointermove', (event) => {
      if (!this.box) return;
      this.selection = from === null ? null : [from, xOf(event)];
      this.pointerY = event.clientY - this.area.getBoundingClientRect().top;
      this.hasPointer = true;
      this.group.pointAt(this.xAt(xOf(event)));
    });
    const leave = () => {
      from = null;
      this.selection = null;
      this.hasPointer = false;
      this.group.pointAt(null);
    };
    this.overlay.addEventListener('pointerleave', leave);
    this.overlay.addEventListener('pointercancel', leave);
    this.overlay.addEventListener('pointerdown', (event) => {
      if (event.pointerType === 'touch' || event.button !== 0 || !this.box) return;
      from = xOf(event);
      this.overlay.setPointerCapture(event.pointerId);
    });
    this.overlay.addEventListener('pointerup', (event) => {
      const kLeastPixels = 5;
      const begin = from;
      from = null;
      this.selection = null;
      if (begin === null || Math.abs(xOf(event) - begin) < kLeastPixels) return;
      this.group.zoomTo([this.xAt(begin), this.xAt(xOf(event))].sort((a, b) => a - b));
    });
    this.overlay.addEventListener('dblclick', () => this.group.zoomTo(null));
  }

  colour(name) {
    return getComputedStyle(this.figure).getPropertyValue(name).trim();
  }

  // Makes the canvases as large as they are shown, and returns the context of `canvas`, emptied.
  context(canvas) {
    const { width, height } = this.size;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = '11px system-ui, sans-serif';
    return context;
  }

  xAt(pixel) {
    const { left, right } = this.box;
    const [low, high] = this.xRange;
    const share = Math.min(1, Math.max(0, (pixel - left) / (right - left)));
    return low + share * (high - low);
  }

  pixelOf(x) {
    const { left, right } = this.box;
    const [low, high] = this.xRange;
    return left + ((x - low) / (high - low)) * (right - left);
  }

  heightOf(y) {
    const { top, bottom } = this.box;
    const [low, high] = this.yRange;
    const share = this.isLog ? Math.log(y / low) / Math.log(high / low) : (y - low) / (high - low);
    return bottom - share * (bottom - top);
  }

  // Draws axes and grid for the ranges, and returns the context, in which only the inner part can be drawn.
  begin(xRange, yRange) {
    this.size = { width: this.area.clientWidth, height: this.area.clientHeight };
    const { width, height } = this.size;
    const context = this.context(this.canvas);
    const [low, high] = yRange;
    const kRowPixels = 34;
    const kColumnPixels = 84;
    const kLabelPixels = 18;
    const rows = Math.max(2, Math.floor((height - kLabelPixels) / kRowPixels));
    const ticks = (this.isLog ? Ticks.logarithmic : this.unit.ticks)(low, high, rows);
    const labels = ticks.map((tick) => this.unit.text(tick));
    const left = Math.ceil(Math.max(...labels.map((text) => context.measureText(text).width), 8)) + 8;
    this.box = { left, right: width - 6, top: 6, bottom: height - kLabelPixels };
    this.xRange = xRange;
    this.yRange = yRange;
    const { right, top, bottom } = this.box;
    context.strokeStyle = this.colour('--line');
    context.fillStyle = this.colour('--faint');
    context.lineWidth = 1;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    ticks.forEach((tick, i) => {
      const y = Math.round(this.heightOf(tick)) + 0.5;
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(right, y);
      context.stroke();
      context.fillText(labels[i], left - 6, y);
    });
    context.textBaseline = 'alphabetic';
    context.textAlign = 'center';
    const axis = this.group.axis;
    for (const tick of axis.ticks(xRange[0], xRange[1], Math.max(2, Math.floor((right - left) / kColumnPixels)))) {
      const text = axis.text(tick);
      const half = context.measureText(text).width / 2;
      const x = Math.min(right - half, Math.max(left + half, this.pixelOf(tick)));
      context.fillText(text, x, height - 4);
    }
    context.save();
    context.beginPath();
    context.rect(left, top - 3, right - left + 1, bottom - top + 4);
    context.clip();
    return context;
  }

  // Draws the line below the pointer and the part that is being selected. Returns the context; null if there is nothing
  // to point at.
  pointerContext() {
    this.tip.hidden = true;
    if (!this.box || this.area.hidden) return null;
    const context = this.context(this.overlay);
    const { left, right, top, bottom } = this.box;
    if (this.selection) {
      const [a, b] = this.selection.map((x) => Math.min(right, Math.max(left, x)));
      context.fillStyle = this.colour('--accent');
      context.globalAlpha = 0.12;
      context.fillRect(a, top, b - a, bottom - top);
      context.globalAlpha = 1;
    }
    if (this.group.at === null) return null;
    const x = this.pixelOf(this.group.at);
    if (x < left - 1 || x > right + 1) return null;
    context.strokeStyle = this.colour('--faint');
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, top);
    context.lineTo(Math.round(x) + 0.5, bottom);
    context.stroke();
    return context;
  }

  // Shows rows of [colour, name, value] beside the pointer, if it is in this chart.
  showTip(rows) {
    if (!this.hasPointer || rows.length === 0) return;
    this.tip.replaceChildren(
      make('div', { className: 'at' }, `${this.group.axis.name} ${this.group.axis.text(this.group.at)}`),
      ...rows.map(([colour, name, value]) => make('div', {},
        make('span', { className: 'what' }, make('span', { className: 'dot', style: { background: colour } }), name),
        make('span', {}, value))));
    this.tip.hidden = false;
    const kGap = 14;
    const x = this.area.offsetLeft + this.pixelOf(this.group.at);
    const isRight = x + kGap + this.tip.offsetWidth <= this.figure.clientWidth;
    const side = isRight ? x + kGap : Math.max(4, x - kGap - this.tip.offsetWidth);
    this.tip.style.left = `${side}px`;
    this.tip.style.top = `${this.area.offsetTop + Math.max(0, (this.pointerY || 0) - this.tip.offsetHeight / 2)}px`;
  }
}

// Lines. A line is {name, colour, isDashed, isFocused, x, mean, least, greatest}; x must ascend, values may be null.
class LineChart extends Plot {
  // `isOfParts`: the lines are parts of one thing, such as the GPUs of a machine, and not runs.
  constructor(host, group, { isOfParts = false, ...options }) {
    super(host, group, options);
    this.isOfParts = isOfParts;
    this.lines = [];
  }

  set(lines) {
    this.lines = lines;
    this.draw();
  }

  // The columns of a line that can be seen, with one more on each side.
  seen(line) {
    const zoom = this.group.zoom;
    if (!zoom) return [0, line.x.length];
    return [Math.max(0, indexBelow(line.x, zoom[0])), Math.min(line.x.length, indexBelow(line.x, zoom[1]) + 2)];
  }

  ranges() {
    let xLow = Infinity;
    let xHigh = -Infinity;
    let low = Infinity;
    let high = -Infinity;
    const isSmooth = this.group.smoothing > 0;
    for (const line of this.lines) {
      if (line.x.length === 0) continue;
      xLow = Math.min(xLow, line.x[0]);
      xHigh = Math.max(xHigh, line.x[line.x.length - 1]);
      const [begin, end] = this.seen(line);
      const bottoms = isSmooth || !line.least ? line.mean : line.least;
      const tops = isSmooth || !line.greatest ? line.mean : line.greatest;
      for (let i = begin; i < end; ++i) {
        if (bottoms[i] === null || (this.isLog && bottoms[i] <= 0)) continue;
        if (bottoms[i] < low) low = bottoms[i];
        if (tops[i] > high) high = tops[i];
      }
    }
    if (low > high) return null;
    // A line of one value stands in the middle.
    const x = this.group.zoom || (xHigh > xLow ? [xLow, xHigh] : [xLow - 1, xLow + 1]);
    if (this.isLog) return { x, y: low === high ? [low / 2, high * 2] : [low, high] };
    if (this.unit.low !== undefined) low = Math.min(low, this.unit.low);
    high = Math.max(high, this.unit.high ?? high, this.unit.most ?? high);
    if (low === high) return { x, y: low > 0 ? [0, low * 1.25] : low < 0 ? [low * 1.25, 0] : [-1, 1] };
    const edge = (high - low) * 0.04;
    const isBottom = low === this.unit.low;
    return { x, y: [isBottom ? low : low - edge, high === this.unit.high ? high : high + edge] };
  }

  draw() {
    if (this.area.hidden || this.area.clientWidth === 0) return;
    const ranges = this.ranges();
    this.box = null;
    if (!ranges) {
      this.size = { width: this.area.clientWidth, height: this.area.clientHeight };
      this.context(this.canvas);
      this.context(this.overlay);
      this.showNow([]);
      return;
    }
    const context = this.begin(ranges.x, ranges.y);
    context.lineJoin = 'round';
    const weight = this.group.smoothing;
    const isCrowded = this.lines.length > 3;
    for (const line of [...this.lines].sort((a, b) => Number(a.isFocused) - Number(b.isFocused))) {
      const [begin, end] = this.seen(line);
      context.strokeStyle = line.colour;
      context.fillStyle = line.colour;
      context.setLineDash(line.isDashed ? [5, 3] : []);
      if (line.least && weight === 0) {
        // Many intervals on top of each other must not hide what is below.
        const alpha = !isCrowded ? 0.3 : line.isFocused ? 0.2 : 0.5 / this.lines.length;
        this.drawInterval(context, line, begin, end, alpha);
      }
      context.lineWidth = line.isFocused || !isCrowded ? 1.6 : 1.1;
      if (weight > 0 && !isCrowded) {
        context.globalAlpha = 0.25;
        this.drawLine(context, line, line.mean, begin, end);
        context.globalAlpha = 1;
      }
      this.drawLine(context, line, smoothed(line.mean, weight), begin, end);
    }
    context.setLineDash([]);
    context.restore();
    this.canvas.setAttribute('aria-label', `${this.label}: ${this.lines.map((line) =>
      `${line.name} ${this.unit.text(this.lastOf(line))}`).join(', ')}`);
    this.drawPointer();
  }

  // A bar for each column of pixels, so that a spike of one column is as wide as a pixel. (To fill and stroke a polygon of
  // 2000 corners takes ten times as long.)
  drawInterval(context, line, begin, end, alpha) {
    context.globalAlpha = alpha;
    let left = -1;
    let right = -1;
    let low = 0;
    let high = 0;
    const put = () => {
      if (right > left) context.fillRect(left, high, right - left, Math.max(1, low - high));
    };
    for (let i = begin; i < end; ++i) {
      if (line.least[i] === null) continue;
      const x = this.pixelOf(line.x[i]);
      const from = Math.round(i > begin ? (x + this.pixelOf(line.x[i - 1])) / 2 : x);
      const to = Math.max(from + 1, Math.round(i + 1 < end ? (x + this.pixelOf(line.x[i + 1])) / 2 : x));
      const bottom = this.lowest(line.least[i]);
      const top = this.lowest(line.greatest[i]);
      if (from === left) {
        right = to;
        low = Math.max(low, bottom);
        high = Math.min(high, top);
        continue;
      }
      put();
      // What the bar before has covered stays its own.
      left = Math.max(from, right);
      right = Math.max(to, left);
      low = bottom;
      high = top;
    }
    put();
    context.globalAlpha = 1;
  }

  // On a logarithmic scale what is not positive lies below the chart.
  lowest(value) {
    return this.isLog && value <= 0 ? this.box.bottom + 10 : this.heightOf(value);
  }

  drawLine(context, line, values, begin, end) {
    context.beginPath();
    let isDown = false;
    let isAlone = false;
    for (let i = begin; i < end; ++i) {
      const value = values[i];
      if (value === null || (this.isLog && value <= 0)) {
        isDown = false;
        continue;
      }
      const x = this.pixelOf(line.x[i]);
      const y = this.heightOf(value);
      isAlone = !isDown && (i + 1 >= end || values[i + 1] === null);
      if (isDown) context.lineTo(x, y);
      else context.moveTo(x, y);
      // A value without neighbours is a dot.
      if (isAlone) {
        context.fillStyle = line.colour;
        context.fillRect(x - 2.5, y - 2.5, 5, 5);
      }
      isDown = true;
    }
    context.stroke();
  }

  lastOf(line) {
    for (let i = line.mean.length - 1; i >= 0; --i) {
      if (line.mean[i] !== null) return line.mean[i];
    }
    return NaN;
  }

  // The title's value: that of the only line, or the least and the greatest of lines that are alike.
  showNow(values) {
    const known = values.filter(Number.isFinite);
    if (known.length === 0 || (this.lines.length > 1 && !this.isOfParts)) {
      this.now.textContent = '';
      return;
    }
    const [low, high] = [Math.min(...known), Math.max(...known)].map((value) => this.unit.text(value));
    this.now.textContent = low === high ? low : `${low} to ${high}`;
  }

  drawPointer() {
    const context = this.pointerContext();
    if (!context) {
      this.showNow(this.lines.map((line) => this.lastOf(line)));
      return;
    }
    const rows = [];
    for (const line of this.lines) {
      const i = indexNearest(line.x, this.group.at);
      if (i < 0) continue;
      const values = smoothed(line.mean, this.group.smoothing);
      if (values[i] === null || (this.isLog && values[i] <= 0)) continue;
      const hasInterval = line.least && line.least[i] !== line.greatest[i] && this.group.smoothing === 0;
      const text = hasInterval
        ? `${this.unit.text(values[i])}  (${this.unit.text(line.least[i])} to ${this.unit.text(line.greatest[i])})`
        : this.unit.text(values[i]);
      rows.push({ line, value: values[i], row: [line.colour, line.name, text] });
      context.fillStyle = line.colour;
      context.beginPath();
      context.arc(this.pixelOf(line.x[i]), this.heightOf(values[i]), 3, 0, 2 * Math.PI);
      context.fill();
    }
    this.showNow(rows.map((row) => row.value));
    const kMostRows = 12;
    rows.sort((a, b) => b.value - a.value);
    const shown = rows.length > kMostRows ? rows.filter((row) => row.line.isFocused) : rows;
    this.showTip((shown.length > 0 ? shown : rows.slice(0, kMostRows)).map((row) => row.row));
  }
}

// Shares of a whole over time. A layer is {name, colour, values}; x has the right end of each column.
class ShareChart extends Plot {
  constructor(host, group, options) {
    super(host, group, { unit: Units.share, ...options });
    this.x = [];
    this.layers = [];
  }

  set(x, layers) {
    this.x = x;
    this.layers = layers;
    this.draw();
  }

  draw() {
    if (this.area.hidden || this.area.clientWidth === 0 || this.x.length === 0) return;
    const last = this.x[this.x.length - 1];
    const context = this.begin(this.group.zoom || [0, last > 0 ? last : 1], [0, 1]);
    this.x.forEach((x, i) => {
      // Whole pixels, so that there are no seams.
      const left = Math.round(this.pixelOf(i > 0 ? this.x[i - 1] : 0));
      const right = Math.round(this.pixelOf(x));
      let bottom = 0;
      for (const layer of this.layers) {
        const top = Math.min(1, bottom + layer.values[i]);
        context.fillStyle = layer.colour;
        context.fillRect(left, this.heightOf(top), right - left, this.heightOf(bottom) - this.heightOf(top));
        bottom = top;
      }
    });
    context.restore();
    this.canvas.setAttribute('aria-label', `${this.label}: ${this.layers.map((layer) =>
      `${layer.name} ${Text.percent(layer.values[layer.values.length - 1])}`).join(', ')}`);
    this.drawPointer();
  }

  drawPointer() {
    if (!this.pointerContext()) return;
    const i = Math.min(this.x.length - 1, indexBelow(this.x, this.group.at) + 1);
    const kLeastShare = 0.005;
    this.showTip(this.layers.filter((layer) => layer.values[i] >= kLeastShare)
      .map((layer) => [layer.colour, layer.name, Text.percent(layer.values[i])]).reverse());
  }
}
