// NvmlLibrary: loads NVIDIA's library NVML, which comes with the driver, when it is first needed. The program therefore
// also runs on a machine without a driver.
//
// what can fail -> what the caller sees -> the test that shows it (tests/machine_test.py)
//   there is no library -> is_ready() is false, and why_not() says so -> test_watch_without_a_driver
//   the library cannot reach the driver -> is_ready() is false, and why_not() has NVML's reason
//     -> test_watch_with_a_broken_driver
//   the driver writes beyond the end of the array of fields -> nothing -> test_watch_many_gpus
//   an older driver lacks a function -> Call() returns NVML_ERROR_FUNCTION_NOT_FOUND -> test_an_old_driver
#pragma once

#include <dlfcn.h>
#include <nvml.h>

#include <array>
#include <cstddef>
#include <string>

namespace lockstep {

// The fields to request from nvmlDeviceGetFieldValues, followed by one unused field. The unused field is needed because
// driver 580.159 reads beyond the end of the array: if the bytes there look like a field, the driver writes a time into
// them. On a machine with four GPUs these bytes were the index of the last GPU, and that GPU's name was lost.
template <int kFields>
struct NvmlFields {
  static constexpr int kCount = kFields;

  std::array<nvmlFieldValue_t, kFields + 1> values{};

  nvmlFieldValue_t* data() { return values.data(); }
  nvmlFieldValue_t& operator[](size_t i) { return values[i]; }
};

class NvmlLibrary {
 public:
  NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  bool is_ready() const { return why_not_.empty(); }

  // Returns in words why the library cannot be used; an empty text if it can be used.
  const std::string& why_not() const { return why_not_; }

  // Calls the NVML function `name` and returns its result, or NVML_ERROR_FUNCTION_NOT_FOUND if the driver does not have
  // the function. Any thread may call Call().
  template <typename Function, typename... Args>
  nvmlReturn_t Call(const char* name, Args... args) const {
    auto* const function =
        library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
    return function == nullptr ? NVML_ERROR_FUNCTION_NOT_FOUND : function(args...);
  }

 private:
  void* library_;  // stays loaded until the process ends
  std::string why_not_;
};

// Returns this process's library. The first call loads the library, which can take a second.
const NvmlLibrary& TheNvml();

}  // namespace lockstep
