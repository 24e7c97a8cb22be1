// Watchdog: makes sure that a job of ranks never hangs silently.
//
// Promise: if a rank dies or stops, if ranks make different collectives, or if a collective does not end in time, the
// run ends on every rank, at the latest some seconds after a time limit of WatchdogLimits has passed. One line, the
// verdict, names the rank, the collective and its parameters. Each rank's flight record holds the verdict, too, and the
// processes end with status 5. While no fault happens, the watchdog costs one message from each rank and one to each
// rank, twice a second.
//
// How:
//   1. Each rank's watchdog is a thread with one socket to rank 0, the hub (a Unix socket on one machine, TCP between
//      several). This thread depends on nothing that can hang with a collective. Another thread asks the CUDA driver,
//      ten times a second, which collectives are done on the GPU.
//   2. Twice a second each rank tells the hub how many collectives it has made and finished, and the hub tells each
//      rank that the hub is alive. If a rank's connection closes, the rank counts as dead. If a rank sends nothing for
//      too long, its process counts as stopped.
//   3. At every 1024th collective the hub compares the ranks' chains, which are hashes of all their collectives
//      (comm/flight_recorder.h). The hub thus finds ranks that made different collectives even if nothing hangs.
//   4. If a collective is late, failed, or different, the hub asks every rank for its record and compares the records
//      (comm/watch/flight_story.h).
//   5. The hub prints the verdict and sends it to all ranks. Each rank writes the verdict to its flight record and
//      ends. If the hub itself is lost, its deputy prints the verdict, and if the deputy is lost, too, the other living
//      ranks print it two seconds later. The deputy is the first rank on another machine than the hub's, or rank 1 if
//      there is only one machine.
// A rank that ends with an error of its own tells the other ranks, which then end without a message.
//
// The watchdog also handles SIGTERM, which mpirun sends to all ranks as soon as one rank has died. If `take_term` says
// that the process uses the signal itself (as a request to stop), the process goes on, and the sender of the signal
// kills the process if necessary. Otherwise the process ends by the signal, but half a second later, so that the
// verdict is not lost.
//
// what can fail -> what the user sees -> the test that shows it (tests/fault_test.py)
//   a rank is killed -> "rank 1 died: ..." -> test_a_rank_that_is_killed
//   a rank is stopped (SIGSTOP) -> "rank 1 gives no sign of life: ..." -> test_a_rank_that_is_stopped
//   a rank skips a collective -> "rank 1 made another call ...", or "has not come to ..."
//     -> test_a_rank_that_skips_a_collective
//   a rank never comes to a collective -> "rank 1 has not come to ..." -> test_a_rank_that_is_late
//   rank 0, the hub, is killed or stopped -> the same messages, from its deputy -> the same tests
//   a rank ends with its own error -> that error alone -> test_an_exception_in_one_ranks_loader
//   SIGTERM, if the process uses it as a request to stop -> nothing
//     -> tests/stop_test.py, test_a_signal_stops_all_ranks_after_the_same_step
//   this process itself was stopped, and continues -> nothing: it does not count that time against other ranks
//     -> test_a_job_that_is_stopped_whole_goes_on
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/flight_recorder.h"

namespace lockstep {

struct WatchdogLimits {
  double collective_s = 300;  // the time limit of a collective, from the moment when it could begin
  double heartbeat_s = 30;    // the longest time for which a rank may send nothing
};

class Watchdog {
 public:
  // Connects the ranks through `host`. Every rank must call this constructor. `first_elsewhere` is the first rank on
  // another machine than rank 0, or the world size if there is none. `say` prints an error to the user; its second
  // argument says whether a rank gives no sign of life, so that its machine may be gone. `take_term` is
  // called when SIGTERM has come, and returns whether the process keeps running. Keeps a reference to `recorder`.
  // SIGTERM must be blocked in every thread. Throws Error (kPeer).
  using Say = std::function<void(const std::string& error, bool is_silence)>;
  Watchdog(Communicator& host, int first_elsewhere, FlightRecorder& recorder, Say say,
           std::function<bool()> take_term);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void SetLimits(WatchdogLimits limits);

  // Makes the watchdog poll `communicator` after this call, or no communicator if `communicator` is null. Polls the
  // previous communicator for the last time. Throws Error (kPeer).
  void Watch(Communicator* communicator);

  // Sets the run folder that the verdict names, so that the user can call `lockstep flight` for it.
  void SetRunFolder(const std::string& run_dir);

  // Sets a function that the watchdog calls on the rank that reports why the job ends, unless the reason is an error of
  // this rank itself. The rank that reports is usually rank 0, or its deputy if rank 0 is lost. The arguments are the
  // job's exit status, and the verdict or a text that names the rank that ended with its own error. The process ends
  // soon after, so `tell` must return at once. It is called on the watchdog's thread, and must not call the watchdog.
  void SetOnFailure(std::function<void(int status, const std::string& why)> tell);

  // Sends `note` to rank 0 with one of this rank's next heartbeats. A note that was not sent yet is replaced. Neither
  // this call nor TakeNotes() waits.
  void SetNote(std::string note);
  // On rank 0, returns the newest note of each other rank that has sent a note since the last call. The keys are the
  // ranks.
  std::map<int, std::string> TakeNotes();

  // Tells the other ranks that this rank has finished without an error, so that they do not take its silence after this
  // call for a fault.
  void Leave();

  // Ends this process with `error`, an error of this rank that has already been printed, and ends all other ranks.
  [[noreturn]] void EndAll(const Error& error);

  // Finds out from the ranks' records why a collective has failed on this rank with `error`, and ends every process
  // with a verdict, or with `error` if the records agree.
  [[noreturn]] void Investigate(const Error& error);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
