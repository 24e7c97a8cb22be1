// Card 'Memory': the peak of the memory that tensors took, by owner, phase and module, and the memory that is in use.
// The figures are `memory` of a run (the log's last `memory` line), and the bytes in `machine`, the last reading.

// Makes a bar for each row [name, bytes, total].
function bars(rows, text) {
  const cells = rows.flatMap(([name, bytes, total]) => {
    const bar = track('i', {}, bytes / total);
    return [make('span', {}, name), bar, make('b', {}, text(bytes, total))];
  });
  return make('div', {className: 'bars'}, ...cells);
}

// Returns a title and a bar for each part, relative to the greatest part; an empty list if there are no parts.
function barsOf(title, parts) {
  const kMostRows = 16;
  const rows = Object.entries(objectOf(parts)).filter(([, bytes]) => numberOf(bytes) > 0);
  if (rows.length === 0) return [];
  const greatest = Math.max(...rows.map(([, bytes]) => bytes), 1);
  const shown = rows.slice(0, kMostRows).map(([name, bytes]) => {
    return [name.replaceAll('_', ' '), bytes, greatest];
  });
  return [make('h3', {}, title), bars(shown, Text.bytes)];
}

function peakLine(memory) {
  const peak = numberOf(memory.peak_bytes);
  if (!(peak > 0)) return [];
  const device = memory.device === 'cuda' ? 'GPU' : 'CPU';
  const total = numberOf(memory.device_bytes) > 0 ? ` of ${Text.bytes(memory.device_bytes)}` : '';
  const taken = `Tensors took at most ${Text.bytes(peak)}${total} on rank 0’s ${device}`;
  const reserved = Text.bytes(memory.reserved_bytes);
  const more = memory.reserved_bytes > 0 ? `; the allocator had reserved ${reserved}` : '';
  return [make('p', {style: {margin: '0 0 14px'}}, `${taken}${more}.`)];
}

// Returns {name: bytes} of the phases in a log of an older version, which has a field for each phase.
function olderPhases(memory) {
  const fields = Object.entries(memory).filter(([name]) => {
    return /^(forward|backward|exchange|update|rest)_bytes$/.test(name);
  });
  return Object.fromEntries(fields.map(([name, bytes]) => [name.replace('_bytes', ''), bytes]));
}

function whyNoMemory(run) {
  if (objectOf(run.start).device === 'cuda' || !isObject(run.start)) {
    return 'The log has no line of the memory of the first steps yet.';
  }
  return 'The log has no line of the memory that tensors took. What the host reads stands below.';
}

function inUse(machine) {
  const rows = objectsOf(machine.gpus).filter((gpu) => gpu.memory_total_bytes > 0).map((gpu) => {
    return [`GPU ${gpu.index}`, gpu.memory_used_bytes, gpu.memory_total_bytes];
  });
  const total = machine.memory_total_bytes;
  const process = machine.process_memory_bytes;
  if (total > 0) rows.push(['Host', machine.memory_used_bytes, total]);
  if (total > 0 && process > 0) rows.push(['Rank 0’s process', process, total]);
  if (rows.length === 0) return [];
  return [
    make('h3', {style: {marginTop: '16px'}}, 'In use at the last reading'),
    bars(rows, (bytes, all) => `${Text.bytes(bytes)} of ${Text.bytes(all)}`),
  ];
}

function showMemory(run) {
  const memory = objectOf(run.memory);
  const older = 'The peak of each phase of the first step, on rank 0’s GPU';
  const parts = [
    ...peakLine(memory),
    ...barsOf('The peak by owner', memory.owners),
    ...barsOf('The peak of each phase', memory.phases),
    ...barsOf('Activations by module', memory.blocks),
    ...barsOf(older, olderPhases(memory)),
  ];
  if (parts.length === 0) parts.push(sentence(whyNoMemory(run)));
  find('memory-now').replaceChildren(...parts, ...inUse(objectOf(run.machine)));
}
