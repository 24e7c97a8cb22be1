// Calls each operation of python/lockstep/operations.txt with random arguments, as an exported model may call it
// (models/imported/contract.h), and its backward: operation_calls [OPTIONS of resumable_calls.h]
//
// A call is made of the operation and a number. Each tensor ends or begins at memory that may not be used
// (guarded_memory.h). One call in eight runs under autocast, with some arguments already rounded to 16 bits. A call
// fails if
//   - the process ends, or the call takes too long;
//   - the sizes of its results are not the foretold ones, or, without autocast, their dtypes are not;
//   - the same call gives other results or gradients when new memory was filled with another byte before.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "base/tensor/autocast.h"
#include "models/imported/contract.h"
#include "models/imported/foretold_results.h"
#include "models/imported/guarded_call.h"
#include "models/imported/operations.h"
#include "tests/fuzz/guarded_memory.h"
#include "tests/fuzz/random_call.h"
#include "tests/fuzz/resumable_calls.h"

namespace lockstep {
namespace {

using c10::IValue;
struct Operation {
  std::string name;
  c10::OperatorHandle handle;
  exported::Caller call;
  exported::Parts unforeseen;
};

// Returns the operations of this process's share, or the one that --only names.
std::vector<Operation> Operations(const CallOptions& options) {
  std::vector<Operation> operations;
  int64_t number = 0;
  for (const std::string name : kOperations) {
    if (!options.only.empty() && name != options.only) continue;
    if (number++ % options.shares != options.share) continue;
    const size_t dot = name.find('.');
    const std::string op = name.substr(0, dot);
    const bool is_view = name == "aten::view" || name == "aten::_unsafe_view";
    const auto handle = c10::Dispatcher::singleton().findSchema(
        {is_view ? "aten::reshape" : op, dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (handle) {
      operations.push_back({name, *handle, exported::CallerOf(op), exported::UnforeseenParts(op)});
    }
  }
  return operations;
}

uint64_t SeedOf(const std::string& name, int64_t call) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211U;
  return (hash ^ static_cast<uint64_t>(call)) * 0x9E3779B97F4A7C15U;
}

bool IsRandom(const std::string& name) {
  static constexpr const char* kParts[] = {"rand",        "normal",  "bernoulli",   "dropout",
                                           "multinomial", "poisson", "exponential", "geometric",
                                           "uniform",     "rrelu"};
  return std::ranges::any_of(kParts, [&](const char* part) {
    return name.find(part) != std::string::npos && name != "aten::poisson_nll_loss";
  });
}

std::vector<at::Tensor> TensorsOf(const std::vector<IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const IValue& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
    }
  }
  return tensors;
}

// Returns the values of a tensor in memory; a gradient may be sparse, or a tensor of zeros that has no memory.
at::Tensor ValuesOf(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach();
  if (values._is_zerotensor()) return at::zeros(values.sizes(), values.options());
  return values.is_sparse() ? values.to_dense() : values.contiguous();
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = ValuesOf(a), y = ValuesOf(b);
  if (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0)
    return true;
  return at::allclose(x.to(at::kDouble), y.to(at::kDouble), 1e-6, 1e-6, /*equal_nan=*/true);
}

// Rounds some of the tensors of float32 to 16 bits, as the operations before this one may have done under autocast.
IValue Rounded(const IValue& value, at::ScalarType dtype, uint64_t& random) {
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const IValue& element : value.toListRef()) list.push_back(Rounded(element, dtype, random));
    return list;
  }
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  const at::Tensor& tensor = value.toTensor();
  random = random * 6364136223846793005U + 1442695040888963407U;
  const bool is_rounded = random >> 63 != 0 && tensor.scalar_type() == at::kFloat &&
                          !tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (!is_rounded) return value;
  return tensor.detach().to(dtype).requires_grad_(tensor.is_leaf() && tensor.requires_grad());
}

IValue OnMeta(const IValue& value, bool widens) {
  if (value.isTensor()) return exported::OnMeta(value.toTensor(), widens);
  if (value.isDevice()) return at::Device(at::kMeta);
  if (!value.isList()) return value;
  c10::impl::GenericList list(value.toList().elementType());
  for (const IValue& element : value.toListRef()) list.push_back(OnMeta(element, widens));
  return list;
}

std::vector<IValue> AllOnMeta(std::vector<IValue> arguments, bool widens) {
  for (IValue& value : arguments) value = OnMeta(value, widens);
  return arguments;
}

std::string SizesOf(const std::vector<at::Tensor>& tensors) {
  std::ostringstream text;
  for (const at::Tensor& tensor : tensors)
    if (!tensor.defined())
      text << " -";
    else
      text << " " << c10::toString(tensor.scalar_type()) << tensor.sizes();
  return text.str();
}

std::string Shown(const std::vector<IValue>& arguments) {
  std::ostringstream text;
  for (const IValue& value : arguments) {
    text << (text.tellp() > 0 ? ", " : "");
    if (value.isTensor() || value.isTensorList()) {
      text << "[" << SizesOf(TensorsOf({value})) << " ]";
    } else {
      text << value;
    }
  }
  return text.str();
}

constexpr size_t kMostBytes = 1 << 24;

CallOutcome Call(const Operation& operation, uint64_t seed, bool shows) {
  CallOutcome outcome;
  std::string refused;
  std::vector<std::vector<at::Tensor>> results, gradients;
  std::vector<at::Tensor> foretold;
  const bool rounds = seed >> 61 == 0;
  const at::ScalarType dtype = (seed >> 60) % 2 == 0 ? at::kBFloat16 : at::kHalf;
  const AutocastGuard autocast(
      {.device = at::kCPU, .enabled = rounds, .dtype = dtype, .caches = false});
  for (const uint8_t fill : {0x00, 0x7D}) {
    GuardedMemory::Use().Begin(fill, seed);
    std::vector<IValue> stack = RandomCall(operation.handle, seed, /*gradients=*/true);
    uint64_t random = seed;
    if (rounds)
      std::ranges::transform(stack, stack.begin(),
                             [&](const IValue& value) { return Rounded(value, dtype, random); });
    if (shows && fill == 0) {
      std::cout << (rounds ? "under autocast: " : "") << operation.name << "(" << Shown(stack)
                << ")" << std::endl;
    }
    try {
      if (fill == 0) {
        const at::NoGradGuard no_grad;
        std::vector<IValue> on_meta = AllOnMeta(stack, rounds);
        exported::CheckContract(operation.handle, on_meta);
        foretold = TensorsOf(exported::Foretold(operation.handle, std::move(on_meta), rounds));
        for (const at::Tensor& tensor : foretold) {
          // A view may have more elements than its memory, and the test copies it.
          TORCH_CHECK(!tensor.defined() ||
                          std::max(tensor.storage().nbytes(), tensor.nbytes()) < kMostBytes,
                      "too large for this test");
        }
        if (shows) std::cout << "foretold:" << SizesOf(foretold) << std::endl;
      }
      exported::CheckUnforeseen(operation.handle, stack, operation.unforeseen, at::kCPU,
                                /*autocast=*/true);
      std::vector<at::Tensor> leaves = TensorsOf(stack);
      std::erase_if(leaves, [](const at::Tensor& tensor) {
        return !tensor.defined() || !tensor.requires_grad() || !tensor.is_leaf();
      });
      at::manual_seed(seed);
      operation.call(operation.handle, stack);
      results.push_back(TensorsOf(stack));
      gradients.push_back(std::move(leaves));
      outcome.ran = true;
    } catch (const std::exception& error) {
      refused = std::string(error.what());
      refused = refused.substr(0, refused.find('\n'));
      if (shows) std::cout << "refused: " << refused.substr(0, 1500) << std::endl;
      break;
    }
    try {
      at::Tensor sum;
      for (const at::Tensor& result : results.back()) {
        if (!result.defined() || !result.requires_grad()) continue;
        const at::Tensor one = result.sum().to(at::kDouble);
        sum = sum.defined() ? sum + one : one;
      }
      if (sum.defined()) sum.backward();
    } catch (const std::exception& error) {
      if (shows)
        std::cout << "no backward: " << std::string(error.what()).substr(0, 200) << std::endl;
    }
  }
  if (!outcome.ran) return outcome;
  const auto& got = results[0];
  bool same = got.size() == foretold.size();
  for (size_t i = 0; same && i < got.size(); ++i) {
    same =
        !foretold[i].defined() || (got[i].sizes() == foretold[i].sizes() &&
                                   (rounds || got[i].scalar_type() == foretold[i].scalar_type()));
  }
  if (!same) outcome.wrong = "it gave" + SizesOf(got) + ", and foretold were" + SizesOf(foretold);
  if (same && results.size() == 2 && !IsRandom(operation.name)) {
    for (size_t i = 0; i < got.size(); ++i) {
      if (!SameBits(got[i], results[1][i]))
        outcome.wrong = "its result depends on what was in memory";
    }
  }
  if (results.size() == 2 && !IsRandom(operation.name)) {
    for (size_t i = 0; i < gradients[0].size(); ++i) {
      if (!SameBits(gradients[0][i].grad(), gradients[1][i].grad()))
        outcome.wrong = "a gradient depends on what was in memory";
    }
  }
  if (results.size() == 1) outcome.wrong = "the second of two equal calls failed: " + refused;
  if (shows && !outcome.wrong.empty()) std::cout << "wrong: " << outcome.wrong << std::endl;
  return outcome;
}

int Main(int count, char** words) {
  const CallOptions options(count, words);
  const std::vector<Operation> operations = Operations(options);
  GuardedMemory::Use();
  at::set_num_threads(1);
  constexpr int64_t kEnough = 1340;  // a million calls of all operations
  if (options.number >= 0) {
    for (const Operation& operation : operations)
      Call(operation, SeedOf(operation.name, options.number), /*shows=*/true);
    return 0;
  }
  return RunCalls({.groups = std::ssize(operations),
                   .each = options.calls > 0 ? options.calls : kEnough,
                   .name = [&](int64_t group) { return operations[group].name; },
                   .call =
                       [&](int64_t group, int64_t number) {
                         const Operation& operation = operations[group];
                         return Call(operation, SeedOf(operation.name, number), /*shows=*/false);
                       }},
                  options);
}

}  // namespace
}  // namespace lockstep

int main(int count, char** words) { return lockstep::Main(count, words); }
