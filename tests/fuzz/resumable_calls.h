// RunCalls(): makes numbered calls that may end their process, and goes on where it was stopped.
//
// The calls form groups. The first call of each group comes first, then the second of each, so that some of the calls
// try all groups.
//
// The calls run in a child process. If it ends, or a call takes longer than 60 s, the call has failed, and another child
// goes on with the next one. FILE, the state, has how many calls were made; FILE.failed has a line for each that failed.
// Both are written while the calls run, so that the program may be killed at any time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

struct CallOutcome {
  bool ran = false;   // whether the call was made, and not refused
  std::string wrong;  // what is wrong with its result; "" if nothing is
};

struct Calls {
  int64_t groups = 1;
  int64_t each = 0;  // the number of calls of each group
  std::function<std::string(int64_t group)> name;
  std::function<CallOutcome(int64_t group, int64_t number)> call;
};

// The options --state FILE, --seconds N, --calls N (of each group), --only NAME (a group), --number N (only this call, in
// this process), --share K/N (only groups K, K + N, ...).
struct CallOptions {
  CallOptions(int count, char** words);

  std::string state, only;
  int64_t seconds, calls, number = -1, share = 0, shares = 1;
};

// Makes all calls that the state file does not have yet. Prints the calls that failed and a line that counts. Returns the
// exit status: 0 if all calls were made and none failed, 1 if one failed, and 75 if `seconds` ended before the last call.
int RunCalls(const Calls& calls, const CallOptions& options);

}  // namespace lockstep
