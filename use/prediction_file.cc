#include "use/prediction_file.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/say.h"
#include "base/small_letters.h"
#include "config/formats/csv_columns.h"
#include "config/kept_inputs.h"
#include "data/arrays/npy.h"
#include "trainer/run/open_data.h"

namespace lockstep {
namespace {

using Kind = PredictionColumn::Kind;

enum class Layout : uint8_t { kCsv, kJsonLines, kArray, kPngFiles };

Layout LayoutOf(const PredictionRequest& request) {
  const auto is = [&](const std::string& format) {
    return request.format.empty() ? request.output.ends_with("." + format)
                                  : request.format == format;
  };
  if (request.format.empty() ? request.output.ends_with('/') : request.format == "png") {
    return Layout::kPngFiles;
  }
  return is("npy") ? Layout::kArray : is("jsonl") ? Layout::kJsonLines : Layout::kCsv;
}

// Returns the first given option that affects which columns the output has; empty if none is given.
std::string ColumnOption(const PredictionRequest& request) {
  if (!request.submission.empty()) return "--submission";
  if (!request.id.empty()) return "--id";
  return request.keep.empty() ? "" : "--keep";
}

}  // namespace

void CheckSource(const PredictionRequest& request) {
  if (!request.held_back) {
    if (!request.files.empty()) return;
    throw UsageError(
        "--input: name files to predict; --held-back predicts what training held back");
  }
  if (!request.files.empty()) {
    throw UsageError("--held-back: predicts what training held back: leave out --input");
  }
  if (!request.submission.empty()) {
    throw UsageError("--submission: is for the files of --input: leave out --held-back");
  }
}

void CheckRequest(const PredictionRequest& request, const config::Data& data) {
  CheckSource(request);
  for (const char* ending : {".gz", ".zip"}) {
    if (!InSmallLetters(request.output).ends_with(ending)) continue;
    throw UsageError("--output {}: predictions are not compressed: take {} from the name",
                     request.output, ending);
  }
  for (const char* ending : {".xlsx", ".xls", ".ods", ".parquet", ".feather", ".arrow", ".json",
                             ".npz", ".pt", ".pkl", ".pickle", ".h5", ".safetensors", ".sql"}) {
    if (!request.format.empty() || !InSmallLetters(request.output).ends_with(ending)) continue;
    throw UsageError(
        "--output {}: predictions are written as CSV (.csv), JSON lines (.jsonl) or an array "
        "(.npy): name such a file, or say with --format which of them {} is to be",
        request.output, request.output);
  }
  const Layout layout = LayoutOf(request);
  const std::string column_option = ColumnOption(request);
  const bool has_images = data.format() == config::Data::IMAGES;
  if (data.task() == config::Data::SEGMENTATION) {
    if (layout != Layout::kArray && layout != Layout::kPngFiles) {
      throw UsageError("--output {}: masks are written as an array: name a .npy file{}",
                       request.output,
                       has_images ? ", or a folder for PNG files, with / at its end" : "");
    }
    if (request.probabilities) throw UsageError("--probabilities: has no meaning for masks");
  }
  if (layout == Layout::kPngFiles && (!has_images || data.task() != config::Data::SEGMENTATION ||
                                      request.output == kStandardOutput)) {
    throw UsageError("--output {}: PNG files are for the masks of images, in a folder",
                     request.output);
  }
  if ((layout == Layout::kArray || layout == Layout::kPngFiles) && !column_option.empty()) {
    throw UsageError("{}: an array holds numbers alone: leave it out, or write CSV", column_option);
  }
  const bool has_classes = data.task() == config::Data::CLASSIFICATION;
  const bool are_labels_sent =
      data.task() == config::Data::MULTI_LABEL && !request.submission.empty();
  if (request.probabilities && !has_classes && !are_labels_sent) {
    throw UsageError("--probabilities: is for classes; labels and numbers have a column each");
  }
  if (data.format() != config::Data::CSV && (!request.id.empty() || !request.keep.empty())) {
    throw UsageError("{}: is for tables; images are named by their files",
                     request.id.empty() ? "--keep" : "--id");
  }
  if (request.submission.empty()) return;
  if (layout != Layout::kCsv) {
    throw UsageError("--submission: is written as CSV: name a .csv file with --output");
  }
  if (!request.keep.empty()) {
    throw UsageError("--keep: a submission has the sample's columns and no others");
  }
}

bool WritesBestOnly(const PredictionRequest& request, const config::Data& data) {
  return data.task() == config::Data::CLASSIFICATION && !request.probabilities &&
         request.submission.empty() && LayoutOf(request) != Layout::kArray;
}

PredictionFile::PredictionFile(PredictionRequest request, config::Config config, KeptFiles kept)
    : request_(std::move(request)), config_(std::move(config)) {
  for (const std::string& file : request_.files) KeepData(file, "the input", kept);
  kept.Add(request_.submission, "the sample submission");
  if (LayoutOf(request_) == Layout::kPngFiles) {
    mask_files_.emplace(request_.output, std::move(kept));
  } else {
    target_.emplace(request_.output, kept);
  }
}

void PredictionFile::Prepare(PredictedSamples samples) {
  samples_ = std::move(samples);
  if (mask_files_) {
    mask_files_->Prepare(request_.files.front(), samples_.files, samples_.numbers);
    return;
  }
  const SampleSpec& spec = samples_.spec;
  const auto& labels = data().csv().label();
  const std::vector<std::string> names =
      spec.task == Task::kClassification ? spec.class_names
                                         : std::vector<std::string>(labels.begin(), labels.end());
  outputs_ = {.task = spec.task,
              .names = NamesOf(names, spec.classes),
              .have_names = !names.empty(),
              .best_only = WritesBestOnly(request_, data())};
  if (LayoutOf(request_) == Layout::kArray) return;
  if (!request_.submission.empty()) {
    submission_.emplace(request_.submission, outputs_, request_.probabilities,
                        DecimalRuleOf(data().csv()));
  }
  PredictionColumn sample_names = NamesOfSamples();
  if (submission_) {
    std::vector<std::string> ids;
    for (int64_t i = 0; i < samples_.size(); ++i) ids.push_back(sample_names.cell(i));
    submission_->Match(ids, !samples_.files.empty());
    return;
  }
  input_columns_ = {std::move(sample_names)};
  if (!samples_.folds.empty()) {
    input_columns_.push_back({.name = "fold", .kind = Kind::kNumber, .cell = [this](int64_t row) {
                                return std::to_string(samples_.folds[row]);
                              }});
  }
  std::vector<std::string> kept;  // each column once
  for (const std::string& name : request_.keep) {
    if (name != request_.id && std::ranges::find(kept, name) == kept.end()) kept.push_back(name);
  }
  if (kept.empty()) return;
  std::ranges::move(ReadColumns(kept, "--keep"), std::back_inserter(input_columns_));
}

PredictionColumn PredictionFile::NamesOfSamples() const {
  if (!samples_.files.empty()) {
    return {.name = "file", .cell = [this](int64_t row) { return samples_.files[row]; }};
  }
  if (!request_.id.empty()) return ReadColumns({request_.id}, "--id").front();
  if (submission_ && data().format() == config::Data::CSV && data().csv().header()) {
    return ReadColumns({submission_->id_name()}, "--submission").front();
  }
  return {.name = "index", .kind = Kind::kNumber, .cell = [this](int64_t row) {
            return std::to_string(samples_.numbers[row]);
          }};
}

std::vector<PredictionColumn> PredictionFile::ReadColumns(const std::vector<std::string>& names,
                                                          std::string_view field) const {
  std::vector<PredictionColumn> columns;
  auto texts = ReadFileColumns(config_, request_.files, names, field);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto kept = std::make_shared<const std::vector<std::string>>(std::move(texts[i]));
    columns.push_back(
        {.name = names[i],
         .kind = Kind::kCopied,
         .cell = [this, kept](int64_t row) { return kept->at(samples_.numbers[row]); },
         .owner = PredictionColumn::Owner::kInput});
  }
  return columns;
}

void PredictionFile::Write(const at::Tensor& values) {
  if (mask_files_) {
    const auto& class_values = data().images().mask_values();
    mask_files_->Write({values.const_data_ptr<uint8_t>(), static_cast<size_t>(values.numel())},
                       {.width = values.size(2), .height = values.size(1)},
                       {class_values.data(), static_cast<size_t>(class_values.size())});
    return;
  }
  target_->Write([&](const AppendBytes& append) {
    const Layout layout = LayoutOf(request_);
    if (layout == Layout::kArray) {
      const bool masks = outputs_.task == Task::kSegmentation;
      const at::Tensor array = masks ? values : values.to(at::kFloat);
      const std::string header = NpyHeader(masks ? "|u1" : "<f4", array.sizes());
      append(std::as_bytes(std::span(header)));
      append({static_cast<const std::byte*>(array.const_data_ptr()), array.nbytes()});
      return;
    }
    outputs_.values = values;
    PredictionTable table;
    if (submission_) {
      table = submission_->Table(outputs_);
    } else {
      table = {.rows = values.size(0), .columns = input_columns_};
      for (PredictionColumn& column : ColumnsOf(outputs_)) {
        table.columns.push_back(std::move(column));
      }
      for (const std::string& line : MakeNamesDiffer(table.columns)) Announce(line);
    }
    if (layout == Layout::kCsv) {
      WriteCsv(table, submission_ ? submission_->delimiter() : ',', append);
    } else {
      WriteJsonLines(table, append);
    }
  });
}

}  // namespace lockstep
