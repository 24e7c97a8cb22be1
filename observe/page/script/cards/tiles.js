// Tiles of the card 'Verdict': step, time, loss, best metric and speed. The figures are fields of a run: step, steps,
// epoch, epochs, left_s, trained_s, starts, best, samples_per_s, `start`, and the last values of `curves`.

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
  const last = lastOf(loss);
  const rate = lastOf(lr);
  return tile(
      'Training loss', last === undefined ? '–' : Text.number(last),
      rate === undefined ? '' : `learning rate ${Text.number(rate)}`);
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
