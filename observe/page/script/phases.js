// The phases of a step, with their colours. The times of the phases are `phases_ms` of a rank in a profile of the data
// (observe/page/profiles.h).

const PHASES = {
  read: '#3b7dd8',
  copy: '#2a9db0',
  forward: '#2f9e6e',
  backward: '#8464c6',
  exchange: '#e0792f',
  update: '#c2497f',
  rest: '#a9b0ba',
};

const phaseColour = (name) => PHASES[name] || PHASES.rest;

// Returns [name, ms] of the phases that took time.
function phasesOf(rank) {
  return Object.entries(objectOf(rank.phases_ms)).filter(([, ms]) => numberOf(ms) > 0);
}

// Makes a bar of the rank's phases; returns '' if no phase took time.
function phaseStack(rank) {
  const phases = phasesOf(rank);
  if (phases.length === 0) return '';
  const parts = phases.map(([name, ms]) => [name, phaseColour(name), ms, `${Text.number(ms)} ms`]);
  return stack(
      {className: 'stack thin'}, parts,
      Math.max(sum(phases.map(([, ms]) => ms)), numberOf(rank.step_ms) || 0));
}
