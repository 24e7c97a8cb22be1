// EditedConfig(): sets fields in the text of a config, and leaves the rest of the text, comments included, as it is.
//
// what can fail -> what the caller sees -> the test that shows it (config/edit_config_test.cc)
//   the text is no config, or the field has another type -> Error (kUsage) -> EditedConfig.SaysWhatIsNoConfig
//   a field that the text has no message for -> a message at the end -> EditedConfig.AddsWhatIsMissing
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.pb.h"

namespace lockstep {

struct FieldEdit {
  std::string name;   // "optimizer.lr", "data.images.cache"
  std::string value;  // as a config has it: "0.01"
  std::string why;    // a comment in the line above; empty: none
};

// Returns `text` with each field set. Neither a field nor a message that it lies in may be repeated. `path` is for
// errors. Throws Error (kUsage).
std::string EditedConfig(const std::string& path, const std::string& text,
                         const std::vector<FieldEdit>& edits);

// Returns the value of a field of `config` as a config has it: "0.01". `name` as in FieldEdit.
std::string FieldText(const config::Config& config, const std::string& name);

}  // namespace lockstep
