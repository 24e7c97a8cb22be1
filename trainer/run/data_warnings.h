// DataWarnings(): what in the samples of a table, of an array or of images is probably a mistake, in a line each, with
// the field that mends it.
//
//   a feature is the same in all samples, or counts them as an id does
//   features are not scaled
//   a column of categories has free text, or an id: more than half as many texts as there are samples
//   validation samples are in the training set, too
//   validation images cannot be read (500 are tried, evenly from all of the set, or fewer if they take 10 s)
//
// At most 64 MiB of inputs are read, from the first samples on; if the samples are more, no repeated ones are looked
// for. Features that are categories, and a date's places on circles, are not looked at. tests/data_warnings_test.py has
// a case for each line.
#pragma once

#include <string>
#include <vector>

#include "config/schema/data.pb.h"
#include "data/dataset/dataset.h"

namespace lockstep {

// `data` is completed with what the training files held. `validation` may be null.
std::vector<std::string> DataWarnings(const config::Data& data, const Dataset& train,
                                      const Dataset* validation);

}  // namespace lockstep
