// Datasets: a registry of the data sets that a program defines itself, by name.
//
// A data set of a program's own is a class that derives from Dataset (data/dataset/dataset.h). main() adds this class
// to the Datasets object that main() passes to Lockstep (docs/data.md, 'Your own data set'). Lockstep does the rest:
// the order of the samples, their division among ranks, loader threads, and the preprocessing of pixels.
//
// what can fail -> what the caller sees -> the test that shows it (tests/own_data_test.py)
//   a name that was not added, an option in the config that the data set does not read -> Error (kUsage)
//   samples of another kind or for another task than the config says -> Error (kData)
//   a data set's constructor or Read() throws -> an error that ends the run on all ranks
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "config/schema/data.pb.h"
#include "data/dataset/dataset.h"

namespace lockstep {

// The arguments of a data set's constructor.
struct DatasetSource {
  // The files of data.train or data.validation, or the files that the evaluate or predict command was given.
  std::vector<std::string> files;
  Options options;  // the options of data.own.option
  // The properties of the samples that are known in advance: task and number of classes, and, for files that are opened
  // after the training files, also the shape.
  SampleSpec expected;
  bool labels_optional = false;  // whether labels may be missing, as in prediction
};

class Datasets {
 public:
  using Factory = std::function<std::shared_ptr<const Dataset>(const DatasetSource&)>;

  // Adds a data set under the name that `data { own { name: ... } }` in a config asks for.
  void Add(const std::string& name, Factory factory);

  // Adds class D, which is constructed from a DatasetSource.
  template <typename D>
  void Add(const std::string& name) {
    Add(name, [](const DatasetSource& source) { return std::make_shared<const D>(source); });
  }

  // Opens the data set that the config names. Throws Error (kUsage, kData), and any exception of the data set's
  // constructor.
  std::shared_ptr<const Dataset> Open(const config::Own& config, std::vector<std::string> files,
                                      const SampleSpec& expected, bool labels_optional) const;

 private:
  std::map<std::string, Factory> factories_;
};

}  // namespace lockstep
