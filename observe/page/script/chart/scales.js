// Scales of charts: the positions of ticks on an axis, and the text of its values.

// Each function returns the positions of about `count` ticks from `low` to `high`. The positions are round numbers.
const Ticks = {
  // Returns round decimal numbers from `low` to `high`.
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
  // Returns numbers of bytes that are round in B, KiB, MiB or a greater unit.
  bytes(low, high, count) {
    const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(high, 1)) / Math.log(1024)));
    return Ticks.linear(low / unit, high / unit, count).map((tick) => tick * unit);
  },
  // Returns powers of ten, and further numbers between them if there are few powers.
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
        if (tick >= low * 0.999 && tick <= high * 1.001 &&
            (bases.length > 1 || (power - first) % every === 0)) {
          ticks.push(tick);
        }
      }
    }
    return ticks.length > 1 ? ticks : Ticks.linear(low, high, count);
  },
  steps: (low, high, count) => Ticks.linear(low, high, count).filter(Number.isInteger),
  time(low, high, count) {
    const rough = (high - low) / Math.max(1, count);
    const step = [
      1,    2,    5,    10,   20,    30,    60,    120,   300,    600,
      1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000,
    ].find((seconds) => seconds >= rough * 0.7);
    if (rough < 1 || !step) return Ticks.linear(low, high, count);
    const ticks = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push(at);
    return ticks;
  },
};

// An axis says how the x of charts is shown.
const Axes = {
  step: {
    ticks: Ticks.steps,
    text: (value) => Math.round(value).toLocaleString('en-US'),
    name: 'step',
  },
  time: {ticks: Ticks.time, text: Text.duration, name: 'trained for'},
};

// A unit says how charts show values. The y range of a chart begins at or below `low`, and ends at or above `high` and
// `most`, as far as the unit has these fields.
const Units = {
  number: {text: Text.number, ticks: Ticks.linear},
  count: {text: Text.number, ticks: Ticks.linear, low: 0},
  share: {text: Text.percent, ticks: Ticks.linear, low: 0, high: 1},
  part: {text: Text.percent, ticks: Ticks.linear, low: 0, most: 0.1},
  bytes: {text: Text.bytes, ticks: Ticks.bytes, low: 0},
  watt: {text: Text.withUnit('W'), ticks: Ticks.linear, low: 0},
  celsius: {text: Text.withUnit('°C'), ticks: Ticks.linear},
  megahertz: {text: Text.withUnit('MHz'), ticks: Ticks.linear, low: 0},
};
