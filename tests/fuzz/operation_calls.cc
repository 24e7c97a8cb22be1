// Calls each operation of python/lockstep/operations.txt with random arguments, as an exported model may call it
// (models/imported/contract.h), and its backward.
//
//   operation_calls --state FILE [--calls 1340] [--seconds N] [--operation aten::NAME] [--seed 1] [--share 0/4]
//
// A call is made of the seed, the operation and the call's number. Each tensor ends or begins at memory that may not be
// used (guarded_memory.h). A call fails if
//   - the process ends, or a call takes longer than 20 s;
//   - the sizes or the dtypes of its results are not the foretold ones;
//   - the same call gives other results when new memory was filled with another byte before.
// The calls run in a child process, which is started anew after a fault. FILE keeps which calls were made and which
// failed: the same command goes on where the last one was stopped, in whatever way. The last line says how many calls
// were made, how many of them ran, and how many failed. The exit status is 0 if all calls were made and none failed, 1
// if some failed, and 75 if --seconds ended first.
//
//   operation_calls --operation aten::NAME --call NUMBER [--seed 1]      one call, in this process
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "models/imported/contract.h"
#include "models/imported/foretold_results.h"
#include "models/imported/operations.h"
#include "tests/fuzz/guarded_memory.h"
#include "tests/fuzz/random_call.h"

namespace lockstep {
namespace {

using c10::IValue;
using Clock = std::chrono::steady_clock;

constexpr unsigned kMostSeconds = 20;
constexpr int kStopped = 75;

struct Options {
  std::string state, operation;
  int64_t calls = 1340, seconds = 1'000'000'000, call = -1;
  uint64_t seed = 1;
  int64_t share = 0, shares = 1;
};

// What the child tells its parent, in memory that both share.
struct Shared {
  int64_t operation = 0, call = 0;  // the next call
  int64_t made = 0, ran = 0, failed = 0;
  int64_t ran_of_operation = 0;
  bool ended = false;
};

struct Operation {
  std::string name;
  c10::OperatorHandle handle;
};

// Returns the operations of this process's share, or the one that --operation names.
std::vector<Operation> Operations(const Options& options) {
  std::vector<Operation> operations;
  int64_t number = 0;
  for (const std::string name : kOperations) {
    if (!options.operation.empty() && name != options.operation) continue;
    if (number++ % options.shares != options.share) continue;
    const size_t dot = name.find('.');
    const std::string op = name.substr(0, dot);
    const bool is_view = name == "aten::view" || name == "aten::_unsafe_view";
    const auto handle = c10::Dispatcher::singleton().findSchema(
        {is_view ? "aten::reshape" : op, dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (handle) operations.push_back({name, *handle});
  }
  return operations;
}

uint64_t Mixed(uint64_t seed, const std::string& name, int64_t call) {
  uint64_t hash = 14695981039346656037U ^ seed;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211U;
  return (hash ^ static_cast<uint64_t>(call)) * 0x9E3779B97F4A7C15U;
}

bool IsRandom(const std::string& name) {
  static constexpr const char* kParts[] = {"rand",        "normal",  "bernoulli",   "dropout",
                                           "multinomial", "poisson", "exponential", "geometric",
                                           "uniform",     "rrelu",   "empty"};
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

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  if (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0)
    return true;
  return at::allclose(x.to(at::kDouble), y.to(at::kDouble), 1e-6, 1e-6, /*equal_nan=*/true);
}

IValue OnMeta(const IValue& value) {
  if (value.isTensor()) return exported::OnMeta(value.toTensor());
  if (value.isDevice()) return at::Device(at::kMeta);
  if (!value.isList()) return value;
  c10::impl::GenericList list(value.toList().elementType());
  for (const IValue& element : value.toListRef()) list.push_back(OnMeta(element));
  return list;
}

std::vector<IValue> AllOnMeta(std::vector<IValue> arguments) {
  for (IValue& value : arguments) value = OnMeta(value);
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

struct Outcome {
  bool ran = false;
  std::string wrong;
  std::string refused;
};

constexpr int64_t kMostBytes = 1 << 24;

Outcome Call(const Operation& operation, uint64_t seed, bool shows) {
  Outcome outcome;
  std::vector<std::vector<at::Tensor>> results;
  std::vector<at::Tensor> foretold;
  for (const uint8_t fill : {0x00, 0x7D}) {
    GuardedMemory::Use().Begin(fill, seed);
    std::vector<IValue> stack = RandomCall(operation.handle, seed, /*gradients=*/true);
    if (shows && fill == 0) std::cout << operation.name << "(" << Shown(stack) << ")" << std::endl;
    try {
      if (fill == 0) {
        const at::NoGradGuard no_grad;
        exported::CheckContract(operation.handle, stack);
        foretold = TensorsOf(exported::Foretold(operation.handle, AllOnMeta(stack)));
        for (const at::Tensor& tensor : foretold) {
          TORCH_CHECK(
              !tensor.defined() || static_cast<int64_t>(tensor.storage().nbytes()) < kMostBytes,
              "too large for this test");
        }
        if (shows) std::cout << "foretold:" << SizesOf(foretold) << std::endl;
      }
      at::manual_seed(seed);
      operation.handle.callBoxed(stack);
      results.push_back(TensorsOf(stack));
      outcome.ran = true;
    } catch (const std::exception& error) {
      outcome.refused = std::string(error.what());
      outcome.refused = outcome.refused.substr(0, outcome.refused.find('\n'));
      if (shows) std::cout << "refused: " << outcome.refused.substr(0, 1500) << std::endl;
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
    same = !foretold[i].defined() || got[i].sizes() == foretold[i].sizes() &&
                                         got[i].scalar_type() == foretold[i].scalar_type();
  }
  if (!same) outcome.wrong = "it gave" + SizesOf(got) + ", and foretold were" + SizesOf(foretold);
  if (same && results.size() == 2 && !IsRandom(operation.name)) {
    for (size_t i = 0; i < got.size(); ++i) {
      if (!SameBits(got[i], results[1][i]))
        outcome.wrong = "its result depends on what was in memory";
    }
  }
  if (results.size() == 1)
    outcome.wrong = "the second of two equal calls failed: " + outcome.refused;
  if (shows && !outcome.wrong.empty()) std::cout << "wrong: " << outcome.wrong << std::endl;
  return outcome;
}

// Makes calls from shared.operation, shared.call on, in a child process.
[[noreturn]] void Work(const std::vector<Operation>& operations, const Options& options,
                       Shared& shared, const std::string& log) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  at::set_num_threads(1);
  c10::WarningUtils::set_warnAlways(false);
  std::ofstream wrongs(log, std::ios::app);
  while (shared.operation < std::ssize(operations)) {
    const Operation& operation = operations[shared.operation];
    while (shared.call < options.calls) {
      const int64_t call = shared.call++;
      ++shared.made;
      alarm(kMostSeconds);
      const Outcome outcome = Call(operation, Mixed(options.seed, operation.name, call), false);
      alarm(0);
      shared.ran += outcome.ran ? 1 : 0;
      shared.ran_of_operation += outcome.ran ? 1 : 0;
      if (!outcome.wrong.empty()) {
        ++shared.failed;
        wrongs << operation.name << " " << call << " " << outcome.wrong.substr(0, 300) << std::endl;
      }
    }
    wrongs << "ran " << operation.name << " " << shared.ran_of_operation << std::endl;
    shared.ran_of_operation = 0;
    shared.call = 0;
    ++shared.operation;
  }
  shared.ended = true;
  _exit(0);
}

Options Parse(int count, char** words) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string key = words[i], value = words[i + 1];
    if (key == "--state") options.state = value;
    if (key == "--operation") options.operation = value;
    if (key == "--calls") options.calls = std::stoll(value);
    if (key == "--seconds") options.seconds = std::stoll(value);
    if (key == "--call") options.call = std::stoll(value);
    if (key == "--share") {
      options.share = std::stoll(value);
      options.shares = std::stoll(value.substr(value.find('/') + 1));
    }
    if (key == "--seed") options.seed = std::stoull(value);
  }
  return options;
}

void Save(const Options& options, const Shared& shared) {
  std::ofstream file(options.state + ".new");
  file << options.seed << " " << options.calls << " " << shared.operation << " " << shared.call
       << " " << shared.made << " " << shared.ran << " " << shared.failed << " "
       << shared.ran_of_operation << "\n";
  file.close();
  std::filesystem::rename(options.state + ".new", options.state);
}

void Load(const Options& options, Shared& shared) {
  std::ifstream file(options.state);
  uint64_t seed = 0;
  int64_t calls = 0;
  Shared before;
  if (file >> seed >> calls >> before.operation >> before.call >> before.made >> before.ran >>
          before.failed >> before.ran_of_operation &&
      seed == options.seed && calls == options.calls) {
    shared = before;
  }
}

int Main(int count, char** words) {
  const Options options = Parse(count, words);
  const std::vector<Operation> operations = Operations(options);
  GuardedMemory::Use();
  if (options.call >= 0) {
    at::set_num_threads(1);
    for (const Operation& operation : operations)
      Call(operation, Mixed(options.seed, operation.name, options.call), true);
    return 0;
  }
  auto& shared = *new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  Load(options, shared);
  const auto begin = Clock::now();
  const std::string log = options.state + ".failed";
  int64_t faults_in_operation = 0, last = -1;
  while (!shared.ended && shared.operation < std::ssize(operations)) {
    const pid_t child = fork();
    if (child == 0) Work(operations, options, shared, log);
    int status = 0;
    bool stopped = false;
    while (waitpid(child, &status, WNOHANG) == 0) {
      usleep(100'000);
      Save(options, shared);
      if (Clock::now() - begin > std::chrono::seconds(options.seconds)) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        stopped = true;
        break;
      }
    }
    Save(options, shared);
    if (stopped) {
      std::printf("stopped: %lld calls, %lld ran, %lld failed\n",
                  static_cast<long long>(shared.made), static_cast<long long>(shared.ran),
                  static_cast<long long>(shared.failed));
      return kStopped;
    }
    if (shared.ended) break;
    // The child died in the call before shared.call.
    ++shared.failed;
    const std::string& name = operations[shared.operation].name;
    faults_in_operation = last == shared.operation ? faults_in_operation + 1 : 1;
    last = shared.operation;
    std::ofstream(log, std::ios::app)
        << name << " " << shared.call - 1 << " ended with "
        << (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "a status") << std::endl;
    constexpr int64_t kMostFaults = 6;
    if (faults_in_operation >= kMostFaults) {
      ++shared.operation;
      shared.call = shared.ran_of_operation = 0;
    }
  }
  Save(options, shared);
  std::printf("%zu operations: %lld calls, %lld ran, %lld failed\n", operations.size(),
              static_cast<long long>(shared.made), static_cast<long long>(shared.ran),
              static_cast<long long>(shared.failed));
  return shared.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int count, char** words) { return lockstep::Main(count, words); }
