#include "ops/plan/plan_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/files/file_descriptor.h"
#include "base/files/new_file.h"
#include "base/files/xxh3.h"

namespace lockstep::ops {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSeparator = " = ";

constexpr WriteErrors kErrors{.status = ExitStatus::kBug, .when_full = ""};

// Locks a file until the FileLock is destroyed. If the lock is not free within a second, the file stays unlocked.
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
  FileDescriptor descriptor_;  // closing the descriptor releases the lock
};

// Returns the name of a device's file, KIND-DEVICE.txt. In DEVICE one '-' replaces each run of characters of the
// device's text that are neither letters nor digits.
std::string FileName(std::string_view kind, const std::string& device) {
  std::string name = std::string(kind) + '-';
  for (const char c : device) {
    const bool stays = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (stays || name.back() != '-') name += stays ? c : '-';
  }
  return name + ".txt";
}

}  // namespace

std::string PlanLine(const std::string& device, const std::string& key, const std::string& plan) {
  const std::string line = fmt::format("{}{}{}", key, kSeparator, plan);
  return line + fmt::format(" {:016x}", Xxh3Of(device + '\n' + line));
}

std::optional<std::pair<std::string, std::string>> ParsePlanLine(const std::string& device,
                                                                 const std::string& line) {
  const size_t separator = line.find(kSeparator);
  const size_t end = line.rfind(' ');
  if (separator == std::string::npos || end < separator + kSeparator.size()) return std::nullopt;
  const size_t plan = separator + kSeparator.size();
  std::pair parsed(line.substr(0, separator), line.substr(plan, end - plan));
  // The comparison of the whole line also checks the checksum.
  if (PlanLine(device, parsed.first, parsed.second) != line) return std::nullopt;
  return parsed;
}

PlanFile::PlanFile(const std::string& folder, std::string_view kind, std::string device)
    : device_(std::move(device)),
      path_(folder.empty() ? std::string()
                           : (fs::path(folder) / FileName(kind, device_)).string()) {}

PlanTexts PlanFile::Read() const {
  PlanTexts plans;
  std::error_code error;
  // Only regular files are opened, because opening a pipe would wait for a writer.
  if (path_.empty() || !fs::is_regular_file(path_, error)) return plans;
  std::ifstream file(path_, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    if (auto parsed = ParsePlanLine(device_, line)) plans.insert(*std::move(parsed));
  }
  return plans;
}

PlanTexts PlanFile::Keep(const std::string& key, const std::string& plan,
                         const std::function<bool(const std::string&)>& is_usable) const {
  if (path_.empty()) return {{key, plan}};
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  const FileLock lock(path_ + ".lock");
  PlanTexts plans = Read();
  const auto it = plans.find(key);
  if (it != plans.end() && is_usable(it->second)) return plans;
  plans[key] = plan;
  Write(plans);
  return plans;
}

void PlanFile::Write(const PlanTexts& plans) const {
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
