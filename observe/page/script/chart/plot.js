// Plot is the base class of charts. It has their title, canvases, axes, pointer and zoom. Group is the state that
// several charts share. A chart reads no data by itself: cards pass the figures in, and the chart makes no HTML from
// text.

// A group has the state that its charts share. If the pointer is in one chart, all charts of the group mark the x of
// the pointer. If the user zooms into a part of one chart by dragging, all charts of the group show this part.
class Group {
  constructor(axis) {
    this.axis = axis;  // one of Axes
    this.zoom = null;  // the visible part [from, to] of x; null: all of x
    this.at = null;    // the x below the pointer; null: no pointer
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

// The base class of charts. Its subclasses draw the lines or the areas.
class Plot {
  constructor(host, group, {title, unit = Units.number, hasLog = false, label = title}) {
    this.group = group;
    this.unit = unit;
    this.label = label;
    this.isLog = false;
    this.now = make('span', {className: 'now'});
    this.own = make('span', {className: 'own'});
    this.canvas = make('canvas', {role: 'img'});
    this.overlay = make('canvas', {'aria-hidden': 'true'});
    this.area = make('div', {className: 'plot'}, this.canvas, this.overlay);
    this.note = make('p', {className: 'note', hidden: true});
    this.empty = make('p', {className: 'empty', hidden: true});
    this.tip = make('div', {className: 'tip', hidden: true});
    this.figure = make(
        'figure', {className: 'chart'},
        make('figcaption', {}, make('span', {className: 'name'}, title), this.now, this.own),
        this.empty, this.note, this.area, this.tip);
    if (hasLog) {
      const button = make('button', {'aria-pressed': 'false', title: 'logarithmic scale'}, 'log');
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

  // Shows the sentence in place of the chart, or the chart if the sentence is empty.
  say(sentence) {
    this.empty.textContent = sentence;
    this.empty.hidden = sentence === '';
    this.area.hidden = sentence !== '';
    this.own.hidden = sentence !== '';
  }

  listen() {
    let from = null;  // where a selection began, in pixels
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

  // Sets the size of `canvas` to the size in which it is shown, clears `canvas`, and returns its context.
  context(canvas) {
    const {width, height} = this.size;
    const ratio = window.devicePixelRatio || 1;
    const pixels = {width: Math.round(width * ratio), height: Math.round(height * ratio)};
    if (canvas.width !== pixels.width || canvas.height !== pixels.height) {
      Object.assign(canvas, pixels);
    }
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = '11px system-ui, sans-serif';
    return context;
  }

  xAt(pixel) {
    const {left, right} = this.box;
    const [low, high] = this.xRange;
    const share = Math.min(1, Math.max(0, (pixel - left) / (right - left)));
    return low + share * (high - low);
  }

  pixelOf(x) {
    const {left, right} = this.box;
    const [low, high] = this.xRange;
    return left + ((x - low) / (high - low)) * (right - left);
  }

  heightOf(y) {
    const {top, bottom} = this.box;
    const [low, high] = this.yRange;
    const share = this.isLog ? Math.log(y / low) / Math.log(high / low) : (y - low) / (high - low);
    return bottom - share * (bottom - top);
  }

  // Draws axes and grid for the ranges, and returns the context, clipped to the inner part of the chart.
  begin(xRange, yRange) {
    this.size = {width: this.area.clientWidth, height: this.area.clientHeight};
    const context = this.context(this.canvas);
    this.xRange = xRange;
    this.yRange = yRange;
    context.strokeStyle = this.colour('--line');
    context.fillStyle = this.colour('--faint');
    context.lineWidth = 1;
    this.drawRows(context);
    this.drawLabels(context);
    const {left, right, top, bottom} = this.box;
    context.save();
    context.beginPath();
    context.rect(left, top - 3, right - left + 1, bottom - top + 4);
    context.clip();
    return context;
  }

  // Draws the horizontal lines of the grid, and the labels to the left of the grid. The inner part of the chart begins
  // where the widest label ends.
  drawRows(context) {
    const kRowPixels = 34;
    const kLabelPixels = 18;
    const {width, height} = this.size;
    const [low, high] = this.yRange;
    const rows = Math.max(2, Math.floor((height - kLabelPixels) / kRowPixels));
    const ticks = (this.isLog ? Ticks.logarithmic : this.unit.ticks)(low, high, rows);
    const labels = ticks.map((tick) => this.unit.text(tick));
    const widths = labels.map((text) => context.measureText(text).width);
    const left = Math.ceil(Math.max(...widths, 8)) + 8;
    this.box = {left, right: width - 6, top: 6, bottom: height - kLabelPixels};
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    ticks.forEach((tick, i) => {
      const y = Math.round(this.heightOf(tick)) + 0.5;
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(this.box.right, y);
      context.stroke();
      context.fillText(labels[i], left - 6, y);
    });
  }

  // Draws the labels below the chart.
  drawLabels(context) {
    const kColumnPixels = 84;
    const {left, right} = this.box;
    const columns = Math.max(2, Math.floor((right - left) / kColumnPixels));
    const axis = this.group.axis;
    context.textBaseline = 'alphabetic';
    context.textAlign = 'center';
    for (const tick of axis.ticks(...this.xRange, columns)) {
      const text = axis.text(tick);
      const half = context.measureText(text).width / 2;
      const x = Math.min(right - half, Math.max(left + half, this.pixelOf(tick)));
      context.fillText(text, x, this.size.height - 4);
    }
  }

  // Draws the vertical line at the pointer and the part that is being selected. Returns the overlay's context, or null
  // if the pointer is not in the chart's range.
  pointerContext() {
    this.tip.hidden = true;
    if (!this.box || this.area.hidden) return null;
    const context = this.context(this.overlay);
    const {left, right, top, bottom} = this.box;
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

  // Shows rows of [colour, name, value] beside the pointer, if the pointer is in this chart.
  showTip(rows) {
    if (!this.hasPointer || rows.length === 0) return;
    const at = `${this.group.axis.name} ${this.group.axis.text(this.group.at)}`;
    const lines = rows.map(([colour, name, value]) => {
      const what = make('span', {className: 'what'}, dot(colour), name);
      return make('div', {}, what, make('span', {}, value));
    });
    this.tip.replaceChildren(make('div', {className: 'at'}, at), ...lines);
    this.tip.hidden = false;
    const kGap = 14;
    const x = this.area.offsetLeft + this.pixelOf(this.group.at);
    const isRight = x + kGap + this.tip.offsetWidth <= this.figure.clientWidth;
    const side = isRight ? x + kGap : Math.max(4, x - kGap - this.tip.offsetWidth);
    this.tip.style.left = `${side}px`;
    const top = Math.max(0, (this.pointerY || 0) - this.tip.offsetHeight / 2);
    this.tip.style.top = `${this.area.offsetTop + top}px`;
  }
}
