// CoreWait: measures how long a thread was ready to run and waited for a core.
#pragma once

#include "base/files/file_descriptor.h"

namespace lockstep {

// Measures the thread that constructs it.
class CoreWait {
 public:
  CoreWait();

  // Returns the seconds that the thread has waited since it began (/proc/thread-self/schedstat); 0 if the kernel does
  // not count them.
  double Seconds() const;

 private:
  FileDescriptor file_;
};

}  // namespace lockstep
