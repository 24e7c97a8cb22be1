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
  // `where`: the field of the config, for errors.
  Options(std::string where, const Map& values);

  // `fallback` where the config has no such option.
  std::string Text(const std::string& key, const std::string& fallback) const;

  // Throws Error (kUsage) when the value is no integer.
  int64_t Integer(const std::string& key, int64_t fallback) const;

  // Throws Error (kUsage) where the config has an option that nobody asked for, which is taken for a mistake. `who`
  // has none of that name: "model \"mine\"".
  void RequireAllAsked(const std::string& who) const;

 private:
  std::string where_;
  Map values_;
  // One for all copies: who asks may have taken one.
  std::shared_ptr<std::vector<std::string>> asked_ = std::make_shared<std::vector<std::string>>();
};

}  // namespace lockstep
