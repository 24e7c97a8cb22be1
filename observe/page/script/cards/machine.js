// Card 'GPUs and host': the last reading as a table, and all readings as charts. The figures are
// `machine` (the log's last reading) and `readings` (all readings, in columns) of a run.

const GPU_READINGS = [
  ['use', 'GPU use', Units.share],
  ['memory_used_bytes', 'GPU memory', Units.bytes],
  ['power_w', 'Power', Units.watt],
  ['temperature_c', 'Temperature', Units.celsius],
  ['sm_clock_mhz', 'SM clock', Units.megahertz],
];
const HOST_READINGS = [
  ['cpu_use', 'Cores in use', Units.share],
  ['memory_used_bytes', 'Host memory in use', Units.bytes],
  ['process_memory_bytes', 'Memory of rank 0’s process', Units.bytes],
];

// Shows the lines in the chart `key`. Makes the chart when there are lines for the first time.
function showReading(key, title, unit, lines) {
  if (lines.length === 0 && !charts[key]) return;
  const options = {title, unit, isOfParts: true};
  charts[key] = charts[key] || new LineChart(find('machine-charts'), historyGroup, options);
  charts[key].figure.hidden = lines.length === 0;
  charts[key].set(lines);
}

function showReadings(readings) {
  const x = listOf(readings.time);
  const line = (name, colour, figure) => ({name, colour, isFocused: false, x, ...figure});
  for (const [name, title, unit] of GPU_READINGS) {
    const gpus = listOf(readings.gpus).filter((gpu) => isObject(gpu.figures[name]));
    const lines = gpus.map((gpu, i) => {
      return line(`GPU ${gpu.index}`, COLOURS[i % COLOURS.length], gpu.figures[name]);
    });
    showReading(`gpu_${name}`, title, unit, lines);
  }
  for (const [name, title, unit] of HOST_READINGS) {
    const figure = figuresOf(readings)[name];
    const lines = isObject(figure) ? [line(title, COLOURS[0], figure)] : [];
    showReading(`host_${name}`, title, unit, lines);
  }
}

// Returns a reading as text, with its limit if the limit is known.
function ofLimit(used, limit, text) {
  const now = text(numberOf(used));
  return Number.isFinite(numberOf(limit)) ? `${now} of ${text(limit)}` : now;
}

function memoryMeter({memory_used_bytes: used, memory_total_bytes: total}) {
  return meter(used / total, ofLimit(used, total, Text.bytes));
}

const GPU_COLUMNS = [
  ['GPU', (gpu) => `${gpu.index} ${textOf(gpu.name)}`, 'name'],
  ['In use', (gpu) => meter(numberOf(gpu.use), Text.percent(numberOf(gpu.use))), 'meter'],
  ['Memory', memoryMeter, 'meter'],
  ['Power', (gpu) => ofLimit(gpu.power_w, gpu.power_limit_w, Units.watt.text), 'number'],
  ['Temperature', (gpu) => Units.celsius.text(numberOf(gpu.temperature_c)), 'number'],
  [
    'SM clock',
    (gpu) => ofLimit(gpu.sm_clock_mhz, gpu.sm_clock_limit_mhz, Units.megahertz.text),
    'number',
  ],
  ['Kept down by', (gpu) => listOf(gpu.throttled_by).map(textOf).join(', ')],
  ['XID error', (gpu) => numberOf(gpu.xid_error) > 0 ? String(gpu.xid_error) : 'none'],
];

function whyNoReading(run) {
  if (run.first_time === null && run.step > 0) {
    return 'The log is of a version that read no machine.';
  }
  return 'The log has no reading of the machine yet. The first one comes after a logged step; ' +
      'with observe.readings_every_s: 0 there is none.';
}

function gpuTable(run) {
  const gpus = objectsOf(run.machine.gpus);
  if (gpus.length > 0) return table(GPU_COLUMNS, gpus);
  const isCuda = objectOf(run.start).device === 'cuda';
  const why = isCuda ? 'The driver told nothing of the GPUs.' :
                       'This run trains on CPUs, so there is no GPU to read.';
  return sentence(`${why} The host stands below.`);
}

function hostLine(machine) {
  const cores = `${Text.percent(numberOf(machine.cpu_use))} of ${numberOf(machine.cores)} cores`;
  const used = Text.bytes(numberOf(machine.memory_used_bytes));
  const total = Text.bytes(numberOf(machine.memory_total_bytes));
  return after(
      `${textOf(machine.host) || 'The host'}: ${cores}, ${used} of ${total} of memory. ` +
      'This is the last of the readings, which the log has at most each ten seconds.');
}

function showMachine(run) {
  showReadings(objectOf(run.readings));
  const place = find('machine-now');
  if (isObject(run.machine)) {
    place.replaceChildren(gpuTable(run), hostLine(run.machine));
  } else {
    place.replaceChildren(sentence(whyNoReading(run)));
  }
}
