// EditedConfig(): sets fields in the text of a config and keeps the rest of the text, comments included, unchanged.
//
// what can fail -> what the caller sees -> the test that shows it (config/edit_config_test.cc)
//   the text is not a config, or the field has another type -> Error (kUsage) -> EditedConfig.SaysWhatIsNoConfig
//   the text lacks the message of a field -> the message is added at the end -> EditedConfig.AddsWhatIsMissing
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.pb.h"

namespace lockstep {

struct FieldEdit {
  std::string name;   // for example "optimizer.lr" or "data.images.cache"
  std::string value;  // in the syntax of a config file, for example "0.01"
  std::string why;    // a comment for the line above the field; empty: no comment
};

// Returns `text` with each field set. Neither a field nor a message that contains it may be a repeated field. `path` is
// the config's path, for error messages. Throws Error (kUsage).
std::string EditedConfig(const std::string& path, const std::string& text,
                         const std::vector<FieldEdit>& edits);

// Returns the value of the field `name` of `config` in the syntax of a config file, for example "0.01". `name` is as in
// FieldEdit.
std::string FieldText(const config::Config& config, const std::string& name);

}  // namespace lockstep
