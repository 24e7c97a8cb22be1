// Writes all bytes to a descriptor, also if one call of write() accepts only a part of them: to a pipe, a terminal, or
// a file while signals interrupt the call.
#pragma once

#include <string_view>

namespace lockstep {

// Writes all of `bytes`. Returns 0, or the errno of the write that failed.
int WriteAll(int file, std::string_view bytes);

}  // namespace lockstep
