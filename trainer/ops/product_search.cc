#include "trainer/ops/product_search.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/new_file.h"
#include "base/xxh3.h"

namespace lockstep::ops {
namespace {

namespace fs = std::filesystem;

// What a candidate's time may be of the first's.
constexpr double kFasterShare = 0.98;

constexpr WriteErrors kErrors{.status = ExitStatus::kBug, .when_full = ""};

const char* Name(FloatType type) {
  switch (type) {
    case FloatType::kFloat16:
      return "f16";
    case FloatType::kBFloat16:
      return "bf16";
    default:
      return "f32";
  }
}

FloatType TypeNamed(std::string_view name) {
  if (name == "f16") return FloatType::kFloat16;
  return name == "bf16" ? FloatType::kBFloat16 : FloatType::kFloat32;
}

const char* OrderName(bool by_columns) { return by_columns ? "columns" : "rows"; }

// Held until it is destroyed, where it could be had in time.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (descriptor_.get() >= 0 && flock(descriptor_.get(), LOCK_EX | LOCK_NB) != 0 &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  FileDescriptor descriptor_;  // closing it ends the lock
};

// Of a device's text, what may stand in a file's name.
std::string FileName(const std::string& device) {
  std::string name = "products-";
  for (const char c : device) {
    const bool stays = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (stays || name.back() != '-') name += stays ? c : '-';
  }
  return name + ".txt";
}

}  // namespace

std::string Description(const ProductKey& key) {
  return fmt::format("{}x{}x{} a={}/{} b={}/{} to={} {}>{} {}", key.m, key.n, key.k,
                     OrderName(key.a_by_columns), key.a_stride, OrderName(key.b_by_columns),
                     key.b_stride, key.to_stride, Name(key.input), Name(key.output),
                     key.adds       ? "adds"
                     : key.has_bias ? "bias"
                                    : "sets");
}

double Median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

size_t ChooseCandidate(const std::vector<std::vector<double>>& times_us) {
  std::optional<size_t> best;
  double best_us = 0;
  for (size_t i = 0; i < times_us.size(); ++i) {
    if (times_us[i].empty()) continue;
    const double us = Median(times_us[i]);
    if (!best || us < best_us) {
      best = i;
      best_us = us;
    }
  }
  if (!best) throw BugError("none of {} algorithms was timed", times_us.size());
  const bool stays = !times_us[0].empty() && best_us > kFasterShare * Median(times_us[0]);
  return stays ? 0 : *best;
}

std::string PlanLine(const std::string& device, const ProductKey& key, const ProductPlan& plan) {
  std::string line = Description(key) + ' ';
  for (const uint64_t word : plan.algorithm) line += fmt::format("{:016x}", word);
  line += fmt::format(" {} {:.3f} {:.3f}", plan.workspace_bytes, plan.us, plan.first_us);
  return line + fmt::format(" {:016x}", Xxh3Of(device + '\n' + line));
}

std::optional<KeyedPlan> ParsePlanLine(const std::string& device, const std::string& line) {
  KeyedPlan parsed;
  auto& [key, plan] = parsed;
  auto& words = plan.algorithm;
  char a_order[8], b_order[8], input[5], output[5], mode[5];
  constexpr int kFields = 22;
  const int fields = std::sscanf(
      line.c_str(),
      "%" SCNd64 "x%" SCNd64 "x%" SCNd64 " a=%7[a-z]/%" SCNd64 " b=%7[a-z]/%" SCNd64 " to=%" SCNd64
      " %4[a-z0-9]>%4[a-z0-9] %4[a-z]"
      " %16" SCNx64 "%16" SCNx64 "%16" SCNx64 "%16" SCNx64 "%16" SCNx64 "%16" SCNx64 "%16" SCNx64
      "%16" SCNx64 " %" SCNd64 " %lf %lf",
      &key.m, &key.n, &key.k, a_order, &key.a_stride, b_order, &key.b_stride, &key.to_stride, input,
      output, mode, &words[0], &words[1], &words[2], &words[3], &words[4], &words[5], &words[6],
      &words[7], &plan.workspace_bytes, &plan.us, &plan.first_us);
  if (fields != kFields) return std::nullopt;
  key.a_by_columns = a_order == std::string_view("columns");
  key.b_by_columns = b_order == std::string_view("columns");
  key.input = TypeNamed(input);
  key.output = TypeNamed(output);
  key.adds = mode == std::string_view("adds");
  key.has_bias = mode == std::string_view("bias");
  // This compares every character, and so the checksum, too.
  if (PlanLine(device, key, plan) != line) return std::nullopt;
  return parsed;
}

ProductPlanFile::ProductPlanFile(const std::string& folder, std::string device)
    : device_(std::move(device)),
      path_(folder.empty() ? std::string() : (fs::path(folder) / FileName(device_)).string()) {}

PlansByKey ProductPlanFile::Read() const {
  PlansByKey plans;
  std::error_code error;
  // Opening a pipe would wait for its writer.
  if (path_.empty() || !fs::is_regular_file(path_, error)) return plans;
  std::ifstream file(path_, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    if (const std::optional<KeyedPlan> parsed = ParsePlanLine(device_, line)) {
      plans.emplace(parsed->key, parsed->plan);
    }
  }
  return plans;
}

PlansByKey ProductPlanFile::Keep(const ProductKey& key, const ProductPlan& plan,
                                 const std::function<bool(const ProductPlan&)>& is_usable) const {
  if (path_.empty()) return {{key, plan}};
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  const FileLock lock(path_ + ".lock");
  PlansByKey plans = Read();
  const auto it = plans.find(key);
  if (it != plans.end() && is_usable(it->second)) return plans;
  plans[key] = plan;
  Write(plans);
  return plans;
}

void ProductPlanFile::Write(const PlansByKey& plans) const {
  std::string text;
  for (const auto& [key, plan] : plans) text += PlanLine(device_, key, plan) + '\n';
  try {
    NewFile file(path_, kErrors);
    file.Write(std::as_bytes(std::span(text)));
    file.Finish();
  } catch (const Error&) {
    // The file stays as it was.
  }
}

}  // namespace lockstep::ops
