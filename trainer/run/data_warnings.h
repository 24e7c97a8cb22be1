// DataWarnings(): looks for probable mistakes in the samples of a table, an array or images. For each kind of mistake
// that it finds, it returns one line, which often names a config field to change:
//
//   a feature has the same value in all samples, or changes by the same amount from each sample to the next (an id)
//   features are not scaled
//   a column of categories seems to hold free text or ids: it has more categories than half the number of samples
//   some validation samples are in the training set, too
//   validation images cannot be read (up to 500 images, evenly spaced in the set, are tried for at most 10 s)
//
// Features are checked in at most the first 64 MiB of inputs. Repeated samples are looked for only if both sets
// together have at most 64 MiB of inputs. Categories, and the sines and cosines that are made from dates, are not
// checked. tests/data_warnings_test.py has a case for each line.
#pragma once

#include <string>
#include <vector>

#include "config/schema/data.pb.h"
#include "data/dataset/dataset.h"

namespace lockstep {

// Returns the warnings about `train` and `validation`, which may be null. `data` must be completed with the values from
// the training files (TrainingData::data).
std::vector<std::string> DataWarnings(const config::Data& data, const Dataset& train,
                                      const Dataset* validation);

}  // namespace lockstep
