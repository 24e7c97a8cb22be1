#include "models/imported/module_place.h"

#include <algorithm>
#include <memory>

namespace lockstep {

using torch::nn::Module;

std::pair<Module*, std::string> PlaceOf(Module& root, const std::string& name) {
  // LibTorch goes through a module's children by recursion.
  constexpr int64_t kMostDepth = 64;
  TORCH_CHECK(std::ranges::count(name, '.') <= kMostDepth, "the name of a tensor has more than ",
              kMostDepth, " dots");
  Module* module = &root;
  size_t begin = 0;
  for (size_t dot; (dot = name.find('.', begin)) != std::string::npos; begin = dot + 1) {
    const std::string part = name.substr(begin, dot - begin);
    const auto children = module->named_children();
    const auto* child = children.find(part);
    module = child != nullptr ? child->get()
                              : module->register_module(part, std::make_shared<Module>()).get();
  }
  return {module, name.substr(begin)};
}

}  // namespace lockstep
