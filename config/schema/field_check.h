// FieldCheck: a config that is being checked, with the position of each value in the config file. Error messages name
// the position.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <map>
#include <string>

#include "config/schema/config.pb.h"

namespace lockstep {

// Says for each field where its value was given: "path:line:column", or the text of the --set option. The key is the
// field's name with dots, such as "data.csv".
using Origins = std::map<std::string, std::string>;

class FieldCheck {
 public:
  using Texts = google::protobuf::RepeatedPtrField<std::string>;

  // The object keeps references to all three arguments. `path` is the path of the config file.
  FieldCheck(const config::Config& config, const std::string& path, const Origins& origins)
      : config_(config), path_(path), origins_(origins) {}

  const config::Config& config() const { return config_; }
  const std::string& path() const { return path_; }

  // Returns whether the user gave the field `name`, such as "data.csv".
  bool IsSet(const std::string& name) const { return origins_.contains(name); }

  // Throws Error (kUsage) whose text consists of the field's position, its name `name`, and `what`.
  [[noreturn]] void Fail(const std::string& name, const std::string& what) const;

  // Throws Error (kUsage) if two of `texts`, the values of the field `name`, are the same.
  void RequireDistinct(const std::string& name, const Texts& texts) const;

 private:
  const config::Config& config_;
  const std::string& path_;
  const Origins& origins_;
};

}  // namespace lockstep
