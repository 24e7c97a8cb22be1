// The causes of lost time, with the words and the colour of each. The names of the causes are those of `seconds.lost_s`
// and `shares.lost` of the data, which come from observe/verdict/seconds_report.h.

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

// Returns [words, colour] of a cause. A cause that only a newer version knows gets its name as the words, and the
// colour of `other`.
const causeOf = (name) => CAUSES[name] || [name, CAUSES.other[1]];
