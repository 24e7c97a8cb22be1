// Functions with which charts find a column of a line in an ascending list, and smooth the columns' values.
// observe/page/columns.h makes the columns.

// Returns the index of the last number of `list` that is not greater than `value`; -1 if all numbers are greater.
function indexBelow(list, value) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

// Returns the index of the number of `list` that is nearest to `value`; -1 if the list is empty.
function indexNearest(list, value) {
  const below = indexBelow(list, value);
  if (below < 0) return list.length > 0 ? 0 : -1;
  if (below + 1 >= list.length) return below;
  return value - list[below] <= list[below + 1] - value ? below : below + 1;
}

// Returns the exponential moving average of the values, with Adam's correction for the initial value of zero. A weight
// of 0 changes nothing.
function smoothed(values, weight) {
  if (weight <= 0) return values;
  let mean = 0;
  let scale = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    scale = weight * scale + (1 - weight);
    return mean / scale;
  });
}
