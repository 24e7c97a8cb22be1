#include "trainer/run/made_of.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <sstream>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/safetensors.h"
#include "comm/together.h"
#include "data/dataset/sample_record.h"

namespace lockstep {
namespace {

// Returns the names of the parts that both sets have, with different hashes.
std::vector<std::string> DifferingParts(const checkpoint::DataSet& was,
                                        const checkpoint::DataSet& is) {
  std::vector<std::string> names;
  for (const checkpoint::DataPart& part : is.part()) {
    const auto before = std::ranges::find(was.part(), part.name(), &checkpoint::DataPart::name);
    if (before != was.part().end() && before->xxh3() != part.xxh3()) names.push_back(part.name());
  }
  return names;
}

// Returns the names of the first few files, for messages.
std::string NamesOf(std::vector<std::string> files) {
  constexpr size_t kMost = 3;
  if (files.size() > kMost) {
    files.resize(kMost);
    files.emplace_back("...");
  }
  return fmt::format("{}", fmt::join(files, ", "));
}

// Returns the index of the first file whose content is not what it was; the number of files of `is` if there is none.
int FirstDifferingFile(const checkpoint::DataSet& was, const checkpoint::DataSet& is) {
  int i = 0;
  while (i < is.file_size() && i < was.file_size() && is.file(i).xxh3() == was.file(i).xxh3()) ++i;
  return i;
}

std::map<std::string, std::string> PartsOfGraph(const std::string& text) {
  std::map<std::string, std::string> parts;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals != word.npos) parts[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return parts;
}

}  // namespace

checkpoint::DataSet DataSetOf(const char* name, const config::Data& config,
                              const Dataset& samples) {
  const bool has_own_files =
      name == std::string_view(kValidationSet) && config.validation_size() > 0;
  const auto& files = has_own_files ? config.validation() : config.train();
  checkpoint::DataSet set;
  set.set_name(name);
  set.set_path(files.empty() ? config.own().name() : NamesOf({files.begin(), files.end()}));
  set.set_samples(samples.size());
  const DataContents contents = samples.Contents();
  for (const DataContents::File& file : contents.files) {
    checkpoint::DataFile& saved = *set.add_file();
    saved.set_path(file.path);
    saved.set_bytes(file.bytes);
    saved.set_xxh3(file.hash);
  }
  for (const DataContents::Part& part : contents.parts) {
    checkpoint::DataPart& saved = *set.add_part();
    saved.set_name(part.name);
    saved.set_xxh3(part.hash);
  }
  return set;
}

std::vector<checkpoint::DataSet> DataSetsOf(const config::Data& config, const TrainingData& data) {
  std::vector<checkpoint::DataSet> sets{DataSetOf(kTrainingSet, config, *data.train)};
  if (data.draws) {
    DataContents draws;
    draws.AddPart("weights", std::as_bytes(std::span(data.draws->cumulative())));
    checkpoint::DataPart& part = *sets.front().add_part();
    part.set_name(draws.parts.front().name);
    part.set_xxh3(draws.parts.front().hash);
  }
  if (data.validation) {
    sets.push_back(DataSetOf(kValidationSet, config, *data.validation));
  }
  return sets;
}

std::vector<std::string> LinesOf(const std::vector<checkpoint::DataSet>& sets) {
  std::vector<std::string> lines;
  for (const checkpoint::DataSet& set : sets) {
    for (const checkpoint::DataPart& part : set.part()) {
      lines.push_back(fmt::format("{} of the {} samples with the hash {:016x}", part.name(),
                                  set.name(), part.xxh3()));
    }
  }
  return lines;
}

std::string WhatDiffers(const checkpoint::DataSet& was, const checkpoint::DataSet& is,
                        bool columns_differ) {
  std::vector<std::string> parts = DifferingParts(was, is);
  const bool has_another_list = std::erase(parts, DataContents::kList) > 0;
  const int differing = FirstDifferingFile(was, is);
  const bool has_another_file =
      is.file_size() > 0 && differing < std::max(is.file_size(), was.file_size());
  // With the same files only the config can make another set of samples, and the configs are compared by themselves.
  if (!has_another_list && !has_another_file) return "";
  const bool has_name = differing < is.file_size();
  const std::string& path = has_name ? is.file(differing).path() : is.path();
  if (is.samples() != was.samples()) {
    return fmt::format("{0}: the {1} {3} samples have become {2} {3} samples", path, was.samples(),
                       is.samples(), is.name());
  }
  if (!has_another_file) {
    return fmt::format("{}: the names, sizes or labels of the {} samples have changed", path,
                       is.name());
  }
  const bool has_same_samples = std::erase(parts, DataContents::kInAnyOrder) == 0;
  std::string what;
  const bool has_other_samples = std::ranges::any_of(
      parts, [](const std::string& part) { return part != "division" && part != "weights"; });
  const bool knows_order = std::ranges::find(is.part(), DataContents::kInAnyOrder,
                                             &checkpoint::DataPart::name) != is.part().end();
  if (has_same_samples && has_other_samples && knows_order) {
    what = fmt::format("the order of the {} samples has changed", is.name());
  }
  if (what.empty() && !parts.empty()) {
    what = fmt::format("the {} of the {} samples {} changed", fmt::join(parts, " and "), is.name(),
                       parts.size() == 1 && parts.front() == "division" ? "has" : "have");
  }
  if (what.empty() && columns_differ) what = "the features have changed";
  if (what.empty()) return "";
  std::string size;
  if (has_name && differing < was.file_size() &&
      was.file(differing).bytes() != is.file(differing).bytes()) {
    size = fmt::format(" ({} bytes, where it had {})", is.file(differing).bytes(),
                       was.file(differing).bytes());
  }
  return fmt::format("{}: {}{}", path, what, size);
}

bool HaveSameSamples(const checkpoint::DataSet& was, const checkpoint::DataSet& is) {
  return was.samples() == is.samples() && DifferingParts(was, is).empty();
}

const checkpoint::DataSet* SetNamed(
    const std::string& name, const google::protobuf::RepeatedPtrField<checkpoint::DataSet>& sets) {
  const auto found = std::ranges::find(sets, name, &checkpoint::DataSet::name);
  return found == sets.end() ? nullptr : &*found;
}

SampleRecords::SampleRecords(const Dataset& train, const Dataset* validation) {
  std::vector<std::shared_ptr<SampleRecord>> known;
  const auto add = [&](const char* set, const Dataset& samples) {
    for (std::shared_ptr<SampleRecord>& record : samples.Records()) {
      // Held-back samples may be of the same data set as the training samples.
      if (std::ranges::find(known, record) != known.end()) continue;
      known.push_back(record);
      records_.emplace(fmt::format("{}.{}", set, record->part()), record);
    }
  };
  add(kTrainingSet, train);
  if (validation != nullptr) add(kValidationSet, *validation);
}

std::vector<NamedTensor> SampleRecords::Merged(Communicator& host) {
  // A sum over the ranks holds, for each sample, how many ranks have read it and the sum of their equal hashes.
  constexpr int kCountBits = 44;
  constexpr int64_t kHashes = (int64_t{1} << kCountBits) - 1;
  std::vector<NamedTensor> tensors;
  for (const auto& [name, record] : records_) {
    const bool has_news = OnAnyRank(record->TakeNews(), "whether samples were read", host);
    std::vector<uint32_t> hashes = record->hashes();
    if (has_news && host.world_size() > 1) {
      const at::Tensor sums = at::zeros({record->size()}, at::kLong);
      auto* sum = sums.mutable_data_ptr<int64_t>();
      for (size_t i = 0; i < hashes.size(); ++i) {
        if (hashes[i] != 0) sum[i] = (int64_t{1} << kCountBits) + hashes[i];
      }
      host.AllReduceSum(sums, host.MakeLabel("hashes of " + name)).Wait();
      for (size_t i = 0; i < hashes.size(); ++i) {
        const int64_t count = sum[i] >> kCountBits;
        if (count > 0) hashes[i] = static_cast<uint32_t>((sum[i] & kHashes) / count);
      }
      record->Restore(hashes);
    }
    const at::Tensor tensor = at::empty({record->size()}, at::kInt);
    std::ranges::copy(hashes, tensor.mutable_data_ptr<int32_t>());
    tensors.push_back({name, tensor});
  }
  return tensors;
}

template <typename Visit>
void SampleRecords::VisitSaved(const std::string& path, const Visit& visit) const {
  const SafetensorsFile file(path, kInCheckpoint);
  const std::vector<std::string> names = file.names();
  for (const auto& [name, record] : records_) {
    if (std::ranges::find(names, name) == names.end()) continue;
    const at::Tensor tensor = file.Read(name);
    if (tensor.scalar_type() != at::kInt || tensor.numel() != record->size()) continue;
    const auto* hashes = reinterpret_cast<const uint32_t*>(tensor.const_data_ptr<int32_t>());
    visit(*record, std::span(hashes, static_cast<size_t>(tensor.numel())));
  }
}

void SampleRecords::Resume(const std::string& path, double time, int rank, int ranks) {
  // The clocks of the machine that wrote the checkpoint and of the file system may differ.
  constexpr double kClocksDiffer_s = 10;
  VisitSaved(path, [&](SampleRecord& record, std::span<const uint32_t> hashes) {
    record.Restore(hashes);
    record.VerifyChanged(static_cast<int64_t>(1e9 * (time - kClocksDiffer_s)), rank, ranks);
  });
}

std::string SampleRecords::WhatDiffers(const std::string& path) const {
  std::string first;
  int64_t count = 0;
  VisitSaved(path, [&](const SampleRecord& record, std::span<const uint32_t> hashes) {
    for (const int64_t i : record.Differing(hashes)) {
      if (count++ == 0) first = record.NameOf(i);
    }
  });
  if (count == 0) return "";
  if (count == 1) return fmt::format("{}: its content has changed", first);
  return fmt::format("{}: its content, and that of {} other{}, has changed", first, count - 1,
                     count == 2 ? "" : "s");
}

std::string GraphText(const Model& model) {
  std::string text;
  for (const auto& [part, hash] : model.Graph()) {
    text += fmt::format("{}{}={:016x}", text.empty() ? "" : " ", part, hash);
  }
  return text;
}

void RequireSameGraph(const config::Config& config, const Model& model, const std::string& text,
                      const std::string& weights, const std::string& way_out) {
  const std::map<std::string, std::string> was = PartsOfGraph(text);
  const std::map<std::string, std::string> is = PartsOfGraph(GraphText(model));
  if (was.empty() || is.empty()) return;
  std::vector<std::string> differ;
  for (const auto& [part, hash] : is) {
    const auto before = was.find(part);
    if (before == was.end() || before->second != hash) differ.push_back(part);
  }
  for (const auto& [part, hash] : was) {
    if (!is.contains(part)) differ.push_back(part);
  }
  if (differ.empty()) return;
  const config::Model& named = config.model();
  const std::string& file =
      named.has_imported() ? named.imported().file() : named.torchscript().file();
  throw UsageError(
      "{}: its graph is not the one that the weights of {} were trained in (it differs in {}): put "
      "that file back{}",
      file, weights, fmt::join(differ, ", "), way_out);
}

}  // namespace lockstep
