// Fields of the data. They come from files of a run, which may hold anything: what is not of the
// type that a card expects counts as missing.

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const objectOf = (value) => isObject(value) ? value : {};
const listOf = (value) => Array.isArray(value) ? value : [];
const textOf = (value) => typeof value === 'string' ? value : '';
const numberOf = (value) => typeof value === 'number' ? value : NaN;
const objectsOf = (value) => listOf(value).filter(isObject);

// Returns the figures of `curves`, `evaluations` or `readings` by name (observe/page/run_data.h).
const figuresOf = (source) => objectOf(objectOf(source).figures);

// Returns the last value of a figure that is known; undefined if none is.
const lastOf = (figure) => listOf(objectOf(figure).mean).filter((value) => value !== null).pop();

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
