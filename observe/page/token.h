// A token is the secret that opens a page to whoever has its URL. (observe/page/token_test.cc)
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Returns 128 random bits in hexadecimal. Throws Error (kBug) if the system has no random numbers.
std::string NewToken();

// Returns whether the two are the same. The time that this takes tells nothing but their lengths.
bool IsSameToken(std::string_view given, std::string_view token);

}  // namespace lockstep
