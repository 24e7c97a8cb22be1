// PlaceOf(): where a tensor with a dotted name belongs in a module.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>

namespace lockstep {

// Returns the module below `root` that has the tensor `name` ("layer1.0.conv1.weight"), and the name's last part. Makes
// the modules that are missing.
std::pair<torch::nn::Module*, std::string> PlaceOf(torch::nn::Module& root,
                                                   const std::string& name);

}  // namespace lockstep
