// CoreWait: measures how long a thread was ready to run and waited for a core.
#pragma once

#include "base/files/file_descriptor.h"

namespace lockstep {

// Of the thread that makes it.
class CoreWait {
 public:
  CoreWait();

  // Seconds since the thread began (/proc/thread-self/schedstat); 0 where the kernel does not count them.
  double Seconds() const;

 private:
  FileDescriptor file_;
};

}  // namespace lockstep
