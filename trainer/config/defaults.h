// Fills in the defaults of the fields that a config does not set, and says which options have a meaning in a config.
// (For example, ResNet's options have no meaning if the model is an LSTM.)
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "trainer/config/schema/config.pb.h"

namespace lockstep {

// Why a config like this has no use for `field`, as the tail of a line that names the field; empty: it has, or the field
// is no message. The options of a model or of a format are for that one alone.
std::string WhyNoMeaning(const config::Config& config,
                         const google::protobuf::FieldDescriptor& field);

// Sets every field that is not set to its default, in `message` and those below it, but for messages without a meaning
// in `config`.
void FillDefaults(google::protobuf::Message& message, const config::Config& config);

}  // namespace lockstep
