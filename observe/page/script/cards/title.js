// Title of the page: the name and the state of the run that is shown in detail, a list to choose this run, and the time
// of the data. The figures are name and state of the runs, and `time` and `live` of the data.

function showTitle(run) {
  const isOne = page.runs.length === 1;
  find('title').textContent = isOne ? nameOf(run) : `${page.runs.length} runs`;
  find('title').title = isOne ? run.name : page.runs.map((other) => other.name).join('\n');
  document.title = `${find('title').textContent} · Lockstep`;
  const focus = find('focus');
  focus.hidden = isOne;
  if (!isOne) choose(focus, page.runs.map((other) => other.id), page.runs.map(nameOf), page.focus);
  const state = find('state');
  state.className = stateClass(run);
  state.textContent = run.state;
}

function updatedText(isReachable) {
  const at = new Date(1000 * page.lastAnswer);
  if (!isReachable) {
    return `no answer since ${at.toLocaleTimeString()}: ` +
        'the page’s server has ended, or cannot be reached';
  }
  if (page.isLive) return at.toLocaleTimeString();
  return `as of ${at.toLocaleString([], {dateStyle: 'medium', timeStyle: 'short'})}`;
}

function showUpdated(isReachable) {
  find('updated').textContent = updatedText(isReachable);
}
