// Card 'Config': all fields of a run's config, and with several runs the fields in which the runs differ. The figures
// are `config` and `why_no_config` of each run, and `differences` of the data.

// Makes the list of all fields, which opens on a click.
function allFields(run, lines) {
  const rows = lines.map((line) => {
    const at = line.indexOf(': ');
    return at < 0 ? [line, ''] : [line.slice(0, at), line.slice(at + 2)];
  });
  const columns = [
    ['Field', ([field]) => mono(field), 'name'],
    ['Value', ([, value]) => mono(value), 'name'],
  ];
  const fields = lines.length === 1 ? 'The field' : `All ${lines.length} fields`;
  const summary = make('summary', {}, `${fields} of ${nameOf(run)}`);
  const fieldsTable = table(columns, rows);
  fieldsTable.className = 'pairs';
  return make('details', {}, summary, fieldsTable);
}

function differencesTable() {
  const columns = page.runs.map((run) => {
    const title = make('span', {title: run.name}, runDot(run), nameOf(run));
    return [title, (row) => mono(textOf(row.values[run.id]))];
  });
  return table([['Field', (row) => mono(row.field)], ...columns], page.differences);
}

function comparison(run, all) {
  const without = page.runs.find((other) => other.why_no_config);
  if (without || !Array.isArray(page.differences)) {
    const file = `${nameOf(without || run)}/config.pbtxt`;
    const why = objectOf(without).why_no_config || 'it cannot be read';
    return [sentence(`Configs are not compared: ${file}: ${why}.`)];
  }
  if (page.differences.length === 0) return [sentence('The runs have the same config.'), all];
  return [differencesTable(), after('The fields in which the runs differ.'), all];
}

function configOf(run, lines, all) {
  if (lines.length === 0) {
    return [sentence(`config.pbtxt cannot be read: ${run.why_no_config || 'it is empty'}.`)];
  }
  const kMostOpen = 60;
  all.open = lines.length <= kMostOpen;
  const hint = 'With further runs, lockstep watch RUN RUN --page compares their configs and ' +
      'draws their curves together.';
  return [all, after(hint)];
}

function showConfig(run) {
  const isOne = page.runs.length === 1;
  const lines = listOf(run.config).map(textOf);
  const all = allFields(run, lines);
  find('config-title').textContent = isOne ? 'Config' : 'Configs compared';
  const content = isOne ? configOf(run, lines, all) : comparison(run, all);
  find('config-table').replaceChildren(...content);
}
