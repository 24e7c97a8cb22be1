// Folds of a cross-validation: their mean and deviation, as a table below the card 'Runs', and as a line in the charts
// of the validation. The figures are `evaluations`, `best` and `config` of the runs.

// Returns the runs that are folds of one cross-validation: each list has the runs of one folder whose config has
// data.folds.count, at least two.
function crossValidations(runs) {
  const byFolder = new Map();
  for (const run of runs) {
    if (!(Number(configField(run, 'data.folds.count')) > 1)) continue;
    const folder = run.name.replace(/\/*$/, '').replace(/[^/]*$/, '');
    byFolder.set(folder, [...(byFolder.get(folder) || []), run]);
  }
  return [...byFolder.values()].filter((folds) => folds.length > 1);
}

const meanOf = (values) => sum(values) / values.length;

// Returns the standard deviation of a sample, which divides by the number of values less 1.
function deviationOf(values) {
  const mean = meanOf(values);
  return Math.sqrt(sum(values.map((value) => (value - mean) ** 2)) / (values.length - 1));
}

const deviationText = (values) => Text.number(Number(deviationOf(values).toPrecision(2)));

// Returns the index of the evaluation whose weights the run keeps: the best one, if the config says so, else the last.
// -1: there is no evaluation.
function keptEvaluation(run) {
  const steps = listOf(objectOf(run.evaluations).step);
  const keepsBest = configField(run, 'checkpoint.keep_best') !== '';
  const best = keepsBest && run.best ? steps.indexOf(run.best.step) : -1;
  return best >= 0 ? best : steps.length - 1;
}

function metricRows(folds) {
  const names = [...new Set(folds.flatMap((run) => Object.keys(figuresOf(run.evaluations))))];
  const rows = names.map((name) => {
    const values = folds.map((run) => {
      const figure = objectOf(figuresOf(run.evaluations)[name]);
      return numberOf(listOf(figure.mean)[keptEvaluation(run)]);
    });
    return {name, values, known: values.filter(Number.isFinite)};
  });
  return rows.filter(({known}) => known.length > 1);
}

function foldsTable(folds) {
  const rows = metricRows(folds);
  if (rows.length === 0) return sentence('Fewer than two folds have an evaluation yet.');
  const spread = ({known}) => `${Text.number(meanOf(known))} ± ${deviationText(known)}`;
  const columns = folds.map((run, i) => {
    const title = make('span', {title: run.name}, runDot(run), nameOf(run));
    return [title, ({values}) => Text.number(values[i]), 'number'];
  });
  return table(
      [['Metric', ({name}) => mono(name)], ['Mean ± deviation', spread, 'number'], ...columns],
      rows);
}

function foldsNote(folds) {
  const evaluated = folds.filter((run) => keptEvaluation(run) >= 0).length;
  const planned = Number(configField(folds[0], 'data.folds.count'));
  const which = configField(folds[0], 'checkpoint.keep_best') ?
      'its best evaluation, whose weights it keeps' :
      'its last evaluation';
  return after(
      `${evaluated} of ${planned} folds, each at ${which}. ` +
      `The deviation is that of a sample, divided by ${Math.max(1, evaluated - 1)}.`);
}

function showFolds() {
  const place = find('folds');
  const groups = crossValidations(page.runs);
  place.hidden = groups.length === 0;
  place.replaceChildren(...groups.map((folds) => {
    return make(
        'div', {className: 'card table'}, make('h3', {}, 'Mean of the folds'), foldsTable(folds),
        foldsNote(folds));
  }));
}

// Returns a line of the folds' mean for each cross-validation whose folds have the figure `name` of the evaluations.
// The interval around the mean is one deviation to each side. The line ends where the first fold does.
function foldLines(name, axis) {
  const lines = [];
  for (const folds of crossValidations(shownRuns())) {
    const figures = folds.map((run) => objectOf(figuresOf(run.evaluations)[name]).mean);
    const places = folds.map((run) => listOf(objectOf(run.evaluations)[axis]));
    if (!figures.every(Array.isArray)) continue;
    const count = Math.min(...figures.map((values) => values.length));
    const at = (lists, i) => lists.map((list) => list[i]);
    const isKnown = (i) => [...at(figures, i), ...at(places, i)].every(Number.isFinite);
    const columns = [...Array(count).keys()].filter(isKnown);
    if (columns.length === 0) continue;
    const mean = columns.map((i) => meanOf(at(figures, i)));
    const deviation = columns.map((i) => deviationOf(at(figures, i)));
    lines.push({
      name: `mean of ${folds.length} folds`,
      colour: getComputedStyle(document.body).getPropertyValue('--ink').trim(),
      isFocused: true,
      x: columns.map((i) => meanOf(at(places, i))),
      mean,
      least: mean.map((value, i) => value - deviation[i]),
      greatest: mean.map((value, i) => value + deviation[i]),
    });
  }
  return lines;
}
