// PageSink: shows the page of a run while the run trains (observe/page/page_server.h), as `lockstep watch RUN --page`
// does.
//
// Promise: training does not wait for the page. The log is read only when a browser requests the page, on the server's
// thread.
//
// what can fail -> what the caller sees -> the test that shows it (tests/page_test.py)
//   the port is taken, or the address is not this machine's -> one warning, and the sink tries again each second
//     -> test_a_run_whose_port_is_taken
#pragma once

#include <memory>
#include <string>

#include "observe/run_event.h"

namespace lockstep {

// Returns the sink, which rank 0 needs. The sink prints the URL when the port is open.
std::unique_ptr<EventSink> NewPageSink(std::string run_dir, std::string address, int port);

}  // namespace lockstep
