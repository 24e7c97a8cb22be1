#include "observe/profile/profile_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/open_file.h"
#include "base/files/unpack.h"
#include "observe/profile/trace_places.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kGzip = 16 + MAX_WBITS;  // window bits that make zlib use the gzip format

// The number of bytes that one call of zlib gets, which must fit in 32 bits.
constexpr size_t kPiece = size_t{1} << 20;

// Compresses `text` in the gzip format, and calls `append` with each piece.
void AppendCompressed(const std::string& text, const AppendBytes& append) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    throw CheckpointError("a trace cannot be compressed: there is no memory for it");
  }
  std::string piece(kPiece, '\0');
  int status = Z_OK;
  for (size_t at = 0; status == Z_OK;) {
    if (stream.avail_in == 0) {
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data() + at));
      stream.avail_in = static_cast<uInt>(std::min(kPiece, text.size() - at));
      at += stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    status = deflate(&stream, at == text.size() ? Z_FINISH : Z_NO_FLUSH);
    append(std::as_bytes(std::span(piece.data(), piece.size() - stream.avail_out)));
  }
  deflateEnd(&stream);
  if (status != Z_STREAM_END)
    throw CheckpointError("a trace cannot be compressed: zlib says {}", status);
}

struct FileText {
  std::string text;
  size_t file_bytes = 0;
};

// Returns the text of a file, which may be compressed by gzip. Throws Error (kUsage) if the compressed data are cut off
// or damaged, or longer than a file of this size may be.
FileText TextOf(const std::string& path) {
  const MappedFile file(path);
  const std::string_view bytes(file.data(), static_cast<size_t>(file.bytes()));
  if (!IsGzip(bytes)) return {std::string(bytes), bytes.size()};
  try {
    return {UnpackGzip(path, bytes, MostUnpackedBytes(bytes.size())), bytes.size()};
  } catch (const Error& error) {
    throw UsageError("{}", error.what());
  }
}

// Adds up the memory that the values of a JSON text would take, and ends the parsing when they take too much.
class ValueMemory : public nlohmann::json_sax<Json> {
 public:
  explicit ValueMemory(size_t most_bytes) : most_bytes_(most_bytes) {}

  bool is_too_much() const { return bytes_ > most_bytes_; }

  bool null() override { return Add(kValueBytes); }
  bool boolean(bool) override { return Add(kValueBytes); }
  bool number_integer(number_integer_t) override { return Add(kValueBytes); }
  bool number_unsigned(number_unsigned_t) override { return Add(kValueBytes); }
  bool number_float(number_float_t, const string_t&) override { return Add(kValueBytes); }
  bool string(string_t& text) override { return Add(kValueBytes + kTextBytes + text.size()); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Add(kValueBytes + kListBytes); }
  bool key(string_t& text) override { return Add(kNodeBytes + kTextBytes + text.size()); }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return Add(kValueBytes + kListBytes); }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

  // The most bytes that Add() gets for a byte of text, which is for `[],`.
  static constexpr size_t kMostOfAByte = 40;

 private:
  // The memory that a value takes in a list that grows, that a list, an object or a text takes by itself, and that a
  // node takes in an object besides its key.
  static constexpr size_t kValueBytes = 48, kListBytes = 64, kTextBytes = 48, kNodeBytes = 48;

  bool Add(size_t bytes) {
    bytes_ += bytes;
    return !is_too_much();
  }

  const size_t most_bytes_;
  size_t bytes_ = 0;
};

// Returns the JSON value of `text`, the content of the file `path`, or a discarded value if it is no JSON. Throws Error
// (kUsage) if the value takes more than about `most_bytes` bytes of memory.
Json ParsedWithin(const std::string& path, const std::string& text, size_t most_bytes) {
  if (text.size() > most_bytes / ValueMemory::kMostOfAByte) {
    ValueMemory memory(most_bytes);
    Json::sax_parse(text, &memory);
    if (memory.is_too_much()) {
      throw UsageError(
          "{}: takes more than the {:.1f} GiB of memory that a file of its size may take: profile "
          "fewer steps",
          path, static_cast<double>(most_bytes) / (size_t{1} << 30));
    }
  }
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// Returns the number that `text` spells, such as "100"; nothing if it does not spell an integer of at least 1.
std::optional<int64_t> StepOf(std::string_view text) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size() || step < 1) return std::nullopt;
  return step;
}

std::string SummaryPath(const std::string& run_dir, int64_t step) {
  return ProfileFolder(run_dir, step) + "/summary.json";
}

RunProfile ReadSummary(const std::string& path) {
  try {
    constexpr size_t kMostBytes = size_t{64} << 20;
    std::string why;
    const std::string text = ReadPlainFile(path, kGivenByUser, kMostBytes, why);
    if (!why.empty()) throw UsageError("{}: cannot be read: {}", path, why);
    const auto json = nlohmann::ordered_json::parse(text);
    RunProfile profile{.step = json.at("step").get<int64_t>(),
                       .steps = json.at("steps").get<int64_t>(),
                       .time = json.at("time").get<double>(),
                       .version = json.at("version").get<std::string>(),
                       .ranks = {},
                       .slower = json.at("slower").get<std::vector<std::string>>()};
    for (const nlohmann::ordered_json& rank : json.at("ranks"))
      profile.ranks.push_back(RankProfileOf(rank));
    if (profile.ranks.empty()) throw UsageError("{}: tells of no rank", path);
    return profile;
  } catch (const Json::exception& exception) {
    throw UsageError("{}: is no summary of a profile, or of another version: {}", path,
                     exception.what());
  }
}

RunProfile ReadTrace(const std::string& path) {
  constexpr size_t kAlways = size_t{3} << 29, kRatio = 256;
  const auto [text, file_bytes] = TextOf(path);
  Json trace = ParsedWithin(path, text, std::max(kAlways, file_bytes * kRatio));
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
    throw UsageError("{}: is no Chrome trace, or is cut off", path);
  }
  try {
    Json& events = trace["traceEvents"];
    const bool on_gpu = std::ranges::any_of(events, IsDeviceWork);
    const bool has_places = std::ranges::any_of(events, [](const Json& event) {
      const auto arguments = event.find("args");
      return arguments != event.end() && arguments->contains("step");
    });
    if (!has_places) AddPlaces(trace, {}, on_gpu);
    RankProfile rank = ProfileOf(trace, on_gpu, /*peak_flops=*/0);
    if (rank.kernels.empty()) {
      throw UsageError("{}: has no kernels and no operations: was anything recorded?", path);
    }
    rank.device = "CPU";
    if (on_gpu) {
      const auto devices = trace.find("deviceProperties");
      rank.device =
          devices != trace.end() && !devices->empty() ? devices->at(0).value("name", "GPU") : "GPU";
    }
    if (trace.contains("distributedInfo")) rank.rank = trace["distributedInfo"].value("rank", 0);
    return {
        .step = 0, .steps = rank.steps, .time = 0, .version = {}, .ranks = {rank}, .slower = {}};
  } catch (const Json::exception& exception) {
    throw UsageError("{}: is no trace of this program or of PyTorch: {}", path, exception.what());
  }
}

}  // namespace

std::string ProfileFolder(const std::string& run_dir, int64_t step) {
  return fmt::format("{}/profiles/{}", run_dir, step);
}

std::string TraceFolder(const std::string& run_dir, int64_t step) {
  return ProfileFolder(run_dir, step) + "/traces";
}

std::string TracePath(const std::string& run_dir, int64_t step, int rank) {
  return fmt::format("{}/rank_{}.pt.trace.json.gz", TraceFolder(run_dir, step), rank);
}

std::string ProfileRequestPath(const std::string& run_dir) { return run_dir + "/profile.request"; }

void AppendTrace(const Json& trace, const std::string& path, const AppendBytes& append) {
  // The text is written in the indented form, with an indentation of 0. This form has a space after each colon, and
  // Holistic Trace Analysis looks for `"rank": ` with the space.
  const std::string text = trace.dump(0, ' ', false, Json::error_handler_t::replace);
  if (path.ends_with(".gz")) {
    AppendCompressed(text, append);
  } else {
    append(std::as_bytes(std::span(text)));
  }
}

nlohmann::ordered_json JsonOf(const RunProfile& profile) {
  nlohmann::ordered_json json{{"step", profile.step},
                              {"steps", profile.steps},
                              {"time", profile.time},
                              {"version", profile.version}};
  json["ranks"] = nlohmann::ordered_json::array();
  for (const RankProfile& rank : profile.ranks) json["ranks"].push_back(JsonOf(rank));
  json["slower"] = profile.slower;
  return json;
}

void WriteRunProfile(const RunProfile& profile, const std::string& run_dir) {
  WriteFileAtomically(SummaryPath(run_dir, profile.step),
                      JsonOf(profile).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::vector<int64_t> ProfilesOf(const std::string& run_dir) {
  std::vector<int64_t> steps;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_dir + "/profiles", ignored)) {
    const auto step = StepOf(entry.path().filename().string());
    if (step && fs::is_regular_file(SummaryPath(run_dir, *step), ignored)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

RunProfile ReadRunProfile(const std::string& name) {
  std::error_code ignored;
  if (fs::is_regular_file(name, ignored)) {
    return name.ends_with("summary.json") ? ReadSummary(name) : ReadTrace(name);
  }
  std::string run_dir = name;
  std::optional<int64_t> step;
  if (const size_t at = name.rfind('@');
      at != std::string::npos && !fs::is_directory(name, ignored)) {
    run_dir = name.substr(0, at);
    step = StepOf(std::string_view(name).substr(at + 1));
    if (!step) throw UsageError("{}: give RUN@STEP with a step of 1 or more", name);
  }
  if (!fs::is_directory(run_dir, ignored)) {
    throw UsageError("{}: no trace and no run folder: give RUN, RUN@STEP or the file of a trace",
                     name);
  }
  const std::vector<int64_t> steps = ProfilesOf(run_dir);
  if (steps.empty()) {
    throw UsageError(
        "{}: has no profile: ask for one with lockstep profile while it trains, or with profile "
        "{{ first_step: 100 }} in its config",
        run_dir);
  }
  if (step && std::ranges::find(steps, *step) == steps.end()) {
    throw UsageError("{}: has no profile of step {}, but of step{} {}", run_dir, *step,
                     steps.size() == 1 ? "" : "s", fmt::join(steps, ", "));
  }
  return ReadSummary(SummaryPath(run_dir, step.value_or(steps.back())));
}

bool NamesProfile(const std::string& name) {
  std::error_code ignored;
  if (fs::is_regular_file(name, ignored)) return true;
  const size_t at = name.rfind('@');
  return at != std::string::npos && StepOf(std::string_view(name).substr(at + 1)).has_value() &&
         !fs::is_directory(name, ignored);
}

}  // namespace lockstep
