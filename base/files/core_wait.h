// CoreWait: measures for how long a thread ran on a CPU core, and for how long the thread was ready to run but waited
// for a core.
#pragma once

#include "base/files/file_descriptor.h"

namespace lockstep {

struct CoreSeconds {
  double running = 0;
  double waiting = 0;

  CoreSeconds operator-(const CoreSeconds& other) const {
    return {running - other.running, waiting - other.waiting};
  }
  CoreSeconds operator+(const CoreSeconds& other) const {
    return {running + other.running, waiting + other.waiting};
  }
};

// Measures the thread that constructs the object.
class CoreWait {
 public:
  CoreWait();

  // Returns for how many seconds the thread has run, and for how many seconds it has waited, since it began
  // (/proc/thread-self/schedstat); 0 if the kernel does not count these seconds.
  CoreSeconds Read() const;

 private:
  FileDescriptor file_;
};

}  // namespace lockstep
