// Maps NumPy's .npy files into memory. A file (numpy.lib.format, versions 1 to 3) has "\x93NUMPY", the version, the
// header's length, a Python dictionary of 'descr', 'fortran_order' and 'shape', and then the numbers.

#include "data/arrays/npy.h"

#include <ATen/core/Tensor.h>
#include <c10/util/TypeCast.h>
#include <c10/util/accumulate.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/readable_file.h"
#include "base/printable_number.h"
#include "data/dataset/inferred_classes.h"
#include "data/dataset/sample_record.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// Calls visit(T{}) with the type T that `descr` names, whatever its byte order is; the names "<f4" and ">f4", for
// example, stand for float. Returns false if the type is not supported.
template <typename Visit>
bool WithType(std::string_view descr, const Visit& visit) {
  if (descr.size() != 3 || std::string_view("<>|=").find(descr[0]) == descr.npos) return false;
  const std::string_view type = descr.substr(1);
  if (type == "f2") return visit(at::Half{}), true;
  if (type == "f4") return visit(float{}), true;
  if (type == "f8") return visit(double{}), true;
  if (type == "b1" || type == "u1") return visit(uint8_t{}), true;
  if (type == "u2") return visit(uint16_t{}), true;
  if (type == "u4") return visit(uint32_t{}), true;
  if (type == "u8") return visit(uint64_t{}), true;
  if (type == "i1") return visit(int8_t{}), true;
  if (type == "i2") return visit(int16_t{}), true;
  if (type == "i4") return visit(int32_t{}), true;
  if (type == "i8") return visit(int64_t{}), true;
  return false;
}

// Returns a number whose bytes are those of `number` in the opposite order.
template <typename Number>
Number WithSwappedBytes(Number number) {
  std::array<std::byte, sizeof(Number)> bytes;
  std::memcpy(bytes.data(), &number, sizeof(number));
  std::ranges::reverse(bytes);
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

// Returns whether a number is an integer that a float64 holds exactly.
bool IsInteger(double number) {
  constexpr double kMost = 9007199254740992;  // 2^53
  return number == std::floor(number) && std::abs(number) <= kMost;
}

class Array {
 public:
  explicit Array(const std::string& path) : file_(path) {
    const std::string_view bytes(file_.data(), file_.bytes());
    if (!bytes.starts_with(kMagic) || bytes.size() < 12) {
      throw DataError("{}: no .npy file{}", path,
                      bytes.starts_with("PK") ? ": take the arrays out of the .npz archive" : "");
    }
    const int version = static_cast<unsigned char>(bytes[6]);
    if (version < 1 || version > 3) throw DataError("{}: .npy version {}", path, version);
    const size_t length_bytes = version == 1 ? 2 : 4;
    size_t length = 0;
    for (size_t i = length_bytes; i-- > 0;) {
      length = length << 8 | static_cast<unsigned char>(bytes[8 + i]);
    }
    const size_t begin = 8 + length_bytes;
    if (length > bytes.size() - begin) throw DataError("{}: the header is cut short", path);
    ParseHeader(bytes.substr(begin, length));
    numbers_ = bytes.data() + begin + length;

    WithType(type_, [&](auto zero) { item_bytes_ = sizeof(zero); });
    int64_t expected = item_bytes_;
    for (const int64_t size : shape_) {
      if (size < 0 || __builtin_mul_overflow(expected, size, &expected)) {
        throw DataError("{}: the header's shape is larger than any file", path);
      }
    }
    const auto there = static_cast<int64_t>(bytes.size() - begin - length);
    if (expected != there) {
      throw DataError("{}: {} bytes of numbers where the header says {}: {}", path, there, expected,
                      there < expected ? "it is cut short" : "there is more behind the end");
    }
    if (there == 0) throw DataError("{}: the array is empty", path);
  }

  const std::string& path() const { return file_.path(); }
  const std::string& type() const { return type_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  bool holds_bytes() const { return type_ == "|u1"; }

  // Converts the `count` elements from index `begin` on, in the order of rows, to the type To, and writes them to `to`.
  template <typename To>
  void Read(int64_t begin, int64_t count, To* to) const {
    if (lies_by_columns_) {
      ReadByColumns(begin, count, to);
      return;
    }
    const char* from = numbers_ + begin * item_bytes_;
    if (holds_bytes() && std::is_same_v<To, uint8_t>) {
      std::memcpy(to, from, count);
      return;
    }
    WithNumbers([&](const auto& number_at) {
      for (int64_t i = 0; i < count; ++i, from += sizeof(number_at(from))) {
        to[i] = c10::convert<To>(number_at(from));
      }
    });
  }

  // Reads as Read() does, where integers are wanted. Numbers of any type are integers by their values: 2.0 is one.
  // Returns the index, from `begin` on, of the first number that is none; nullopt if all are integers.
  std::optional<int64_t> ReadIntegers(int64_t begin, int64_t count, int64_t* to) const {
    if (type_[1] != 'f') {
      Read(begin, count, to);
      if (type_.substr(1) != "u8") return std::nullopt;
      // An unsigned integer of 2^63 or more is none of int64_t, in which it is negative.
      const auto* const great =
          std::find_if(to, to + count, [](int64_t number) { return number < 0; });
      return great == to + count ? std::nullopt : std::optional<int64_t>(great - to);
    }
    std::vector<double> numbers(count);
    Read(begin, count, numbers.data());
    const auto bad = std::ranges::find_if_not(numbers, IsInteger);
    if (bad != numbers.end()) return bad - numbers.begin();
    std::ranges::transform(numbers, to, [](double number) { return static_cast<int64_t>(number); });
    return std::nullopt;
  }

  // Returns the bytes of all elements, in the order in which the file has them.
  std::span<const std::byte> bytes() const {
    return std::as_bytes(
        std::span(numbers_, static_cast<size_t>(item_bytes_ * c10::multiply_integers(shape_))));
  }

  // Returns a hash of the `count` elements from index `begin` on, as the file has them.
  uint32_t HashOf(int64_t begin, int64_t count) const {
    if (!lies_by_columns_) {
      return SampleRecord::HashOf(bytes().subspan(begin * item_bytes_, count * item_bytes_));
    }
    uint32_t hash = 0;
    WithType(type_, [&](auto zero) {
      std::vector<decltype(zero)> elements(count);
      ReadByColumns(begin, count, elements.data());
      hash = SampleRecord::HashOf(std::as_bytes(std::span(elements)));
    });
    return hash;
  }

  // Returns the element at `index` as a text for messages.
  std::string TextOf(int64_t index) const {
    double number = 0;
    Read(index, 1, &number);
    return fmt::format("{}", PrintableNumber(number));
  }

 private:
  // Calls read(number_at), in which number_at(from) returns the element whose bytes begin at `from`.
  template <typename ReadNumbers>
  void WithNumbers(const ReadNumbers& read) const {
    WithType(type_, [&](auto zero) {
      using Number = decltype(zero);
      const auto number_at = [](const char* from) {
        Number number;
        std::memcpy(&number, from, sizeof(number));
        return number;
      };
      if (type_[0] == '>') {
        read([&](const char* from) { return WithSwappedBytes(number_at(from)); });
      } else {
        read(number_at);
      }
    });
  }

  // Does Read() for an array in Fortran's order, in which the first index changes fastest.
  template <typename To>
  void ReadByColumns(int64_t begin, int64_t count, To* to) const {
    const size_t dimensions = shape_.size();
    std::vector<int64_t> index(dimensions), step_bytes(dimensions);
    int64_t bytes = item_bytes_;
    for (size_t d = 0; d < dimensions; ++d) {
      step_bytes[d] = bytes;
      bytes *= shape_[d];
    }
    const char* from = numbers_;
    for (size_t d = dimensions; d-- > 0;) {
      index[d] = begin % shape_[d];
      begin /= shape_[d];
      from += index[d] * step_bytes[d];
    }
    WithNumbers([&](const auto& number_at) {
      for (int64_t i = 0; i < count; ++i) {
        to[i] = c10::convert<To>(number_at(from));
        for (size_t d = dimensions; d-- > 0;) {
          from += step_bytes[d];
          if (++index[d] < shape_[d] || d == 0) break;
          from -= shape_[d] * step_bytes[d];
          index[d] = 0;
        }
      }
    });
  }

  void ParseHeader(std::string_view header) {
    const auto value_of = [&](std::string_view key) {
      const size_t at = header.find(key);
      const size_t value = at == header.npos ? at : header.find_first_not_of(": ", at + key.size());
      if (value == header.npos) throw DataError("{}: the header has no {}", path(), key);
      return header.substr(value);
    };
    const std::string_view descr = value_of("'descr'");
    const size_t end = descr.find('\'', 1);
    type_ = descr.starts_with('\'') && end != descr.npos ? descr.substr(1, end - 1) : "";
    if (!WithType(type_, [](auto) {})) {
      throw DataError(
          "{}: numbers of type {}: known are floats, integers and booleans of up to 64 bits",
          path(), type_.empty() ? "several fields" : type_);
    }
    if (type_[2] == '1') type_[0] = '|';  // a byte has no order
    const std::string_view order = value_of("'fortran_order'");
    lies_by_columns_ = order.starts_with("True");
    if (!lies_by_columns_ && !order.starts_with("False")) {
      throw DataError("{}: the header's fortran_order is neither True nor False", path());
    }
    std::string_view sizes = value_of("'shape'");
    sizes = sizes.substr(0, sizes.find(')'));
    for (size_t at = sizes.find_first_of("0123456789"); at != sizes.npos;
         at = sizes.find_first_of("0123456789", at)) {
      if (at > 0 && sizes[at - 1] == '-') {
        throw DataError("{}: the header's shape has a negative size", path());
      }
      int64_t size = -1;
      const auto [next, error] =
          std::from_chars(sizes.data() + at, sizes.data() + sizes.size(), size);
      if (error != std::errc()) size = -1;
      shape_.push_back(size);
      at = next - sizes.data();
    }
    if (shape_.empty()) throw DataError("{}: one number is no data set", path());
  }

  MappedFile file_;
  std::string type_;
  std::vector<int64_t> shape_;
  bool lies_by_columns_ = false;
  const char* numbers_ = nullptr;
  int64_t item_bytes_ = 0;
};

class Npy : public Dataset {
  // The most bytes of inputs that are read again before the first step of a resumed run, about.
  static constexpr int64_t kMostVerifiedBytes = int64_t{1} << 30;

 public:
  explicit Npy(const NpyOptions& options) : inputs_(options.inputs) {
    spec_.task = options.task;
    spec_.classes = options.classes;
    const std::vector<int64_t>& shape = inputs_.shape();
    size_ = shape[0];
    spec_.dtype = options.dtype;
    if (options.dtype == at::kByte) {
      SetPixels(shape);
    } else if (options.dtype == at::kLong) {
      SetTexts(shape);
    } else if (shape.size() < 2) {
      throw DataError(
          "{}: an array of shape [{}]: its first dimension counts samples, the others "
          "are an input's",
          inputs_.path(), size_);
    } else {
      spec_.shape = {shape.begin() + 1, shape.end()};
    }
    elements_ = c10::multiply_integers(spec_.shape);
    record_ = std::make_shared<SampleRecord>(SampleRecord::Options{
        .part = "inputs",
        .samples = size_,
        .name_of = [this](int64_t i) { return fmt::format("{}: sample {}", inputs_.path(), i); },
        .read = [this](int64_t i) { return inputs_.HashOf(i * elements_, elements_); },
        .changed_since =
            [this](int64_t time_ns, std::vector<int64_t> samples) {
              if (!ChangedSince(inputs_.path(), time_ns)) samples.clear();
              return samples;
            },
        .most_read = std::max<int64_t>(1, kMostVerifiedBytes / std::max<int64_t>(1, elements_))});
    if (options.task == Task::kSegmentation && spec_.shape.size() != 3) {
      throw DataError("{}: inputs of [{}] are no images of [channels, height, width]",
                      inputs_.path(), fmt::join(spec_.shape, ", "));
    }
    if (options.targets.empty()) {
      if (options.task != Task::kClassification)
        spec_.classes = std::max<int64_t>(1, spec_.classes);
      return;
    }
    Array targets(options.targets);
    contents_.AddFile(targets.path(), {reinterpret_cast<const char*>(targets.bytes().data()),
                                       targets.bytes().size()});
    contents_.AddPart(options.task == Task::kSegmentation ? "masks" : "labels", targets.bytes());
    if (targets.shape()[0] != size_) {
      throw DataError("{}: {} targets for the {} inputs of {}", targets.path(), targets.shape()[0],
                      size_, inputs_.path());
    }
    switch (options.task) {
      case Task::kClassification:
        ReadLabels(targets);
        break;
      case Task::kSegmentation:
        CheckMasks(targets);
        masks_.emplace(std::move(targets));
        break;
      default:
        ReadNumbers(targets);
    }
  }

  int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }

  void Read(int64_t index, int64_t /*epoch*/, std::byte* input, std::byte* target) const override {
    const uint32_t hash = inputs_.HashOf(index * elements_, elements_);
    record_->Check(index, hash);
    if (spec_.dtype == at::kByte) {
      inputs_.Read(index * elements_, elements_, reinterpret_cast<uint8_t*>(input));
    } else if (spec_.dtype == at::kLong) {
      auto* tokens = reinterpret_cast<int64_t*>(input);
      if (const auto bad = inputs_.ReadIntegers(index * elements_, elements_, tokens)) {
        throw DataError("{}: sample {}: {} is no token", inputs_.path(), index,
                        inputs_.TextOf(index * elements_ + *bad));
      }
      // A negative token is refused, because models use tokens as indices of a table.
      if (const auto* bad =
              std::find_if(tokens, tokens + elements_, [](int64_t token) { return token < 0; });
          bad != tokens + elements_) {
        throw DataError("{}: sample {}: {} is no token", inputs_.path(), index, *bad);
      }
    } else {
      inputs_.Read(index * elements_, elements_, reinterpret_cast<float*>(input));
    }
    if (spec_.task == Task::kClassification) {
      const int64_t label = labels_.empty() ? kNoLabel : labels_[index];
      std::memcpy(target, &label, sizeof(label));
    } else if (spec_.task == Task::kSegmentation) {
      const int64_t pixels = spec_.targets();
      if (masks_) {
        masks_->Read(index * pixels, pixels, reinterpret_cast<uint8_t*>(target));
      } else {
        std::fill_n(target, pixels, static_cast<std::byte>(kIgnoredPixel));
      }
    } else if (numbers_.empty()) {
      std::fill_n(reinterpret_cast<float*>(target), spec_.classes, std::nanf(""));
    } else {
      std::memcpy(target, &numbers_[index * spec_.classes], spec_.target_bytes());
    }
    record_->Keep(index, hash);
  }

  DataContents Contents() const override { return contents_; }
  std::vector<std::shared_ptr<SampleRecord>> Records() const override { return {record_}; }

  std::vector<std::string> Remarks() const override { return remarks_; }

 private:
  void SetPixels(const std::vector<int64_t>& shape) {
    std::optional<PixelLayout> layout = PixelLayoutOf({inputs_.type(), shape});
    if (!layout) {
      throw DataError("{}: PIXELS are unsigned bytes of 3 or 4 dimensions, not [{}]",
                      inputs_.path(), fmt::join(shape, ", "));
    }
    spec_.shape = std::move(layout->shape);
    spec_.channels_last = layout->channels_last;
  }

  void SetTexts(const std::vector<int64_t>& shape) {
    if (shape.size() != 2 && shape.size() != 3) {
      throw DataError(
          "{}: TEXTS are integers of [samples, tokens] or [samples, inputs, tokens], not [{}]",
          inputs_.path(), fmt::join(shape, ", "));
    }
    spec_.shape = {shape.begin() + 1, shape.end()};
  }

  // Checks that `targets` are integers of the shape [samples, height, width], [samples, 1, height, width] or [samples,
  // height, width, 1], and that each of them is a class or kIgnoredPixel. If spec_.classes is 0, sets it to the
  // greatest class + 1.
  void CheckMasks(const Array& targets) {
    const int64_t pixels = spec_.targets();
    const std::vector<int64_t>& shape = targets.shape();
    const int64_t rows = spec_.shape[1], columns = spec_.shape[2];
    const bool fits = shape == std::vector<int64_t>{size_, rows, columns} ||
                      shape == std::vector<int64_t>{size_, 1, rows, columns} ||
                      shape == std::vector<int64_t>{size_, rows, columns, 1};
    if (!fits) {
      throw DataError("{}: masks are integers of [samples, {}, {}] as the images are, not [{}]",
                      targets.path(), rows, columns, fmt::join(shape, ", "));
    }
    const bool finds_classes = spec_.classes == 0;
    const int64_t limit = finds_classes ? kIgnoredPixel : spec_.classes;
    std::set<int64_t> found;
    std::vector<int64_t> mask(pixels);
    for (int64_t i = 0; i < size_; ++i) {
      if (const auto bad = targets.ReadIntegers(i * pixels, pixels, mask.data())) {
        throw DataError("{}: sample {}, row {}, column {}: {} is no integer, as classes are",
                        targets.path(), i, *bad / columns, *bad % columns,
                        targets.TextOf(i * pixels + *bad));
      }
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        const int64_t label = mask[pixel];
        if (label != kIgnoredPixel && (label < 0 || label >= limit)) {
          throw DataError(
              "{}: sample {}, row {}, column {}: class {} is out of range: {}, and {} stands for "
              "a pixel without a class",
              targets.path(), i, pixel / columns, pixel % columns, label,
              finds_classes ? fmt::format("there can be {}", kIgnoredPixel)
                            : fmt::format("data.classes is {}", limit),
              kIgnoredPixel);
        }
        if (label != kIgnoredPixel && (pixel == 0 || label != mask[pixel - 1])) found.insert(label);
      }
    }
    if (!finds_classes) return;
    const std::vector<int64_t> labels(found.begin(), found.end());
    spec_.classes = labels.empty() ? 1 : labels.back() + 1;
    remarks_ = RemarksOnLabels<int64_t>(targets.path(), labels);
  }

  void ReadLabels(const Array& targets) {
    if (c10::multiply_integers(targets.shape()) != size_) {
      throw DataError(
          "{}: labels are one integer for each sample, not an array of [{}]: of a column for each "
          "class take numpy.argmax(labels, 1), or set data.task: MULTI_LABEL",
          targets.path(), fmt::join(targets.shape(), ", "));
    }
    labels_.resize(size_);
    if (const auto bad = targets.ReadIntegers(0, size_, labels_.data())) {
      throw DataError(
          "{}: sample {}: label {} is no integer: labels count the classes from 0 (numbers are "
          "learnt with data.task: REGRESSION)",
          targets.path(), *bad, targets.TextOf(*bad));
    }
    const bool finds_classes = spec_.classes == 0;
    if (finds_classes) {
      const auto greatest = std::ranges::max_element(labels_);
      if (*greatest >= kMaxInferredClasses) {
        throw DataError(
            "{}: sample {}: label {} is no likely class number: if it is one, set data.classes",
            targets.path(), greatest - labels_.begin(), *greatest);
      }
      spec_.classes = std::max<int64_t>(1, 1 + *greatest);
      remarks_ = RemarksOnLabels<int64_t>(targets.path(), labels_);
    }
    for (int64_t i = 0; i < size_; ++i) {
      if (labels_[i] >= 0 && labels_[i] < spec_.classes) continue;
      throw DataError("{}: sample {}: label {} is out of range: data.classes is {}", targets.path(),
                      i, labels_[i], spec_.classes);
    }
  }

  void ReadNumbers(const Array& targets) {
    const int64_t each = c10::multiply_integers(targets.shape()) / size_;
    if (spec_.classes != 0 && spec_.classes != each) {
      throw DataError("{}: {} numbers for each sample where data.classes is {}", targets.path(),
                      each, spec_.classes);
    }
    spec_.classes = each;
    numbers_.resize(size_ * each);
    targets.Read(0, size_ * each, numbers_.data());
    for (int64_t i = 0; i < size_ * each; ++i) {
      const bool fits = spec_.task == Task::kMultiLabel ? numbers_[i] == 0 || numbers_[i] == 1
                                                        : std::isfinite(numbers_[i]);
      if (fits) continue;
      throw DataError("{}: sample {}: {} is no {}", targets.path(), i / each,
                      PrintableNumber(numbers_[i]),
                      spec_.task == Task::kMultiLabel ? "0 or 1" : "finite number");
    }
  }

  Array inputs_;
  SampleSpec spec_;
  int64_t size_ = 0;
  int64_t elements_ = 0;   // the number of elements of one input
  DataContents contents_;  // the targets, which the constructor has read
  std::shared_ptr<SampleRecord> record_;
  std::vector<int64_t> labels_;  // the class of each sample; empty: the classes are unknown
  std::optional<Array> masks_;   // the checked masks, for segmentation; nullopt: unknown
  std::vector<float> numbers_;   // the targets of other tasks; empty: the targets are unknown
  std::vector<std::string> remarks_;
};

}  // namespace

std::shared_ptr<const Dataset> MapNpy(const NpyOptions& options) {
  return std::make_shared<Npy>(options);
}

std::optional<PixelLayout> PixelLayoutOf(const NpyInfo& info) {
  const std::vector<int64_t>& shape = info.shape;
  if (info.type != "|u1" || (shape.size() != 3 && shape.size() != 4)) return std::nullopt;
  if (shape.size() == 3) return PixelLayout{.shape = {1, shape[1], shape[2]}};
  const auto is_channels = [](int64_t size) { return size == 1 || size == 3; };
  if (is_channels(shape[3]) && !is_channels(shape[1])) {
    return PixelLayout{.shape = {shape[3], shape[1], shape[2]}, .channels_last = shape[3] > 1};
  }
  return PixelLayout{.shape = {shape.begin() + 1, shape.end()}};
}

NpyInfo ReadNpyInfo(const std::string& path) {
  const Array array(path);
  return {.type = array.type(), .shape = array.shape()};
}

std::optional<NpyElement> FindNotFinite(const std::string& path) {
  constexpr int64_t kAtOnce = 65'536;
  const Array array(path);
  if (array.type()[1] != 'f') return std::nullopt;
  const int64_t all = c10::multiply_integers(array.shape());
  const int64_t each = all / array.shape()[0];
  std::vector<float> numbers(std::min(all, kAtOnce));
  for (int64_t begin = 0; begin < all; begin += kAtOnce) {
    const int64_t count = std::min(kAtOnce, all - begin);
    array.Read(begin, count, numbers.data());
    // The sum of products with 0 is NaN if any number is not finite, and the compiler can make it fast.
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += numbers[i] * 0;
    if (sum == 0) continue;
    for (int64_t i = 0; i < count; ++i) {
      if (std::isfinite(numbers[i])) continue;
      return NpyElement{(begin + i) / each, (begin + i) % each, array.TextOf(begin + i)};
    }
  }
  return std::nullopt;
}

bool HoldsIntegers(const std::string& path) {
  constexpr int64_t kAtOnce = 65'536;
  const Array array(path);
  const int64_t all = c10::multiply_integers(array.shape());
  std::vector<int64_t> numbers(std::min(all, kAtOnce));
  for (int64_t begin = 0; begin < all; begin += kAtOnce) {
    if (array.ReadIntegers(begin, std::min(kAtOnce, all - begin), numbers.data())) return false;
  }
  return true;
}

std::string NpyHeader(std::string_view type, std::span<const int64_t> shape) {
  std::string dictionary = fmt::format(
      "{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}", type, fmt::join(shape, ", "));
  // The dictionary is padded with spaces, so that the array's elements begin at a multiple of 64 bytes in the file.
  constexpr size_t kAlignment = 64;
  const size_t before = kMagic.size() + 4;
  const size_t length =
      (before + dictionary.size() + 1 + kAlignment - 1) / kAlignment * kAlignment - before;
  dictionary.append(length - dictionary.size() - 1, ' ');
  std::string header(kMagic);
  header += {1, 0, static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return header + dictionary + '\n';
}

}  // namespace lockstep
