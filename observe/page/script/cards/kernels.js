// Card 'Kernels': the phases and the kernels of one rank in one profile, which the user chooses.
// The figures are `profiles` and `profiles_in_all` of a run, which come from
// profiles/STEP/summary.json (observe/page/profiles.h).

// Fills `select` with the values of the items of `list`. Selects and returns the item that was selected before, or
// `fallback` if `list` does not have that item.
function chosenOf(select, list, valueOf, textOfValue, fallback) {
  const chosen = Number(select.value);
  const item = list.find((one) => valueOf(one) === chosen) || fallback;
  const values = list.map(valueOf);
  choose(select, values, values.map(textOfValue), item ? valueOf(item) : undefined);
  return item;
}

function chosenProfile(run) {
  const profiles = objectsOf(run.profiles);
  const text = (step) => `steps from ${step}`;
  return chosenOf(find('profile'), profiles, (one) => one.step, text, profiles.at(-1));
}

function chosenRank(profile) {
  const ranks = objectsOf(objectOf(profile).ranks);
  const text = (rank) => `rank ${rank}`;
  return chosenOf(find('profile-rank'), ranks, (one) => one.rank, text, ranks[0]);
}

function noProfile(run) {
  return sentence(
      'There is no profile yet. ', make('code', {}, `lockstep profile ${run.name}`),
      ' asks a running job for one, and ', make('code', {}, 'profile { first_step: 100 steps: 5 }'),
      ' in the config takes one at step 100.');
}

function noRanks(profile) {
  const why = textOf(profile.why_not) || 'it has no ranks';
  return sentence(`profiles/${profile.step}/summary.json cannot be read: ${why}.`);
}

function factsOf(profile, rank) {
  const texts = [textOf(rank.device), `${profile.steps} steps`];
  const add = (value, textOfValue) => {
    if (Number.isFinite(numberOf(value))) texts.push(textOfValue(value));
  };
  add(rank.step_ms, (ms) => `${Text.number(ms)} ms a step`);
  add(rank.busy_share, (share) => `device busy ${Text.percent(share)}`);
  add(rank.attributed_share, (share) => `${Text.percent(share)} of the device’s time has a phase`);
  if (rank.fused_share > 0) {
    add(rank.fused_share, (share) => `${Text.percent(share)} of it in fused operations`);
  }
  return make('p', {className: 'soft', style: {margin: '0'}}, texts.filter(Boolean).join(' · '));
}

function phaseBar(rank) {
  const phases = phasesOf(rank);
  if (phases.length === 0) return [];
  // Without a part for the time in which the device worked in no phase, shares would be greater than they are.
  const total = Math.max(sum(phases.map(([, ms]) => ms)), numberOf(rank.step_ms) || 0);
  const keys = phases.map(([name, ms]) => {
    return key(phaseColour(name), Text.percent(ms / total), ` ${name}, ${Text.number(ms)} ms`);
  });
  return [
    phaseStack(rank),
    make('ul', {className: 'keys', style: {marginBottom: '12px'}}, ...keys),
  ];
}

// Shortens a kernel's name, because the names of templates are long. The row's title has the whole name.
function shortKernel(name) {
  const kMostCharacters = 90;
  const short = name.replace(/^void /, '');
  return short.length > kMostCharacters ? `${short.slice(0, kMostCharacters - 1)}…` : short;
}

function kernelName(kernel) {
  const remark = textOf(kernel.remark);
  return make(
      'span', {}, mono(shortKernel(textOf(kernel.name))),
      remark ? make('span', {className: 'remark'}, remark) : null);
}

function kernelTable(rank) {
  // Profiles of older versions have shares of the time in which kernels ran, so the share is computed here.
  const kernels = objectsOf(rank.kernels).map((kernel) => {
    return {...kernel, share: numberOf(kernel.ms) / numberOf(rank.step_ms)};
  });
  if (kernels.length === 0) return sentence('No kernel ran in these steps.');
  const greatest = Math.max(...kernels.map((kernel) => numberOf(kernel.share) || 0), 1e-9);
  const number = (field) => (kernel) => Text.number(numberOf(kernel[field]));
  const share = ({share, phase}) => {
    return meter(share / greatest, Text.percent(numberOf(share)), PHASES[phase]);
  };
  const ofPeak = ({of_peak: part}) => part === undefined ? '' : Text.percent(numberOf(part));
  const columns = [
    ['Kernel', kernelName, 'name'],
    ['Share of the step', share, 'meter'],
    ['ms a step', number('ms'), 'number'],
    ['Calls', number('calls'), 'number'],
    ['µs a call', number('us'), 'number'],
    ['Of peak', ofPeak, 'number'],
    ['Phase', (kernel) => textOf(kernel.phase)],
    ['Module', (kernel) => textOf(kernel.module)],
  ];
  return table(columns, kernels, (line, kernel) => {
    line.title = textOf(kernel.name);
  });
}

function kernelNotes(run, profile, rank) {
  const notes = [];
  if (rank.more_kernels > 0) {
    const file = `profiles/${profile.step}/summary.json`;
    notes.push(after(`${rank.more_kernels} further kernels are in ${file}.`));
  }
  if (run.profiles_in_all > objectsOf(run.profiles).length) {
    notes.push(after(`The first and the newest of ${run.profiles_in_all} profiles.`));
  }
  return notes;
}

function showKernels(run) {
  const place = find('kernels-table');
  const profile = chosenProfile(run);
  const rank = chosenRank(profile);
  if (!profile) {
    place.replaceChildren(noProfile(run));
  } else if (!rank) {
    place.replaceChildren(noRanks(profile));
  } else {
    place.replaceChildren(
        ...listOf(profile.slower).map((words) => warning(textOf(words))),
        factsOf(profile, rank),
        ...phaseBar(rank),
        kernelTable(rank),
        ...kernelNotes(run, profile, rank),
    );
  }
}

function listenToKernels() {
  for (const id of ['profile', 'profile-rank']) {
    find(id).addEventListener('change', () => showKernels(focusedRun()));
  }
}
