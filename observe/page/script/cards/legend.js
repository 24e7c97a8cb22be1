// Legend of the card 'Curves': if there are several runs, each run has a button, which shows the run's name and
// switches the run's lines off and on. Behind the buttons stands what dotted lines and the lines of folds' means are.

function keysOfLines() {
  const keys = [];
  if (charts.loss.lines.some((line) => line.isDotted)) keys.push('dotted: validation');
  if (crossValidations(shownRuns()).length > 0) {
    keys.push('bold, with a band: mean of the folds ± deviation');
  }
  return keys.map((words) => make('span', {className: 'soft'}, words));
}

function showLegend() {
  const legend = find('legend');
  legend.hidden = page.runs.length < 2;
  if (legend.hidden) return;
  legend.replaceChildren(
      ...page.runs.map((run) => {
        const properties = {'aria-pressed': String(!page.hidden.has(run.id)), title: run.name};
        const button = make('button', properties, runDot(run), make('span', {}, nameOf(run)));
        button.addEventListener('click', () => {
          if (!page.hidden.delete(run.id)) page.hidden.add(run.id);
          showCurves();
          showLegend();
        });
        return button;
      }),
      ...keysOfLines());
}
