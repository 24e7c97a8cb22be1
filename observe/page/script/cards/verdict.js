// Card 'Verdict': whether the run is fast and what costs its time, as a sentence, a remedy and a bar. The figures are
// `seconds` of a run, the log's last `seconds` line.

const remedy = (...words) => make('p', {className: 'remedy'}, ...words);

// Returns the parts of a `seconds` line as [words, colour, seconds]: the ideal time, and then the losses, the greatest
// first.
function partsOf(seconds) {
  const lost = Object.entries(objectOf(seconds.lost_s))
                   .filter(([, value]) => numberOf(value) > 0)
                   .map(([cause, value]) => [...causeOf(cause), value])
                   .sort((a, b) => b[2] - a[2]);
  return [[...IDEAL, Math.max(0, numberOf(seconds.ideal_s) || 0)], ...lost];
}

// Makes the sentence and the remedy of the log's verdict. Without a verdict the sentence says which share of the time
// was ideal.
function verdictOf(seconds, idealShare) {
  const kLeastSeconds = 2;  // a verdict needs at least 2 seconds and 20 steps
  const kLeastSteps = 20;
  const kGood = 0.9;
  const isShort = seconds.wall_s < kLeastSeconds || numberOf(seconds.steps) < kLeastSteps;
  const isGood = idealShare >= kGood;
  const share = `${Text.percent(idealShare)} of the time went into steps at this run’s best speed`;
  const verdict = textOf(seconds.verdict);
  const words = verdict || (isGood && !isShort ? `In order: ${share}` : share);
  const parts = [make('p', {className: 'sentence'}, unbroken(words))];
  if (!verdict && isShort) {
    parts.push(remedy('This was too short for a verdict, which needs 20 steps and two seconds.'));
  } else if (!verdict && !isGood) {
    parts.push(remedy('No cause that is known takes enough to be named.'));
  }
  const mends = textOf(seconds.remedy);
  if (mends) parts.push(remedy('What mends it: ', make('code', {}, mends)));
  return parts;
}

function accountOf(seconds) {
  const wall = seconds.wall_s;
  const parts = partsOf(seconds);
  const total = Math.max(wall, sum(parts.map(([, , value]) => value)));
  const withTexts = parts.map(([words, colour, value]) => {
    return [words, colour, value, `${Text.duration(value)}, ${Text.percent(value / wall)}`];
  });
  const kLeastShare = 0.005;
  const named = parts.filter(([, , value], i) => i === 0 || value / wall >= kLeastShare);
  const label = {role: 'img', 'aria-label': 'where each second goes'};
  return [
    ...verdictOf(seconds, parts[0][2] / wall),
    stack({className: 'stack', ...label}, withTexts, total),
    make('ul', {className: 'keys'}, ...named.map(([words, colour, value]) => {
      return key(colour, Text.percent(value / wall), ` ${words}, ${Text.duration(value)}`);
    })),
  ];
}

function withoutAccount(run) {
  const step = run.step > 0 ? `Step ${Text.count(run.step)}` : 'No step yet';
  const older = 'The log is of a version that kept no account of its seconds.';
  const when = 'a run writes one each five seconds, and when it is done or stops.';
  const isOlder = run.first_time === null && run.step > 0;
  return [
    make('p', {className: 'sentence'}, step),
    remedy(isOlder ? older : 'There is no account of the seconds yet: ' + when),
  ];
}

function bestStepsOf(seconds) {
  const figures = [
    ['busy_share', 'of the time kernels run', Text.percent],
    ['flops_share', 'of the GPU’s peak FLOP/s', Text.percent],
    ['joules_per_sample', 'J a sample', Text.number],
  ];
  const known = figures.filter(([name]) => Number.isFinite(numberOf(seconds[name])));
  if (known.length === 0) return [];
  const texts = known.map(([name, words, text]) => `${text(seconds[name])} ${words}`);
  return [after(`The best steps: ${texts.join(', ')}.`)];
}

function findingsOf(seconds) {
  const findings = objectsOf(seconds.findings);
  if (findings.length === 0) return [];
  return [make('ul', {className: 'findings'}, ...findings.map((finding) => {
    const soft = textOf(finding.remedy) ? make('span', {className: 'soft'}, finding.remedy) : null;
    return make('li', {}, textOf(finding.words), soft);
  }))];
}

function showVerdict(run) {
  const seconds = objectOf(run.seconds);
  find('verdict').replaceChildren(
      ...titleOf(run),
      ...(numberOf(seconds.wall_s) > 0 ? accountOf(seconds) : withoutAccount(run)),
      ...bestStepsOf(seconds),
      ...findingsOf(seconds),
  );
}
