// Options for a user's own model or data set. The config gives them as option { key value }.
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

  // Throws Error (kUsage) if the config has an option for which Text() or Integer() was never called, because that is a
  // mistake of the user. The error says that `who`, such as "model \"mine\"", has no option with that name.
  void RequireAllAsked(const std::string& who) const;

 private:
  std::string where_;
  Map values_;
  // The options that were asked for. All copies of an Options share this list, because the code that asks may have a
  // copy.
  std::shared_ptr<std::vector<std::string>> asked_ = std::make_shared<std::vector<std::string>>();
};

}  // namespace lockstep
