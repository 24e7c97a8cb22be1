// The page of runs: verdict, curves, readings, ranks, kernels, memory and configs, of the object in the element `data`
// (observe/page/page_data.h). If the page comes from a server, it asks this server for what has changed.
//
// What files of a run hold is never made into HTML, only into text (make() of chart.js), and may have any type.
'use strict';

const COLOURS = ['#3b7dd8', '#e0792f', '#2f9e6e', '#c2497f', '#8464c6', '#b8901a', '#2a9db0', '#d15353', '#7a8b3a', '#8a6f5c'];

// What a run can lose time to (observe/verdict/seconds_report.h), in words and colours.
const CAUSES = {
  reading: ['reading samples', '#3b7dd8'],
  decoding: ['decoding and augmenting samples', '#7fa9ea'],
  copying: ['copying samples to the GPU', '#2a9db0'],
  launching: ['launching kernels', '#8464c6'],
  communication: ['communication', '#e0792f'],
  slow_rank: ['a slow rank', '#c2497f'],
  cores: ['waiting for cores', '#d15353'],
  evaluation: ['evaluation', '#c9a227'],
  checkpoints: ['checkpoints', '#8a6f5c'],
  memory: ['memory', '#a35fb5'],
  restarts: ['restarts', '#667085'],
  throttling: ['throttling', '#9d3f22'],
  other: ['other', '#a9b0ba'],
};
const IDEAL = ['steps at this run’s best speed', '#2f9e6e'];

const PHASES = {
  read: '#3b7dd8', copy: '#2a9db0', forward: '#2f9e6e', backward: '#8464c6', exchange: '#e0792f', update: '#c2497f',
  rest: '#a9b0ba',
};

const page = {
  runs: [], // by id
  differences: [],
  version: 0,
  isLive: false,
  focus: 0, // the id of the run that is shown in detail
  hidden: new Set(), // ids of runs without curves
  metric: '', // of the evaluations
  lastAnswer: 0, // when data came last, in Unix seconds
};

const find = (id) => document.getElementById(id);
const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const objectOf = (value) => (isObject(value) ? value : {});
const listOf = (value) => (Array.isArray(value) ? value : []);
const textOf = (value) => (typeof value === 'string' ? value : '');
const numberOf = (value) => (typeof value === 'number' ? value : NaN);
// Keeps numbers and what they are of in one line.
const unbroken = (text) => text.replace(/(\d) %/g, '$1\u00a0%');
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

// The end of a run's path; the whole path where two runs end alike.
function nameOf(run) {
  const end = (path) => path.replace(/\/+$/, '').split('/').pop() || path;
  const name = end(run.name);
  return page.runs.filter((other) => end(other.name) === name).length > 1 ? run.name : name;
}

const colourOf = (run) => COLOURS[run.id % COLOURS.length];
const focusedRun = () => page.runs[page.focus];
const shownRuns = () => page.runs.filter((run) => !page.hidden.has(run.id));
const sentence = (...words) => make('p', { className: 'empty' }, ...words);
const dot = (colour) => make('span', { className: 'dot', style: { background: colour } });
// The lines of the second ten runs are dashed, and their dots are rings.
const runDot = (run) => make('span', { className: 'dot', style: { background: run.id < COLOURS.length ? colourOf(run) : '', border: `2px solid ${colourOf(run)}` } });

// ---- Curves ----

const curveGroup = new Group(Axes.step);
const historyGroup = new Group(Axes.time);
const charts = {};

const CURVES = [
  ['loss', 'Training loss', { hasLog: true }, () => 'The log has no line of a step yet: the first one comes after log.every_steps steps.'],
  ['evaluations', 'Validation', { hasLog: true }, (run) => (listOf(objectOf(run.evaluations).step).length > 0
    ? 'No evaluation has this metric.'
    : 'There was no evaluation yet. It comes at the end of an epoch, if the config has data.validation or data.validation_fraction.')],
  ['lr', 'Learning rate', { hasLog: true }, () => 'The log has no learning rate yet.'],
  ['grad_norm', 'Gradient norm', { hasLog: true, label: 'Gradient norm before clipping' }, () => 'The log has no gradient norm yet.'],
  ['samples_per_s', 'Speed (samples/s)', { unit: Units.count }, () => 'The log has no speed yet.'],
  ['data_wait', 'Waiting for samples', { unit: Units.part }, () => 'The log does not say how long the device waited for samples.'],
];

function makeCurves() {
  for (const [name, title, options] of CURVES) {
    charts[name] = new LineChart(find('curve-charts'), curveGroup, { title, ...options });
  }
  charts.metric = make('select', { 'aria-label': 'metric' });
  charts.metric.addEventListener('change', () => {
    page.metric = charts.metric.value;
    showCurves();
  });
  charts.evaluations.own.prepend(charts.metric);
  charts.shares = new ShareChart(find('shares-chart'), historyGroup, { title: 'Shares of the time' });
}

// The lines of one figure. A part into which the user has zoomed is drawn of finer columns, if the server has sent them.
function linesOf(figure) {
  const axis = curveGroup.axis === Axes.step ? 'step' : 'time';
  const lines = [];
  for (const run of shownRuns()) {
    const source = figure === 'evaluations' ? run.evaluations : run.finer || run.curves;
    const name = figure === 'evaluations' ? page.metric : figure;
    const values = objectOf(objectOf(objectOf(source).figures)[name]);
    const x = listOf(objectOf(source)[axis]);
    if (!Array.isArray(values.mean) || x.length === 0 || x[0] === null) continue;
    lines.push({
      name: page.runs.length > 1 ? nameOf(run) : charts[figure].label,
      colour: colourOf(run),
      isDashed: run.id >= COLOURS.length,
      isFocused: run.id === page.focus,
      x, mean: values.mean, least: values.least, greatest: values.greatest,
    });
  }
  return lines;
}

function showMetrics() {
  const names = [];
  for (const run of page.runs) {
    for (const name of Object.keys(objectOf(objectOf(run.evaluations).figures))) {
      if (!names.includes(name)) names.push(name);
    }
  }
  if (!names.includes(page.metric)) {
    const best = textOf(objectOf(focusedRun().best).metric);
    page.metric = names.includes(best) ? best : names[0] || '';
  }
  charts.metric.replaceChildren(...names.map((name) => make('option', { value: name, selected: name === page.metric }, name)));
  charts.metric.hidden = names.length === 0;
}

function showCurves() {
  showMetrics();
  for (const [name, , , why] of CURVES) {
    const lines = linesOf(name);
    const hasRun = shownRuns().length > 0;
    const isWithoutTime = curveGroup.axis === Axes.time && hasRun && linesByStep(name) > 0;
    charts[name].say(lines.length > 0 ? '' : !hasRun ? 'All runs are switched off.'
      : isWithoutTime ? 'The log is of a version that wrote no times: choose Step.' : why(shownRuns()[0]));
    charts[name].set(lines);
  }
  const bad = shownRuns().filter((run) => isObject(run.not_finite));
  charts.loss.note.hidden = bad.length === 0;
  charts.loss.note.textContent = bad.map((run) => `${page.runs.length > 1 ? `${nameOf(run)}: ` : ''}the loss of `
    + `${run.not_finite.lines} lines is not finite, first at step ${run.not_finite.step}`).join('; ');
}

// How many lines the chart would have over steps.
function linesByStep(name) {
  const axis = curveGroup.axis;
  curveGroup.axis = Axes.step;
  const count = linesOf(name).length;
  curveGroup.axis = axis;
  return count;
}

// Asks the server for finer columns of the part that is shown.
async function refine(range) {
  find('whole').hidden = range === null;
  if (range === null || !page.isLive) {
    for (const run of page.runs) delete run.finer;
    showCurves();
    return;
  }
  const axis = curveGroup.axis === Axes.step ? 'step' : 'time';
  try {
    const finer = await ask('curves', { axis, from: range[0], to: range[1] });
    if (curveGroup.zoom !== range) return; // the user has gone on meanwhile
    for (const { id, curves } of finer) page.runs[id].finer = curves;
    showCurves();
  } catch {
    // The coarser columns stay.
  }
}

function showLegend() {
  const legend = find('legend');
  legend.hidden = page.runs.length < 2;
  if (legend.hidden) return;
  legend.replaceChildren(...page.runs.map((run) => {
    const button = make('button', { 'aria-pressed': String(!page.hidden.has(run.id)), title: run.name },
      runDot(run), make('span', {}, nameOf(run)));
    button.addEventListener('click', () => {
      if (!page.hidden.delete(run.id)) page.hidden.add(run.id);
      showLegend();
      showCurves();
    });
    return button;
  }));
}

// ---- Verdict ----

// The shares of an account, the greatest first: [words, colour, seconds].
function partsOf(seconds) {
  const lost = Object.entries(objectOf(seconds.lost_s)).filter(([, value]) => numberOf(value) > 0)
    .map(([cause, value]) => [...(CAUSES[cause] || [cause, CAUSES.other[1]]), value]).sort((a, b) => b[2] - a[2]);
  return [[...IDEAL, Math.max(0, numberOf(seconds.ideal_s) || 0)], ...lost];
}

function tile(label, value, more, share) {
  return make('div', { className: 'tile' },
    make('div', { className: 'label' }, label), make('div', { className: 'value', title: value }, value),
    more ? make('div', { className: 'more', title: more }, more) : null,
    share === undefined ? null : make('div', { className: 'track' },
      make('span', { style: { width: `${100 * Math.min(1, Math.max(0, share))}%` } })));
}

function tilesOf(run) {
  const tiles = make('div', { className: 'tiles' });
  const curves = objectOf(objectOf(run.curves).figures);
  const last = (figure) => listOf(objectOf(figure).mean).filter((value) => value !== null).pop();
  const count = (value) => Number(value).toLocaleString('en-US');
  const steps = run.steps > 0 ? `of ${count(run.steps)}${run.epochs > 0 ? `, epoch ${run.epoch} of ${run.epochs}` : ''}` : '';
  tiles.append(tile('Step', count(run.step), steps, run.steps > 0 ? run.step / run.steps : undefined));
  if (run.state === 'training' && run.left_s !== null) {
    tiles.append(tile('Time left', Text.duration(run.left_s), `trained for ${Text.duration(numberOf(run.trained_s))}`));
  } else {
    tiles.append(tile('Trained for', Text.duration(numberOf(run.trained_s)), run.starts > 1 ? `in ${run.starts} jobs` : ''));
  }
  const loss = last(curves.loss);
  const rate = last(curves.lr);
  tiles.append(tile('Training loss', loss === undefined ? '–' : Text.number(loss), rate === undefined ? '' : `learning rate ${Text.number(rate)}`));
  tiles.append(run.best ? tile(`Best ${run.best.metric}`, Text.number(numberOf(run.best.value)), `at step ${count(run.best.step)}`)
    : tile('Best metric', '–', 'no evaluation yet'));
  const start = objectOf(run.start);
  const ranks = numberOf(start.world_size);
  const where = Number.isFinite(ranks) ? `${ranks} rank${ranks === 1 ? '' : 's'} on ${start.device === 'cuda' ? 'GPUs' : 'CPUs'}` : '';
  tiles.append(tile('Samples/s', Text.number(numberOf(run.samples_per_s)), where));
  return tiles;
}

function showVerdict(run) {
  const parts = [];
  if (page.runs.length > 1) parts.push(make('h3', {}, runDot(run), nameOf(run)));
  if (run.why && (run.state === 'failed' || run.state === 'stopped')) {
    parts.push(make('p', { className: `banner ${run.state === 'stopped' ? 'warn' : ''}` }, `${run.state}: ${run.why}`));
  } else if (run.state === 'killed') {
    parts.push(make('p', { className: 'banner' }, 'killed: the log ends without a last line. The command that started the run continues it.'));
  }
  if (run.why_no_log) parts.push(make('p', { className: 'banner' }, `log.jsonl cannot be read: ${run.why_no_log}`));
  const seconds = objectOf(run.seconds);
  const wall = numberOf(seconds.wall_s);
  const verdict = textOf(seconds.verdict);
  if (wall > 0) {
    const accounts = partsOf(seconds);
    const ideal = accounts[0][2] / wall;
    const kLeastSeconds = 2; // of a verdict, as kLeastSteps
    const kLeastSteps = 20;
    const kGood = 0.9;
    const isShort = wall < kLeastSeconds || numberOf(seconds.steps) < kLeastSteps;
    const share = `${Text.percent(ideal)} of the time went into steps at this run’s best speed`;
    parts.push(make('p', { className: 'sentence' }, unbroken(verdict || (ideal >= kGood && !isShort ? `In order: ${share}` : share))));
    if (!verdict && isShort) parts.push(make('p', { className: 'remedy' }, 'This was too short for a verdict, which needs 20 steps and two seconds.'));
    else if (!verdict && ideal < kGood) parts.push(make('p', { className: 'remedy' }, 'No cause that is known takes enough to be named.'));
    if (textOf(seconds.remedy)) parts.push(make('p', { className: 'remedy' }, 'What mends it: ', make('code', {}, seconds.remedy)));
    const total = Math.max(wall, sum(accounts.map(([, , value]) => value)));
    parts.push(make('div', { className: 'stack', role: 'img', 'aria-label': 'where each second goes' },
      ...accounts.filter(([, , value]) => value > 0).map(([words, colour, value]) => make('span', {
        title: `${words}: ${Text.duration(value)}, ${Text.percent(value / wall)}`,
        style: { background: colour, flex: `${value / total} 1 0` },
      }))));
    const kLeastShare = 0.005;
    parts.push(make('ul', { className: 'keys' }, ...accounts.filter(([, , value], i) => i === 0 || value / wall >= kLeastShare)
      .map(([words, colour, value]) => make('li', {}, dot(colour), make('b', {}, Text.percent(value / wall)), ` ${words}, ${Text.duration(value)}`))));
  } else {
    parts.push(make('p', { className: 'sentence' }, run.step > 0 ? `Step ${Number(run.step).toLocaleString('en-US')}` : 'No step yet'),
      make('p', { className: 'remedy' }, run.first_time === null && run.step > 0
        ? 'The log is of a version that kept no account of its seconds.'
        : 'There is no account of the seconds yet: a run writes one each five seconds, and when it is done or stops.'));
  }
  const extra = [['busy_share', 'of the time kernels run', Text.percent], ['flops_share', 'of the GPU’s peak FLOP/s', Text.percent],
    ['joules_per_sample', 'J a sample', Text.number]]
    .filter(([name]) => Number.isFinite(numberOf(seconds[name]))).map(([name, words, text]) => `${text(seconds[name])} ${words}`);
  if (extra.length > 0) parts.push(make('p', { className: 'after' }, `The best steps: ${extra.join(', ')}.`));
  const findings = listOf(seconds.findings).filter(isObject);
  if (findings.length > 0) {
    parts.push(make('ul', { className: 'findings' }, ...findings.map((finding) => make('li', {}, textOf(finding.words),
      textOf(finding.remedy) ? make('span', { className: 'soft' }, finding.remedy) : null))));
  }
  parts.push(tilesOf(run));
  if (run.warnings > 0) {
    parts.push(make('p', { className: 'after' }, `${run.warnings} warning${run.warnings === 1 ? '' : 's'}; the last: `,
      listOf(run.last_warnings).map(textOf).pop() || ''));
  }
  if (run.bad_lines > 0) parts.push(make('p', { className: 'after' }, `${run.bad_lines} lines of the log cannot be read.`));
  find('verdict').replaceChildren(...parts);
}

function showHistory(run) {
  const shares = objectOf(run.shares);
  const x = listOf(shares.time);
  const layers = [{ name: IDEAL[0], colour: IDEAL[1], values: listOf(shares.ideal) }];
  for (const [cause, values] of Object.entries(objectOf(shares.lost))) {
    const [name, colour] = CAUSES[cause] || [cause, CAUSES.other[1]];
    if (values.some((value) => value > 0)) layers.push({ name, colour, values });
  }
  charts.shares.say(x.length > 0 ? '' : 'The log has no account of the seconds with times. A run writes one each five seconds.');
  charts.shares.set(x, layers);
  const verdicts = listOf(run.verdicts);
  const kMostVerdicts = 40;
  find('verdicts').replaceChildren(make('h3', {}, 'Verdicts'), verdicts.length === 0
    ? sentence('There is none yet. It needs 20 steps, two seconds and a loss of 5 % or more.')
    : make('ol', { className: 'changes' }, ...verdicts.slice(-kMostVerdicts).reverse().map((entry) => make('li', {},
      unbroken(textOf(entry.verdict)) || 'no verdict',
      make('span', { className: 'soft' }, `from step ${Number(entry.step).toLocaleString('en-US')}`
        + `${entry.time === null ? '' : `, after ${Text.duration(entry.time)}`}${entry.remedy ? ` · ${entry.remedy}` : ''}`)))));
}

// ---- Tables ----

// Makes a table. A column is [title, cell] or [title, cell, 'number']; cell(row) is text or an element.
function table(columns, rows, decorate = () => {}) {
  return make('table', {},
    make('thead', {}, make('tr', {}, ...columns.map(([title, , kind]) => make('th', { className: kind || '' }, title)))),
    make('tbody', {}, ...rows.map((row) => {
      const line = make('tr', {}, ...columns.map(([, cell, kind]) => {
        const content = cell(row);
        return make('td', { className: kind || '' }, content === undefined || content === '' ? '–' : content);
      }));
      decorate(line, row);
      return line;
    })));
}

// A bar with a text behind it.
function meter(share, text, colour) {
  const width = `${100 * Math.min(1, Math.max(0, Number.isFinite(share) ? share : 0))}%`;
  return make('div', {}, make('i', {}, make('span', { style: { width, ...(colour ? { background: colour } : {}) } })), make('b', {}, text));
}

function stackOf(parts, total) {
  return make('div', { className: 'stack thin' }, ...parts.filter(([, , value]) => value > 0).map(([words, colour, value, text]) =>
    make('span', { title: `${words}: ${text}`, style: { background: colour, flex: `${value / total} 1 0` } })));
}

function showRuns() {
  const isOne = page.runs.length < 2;
  find('runs').hidden = isOne;
  find('runs-link').hidden = isOne;
  if (isOne) return;
  const last = (run) => listOf(objectOf(objectOf(objectOf(run.curves).figures).loss).mean).filter((value) => value !== null).pop();
  find('runs-table').replaceChildren(table([
    ['Run', (run) => make('span', { title: run.name }, runDot(run), nameOf(run)), 'name'],
    ['State', (run) => make('span', { className: `state ${run.state.replace(' ', '-')}` }, run.state)],
    ['Step', (run) => (run.steps > 0 ? `${run.step} / ${run.steps}` : String(run.step)), 'number'],
    ['Loss', (run) => Text.number(numberOf(last(run))), 'number'],
    ['Best metric', (run) => (run.best ? `${run.best.metric} ${Text.number(numberOf(run.best.value))} at ${run.best.step}` : '')],
    ['Samples/s', (run) => Text.number(numberOf(run.samples_per_s)), 'number'],
    ['Trained for', (run) => Text.duration(numberOf(run.trained_s)), 'number'],
    ['Verdict', (run) => textOf(objectOf(run.seconds).verdict), 'name'],
  ], page.runs, (line, run) => {
    line.classList.add('pick');
    line.classList.toggle('focused', run.id === page.focus);
    line.addEventListener('click', () => focusOn(run.id));
  }));
}

function showRanks(run) {
  const table_ = find('ranks-table');
  const ranks = objectOf(run.ranks);
  const rows = new Map();
  for (const rank of listOf(ranks.ranks).filter(isObject)) rows.set(rank.rank, { ...rank });
  const profile = listOf(run.profiles).filter((summary) => Array.isArray(summary.ranks)).pop();
  for (const rank of listOf(objectOf(profile).ranks).filter(isObject)) {
    rows.set(rank.rank, { ...(rows.get(rank.rank) || { rank: rank.rank }), profile: rank });
  }
  const list = [...rows.values()].sort((a, b) => a.rank - b.rank);
  const parts = listOf(ranks.damaged).map((why) => make('p', { className: 'banner warn' }, textOf(why)));
  for (const verdict of listOf(ranks.verdicts)) parts.push(make('p', { className: 'banner' }, textOf(verdict)));
  const isOver = run.state === 'failed' || run.state === 'killed';
  if (isOver && textOf(ranks.disagreement)) parts.push(make('p', { className: 'banner warn' }, ranks.disagreement));
  if (list.length === 0) {
    const size = numberOf(objectOf(run.start).world_size);
    parts.push(sentence(size > 1
      ? 'The run folder has no flight records of its ranks: they are on another machine’s disk, or the run is of an older version.'
      : 'This run is one process. Started with lockstep -n 2, its ranks would stand here side by side.'));
    table_.replaceChildren(...parts);
    return;
  }
  const latest = Math.max(...list.map((rank) => numberOf(rank.late_ms) || 0), 1e-9);
  const ms = (value) => (Number.isFinite(numberOf(value)) ? `${Text.number(value)} ms` : '');
  const columns = [['Rank', (rank) => String(rank.rank), 'number']];
  if (list.some((rank) => rank.late_ms !== undefined)) {
    columns.push(
      ['Later than the first rank', (rank) => meter(rank.late_ms / latest, ms(rank.late_ms), '#c2497f'), 'meter'],
      ['Last to come', (rank) => Text.percent(numberOf(rank.last_share)), 'number'],
      ['In a collective', (rank) => ms(rank.wait_ms), 'number']);
  }
  if (list.some((rank) => rank.profile)) {
    columns.push(
      [`Step (profile at ${profile.step})`, (rank) => ms(objectOf(rank.profile).step_ms), 'number'],
      ['Phases', (rank) => phaseStack(objectOf(rank.profile))],
      ['Device busy', (rank) => Text.percent(numberOf(objectOf(rank.profile).busy_share)), 'number']);
  }
  if (list.some((rank) => rank.where)) columns.push(['Where it is', (rank) => textOf(rank.where), 'name']);
  parts.push(table(columns, list));
  if (ranks.collectives > 0) {
    parts.push(make('p', { className: 'after' }, `Means of the last ${Number(ranks.collectives).toLocaleString('en-US')} collectives. `
      + 'A rank that always comes last keeps the others waiting. Times are those of each machine’s own clock'
      + `${objectOf(run.start).device === 'cuda' ? ', at which the host queued a collective' : ''}.`));
  }
  if (list.length < ranks.world_size) parts.push(make('p', { className: 'after' }, `${list.length} of ${ranks.world_size} ranks: the records of the others are on other disks.`));
  table_.replaceChildren(...parts);
}

function phaseStack(rank) {
  const phases = Object.entries(objectOf(rank.phases_ms)).filter(([, value]) => numberOf(value) > 0);
  if (phases.length === 0) return '';
  return stackOf(phases.map(([name, value]) => [name, PHASES[name] || PHASES.rest, value, `${Text.number(value)} ms`]), sum(phases.map(([, value]) => value)));
}

function choose(select, values, texts, chosen) {
  select.hidden = values.length === 0;
  select.replaceChildren(...values.map((value, i) => make('option', { value: String(value), selected: value === chosen }, texts[i])));
}

function showKernels(run) {
  const profiles = listOf(run.profiles).filter(isObject);
  const place = find('kernels-table');
  const chosenStep = Number(find('profile').value);
  const profile = profiles.find((summary) => summary.step === chosenStep) || profiles[profiles.length - 1];
  choose(find('profile'), profiles.map((summary) => summary.step), profiles.map((summary) => `steps from ${summary.step}`), objectOf(profile).step);
  const ranks = listOf(objectOf(profile).ranks).filter(isObject);
  const chosenRank = Number(find('profile-rank').value);
  const rank = ranks.find((one) => one.rank === chosenRank) || ranks[0];
  choose(find('profile-rank'), ranks.map((one) => one.rank), ranks.map((one) => `rank ${one.rank}`), objectOf(rank).rank);
  if (!profile) {
    place.replaceChildren(sentence('There is no profile yet. ', make('code', {}, `lockstep profile ${run.name}`), ' asks a running job for one, and ',
      make('code', {}, 'profile { first_step: 100 steps: 5 }'), ' in the config takes one at step 100.'));
    return;
  }
  if (!rank) {
    place.replaceChildren(sentence(`profiles/${profile.step}/summary.json cannot be read: ${textOf(profile.why_not) || 'it has no ranks'}.`));
    return;
  }
  const parts = listOf(profile.slower).map((words) => make('p', { className: 'banner warn' }, textOf(words)));
  const phases = Object.entries(objectOf(rank.phases_ms)).filter(([, value]) => numberOf(value) > 0);
  const facts = [[rank.step_ms, (value) => `${Text.number(value)} ms a step`], [rank.busy_share, (value) => `device busy ${Text.percent(value)}`],
    [rank.attributed_share, (value) => `${Text.percent(value)} of the device’s time has a phase`],
    [rank.fused_share > 0 ? rank.fused_share : NaN, (value) => `${Text.percent(value)} of it in fused operations`]]
    .filter(([value]) => Number.isFinite(numberOf(value))).map(([value, text]) => text(value));
  parts.push(make('p', { className: 'soft', style: { margin: '0' } }, [textOf(rank.device), `${profile.steps} steps`, ...facts].filter(Boolean).join(' · ')));
  if (phases.length > 0) {
    const total = sum(phases.map(([, value]) => value));
    parts.push(phaseStack(rank), make('ul', { className: 'keys', style: { marginBottom: '12px' } }, ...phases.map(([name, value]) => make('li', {},
      dot(PHASES[name] || PHASES.rest), make('b', {}, Text.percent(value / total)), ` ${name}, ${Text.number(value)} ms`))));
  }
  const kernels = listOf(rank.kernels).filter(isObject);
  const greatest = Math.max(...kernels.map((kernel) => numberOf(kernel.share) || 0), 1e-9);
  if (kernels.length === 0) {
    parts.push(sentence('No kernel ran in these steps.'));
  } else {
    parts.push(table([
      ['Kernel', (kernel) => make('span', {}, make('span', { className: 'mono' }, shortKernel(textOf(kernel.name))),
        textOf(kernel.remark) ? make('span', { className: 'remark' }, kernel.remark) : null), 'name'],
      ['Share of the step', (kernel) => meter(kernel.share / greatest, Text.percent(numberOf(kernel.share)), PHASES[kernel.phase]), 'meter'],
      ['ms a step', (kernel) => Text.number(numberOf(kernel.ms)), 'number'],
      ['Calls', (kernel) => Text.number(numberOf(kernel.calls)), 'number'],
      ['µs a call', (kernel) => Text.number(numberOf(kernel.us)), 'number'],
      ['Of peak', (kernel) => (kernel.of_peak === undefined ? '' : Text.percent(numberOf(kernel.of_peak))), 'number'],
      ['Phase', (kernel) => textOf(kernel.phase)],
      ['Module', (kernel) => textOf(kernel.module)],
    ], kernels, (line, kernel) => { line.title = textOf(kernel.name); }));
  }
  if (rank.more_kernels > 0) parts.push(make('p', { className: 'after' }, `${rank.more_kernels} further kernels are in profiles/${profile.step}/summary.json.`));
  if (run.profiles_in_all > profiles.length) parts.push(make('p', { className: 'after' }, `The first and the newest of ${run.profiles_in_all} profiles.`));
  place.replaceChildren(...parts);
}

// The names of templates are long; the whole name is in the row's title.
function shortKernel(name) {
  const kMostCharacters = 90;
  const short = name.replace(/^void /, '');
  return short.length > kMostCharacters ? `${short.slice(0, kMostCharacters - 1)}…` : short;
}

// ---- Machine ----

const READINGS = [
  ['use', 'GPU use', Units.share], ['memory_used_bytes', 'GPU memory', Units.bytes], ['power_w', 'Power', Units.watt],
  ['temperature_c', 'Temperature', Units.celsius], ['sm_clock_mhz', 'SM clock', Units.megahertz],
];
const HOST_READINGS = [
  ['cpu_use', 'Cores in use', Units.share], ['memory_used_bytes', 'Host memory in use', Units.bytes],
  ['process_memory_bytes', 'Memory of rank 0’s process', Units.bytes],
];

function lineChart(key, title, unit) {
  charts[key] = charts[key] || new LineChart(find('machine-charts'), historyGroup, { title, unit, isOfParts: true });
  return charts[key];
}

function showMachine(run) {
  const readings = objectOf(run.readings);
  const x = listOf(readings.time);
  const gpus = listOf(readings.gpus);
  const line = (name, colour, figure) => ({ name, colour, isFocused: false, x, ...objectOf(figure) });
  for (const [name, title, unit] of READINGS) {
    const lines = gpus.filter((gpu) => isObject(gpu.figures[name]))
      .map((gpu, i) => line(`GPU ${gpu.index}`, COLOURS[i % COLOURS.length], gpu.figures[name]));
    if (lines.length === 0 && !charts[`gpu_${name}`]) continue;
    const chart = lineChart(`gpu_${name}`, title, unit);
    chart.figure.hidden = lines.length === 0;
    chart.set(lines);
  }
  for (const [name, title, unit] of HOST_READINGS) {
    const figure = objectOf(readings.figures)[name];
    if (!isObject(figure) && !charts[`host_${name}`]) continue;
    const chart = lineChart(`host_${name}`, title, unit);
    chart.figure.hidden = !isObject(figure);
    chart.set(isObject(figure) ? [line(title, COLOURS[0], figure)] : []);
  }
  const machine = objectOf(run.machine);
  const place = find('machine-now');
  if (!isObject(run.machine)) {
    place.replaceChildren(sentence(run.first_time === null && run.step > 0
      ? 'The log is of a version that read no machine.'
      : 'The log has no reading of the machine yet. The first one comes after a logged step; with observe.readings_every_s: 0 there is none.'));
    return;
  }
  const parts = [];
  const list = listOf(machine.gpus).filter(isObject);
  if (list.length > 0) {
    const of = (used, total, text) => (Number.isFinite(numberOf(total)) ? `${text(numberOf(used))} of ${text(total)}` : text(numberOf(used)));
    parts.push(table([
      ['GPU', (gpu) => `${gpu.index} ${textOf(gpu.name)}`, 'name'],
      ['In use', (gpu) => meter(numberOf(gpu.use), Text.percent(numberOf(gpu.use))), 'meter'],
      ['Memory', (gpu) => meter(gpu.memory_used_bytes / gpu.memory_total_bytes, of(gpu.memory_used_bytes, gpu.memory_total_bytes, Text.bytes)), 'meter'],
      ['Power', (gpu) => of(gpu.power_w, gpu.power_limit_w, Units.watt.text), 'number'],
      ['Temperature', (gpu) => Units.celsius.text(numberOf(gpu.temperature_c)), 'number'],
      ['SM clock', (gpu) => of(gpu.sm_clock_mhz, gpu.sm_clock_limit_mhz, Units.megahertz.text), 'number'],
      ['Kept down by', (gpu) => listOf(gpu.throttled_by).map(textOf).join(', ')],
      ['XID error', (gpu) => (numberOf(gpu.xid_error) > 0 ? String(gpu.xid_error) : 'none')],
    ], list));
  } else {
    parts.push(sentence(objectOf(run.start).device === 'cuda'
      ? 'The driver told nothing of the GPUs. The host stands below.'
      : 'This run trains on CPUs, so there is no GPU to read. The host stands below.'));
  }
  parts.push(make('p', { className: 'after' }, `${textOf(machine.host) || 'The host'}: ${Text.percent(numberOf(machine.cpu_use))} of `
    + `${numberOf(machine.cores)} cores, ${Text.bytes(numberOf(machine.memory_used_bytes))} of ${Text.bytes(numberOf(machine.memory_total_bytes))} of memory. `
    + 'This is the last of the readings, which the log has at most each ten seconds.'));
  place.replaceChildren(...parts);
}

// ---- Memory ----

// Bars of [name, bytes, total].
function bars(rows, text) {
  return make('div', { className: 'bars' }, ...rows.flatMap(([name, bytes, total]) => [make('span', {}, name),
    make('i', {}, make('span', { style: { width: `${100 * Math.min(1, bytes / total)}%` } })), make('b', {}, text(bytes, total))]));
}

// The parts of an object of bytes, all relative to the greatest; none if it has none.
function barsOf(title, parts) {
  const rows = Object.entries(objectOf(parts)).filter(([, bytes]) => numberOf(bytes) > 0);
  const greatest = Math.max(...rows.map(([, bytes]) => bytes), 1);
  const kMostRows = 16;
  return rows.length === 0 ? [] : [make('h3', {}, title),
    bars(rows.slice(0, kMostRows).map(([name, bytes]) => [name.replaceAll('_', ' '), bytes, greatest]), Text.bytes)];
}

function showMemory(run) {
  const parts = [];
  const machine = objectOf(run.machine);
  const memory = objectOf(run.memory);
  const peak = numberOf(memory.peak_bytes);
  if (peak > 0) {
    const device = numberOf(memory.device_bytes);
    parts.push(make('p', { style: { margin: '0 0 14px' } }, `Tensors took at most ${Text.bytes(peak)}${device > 0 ? ` of ${Text.bytes(device)}` : ''} `
      + `on rank 0’s ${memory.device === 'cuda' ? 'GPU' : 'CPU'}${memory.reserved_bytes > 0 ? `; the allocator had reserved ${Text.bytes(memory.reserved_bytes)}` : ''}.`));
  }
  parts.push(...barsOf('The peak by owner', memory.owners), ...barsOf('The peak of each phase', memory.phases), ...barsOf('Activations by module', memory.blocks));
  // Logs of older versions have a field for each phase.
  const phases = Object.entries(memory).filter(([name]) => /^(forward|backward|exchange|update|rest)_bytes$/.test(name))
    .map(([name, bytes]) => [name.replace('_bytes', ''), bytes]);
  parts.push(...barsOf('The peak of each phase of the first step, on rank 0’s GPU', Object.fromEntries(phases)));
  if (parts.length === 0) {
    parts.push(sentence(objectOf(run.start).device === 'cuda' || !isObject(run.start)
      ? 'The log has no line of the memory of the first steps yet.'
      : 'The log has no line of the memory that tensors took. What the host reads stands below.'));
  }
  const used = [];
  for (const gpu of listOf(machine.gpus).filter(isObject)) {
    if (gpu.memory_total_bytes > 0) used.push([`GPU ${gpu.index}`, gpu.memory_used_bytes, gpu.memory_total_bytes]);
  }
  if (machine.memory_total_bytes > 0) {
    used.push(['Host', machine.memory_used_bytes, machine.memory_total_bytes]);
    if (machine.process_memory_bytes > 0) used.push(['Rank 0’s process', machine.process_memory_bytes, machine.memory_total_bytes]);
  }
  if (used.length > 0) {
    parts.push(make('h3', { style: { marginTop: '16px' } }, 'In use at the last reading'), bars(used, (bytes, total) => `${Text.bytes(bytes)} of ${Text.bytes(total)}`));
  }
  find('memory-now').replaceChildren(...parts);
}

// ---- Config ----

function showConfig(run) {
  const place = find('config-table');
  const lines = listOf(run.config).map(textOf);
  const split = (line) => {
    const at = line.indexOf(': ');
    return at < 0 ? [line, ''] : [line.slice(0, at), line.slice(at + 2)];
  };
  const all = make('details', {}, make('summary', {}, `${lines.length === 1 ? 'The field' : `All ${lines.length} fields`} of ${nameOf(run)}`),
    table([['Field', ([field]) => make('span', { className: 'mono' }, field), 'name'], ['Value', ([, value]) => make('span', { className: 'mono' }, value), 'name']], lines.map(split)));
  const without = page.runs.find((other) => other.why_no_config);
  find('config-title').textContent = page.runs.length > 1 ? 'Configs compared' : 'Config';
  if (page.runs.length > 1) {
    if (without || !Array.isArray(page.differences)) {
      place.replaceChildren(sentence(`Configs are not compared: ${nameOf(without || run)}/config.pbtxt: ${objectOf(without).why_no_config || 'it cannot be read'}.`));
    } else if (page.differences.length === 0) {
      place.replaceChildren(sentence('The runs have the same config.'), all);
    } else {
      place.replaceChildren(table([['Field', (row) => make('span', { className: 'mono' }, row.field)],
        ...page.runs.map((other) => [make('span', { title: other.name }, runDot(other), nameOf(other)), (row) => make('span', { className: 'mono' }, textOf(row.values[other.id]))])],
      page.differences), make('p', { className: 'after' }, 'The fields in which the runs differ.'), all);
    }
    return;
  }
  if (lines.length === 0) place.replaceChildren(sentence(`config.pbtxt cannot be read: ${run.why_no_config || 'it is empty'}.`));
  else {
    all.open = lines.length <= 60;
    place.replaceChildren(all, make('p', { className: 'after' }, 'With further runs, lockstep watch RUN RUN --page compares their configs and draws their curves together.'));
  }
}

// ---- The whole page ----

function showTitle(run) {
  const isOne = page.runs.length === 1;
  find('title').textContent = isOne ? nameOf(run) : `${page.runs.length} runs`;
  find('title').title = isOne ? run.name : page.runs.map((other) => other.name).join('\n');
  document.title = `${find('title').textContent} · Lockstep`;
  const focus = find('focus');
  focus.hidden = isOne;
  if (!isOne) choose(focus, page.runs.map((other) => other.id), page.runs.map(nameOf), page.focus);
  const state = find('state');
  state.className = `state ${run.state.replace(' ', '-')}`;
  state.textContent = run.state;
}

function showFocused() {
  const run = focusedRun();
  showTitle(run);
  showVerdict(run);
  showHistory(run);
  showMachine(run);
  showRanks(run);
  showKernels(run);
  showMemory(run);
  showConfig(run);
}

function showAll() {
  showFocused();
  showRuns();
  showLegend();
  showCurves();
}

function focusOn(id) {
  page.focus = id;
  showAll();
}

function take(data) {
  page.version = data.version;
  page.isLive = data.live;
  page.lastAnswer = data.time;
  if (data.differences !== undefined) page.differences = data.differences;
  for (const run of data.runs) page.runs[run.id] = { ...page.runs[run.id], ...run };
}

function showUpdated(isReachable) {
  const at = new Date(1000 * page.lastAnswer);
  const text = page.isLive ? at.toLocaleTimeString() : `as of ${at.toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' })}`;
  find('updated').textContent = isReachable ? text : `no answer since ${at.toLocaleTimeString()}: the page’s server has ended, or cannot be reached`;
}

// ---- Following ----

async function ask(path, values) {
  const query = new URLSearchParams(values);
  const token = new URLSearchParams(location.search).get('token');
  if (token !== null) query.set('token', token);
  const answer = await fetch(`${path}?${query}`, { cache: 'no-store' });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

async function follow() {
  const kPeriodMs = 2000;
  const kRestPeriodMs = 5000; // when no run trains
  try {
    if (!document.hidden) {
      const data = await ask('data', { since: page.version });
      if (data.version < page.version) location.reload(); // another server has the port now
      const hasChanged = data.runs.length > 0;
      take(data);
      if (hasChanged) showAll();
      showUpdated(true);
      if (hasChanged && curveGroup.zoom) refine(curveGroup.zoom);
    }
  } catch {
    showUpdated(false);
  }
  setTimeout(follow, page.runs.some((run) => run.state === 'training') ? kPeriodMs : kRestPeriodMs);
}

function listen() {
  find('focus').addEventListener('change', (event) => focusOn(Number(event.target.value)));
  find('profile').addEventListener('change', () => showKernels(focusedRun()));
  find('profile-rank').addEventListener('change', () => showKernels(focusedRun()));
  find('whole').addEventListener('click', () => curveGroup.zoomTo(null));
  find('smoothing').addEventListener('input', (event) => {
    curveGroup.smoothing = Number(event.target.value);
    find('smoothing-value').textContent = event.target.value;
    curveGroup.draw();
  });
  for (const button of document.querySelectorAll('[data-axis]')) {
    button.addEventListener('click', () => {
      curveGroup.axis = Axes[button.dataset.axis];
      for (const other of document.querySelectorAll('[data-axis]')) other.setAttribute('aria-pressed', String(other === button));
      curveGroup.zoomTo(null);
    });
  }
  curveGroup.onZoom = refine;
  document.addEventListener('visibilitychange', () => { if (!document.hidden) curveGroup.draw(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { curveGroup.draw(); historyGroup.draw(); });
}

take(JSON.parse(find('data').textContent));
makeCurves();
listen();
showAll();
showUpdated(true);
if (page.isLive) setTimeout(follow, 1000);
// What tests/bench/page_draw.py measures: the frame in which all of it is on the screen.
requestAnimationFrame(() => setTimeout(() => performance.mark('drawn')));
