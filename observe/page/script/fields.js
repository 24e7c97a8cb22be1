// Functions that read fields of the data. The data come from files of a run, which may contain anything, so a field
// that does not have the type that a card expects counts as missing.

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const objectOf = (value) => isObject(value) ? value : {};
const listOf = (value) => Array.isArray(value) ? value : [];
const textOf = (value) => typeof value === 'string' ? value : '';
const numberOf = (value) => typeof value === 'number' ? value : NaN;
const objectsOf = (value) => listOf(value).filter(isObject);

// Returns the figures of `curves`, `evaluations` or `readings` by name (observe/page/run_data.h).
const figuresOf = (source) => objectOf(objectOf(source).figures);

// Returns the last of a figure's values other than null; undefined if there is no such value.
const lastOf = (figure) => listOf(objectOf(figure).mean).filter((value) => value !== null).pop();

// Returns the value of a field of the run's config, as config.pbtxt has it but without quotation marks; '' if it is not
// set. `run.config` has lines such as `optimizer.lr: 0.1`.
function configField(run, name) {
  const line = listOf(run.config).map(textOf).find((text) => text.startsWith(`${name}: `));
  return line === undefined ? '' : line.slice(name.length + 2).replace(/^"(.*)"$/, '$1');
}

// The name of the validation's loss among the evaluations' figures.
const VALIDATION_LOSS = 'val_loss';

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
