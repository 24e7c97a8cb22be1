#include "models/imported/foretell_program.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/imported/contract.h"
#include "models/imported/foretold_results.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

// Keeps LibTorch from printing a warning of a call here, which the call itself will give.
class Silence final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

// Tensors of the program that is foretold are on META, also those that LibTorch makes on the CPU.
void MoveToMeta(IValue& value) {
  if (value.isTensor()) {
    if (!value.toTensor().is_meta()) value = OnMeta(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(tensor.is_meta() ? tensor : OnMeta(tensor));
    }
    value = list;
  }
}

void CheckResult(const IValue& value, int64_t most_bytes) {
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) CheckResult(tensor, most_bytes);
  }
  if (!value.isTensor() || !value.toTensor().defined()) return;
  const at::Tensor& tensor = value.toTensor();
  TORCH_CHECK(tensor.dim() <= kMostDimensions, "its result has ", tensor.dim(),
              " dimensions, and at most ", kMostDimensions, " are supported");
  int64_t elements = 1, last = 0;  // the last element's place in memory
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    int64_t step = 0;
    TORCH_CHECK(!__builtin_mul_overflow(elements, tensor.size(i), &elements) &&
                    !__builtin_mul_overflow(tensor.size(i) - 1, tensor.stride(i), &step) &&
                    !__builtin_add_overflow(last, step, &last),
                "its result of ", tensor.sizes(), " has too many elements");
  }
  int64_t bytes = 0;
  const bool fits =
      elements == 0 ||
      (!__builtin_mul_overflow(last + 1, tensor.element_size(), &bytes) && bytes <= most_bytes);
  TORCH_CHECK(fits, "its result of ", tensor.sizes(), " would have more than the ", most_bytes,
              " bytes that a tensor may have");
}

// A tensor of the module or an input. Its sizes must be the same after a run.
struct Lasting {
  std::string name;
  at::Tensor tensor;
  std::vector<int64_t> sizes, strides;
};

std::vector<Lasting> LastingOf(const Program& program, const Values& values) {
  std::vector<Lasting> all;
  const auto add = [&](const std::string& name, int64_t value) {
    if (value < 0 || !values[value].isTensor()) return;
    const at::Tensor& tensor = values[value].toTensor();
    all.push_back({name, tensor, tensor.sizes().vec(), tensor.strides().vec()});
  };
  for (const int64_t value : program.inputs) add("an input", value);
  for (const auto& [name, value] : program.parameters) add(name, value);
  for (const auto& [name, value] : program.buffers) add(name, value);
  for (const auto& [name, value] : program.constants) add("constant " + name, value);
  return all;
}

void CheckSame(const Lasting& one) {
  TORCH_CHECK(one.tensor.sizes() == at::IntArrayRef(one.sizes) &&
                  one.tensor.strides() == at::IntArrayRef(one.strides),
              "it gives ", one.name, " other sizes");
}

bool WritesAny(const Node& node) {
  return node.operation && std::ranges::any_of(node.operation->schema().arguments(), Writes);
}

void Foretell(const Node& node, Values& values, int64_t most_bytes, bool rounds) {
  std::vector<IValue> stack;
  stack.reserve(node.arguments.size());
  for (const Argument& argument : node.arguments) {
    stack.push_back(Made(argument, values, at::Device(at::kMeta)));
  }
  if (node.IsNumber()) {
    values[node.results[0].value] = ComputedNumber(node.sym, stack);
    return;
  }
  for (IValue& argument : stack) MoveToMeta(argument);
  CheckContract(*node.operation, stack);
  stack = Foretold(*node.operation, std::move(stack), rounds);
  for (IValue& result : stack) {
    CheckResult(result, most_bytes);
    MoveToMeta(result);
  }
  Keep(node, stack, values);
}

}  // namespace

at::Tensor ForetellProgram(const Program& program, Values values, int64_t most_bytes, bool rounds) {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard silent(&silence);
  for (IValue& value : values) {
    if (value.isTensor()) value = OnMeta(value.toTensor(), /*widens=*/rounds);
  }
  const std::vector<Lasting> lasting = LastingOf(program, values);
  for (const Node& node : program.nodes) {
    try {
      Foretell(node, values, most_bytes, rounds);
      if (WritesAny(node)) std::ranges::for_each(lasting, CheckSame);
    } catch (const c10::Error& error) {
      throw UsageError("{}: {} failed: {}", program.where, node.name,
                       FirstLine(error.what_without_backtrace()));
    } catch (const std::exception& error) {
      throw UsageError("{}: {} failed: {}", program.where, node.name, FirstLine(error.what()));
    }
    for (const int64_t value : node.last_uses) values[value] = IValue();
  }
  if (!values[program.output].isTensor() || !values[program.output].toTensor().defined()) {
    throw UsageError("{}: its output is no tensor", program.where);
  }
  return values[program.output].toTensor();
}

int64_t MostBytes(at::Device device) {
  constexpr int64_t kAddressable = int64_t{1} << 47;
  if (!device.is_cpu()) return kAddressable;
  int64_t bytes = std::min<int64_t>(kAddressable, sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    bytes = std::min(bytes, static_cast<int64_t>(limit.rlim_cur));
  }
  return bytes;
}

}  // namespace lockstep::exported
