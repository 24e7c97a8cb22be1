// Options: the options of a user-defined model or data set. A config sets each option by a field
// `option { key: "..." value: "..." }`.
#pragma once

#include <google/protobuf/map.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class Options {
 public:
  using Map = google::protobuf::Map<std::string, std::string>;

  Options() = default;
  // `where` names the field of the config in error messages.
  Options(std::string where, const Map& values);

  // Returns the value of an option, or `fallback` if the config has no such option.
  std::string Text(const std::string& key, const std::string& fallback) const;

  // Returns the value of an option that is an integer, or `fallback` if the config has no such option. Throws Error
  // (kUsage) if the value is not an integer.
  int64_t Integer(const std::string& key, int64_t fallback) const;

  // Throws Error (kUsage) if the config has an option for which Text() or Integer() was never called, because such an
  // option has no effect. The error says that `who`, such as "model \"mine\"", has no option with that name.
  void RequireAllAsked(const std::string& who) const;

 private:
  std::string where_;
  Map values_;
  // The keys that were passed to Text() and Integer(). All copies of an Options share this list, because the model or
  // data set may call these functions on a copy.
  std::shared_ptr<std::vector<std::string>> asked_ = std::make_shared<std::vector<std::string>>();
};

}  // namespace lockstep
