// The formats in which all cards and charts show numbers of the data as text.

const Text = {
  // Returns a number as text: with four significant digits below 1000, and without decimals from 1000 on. A number
  // other than 0 that is smaller than 0.001 in size, or at least 1e7, is written with three significant digits and an
  // exponent.
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
    const isSmall = percent !== 0 && Math.abs(percent) < 1;
    const digits = isSmall ? Number(percent.toPrecision(1)) : Math.round(percent);
    return `${digits}\u00a0%`;
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
    const both = (large, unit, small, smaller) =>
        `${large}${unit}${small > 0 ? `${two(small)}${smaller}` : ''}`;
    if (minutes < 60) return both(minutes, 'm', Math.floor(seconds % 60), 's');
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? both(hours, 'h', minutes % 60, 'm') :
                        both(Math.floor(hours / 24), 'd', hours % 24, 'h');
  },
  // Returns a count as text, with all its digits.
  count: (value) => Number(value).toLocaleString('en-US'),
  withUnit: (unit) => (value) => {
    return Number.isFinite(value) ? `${Text.number(value)}\u00a0${unit}` : '–';
  },
};

// Puts a no-break space between each number and its percent sign.
const unbroken = (text) => text.replace(/(\d) %/g, '$1\u00a0%');
