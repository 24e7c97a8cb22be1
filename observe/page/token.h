// A token is the secret in the URL of a page: the page is shown only to those who have this URL.
// (observe/page/token_test.cc)
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Returns 128 random bits in hexadecimal. Throws Error (kBug) if the system has no random numbers.
std::string NewToken();

// Returns whether the two tokens are equal. The duration of the call depends only on the lengths of the tokens, so the
// duration does not reveal where the tokens differ.
bool IsSameToken(std::string_view given, std::string_view token);

}  // namespace lockstep
