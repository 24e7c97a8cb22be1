// Card 'Runs': one row for each run, if there are several; a click on a row shows the run in detail. The figures are
// fields of each run in the data: state, step, the last loss of `curves`, best, samples_per_s, trained_s and the
// verdict of `seconds`.

function bestText(run) {
  if (!run.best) return '';
  return `${run.best.metric} ${Text.number(numberOf(run.best.value))} at ${run.best.step}`;
}

const RUN_COLUMNS = [
  ['Run', (run) => make('span', {title: run.name}, runDot(run), nameOf(run)), 'name'],
  ['State', (run) => make('span', {className: stateClass(run)}, run.state)],
  ['Step', (run) => run.steps > 0 ? `${run.step} / ${run.steps}` : String(run.step), 'number'],
  ['Loss', (run) => Text.number(numberOf(lastOf(figuresOf(run.curves).loss))), 'number'],
  ['Best metric', bestText],
  ['Samples/s', (run) => Text.number(numberOf(run.samples_per_s)), 'number'],
  ['Trained for', (run) => Text.duration(numberOf(run.trained_s)), 'number'],
  ['Verdict', (run) => textOf(objectOf(run.seconds).verdict), 'name'],
];

function showRuns() {
  const isOne = page.runs.length < 2;
  find('runs').hidden = isOne;
  find('runs-link').hidden = isOne;
  if (isOne) return;
  showFolds();
  find('runs-table').replaceChildren(table(RUN_COLUMNS, page.runs, (line, run) => {
    line.classList.add('pick');
    line.classList.toggle('focused', run.id === page.focus);
    line.addEventListener('click', () => focusOn(run.id));
  }));
}
