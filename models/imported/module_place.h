// PlaceOf(): finds the submodule to which a tensor with a dotted name belongs.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>

namespace lockstep {

// Returns the module below `root` that owns the tensor `name`, such as "layer1.0.conv1.weight", and the last part of
// the name. Creates modules that are missing on the way.
std::pair<torch::nn::Module*, std::string> PlaceOf(torch::nn::Module& root,
                                                   const std::string& name);

}  // namespace lockstep
