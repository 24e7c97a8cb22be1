#include "config/kept_inputs.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <string_view>

#include "config/schema/fields.h"
#include "config/schema/options.pb.h"
#include "data/images/image_names.h"

namespace lockstep {

void KeepData(const std::string& path, const std::string& what, KeptFiles& kept) {
  kept.Add(path, what,
           [](std::string_view name) { return IsImageName(name) || IsShardName(name); });
}

void KeepFilesOf(const config::Config& config, const std::string& of, KeptFiles& kept) {
  VisitSetFields(config, "",
                 [&](const google::protobuf::Message& message,
                     const google::protobuf::FieldDescriptor& field, const std::string& name) {
                   if (!field.options().GetExtension(config::existing_file)) return;
                   for (const std::string& file : StringsOf(message, field)) {
                     KeepData(file, fmt::format("{} of {}", name, of), kept);
                   }
                 });
}

}  // namespace lockstep
