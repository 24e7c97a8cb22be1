// Fills in the defaults of the fields that a config does not set, and says which options have a meaning in a config.
// (For example, ResNet's options have no meaning if the model is an LSTM.)
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "trainer/config/schema/config.pb.h"

namespace lockstep {

// What a message field of a config is for.
enum class OptionsOf { kAll, kOneModel, kOneFormat, kPixels };
OptionsOf Owner(const google::protobuf::FieldDescriptor& field);

// Whether a config like this has the message `field` at all: each model's and each format's options are for that one
// alone.
bool HasMeaning(const config::Config& config, const google::protobuf::FieldDescriptor& field);

// Sets every field that is not set to its default, in `message` and those below it, but for messages without a meaning
// in `config`.
void FillDefaults(google::protobuf::Message& message, const config::Config& config);

}  // namespace lockstep
