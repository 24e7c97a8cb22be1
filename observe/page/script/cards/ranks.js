// Card 'Ranks side by side': which ranks are late, which collective each rank is in, and what each rank's steps spend
// time on. The figures are `ranks` of a run (its flight records, observe/page/rank_table.h), and the ranks of the
// newest of `profiles`.

// Returns the newest profile that has ranks; an empty object if no profile has ranks.
function newestProfile(run) {
  return objectOf(listOf(run.profiles).filter((summary) => Array.isArray(summary.ranks)).pop());
}

// Returns {rank, ..., profile} for each rank of the flight records and of the profile, in the order of the ranks.
function rankRows(ranks, profile) {
  const rows = new Map();
  for (const rank of objectsOf(ranks.ranks)) rows.set(rank.rank, {...rank});
  for (const rank of objectsOf(profile.ranks)) {
    rows.set(rank.rank, {...(rows.get(rank.rank) || {rank: rank.rank}), profile: rank});
  }
  return [...rows.values()].sort((a, b) => a.rank - b.rank);
}

function rankColumns(rows, profile) {
  const has = (field) => rows.some((row) => row[field]);
  const ms = (value) => Number.isFinite(numberOf(value)) ? `${Text.number(value)} ms` : '';
  const columns = [['Rank', (row) => String(row.rank), 'number']];
  if (rows.some((row) => row.late_ms !== undefined)) {
    const latest = Math.max(...rows.map((row) => numberOf(row.late_ms) || 0), 1e-9);
    const late = (row) => meter(row.late_ms / latest, ms(row.late_ms), '#c2497f');
    columns.push(
        ['Later than the first rank', late, 'meter'],
        ['Last to come', (row) => Text.percent(numberOf(row.last_share)), 'number'],
        ['In a collective', (row) => ms(row.wait_ms), 'number'],
    );
  }
  if (has('profile')) {
    const busy = (row) => Text.percent(numberOf(objectOf(row.profile).busy_share));
    columns.push(
        [`Step (profile at ${profile.step})`, (row) => ms(objectOf(row.profile).step_ms), 'number'],
        ['Phases', (row) => phaseStack(objectOf(row.profile))],
        ['Device busy', busy, 'number'],
    );
  }
  if (has('where')) columns.push(['Where it is', (row) => textOf(row.where), 'name']);
  return columns;
}

function rankBanners(run, ranks) {
  const isOver = run.state === 'failed' || run.state === 'killed';
  const disagreement = isOver ? textOf(ranks.disagreement) : '';
  return [
    ...listOf(ranks.damaged).map((why) => warning(textOf(why))),
    ...listOf(ranks.verdicts).map((verdict) => banner(textOf(verdict))),
    ...(disagreement ? [warning(disagreement)] : []),
  ];
}

function whyNoRanks(run) {
  if (numberOf(objectOf(run.start).world_size) > 1) {
    return 'The run folder has no flight records of its ranks: they are on another machine’s ' +
        'disk, or the run is of an older version.';
  }
  return 'This run is one process. Started with lockstep -n 2, its ranks would stand here ' +
      'side by side.';
}

function rankNotes(run, ranks, rows) {
  const notes = [];
  if (ranks.collectives > 0) {
    const isCuda = objectOf(run.start).device === 'cuda';
    notes.push(after(
        `Means of the last ${Text.count(ranks.collectives)} collectives. ` +
        'A rank that always comes last keeps the others waiting. ' +
        'Times are those of each machine’s own clock' +
        `${isCuda ? ', at which the host queued a collective' : ''}.`));
  }
  if (rows.length < ranks.world_size) {
    const count = `${rows.length} of ${ranks.world_size} ranks`;
    notes.push(after(`${count}: the records of the others are on other disks.`));
  }
  return notes;
}

function showRanks(run) {
  const ranks = objectOf(run.ranks);
  const profile = newestProfile(run);
  const rows = rankRows(ranks, profile);
  const place = find('ranks-table');
  place.replaceChildren(...rankBanners(run, ranks));
  if (rows.length === 0) {
    place.append(sentence(whyNoRanks(run)));
  } else {
    place.append(table(rankColumns(rows, profile), rows), ...rankNotes(run, ranks, rows));
  }
}
