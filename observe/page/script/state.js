// The state of the page: the runs as in the data (observe/page/page_data.h), the run that the user looks at, the names
// and colours of the runs, and the charts.

const COLOURS = [
  '#3b7dd8',
  '#e0792f',
  '#2f9e6e',
  '#c2497f',
  '#8464c6',
  '#b8901a',
  '#2a9db0',
  '#d15353',
  '#7a8b3a',
  '#8a6f5c',
];

const page = {
  runs: [],  // the data of each run, by the run's id
  differences: [],
  version: 0,
  isLive: false,
  focus: 0,           // the id of the run that is shown in detail
  hidden: new Set(),  // the ids of runs whose curves are switched off
  metric: '',         // the metric that the validation chart shows
  lastAnswer: 0,      // the Unix time of the newest data
};

const charts = {};  // the charts of the page, by name

const focusedRun = () => page.runs[page.focus];
const shownRuns = () => page.runs.filter((run) => !page.hidden.has(run.id));

// Returns the last part of a run's path, or the whole path if another run has the same last part.
function nameOf(run) {
  const end = (path) => path.replace(/\/+$/, '').split('/').pop() || path;
  const name = end(run.name);
  return page.runs.filter((other) => end(other.name) === name).length > 1 ? run.name : name;
}

const colourOf = (run) => COLOURS[run.id % COLOURS.length];
// Returns whether the run's lines are dashed and its dot is a ring: true for all runs after the first ten.
const isDashed = (run) => run.id >= COLOURS.length;

function runDot(run) {
  const background = isDashed(run) ? '' : colourOf(run);
  return make(
      'span', {className: 'dot', style: {background, border: `2px solid ${colourOf(run)}`}});
}

// Returns the class that gives a run's state its colour.
const stateClass = (run) => `state ${run.state.replace(' ', '-')}`;
