// Fills in the defaults of the fields that a config does not set, and says which options have a meaning in a config.
// (For example, ResNet's options have no meaning if the model is an LSTM.)
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "config/schema/config.pb.h"

namespace lockstep {

// The options of a model or of a data format have a meaning only in a config with this model or this format. If `field`
// holds such options and has no meaning in `config`, returns the reason, as the end of a line that names the field.
// Otherwise returns an empty text, also if `field` is not a message.
std::string WhyNoMeaning(const config::Config& config,
                         const google::protobuf::FieldDescriptor& field);

// Sets every unset field of `message`, and of the messages in it, to its default. Messages that have no meaning in
// `config` stay unset.
void FillDefaults(google::protobuf::Message& message, const config::Config& config);

}  // namespace lockstep
