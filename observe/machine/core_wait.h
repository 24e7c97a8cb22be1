// CoreWait: measures how long a thread ran on a core, and how long it was ready to run and waited for one.
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

// Measures the thread that constructs it.
class CoreWait {
 public:
  CoreWait();

  // Returns the seconds since the thread began (/proc/thread-self/schedstat); 0 if the kernel does not count them.
  CoreSeconds Read() const;

 private:
  FileDescriptor file_;
};

}  // namespace lockstep
