// NvmlLibrary: NVIDIA's library NVML, loaded from the driver when it is first needed, so that the program also runs
// where there is no driver.
//
// what can fail -> what the caller sees -> the test that shows it (tests/machine_test.py)
//   there is no library -> is_ready() is false, and why_not() says so -> test_watch_without_a_driver
//   the library cannot speak to the driver -> the same, with NVML's reason -> test_watch_with_a_broken_driver
//   an older driver lacks a function -> Call() gives NVML_ERROR_FUNCTION_NOT_FOUND -> test_an_old_driver
#pragma once

#include <dlfcn.h>
#include <nvml.h>

#include <string>

namespace lockstep {

class NvmlLibrary {
 public:
  NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  bool is_ready() const { return why_not_.empty(); }

  // In words; empty: it is ready.
  const std::string& why_not() const { return why_not_; }

  // Calls the function of that name; NVML_ERROR_FUNCTION_NOT_FOUND where the driver has none. From any thread.
  template <typename Function, typename... Args>
  nvmlReturn_t Call(const char* name, Args... args) const {
    auto* const function =
        library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
    return function == nullptr ? NVML_ERROR_FUNCTION_NOT_FOUND : function(args...);
  }

 private:
  void* library_;  // for as long as the process lives
  std::string why_not_;
};

// The one of this process. The first call loads it, which can take a second.
const NvmlLibrary& TheNvml();

}  // namespace lockstep
