// Fills in the defaults of the fields that a config does not set, and tells which options apply to a config. (For
// example, ResNet's options do not apply if the model is an LSTM.)
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "config/schema/config.pb.h"

namespace lockstep {

// Returns the reason why the options in `field` do not apply to `config`, as the end of an error message that begins
// with the field's name. Returns an empty text if they apply, or if `field` is not a message. The options of a model or
// of a data format apply only to configs with that model or that format.
std::string WhyNoMeaning(const config::Config& config,
                         const google::protobuf::FieldDescriptor& field);

// Sets every unset field of `message`, and of the messages in it, to its default. Messages that do not apply to
// `config` stay unset.
void FillDefaults(google::protobuf::Message& message, const config::Config& config);

}  // namespace lockstep
