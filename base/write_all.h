// Writes everything to a descriptor that may accept less at once: a pipe, a terminal, a file that signals interrupt.
#pragma once

#include <string_view>

namespace lockstep {

// Writes all of `bytes`. Returns why it could not (errno), else 0.
int WriteAll(int file, std::string_view bytes);

}  // namespace lockstep
