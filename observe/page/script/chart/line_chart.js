// LineChart: draws lines over steps or time, each with the interval from the least to the greatest value of each
// column. The figures are the lists `mean`, `least` and `greatest` of the data (observe/page/run_data.h), which a card
// passes in.

// A line is {name, colour, isDashed, isDotted, isFocused, x, mean, least, greatest}; x must ascend, and the values may
// be null.
class LineChart extends Plot {
  // Makes a chart without lines. `isOfParts` says whether the lines are parts of one thing, such as the GPUs of a
  // machine. If not, the lines are runs.
  constructor(host, group, {isOfParts = false, ...options}) {
    super(host, group, options);
    this.isOfParts = isOfParts;
    this.lines = [];
  }

  set(lines) {
    this.lines = lines;
    this.draw();
  }

  // Returns [begin, end) of the line's columns that are visible, with one more column on each side.
  seen(line) {
    const zoom = this.group.zoom;
    if (!zoom) return [0, line.x.length];
    const begin = Math.max(0, indexBelow(line.x, zoom[0]));
    return [begin, Math.min(line.x.length, indexBelow(line.x, zoom[1]) + 2)];
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
    // A range of zero length is widened, so that a line of equal values lies inside the chart.
    const x = this.group.zoom || (xHigh > xLow ? [xLow, xHigh] : [xLow - 1, xLow + 1]);
    if (this.isLog) return {x, y: low === high ? [low / 2, high * 2] : [low, high]};
    if (this.unit.low !== undefined) low = Math.min(low, this.unit.low);
    high = Math.max(high, this.unit.high ?? high, this.unit.most ?? high);
    if (low === high && low === 0) return {x, y: [-1, 1]};
    if (low === high) return {x, y: low > 0 ? [0, low * 1.25] : [low * 1.25, 0]};
    const edge = (high - low) * 0.04;
    const isBottom = low === this.unit.low;
    return {x, y: [isBottom ? low : low - edge, high === this.unit.high ? high : high + edge]};
  }

  draw() {
    if (this.area.hidden || this.area.clientWidth === 0) return;
    const ranges = this.ranges();
    this.box = null;
    if (!ranges) {
      this.size = {width: this.area.clientWidth, height: this.area.clientHeight};
      this.context(this.canvas);
      this.context(this.overlay);
      this.showNow([]);
      return;
    }
    const context = this.begin(ranges.x, ranges.y);
    context.lineJoin = 'round';
    const weight = this.group.smoothing;
    const isCrowded = this.lines.length > 3;
    const byFocus = (a, b) => Number(a.isFocused) - Number(b.isFocused);
    for (const line of [...this.lines].sort(byFocus)) {
      const [begin, end] = this.seen(line);
      context.strokeStyle = line.colour;
      context.fillStyle = line.colour;
      context.setLineDash(line.isDotted ? [2, 3] : line.isDashed ? [5, 3] : []);
      if (line.least && weight === 0) {
        // If there are many lines, their intervals are more transparent, so that the intervals do not hide the lines
        // below.
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
    const values = this.lines.map((line) => `${line.name} ${this.unit.text(this.lastOf(line))}`);
    this.canvas.setAttribute('aria-label', `${this.label}: ${values.join(', ')}`);
    this.drawPointer();
  }

  // Draws the intervals of the line's columns as bars of whole pixels, so that a spike in one column is at least one
  // pixel wide. (Filling and stroking a polygon of 2000 corners takes ten times as long as drawing these bars.)
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
      const edge = i + 1 < end ? (x + this.pixelOf(line.x[i + 1])) / 2 : x;
      const to = Math.max(from + 1, Math.round(edge));
      const bottom = this.lowest(line.least[i]);
      const top = this.lowest(line.greatest[i]);
      if (from === left) {
        right = to;
        low = Math.max(low, bottom);
        high = Math.min(high, top);
        continue;
      }
      put();
      // The new bar begins to the right of the previous bar, so that the two bars do not overlap.
      left = Math.max(from, right);
      right = Math.max(to, left);
      low = bottom;
      high = top;
    }
    put();
    context.globalAlpha = 1;
  }

  // Returns the vertical position of a value in pixels. On a logarithmic scale a value that is not positive lies below
  // the chart.
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
      if (isDown) {
        context.lineTo(x, y);
      } else {
        context.moveTo(x, y);
      }
      // A value without neighbours is drawn as a dot.
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

  // Shows the values in the title of the chart: the value of a single line, the values of two lines that differ in how
  // they are drawn, or the least and the greatest value of several parts.
  showNow(values) {
    const known = values.filter(Number.isFinite);
    if (this.lines.length === 2 && this.lines[1].isDotted) {
      const text = (line, i) => make(
          'span', {},
          make(
              'span',
              {className: line.isDotted ? 'dot hollow' : 'dot', style: {color: line.colour}}),
          `${line.name} ${this.unit.text(values[i])}`);
      this.now.replaceChildren(...this.lines.map(text));
      return;
    }
    if (known.length === 0 || (this.lines.length > 1 && !this.isOfParts)) {
      this.now.textContent = '';
      return;
    }
    const low = this.unit.text(Math.min(...known));
    const high = this.unit.text(Math.max(...known));
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
      const hasInterval =
          line.least && line.least[i] !== line.greatest[i] && this.group.smoothing === 0;
      const text = this.unit.text(values[i]);
      const interval = hasInterval ?
          `  (${this.unit.text(line.least[i])} to ${this.unit.text(line.greatest[i])})` :
          '';
      rows.push({line, value: values[i], row: [line.colour, line.name, text + interval]});
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
