// Card 'Curves': the losses of training and validation, validation metrics, learning rate, gradient norm, speed and
// waiting for samples of all runs, over steps or time. The figures are `curves`, `evaluations` and `not_finite` of each
// run. If the user has zoomed into a part, finer columns come from /curves of the server (RunData::CurvesWithin()).

const curveGroup = new Group(Axes.step);

// Returns why a run has no curve in the validation chart.
function whyNoEvaluation(run) {
  if (listOf(objectOf(run.evaluations).step).length > 0) return 'No evaluation has this metric.';
  return 'There was no evaluation yet. It comes at the end of an epoch, ' +
      'if the config has data.validation or data.validation_fraction.';
}

// A curve is {figure, title, options, whyNone}. `options` are the options of the curve's chart, and whyNone() returns
// the text that is shown in place of a chart without lines.
const CURVES = [
  {
    figure: 'loss',
    title: 'Loss',
    options: {hasLog: true, label: 'Training loss'},
    whyNone: () => 'The log has no line of a step yet: the first one comes after ' +
        'log.every_steps steps.',
  },
  {
    figure: 'evaluations',
    title: 'Metrics',
    options: {hasLog: true},
    whyNone: whyNoEvaluation,
  },
  {
    figure: 'lr',
    title: 'Learning rate',
    options: {hasLog: true},
    whyNone: () => 'The log has no learning rate yet.',
  },
  {
    figure: 'grad_norm',
    title: 'Gradient norm',
    options: {hasLog: true, label: 'Gradient norm before clipping'},
    whyNone: () => 'The log has no gradient norm yet.',
  },
  {
    figure: 'samples_per_s',
    title: 'Speed (samples/s)',
    options: {unit: Units.count},
    whyNone: () => 'The log has no speed yet.',
  },
  {
    figure: 'data_wait',
    title: 'Waiting for samples',
    options: {unit: Units.part},
    whyNone: () => 'The log does not say how long the device waited for samples.',
  },
];

function makeCurves() {
  for (const {figure, title, options} of CURVES) {
    charts[figure] = new LineChart(find('curve-charts'), curveGroup, {title, ...options});
  }
  charts.metric = make('select', {'aria-label': 'metric'});
  charts.metric.addEventListener('change', () => {
    page.metric = charts.metric.value;
    showCurves();
  });
  charts.evaluations.own.prepend(charts.metric);
}

// Returns the name of the list in the data that has the x of the curves.
const listName = (axis) => axis === Axes.step ? 'step' : 'time';

// Returns the lines of one figure. If the user has zoomed in, the lines have the finer columns that the server has
// sent.
function linesOf(figure, axis) {
  const lines = [];
  for (const run of shownRuns()) {
    const isMetric = figure === 'evaluations';
    const source = objectOf(isMetric ? run.evaluations : run.finer || run.curves);
    const {mean, least, greatest} = objectOf(figuresOf(source)[isMetric ? page.metric : figure]);
    const x = listOf(source[listName(axis)]);
    if (!Array.isArray(mean) || x.length === 0 || x[0] === null) continue;
    lines.push({
      name: page.runs.length > 1 ? nameOf(run) : charts[figure].label,
      colour: colourOf(run),
      isDashed: isDashed(run),
      isFocused: run.id === page.focus,
      x,
      mean,
      least,
      greatest,
    });
  }
  return lines;
}

// Returns the lines of the validation's loss, which are dotted, so that they differ from those of training.
function validationLines(axis) {
  const lines = [];
  for (const run of shownRuns()) {
    const {mean} = objectOf(figuresOf(run.evaluations)[VALIDATION_LOSS]);
    const x = listOf(objectOf(run.evaluations)[listName(axis)]);
    if (!Array.isArray(mean) || x.length === 0 || x[0] === null) continue;
    lines.push({
      name: page.runs.length > 1 ? `${nameOf(run)}, validation` : 'Validation loss',
      colour: page.runs.length > 1 ? colourOf(run) : COLOURS[1],
      isDotted: true,
      isFocused: run.id === page.focus,
      x,
      mean,
    });
  }
  return [...lines, ...foldLines(VALIDATION_LOSS, listName(axis))];
}

function showMetrics() {
  const names = [...new Set(page.runs.flatMap((run) => Object.keys(figuresOf(run.evaluations))))];
  if (!names.includes(page.metric)) {
    // The chart of losses has the loss, so another metric comes first.
    const best = textOf(objectOf(focusedRun().best).metric);
    const others = names.filter((name) => name !== VALIDATION_LOSS);
    page.metric = others.includes(best) ? best : others[0] || names[0] || '';
  }
  choose(charts.metric, names, names, page.metric);
}

// Returns why a chart has no lines.
function whyNoLines({figure, whyNone}) {
  const runs = shownRuns();
  if (runs.length === 0) return 'All runs are switched off.';
  if (curveGroup.axis === Axes.time && linesOf(figure, Axes.step).length > 0) {
    return 'The log is of a version that wrote no times: choose Step.';
  }
  return whyNone(runs[0]);
}

function showNotFinite() {
  const runs = shownRuns().filter((run) => isObject(run.not_finite));
  const texts = runs.map((run) => {
    const {lines, step} = run.not_finite;
    const name = page.runs.length > 1 ? `${nameOf(run)}: ` : '';
    return `${name}the loss of ${lines} lines is not finite, first at step ${step}`;
  });
  charts.loss.note.hidden = runs.length === 0;
  charts.loss.note.textContent = texts.join('; ');
}

function showCurves() {
  showMetrics();
  for (const curve of CURVES) {
    const lines = linesOf(curve.figure, curveGroup.axis);
    if (curve.figure === 'loss') lines.push(...validationLines(curveGroup.axis));
    if (curve.figure === 'evaluations') {
      lines.push(...foldLines(page.metric, listName(curveGroup.axis)));
    }
    charts[curve.figure].say(lines.length > 0 ? '' : whyNoLines(curve));
    charts[curve.figure].set(lines);
  }
  showNotFinite();
}

// Asks the server for finer columns of the visible part `range`. If `range` is null or the page has no server, the
// finer columns are dropped.
async function refine(range) {
  find('whole').hidden = range === null;
  if (range === null || !page.isLive) {
    for (const run of page.runs) delete run.finer;
    showCurves();
    return;
  }
  try {
    const axis = listName(curveGroup.axis);
    const finer = await ask('curves', {axis, from: range[0], to: range[1]});
    if (curveGroup.zoom !== range) return;  // the user has zoomed again before the answer came
    for (const {id, curves} of finer) page.runs[id].finer = curves;
    showCurves();
  } catch {
    // If there is no answer, the coarser columns stay.
  }
}

function listenToCurves() {
  curveGroup.onZoom = refine;
  find('whole').addEventListener('click', () => curveGroup.zoomTo(null));
  find('smoothing').addEventListener('input', (event) => {
    curveGroup.smoothing = Number(event.target.value);
    find('smoothing-value').textContent = event.target.value;
    curveGroup.draw();
  });
  const buttons = document.querySelectorAll('[data-axis]');
  for (const button of buttons) {
    button.addEventListener('click', () => {
      curveGroup.axis = Axes[button.dataset.axis];
      for (const other of buttons) other.setAttribute('aria-pressed', String(other === button));
      curveGroup.zoomTo(null);
    });
  }
}
