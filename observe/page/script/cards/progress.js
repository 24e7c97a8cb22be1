// Card 'Progress': tiles of step, time, loss, best metric and speed. The figures are fields of a run: step, steps,
// epoch, epochs, left_s, trained_s, starts, best, samples_per_s, `start`, and the last values of `curves` and
// `evaluations`. Above the tiles the card shows state, why and why_no_log, and below them warnings and bad_lines.

// Makes the title of a card about the run that is shown in detail, if there are several runs.
const titleOf = (run) => page.runs.length > 1 ? [make('h3', {}, runDot(run), nameOf(run))] : [];

function bannersOf(run) {
  const banners = [];
  if (run.why && run.state === 'stopped') {
    banners.push(warning(`stopped: ${run.why}`));
  } else if (run.why && run.state === 'failed') {
    banners.push(banner(`failed: ${run.why}`));
  } else if (run.state === 'killed') {
    banners.push(banner(
        'killed: the log ends without a last line. ' +
        'The command that started the run continues it.'));
  }
  if (run.why_no_log) banners.push(banner(`log.jsonl cannot be read: ${run.why_no_log}`));
  return banners;
}

function tile(label, value, more, share) {
  return make(
      'div', {className: 'tile'}, make('div', {className: 'label'}, label),
      make('div', {className: 'value', title: value}, value),
      more ? make('div', {className: 'more', title: more}, more) : null,
      share === undefined ? null : track('div', {className: 'track'}, share));
}

function stepTile(run) {
  if (!(run.steps > 0)) return tile('Step', Text.count(run.step), '');
  const epoch = run.epochs > 0 ? `, epoch ${run.epoch} of ${run.epochs}` : '';
  const share = run.step / run.steps;
  return tile('Step', Text.count(run.step), `of ${Text.count(run.steps)}${epoch}`, share);
}

function timeTile(run) {
  const trained = Text.duration(numberOf(run.trained_s));
  if (run.state === 'training' && run.left_s !== null) {
    return tile('Time left', Text.duration(run.left_s), `trained for ${trained}`);
  }
  return tile('Trained for', trained, run.starts > 1 ? `in ${run.starts} jobs` : '');
}

function lossTile(run) {
  const {loss, lr} = figuresOf(run.curves);
  const text = (words, figure) => {
    const last = lastOf(figure);
    return last === undefined ? '' : `${words}${Text.number(last)}`;
  };
  const validation = text('validation ', figuresOf(run.evaluations)[VALIDATION_LOSS]);
  const more = [validation, text('learning rate ', lr)].filter(Boolean).join(', ');
  return tile('Training loss', text('', loss) || '–', more);
}

function bestTile(run) {
  if (!run.best) return tile('Best metric', '–', 'no evaluation yet');
  const {metric, value, step} = run.best;
  return tile(`Best ${metric}`, Text.number(numberOf(value)), `at step ${Text.count(step)}`);
}

function speedTile(run) {
  const start = objectOf(run.start);
  const ranks = numberOf(start.world_size);
  const devices = start.device === 'cuda' ? 'GPUs' : 'CPUs';
  const where =
      Number.isFinite(ranks) ? `${ranks} rank${ranks === 1 ? '' : 's'} on ${devices}` : '';
  return tile('Samples/s', Text.number(numberOf(run.samples_per_s)), where);
}

function tilesOf(run) {
  const tiles = [stepTile, timeTile, lossTile, bestTile, speedTile].map((tileOf) => tileOf(run));
  return make('div', {className: 'tiles'}, ...tiles);
}

function warningsOf(run) {
  const parts = [];
  if (run.warnings > 0) {
    const last = listOf(run.last_warnings).map(textOf).pop() || '';
    parts.push(after(`${run.warnings} warning${run.warnings === 1 ? '' : 's'}; the last: `, last));
  }
  if (run.bad_lines > 0) parts.push(after(`${run.bad_lines} lines of the log cannot be read.`));
  return parts;
}

function showProgress(run) {
  find('progress')
      .replaceChildren(...titleOf(run), ...bannersOf(run), tilesOf(run), ...warningsOf(run));
}
