// Card 'Where the time went': the shares of the time over the run, and the run's verdicts. The figures are `shares` and
// `verdicts` of a run, which come from all `seconds` lines of the log.

// The charts of this card and of the card 'GPUs and host' share this group. If the pointer is in one of these charts,
// all of them mark the time at the pointer.
const historyGroup = new Group(Axes.time);

function makeHistory() {
  const options = {title: 'Shares of the time'};
  charts.shares = new ShareChart(find('shares-chart'), historyGroup, options);
}

function showShares(shares) {
  const x = listOf(shares.time);
  const layers = [{name: IDEAL[0], colour: IDEAL[1], values: listOf(shares.ideal)}];
  for (const [cause, values] of Object.entries(objectOf(shares.lost))) {
    const [name, colour] = causeOf(cause);
    if (values.some((value) => value > 0)) layers.push({name, colour, values});
  }
  const whyNone = 'The log has no account of the seconds with times. ' +
      'A run writes one each five seconds.';
  charts.shares.say(x.length > 0 ? '' : whyNone);
  charts.shares.set(x, layers);
}

function verdictLine({step, time, verdict, remedy}) {
  const at = time === null ? '' : `, after ${Text.duration(time)}`;
  const mends = remedy ? ` · ${remedy}` : '';
  return make(
      'li', {}, unbroken(textOf(verdict)) || 'no verdict',
      make('span', {className: 'soft'}, `from step ${Text.count(step)}${at}${mends}`));
}

function verdictList(verdicts) {
  if (verdicts.length === 0) {
    return sentence('There is none yet. It needs 20 steps, two seconds and a loss of 5 % or more.');
  }
  const kMostVerdicts = 40;
  const newest = verdicts.slice(-kMostVerdicts).reverse();
  return make('ol', {className: 'changes'}, ...newest.map(verdictLine));
}

function showHistory(run) {
  showShares(objectOf(run.shares));
  find('verdicts').replaceChildren(make('h3', {}, 'Verdicts'), verdictList(listOf(run.verdicts)));
}
