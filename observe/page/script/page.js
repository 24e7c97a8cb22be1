// The program of the page. The program reads the object in the element `data` (observe/page/page_data.h), fills the
// cards, and, if the page comes from a server, asks the server for changes.

function showFocused() {
  const run = focusedRun();
  showTitle(run);
  showProgress(run);
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
  showCurves();
  showLegend();
}

function focusOn(id) {
  page.focus = id;
  showAll();
}

// Stores data in `page`: all data, or only the fields that have changed.
function take(data) {
  page.version = data.version;
  page.isLive = data.live;
  page.lastAnswer = data.time;
  if (data.differences !== undefined) page.differences = data.differences;
  for (const run of data.runs) page.runs[run.id] = {...page.runs[run.id], ...run};
}

async function ask(path, values) {
  const query = new URLSearchParams(values);
  const token = new URLSearchParams(location.search).get('token');
  if (token !== null) query.set('token', token);
  const answer = await fetch(`${path}?${query}`, {cache: 'no-store'});
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

async function follow() {
  const kPeriodMs = 2000;
  const kRestPeriodMs = 5000;  // the period while no run trains
  try {
    if (!document.hidden) {
      const data = await ask('data', {since: page.version});
      if (data.version < page.version) location.reload();  // another server has taken the port
      const hasChanged = data.runs.length > 0;
      take(data);
      if (hasChanged) showAll();
      showUpdated(true);
      if (hasChanged && curveGroup.zoom) refine(curveGroup.zoom);
    }
  } catch {
    showUpdated(false);
  }
  const isTraining = page.runs.some((run) => run.state === 'training');
  setTimeout(follow, isTraining ? kPeriodMs : kRestPeriodMs);
}

function listen() {
  find('focus').addEventListener('change', (event) => focusOn(Number(event.target.value)));
  listenToCurves();
  listenToKernels();
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) curveGroup.draw();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    showCurves();
    historyGroup.draw();
  });
}

take(JSON.parse(find('data').textContent));
makeCurves();
makeHistory();
listen();
showAll();
showUpdated(true);
if (page.isLive) setTimeout(follow, 1000);
// tests/bench/page_draw.py measures the time until this mark, which is set when the whole page is on the screen.
requestAnimationFrame(() => setTimeout(() => performance.mark('drawn')));
