#include "data/tables/csv_rows.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace lockstep {
namespace {

class CsvDataset : public Dataset {
 public:
  CsvDataset(SampleSpec spec, CsvRows rows, const std::vector<CsvColumn>& columns)
      : spec_(std::move(spec)), rows_(std::move(rows)) {
    width_ = static_cast<int64_t>(rows_.cells.size()) / rows_.count;
    int64_t inputs = 0;
    for (const CsvColumn& column : columns) {
      parts_.push_back(
          {.begin = inputs, .cells = CellsOf(column), .is_category = column.is_category()});
      inputs += column.inputs();
    }
    if (std::ranges::none_of(parts_, &Part::is_category)) parts_.clear();
    spec_.shape = {parts_.empty() ? width_ : inputs};
  }

  int64_t size() const override { return rows_.count; }
  const SampleSpec& spec() const override { return spec_; }

  void Read(int64_t index, int64_t /*epoch*/, std::byte* input, std::byte* target) const override {
    ReadInput(rows_.cells.data() + index * width_, reinterpret_cast<float*>(input));
    const int64_t bytes = spec_.target_bytes();
    std::memcpy(target, Targets().data() + index * bytes, bytes);
  }

  std::vector<std::string> Remarks() const override { return rows_.remarks; }

  DataContents Contents() const override {
    DataContents contents = rows_.files;
    contents.AddSamples("features", std::as_bytes(std::span(rows_.cells)), "labels", Targets(),
                        rows_.count);
    return contents;
  }

 private:
  // The elements of an input that come from one feature column. `begin` is the first of them, and `cells` is the number
  // of elements of CsvRows::cells that the column takes for each row.
  struct Part {
    int64_t begin;
    int64_t cells;
    bool is_category;
  };

  std::span<const std::byte> Targets() const {
    return spec_.task == Task::kClassification ? std::as_bytes(std::span(rows_.labels))
                                               : std::as_bytes(std::span(rows_.targets));
  }

  void ReadInput(const float* row, float* input) const {
    if (parts_.empty()) {
      std::copy_n(row, width_, input);
      return;
    }
    std::fill_n(input, spec_.shape[0], 0.0F);
    for (const Part& part : parts_) {
      if (!part.is_category) {
        std::copy_n(row, part.cells, input + part.begin);
      } else if (*row >= 0) {
        input[part.begin + static_cast<int64_t>(*row)] = 1;
      }
      row += part.cells;
    }
  }

  SampleSpec spec_;
  CsvRows rows_;
  int64_t width_ = 0;        // the number of cells of one row
  std::vector<Part> parts_;  // empty: the cells of a row are the input as they are
};

}  // namespace

int64_t CellsOf(const CsvColumn& column) { return column.is_category() ? 1 : column.inputs(); }

std::shared_ptr<const Dataset> MakeCsvDataset(SampleSpec spec, CsvRows rows,
                                              const std::vector<CsvColumn>& columns) {
  return std::make_shared<CsvDataset>(std::move(spec), std::move(rows), columns);
}

}  // namespace lockstep
