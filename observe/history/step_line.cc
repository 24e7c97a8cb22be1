#include "observe/history/step_line.h"

#include <charconv>
#include <limits>
#include <system_error>

namespace lockstep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Removes `text` from the beginning of `rest`. Returns false if `rest` begins with something else.
bool Skip(std::string_view text, std::string_view& rest) {
  if (!rest.starts_with(text)) return false;
  rest.remove_prefix(text.size());
  return true;
}

// Removes a name in quotes and the colon after the name from the beginning of `rest`. Returns false if there is no such
// name, or if the name has JSON escapes or is not ASCII.
bool TakeName(std::string_view& rest, std::string_view& name) {
  if (!Skip("\"", rest)) return false;
  size_t end = 0;
  while (end < rest.size() && rest[end] != '"') {
    if (rest[end] == '\\' || rest[end] < ' ' || rest[end] > '~') return false;
    ++end;
  }
  name = rest.substr(0, end);
  rest.remove_prefix(end);
  return Skip("\":", rest);
}

// Removes a number from the beginning of `rest`. Returns false if JSON does not allow the number, as for "inf", "01"
// and "1.", although from_chars() accepts these.
bool TakeNumber(std::string_view& rest, double& value) {
  const size_t digits = rest.starts_with('-') ? 1 : 0;
  if (digits >= rest.size() || !IsDigit(rest[digits])) return false;
  if (rest[digits] == '0' && digits + 1 < rest.size() && IsDigit(rest[digits + 1])) return false;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc()) return false;
  const std::string_view text = rest.substr(0, static_cast<size_t>(end - rest.data()));
  const size_t point = text.find('.');
  if (point != std::string_view::npos && (point + 1 >= text.size() || !IsDigit(text[point + 1]))) {
    return false;
  }
  rest.remove_prefix(text.size());
  return true;
}

bool TakeCount(std::string_view& rest, int64_t& value) {
  size_t digits = 0;
  while (digits < rest.size() && IsDigit(rest[digits])) ++digits;
  if (digits == 0 || (digits > 1 && rest[0] == '0')) return false;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + digits, value);
  rest.remove_prefix(digits);
  return error == std::errc() && (rest.starts_with(',') || rest.starts_with('}'));
}

// Returns the member of `step` for the field `name`, or null if LoggedStep has no such member.
double* FieldOf(std::string_view name, LoggedStep& step) {
  if (name == "loss") return &step.loss;
  if (name == "time") return &step.time;
  if (name == "lr") return &step.lr;
  if (name == "samples_per_s") return &step.samples_per_s;
  if (name == "data_wait") return &step.data_wait;
  if (name == "grad_norm") return &step.grad_norm;
  if (name == "left_s") return &step.left_s;
  return nullptr;
}

}  // namespace

std::optional<LoggedStep> ReadStepLine(std::string_view line) {
  if (!Skip(kStepBegins, line)) return std::nullopt;
  LoggedStep step{.time = kNan,
                  .loss = kNan,
                  .lr = kNan,
                  .samples_per_s = kNan,
                  .data_wait = kNan,
                  .left_s = kNan,
                  .grad_norm = kNan};
  bool has_step = false;
  while (true) {
    std::string_view name;
    if (!TakeName(line, name)) return std::nullopt;
    if (name == "step" || name == "epoch") {
      if (!TakeCount(line, name == "step" ? step.step : step.epoch)) return std::nullopt;
      has_step |= name == "step";
    } else {
      double value = kNan;
      if (!Skip("null", line) && !TakeNumber(line, value)) return std::nullopt;
      if (double* const field = FieldOf(name, step); field != nullptr) *field = value;
    }
    if (Skip("}", line)) break;
    if (!Skip(",", line)) return std::nullopt;
  }
  if (!has_step || !line.empty()) return std::nullopt;
  return step;
}

}  // namespace lockstep
