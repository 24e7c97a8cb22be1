// WriteAll(): writes all bytes to a file descriptor. One call of write() may accept only a part of the bytes, for
// example if the descriptor is a pipe or a terminal, or if a signal interrupts the call.
#pragma once

#include <string_view>

namespace lockstep {

// Writes all of `bytes`. Returns 0, or the errno of the write that failed.
int WriteAll(int file, std::string_view bytes);

}  // namespace lockstep
