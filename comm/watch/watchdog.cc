#include "comm/watch/watchdog.h"

#include <ATen/ops/zeros.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/files/file_descriptor.h"
#include "base/mailbox.h"
#include "comm/watch/flight_story.h"
#include "comm/watch/watchdog.pb.h"
#include "comm/watch/wire.h"

namespace lockstep {
namespace {

using watch::Message;

constexpr double kTickS = 0.1;
constexpr double kBeatS = 0.5;
constexpr double kLateS = 1;       // a tick that takes at most this long does not count as late
constexpr double kConnectS = 60;   // the time limit for all ranks to connect to the hub
constexpr double kRecordsS = 2;    // the time limit for all ranks to send their records
constexpr double kLauncherS = 2;   // the time limit for mpirun to end this process after a fault
constexpr double kFreshenS = 0.3;  // how long FreshenRecord() waits for polls of the driver
constexpr double kTermS = 0.5;     // the time from SIGTERM to the end of this process

}  // namespace

class Watchdog::Impl {
 public:
  Impl(Communicator& host, int first_elsewhere, FlightRecorder& recorder, Say say,
       std::function<bool()> take_term)
      : rank_(host.rank()),
        world_size_(host.world_size()),
        one_machine_(first_elsewhere == world_size_),
        deputy_(one_machine_ ? 1 : first_elsewhere),
        recorder_(recorder),
        say_(std::move(say)),
        take_term_(std::move(take_term)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    Connect(host);
    if (is_hub()) notes_ = std::vector<Mailbox<std::string>>(static_cast<size_t>(world_size_));
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    signals_ = FileDescriptor(signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK));
    last_tick_ = Now();
    for (Peer& peer : peers_) peer.heard = last_tick_;
    thread_ = std::thread([this] { Run(); });
    poller_ = std::thread([this] { PollForever(); });
  }

  ~Impl() {
    {
      const std::scoped_lock lock(mutex_, poll_mutex_);
      stopping_ = true;
    }
    Wake();
    poll_changed_.notify_all();
    thread_.join();
    poller_.join();
  }

  void SetLimits(WatchdogLimits limits) {
    const std::lock_guard lock(mutex_);
    limits_ = limits;
  }

  void Watch(Communicator* communicator) {
    Communicator* before = nullptr;
    {
      std::unique_lock lock(poll_mutex_);
      poll_changed_.wait(lock, [&] { return !polling_; });
      before = std::exchange(watched_, communicator);
    }
    // This last poll marks the operations that were done since the previous poll.
    if (before != nullptr) before->Poll();
  }

  void SetRunFolder(const std::string& run_dir) {
    const std::lock_guard lock(mutex_);
    run_dir_ = run_dir;
  }

  void SetOnFailure(std::function<void(int status, const std::string& why)> tell) {
    const std::lock_guard lock(mutex_);
    on_failure_ = std::move(tell);
  }

  void SetNote(std::string note) { note_.Put(std::make_unique<std::string>(std::move(note))); }

  std::map<int, std::string> TakeNotes() {
    std::map<int, std::string> taken;
    for (size_t rank = 0; rank < notes_.size(); ++rank) {
      if (const std::unique_ptr<std::string> note = notes_[rank].Take()) {
        taken[static_cast<int>(rank)] = *note;
      }
    }
    return taken;
  }

  // Sends `message` to all connected ranks, and updates this rank's own state accordingly.
  void Tell(const Message& message) {
    const std::lock_guard lock(mutex_);
    SendToAll(message);
    if (message.type() == Message::LEAVE) leaving_ = true;
    if (message.type() == Message::FAREWELL) ending_at_ = Now();
    if (message.type() == Message::TROUBLE) StartInvestigation(message.text());
  }

  void Say(const std::string& error) const { say_(error, /*is_silence=*/false); }

  Message New(Message::Type type) const {
    Message message;
    message.set_type(type);
    message.set_rank(rank_);
    return message;
  }

 private:
  struct Peer {
    int rank = 0;
    FileDescriptor fd;
    std::string inbox;
    double heard = 0;    // when the last message came
    bool left = false;   // the rank has finished without an error
    bool ended = false;  // the rank has ended, or has said that it ends
    std::array<ChannelState, kChannels.size()> states{};
    std::optional<Flight> flight;  // the peer's answer to an ASK message

    bool gone() const { return left || ended; }
  };

  // The collective that a rank is waiting for, as far as the hub knows.
  struct Pending {
    uint64_t done = 0;  // how many collectives before this one are done
    double since = 0;   // when the hub first saw this state
  };

  bool is_hub() const { return rank_ == 0; }

  // ---- Meeting ----------------------------------------------------------------------------------

  void Connect(Communicator& host) {
    const Label label = host.MakeLabel("watchdog's address");
    // Rank 0 broadcasts this struct: the number of its addresses, the token, and the addresses.
    constexpr size_t kMaxAddresses = 16;
    struct Meeting {
      uint64_t count = 0;
      uint64_t token = 0;
      Address addresses[kMaxAddresses];
    } meeting;
    FileDescriptor listener;
    if (is_hub()) {
      std::random_device random;
      meeting.token = uint64_t{random()} << 32 | random();
      const std::vector<Address> addresses = Listen(meeting.token, listener);
      meeting.count = std::min(addresses.size(), kMaxAddresses);
      std::copy_n(addresses.begin(), meeting.count, meeting.addresses);
    }
    const at::Tensor bytes = at::zeros({sizeof(meeting)}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), &meeting, sizeof(meeting));
    host.Broadcast(bytes, 0, label).Wait();
    std::memcpy(&meeting, bytes.const_data_ptr(), sizeof(meeting));

    const double deadline = Now() + kConnectS;
    if (is_hub()) {
      while (peers_.size() + 1 < static_cast<size_t>(world_size_)) {
        if (!WaitFor(listener.get(), POLLIN, deadline)) {
          throw PeerError(
              "{} of {} ranks did not reach rank 0 within {} s: is a firewall between the "
              "machines?",
              world_size_ - 1 - peers_.size(), world_size_ - 1, kConnectS);
        }
        Accept(listener.get(), meeting.token, deadline);
      }
    } else {
      FileDescriptor fd;
      for (uint64_t i = 0; i < meeting.count && fd.get() < 0; ++i) {
        fd = Greet(meeting.addresses[i], meeting.token, std::min(deadline, Now() + 10));
      }
      if (fd.get() < 0) {
        throw PeerError("rank {} cannot reach rank 0: is a firewall between the machines?", rank_);
      }
      peers_.push_back({.rank = 0, .fd = std::move(fd)});
    }
  }

  // Connects to `address`, and checks that the hub answers with the token. An address of the hub's machine may also be
  // an address of this machine (for example of a network bridge), where another program listens.
  FileDescriptor Greet(const Address& address, uint64_t token, double deadline) const {
    FileDescriptor fd = ConnectTo(address, deadline);
    if (fd.get() < 0) return {};
    Message hello = New(Message::HELLO);
    hello.set_token(token);
    Send(fd.get(), hello);
    std::string inbox;
    const std::optional<Message> answer = AwaitMessage(fd.get(), inbox, deadline);
    // The hub sends nothing else before all ranks are connected, so no other message is lost with `inbox`.
    const bool is_hub = answer && answer->type() == Message::HELLO && answer->token() == token;
    return is_hub ? std::move(fd) : FileDescriptor();
  }

  std::vector<Address> Listen(uint64_t token, FileDescriptor& listener) const {
    Address own = UnixAddress(token);
    if (!one_machine_) {
      own = {};
      own.storage.ss_family = AF_INET;
      own.length = sizeof(sockaddr_in);
    }
    listener = FileDescriptor(socket(own.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    auto* name = reinterpret_cast<sockaddr*>(&own.storage);
    if (listener.get() < 0 || bind(listener.get(), name, own.length) != 0 ||
        listen(listener.get(), world_size_) != 0) {
      throw PeerError("rank 0 cannot listen for the other ranks: {}", std::strerror(errno));
    }
    if (one_machine_) return {own};
    getsockname(listener.get(), name, &own.length);
    return NetworkAddresses(reinterpret_cast<const sockaddr_in&>(own.storage).sin_port);
  }

  void Accept(int listener, uint64_t token, double deadline) {
    FileDescriptor fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) return;
    std::string inbox;
    const std::optional<Message> hello =
        AwaitMessage(fd.get(), inbox, std::min(deadline, Now() + 5));
    // A connection that does not send the token is not from a rank of this job.
    if (!hello || hello->type() != Message::HELLO || hello->token() != token) return;
    Message answer = New(Message::HELLO);
    answer.set_token(token);
    Send(fd.get(), answer);
    peers_.push_back({.rank = hello->rank(), .fd = std::move(fd), .inbox = std::move(inbox)});
  }

  // ---- Watching ---------------------------------------------------------------------------------

  void Run() {
    while (true) {
      WaitForEvent();
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      const double now = Now();
      // If this loop is late, because this process was stopped or got no CPU time, all time limits begin anew.
      // Otherwise other ranks would be blamed for the delay.
      late_ = now - last_tick_ > std::max(limits_.heartbeat_s / 2, kLateS);
      if (late_) {
        for (Peer& peer : peers_) peer.heard = now;
        for (auto& [key, pending] : pending_) pending.since = now;
      }
      last_tick_ = now;
      TakeSignal(now);
      for (Peer& peer : peers_) Hear(peer, now);
      if (now >= next_beat_) {
        next_beat_ = now + std::min(kBeatS, limits_.heartbeat_s / 4);
        Message beat = New(Message::BEAT);
        FillBeat(beat);
        if (const std::unique_ptr<std::string> note = note_.Take()) beat.set_note(*note);
        SendToAll(beat);
      }
      Judge(now);
    }
  }

  void WaitForEvent() {
    std::vector<pollfd> entries{{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                                {.fd = signals_.get(), .events = POLLIN, .revents = 0}};
    for (const Peer& peer : peers_) {
      if (!peer.gone()) entries.push_back({.fd = peer.fd.get(), .events = POLLIN, .revents = 0});
    }
    poll(entries.data(), entries.size(), static_cast<int>(kTickS * 1e3));
    uint64_t count = 0;
    while (read(wake_.get(), &count, sizeof(count)) > 0) {
    }
  }

  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
  }

  void TakeSignal(double now) {
    signalfd_siginfo signal{};
    if (read(signals_.get(), &signal, sizeof(signal)) > 0 && !term_at_ && !take_term_()) {
      term_at_ = now;
    }
    if (!term_at_ || now - *term_at_ < kTermS) return;
    Message farewell = New(Message::FAREWELL);
    farewell.set_status(128 + SIGTERM);
    SendToAll(farewell);
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    ::signal(SIGTERM, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &term, nullptr);
    raise(SIGTERM);
  }

  void FillBeat(Message& beat) const {
    for (const Channel channel : kChannels) {
      const ChannelState state = recorder_.State(channel);
      watch::Lane& lane = *beat.add_lanes();
      lane.set_enqueued(state.enqueued);
      lane.set_done(state.done);
      lane.set_mark(state.mark);
      lane.set_mark_chain(state.mark_chain);
    }
  }

  // Polls the communicator until the watchdog is destroyed. Runs on a separate thread, so that this rank sends
  // heartbeats even if a call of the driver hangs.
  void PollForever() {
    std::unique_lock lock(poll_mutex_);
    bool failed = false;
    while (!stopping_) {
      Communicator* const watched = failed ? nullptr : watched_;
      polling_ = watched != nullptr;
      lock.unlock();
      if (watched != nullptr) {
        try {
          watched->Poll();
        } catch (const std::exception& exception) {  // also errors of CUDA
          failed = true;
          Message trouble = New(Message::TROUBLE);
          trouble.set_text(fmt::format("rank {}: {}", rank_, FirstLine(exception.what())));
          Tell(trouble);
        }
      }
      lock.lock();
      polling_ = false;
      ++polls_;
      poll_changed_.notify_all();
      const auto next = std::chrono::duration<double>(kTickS);
      poll_changed_.wait_for(lock, next, [&] { return stopping_ || poll_wanted_ > polls_; });
    }
  }

  // Marks in the flight record the collectives that are done at this time, if the driver answers within kFreshenS.
  void FreshenRecord() {
    std::unique_lock lock(poll_mutex_);
    // A poll that is already running may have missed collectives that ended before this call, so a second poll must
    // end, too.
    poll_wanted_ = polls_ + 2;
    poll_changed_.notify_all();
    poll_changed_.wait_for(lock, std::chrono::duration<double>(kFreshenS),
                           [&] { return polls_ >= poll_wanted_; });
  }

  void Hear(Peer& peer, double now) {
    if (peer.gone()) return;
    const bool open = Receive(peer.fd.get(), peer.inbox);
    while (const std::optional<Message> message = TakeMessage(peer.inbox)) {
      peer.heard = now;
      Handle(peer, *message, now);
    }
    if (open || peer.gone()) return;
    if (leaving_ || ending_at_) {
      peer.ended = true;
      return;
    }
    if (late_)
      std::_Exit(static_cast<int>(ExitStatus::kPeer));  // other ranks have ended the job meanwhile
    Lost(peer, "died: its process is gone");
  }

  void Handle(Peer& peer, const Message& message, double now) {
    switch (message.type()) {
      case Message::HELLO:
        return;
      case Message::BEAT:
        for (size_t i = 0; i < std::min<size_t>(message.lanes_size(), kChannels.size()); ++i) {
          const watch::Lane& lane = message.lanes(static_cast<int>(i));
          peer.states[i] = {.enqueued = lane.enqueued(),
                            .done = lane.done(),
                            .mark = lane.mark(),
                            .mark_chain = lane.mark_chain()};
        }
        if (message.has_note() && static_cast<size_t>(peer.rank) < notes_.size()) {
          notes_[static_cast<size_t>(peer.rank)].Put(std::make_unique<std::string>(message.note()));
        }
        return;
      case Message::TROUBLE:
        StartInvestigation(message.text());
        return;
      case Message::ASK: {
        Message answer = New(Message::RECORD);
        Fill(OwnFlight(), answer);
        Send(peer.fd.get(), answer);
        return;
      }
      case Message::RECORD:
        peer.flight = FlightOf(message, peer.rank);
        return;
      case Message::VERDICT:
        recorder_.SetVerdict(message.text());
        std::_Exit(static_cast<int>(ExitStatus::kPeer));
      case Message::FAREWELL:
        peer.ended = true;
        status_ = message.status();
        if (!ending_at_) {
          ending_at_ = now;
          // If a rank ends by SIGTERM, all ranks got the signal, because another rank has failed or the job is to stop.
          // The rank then had no error of its own.
          if (is_hub() && on_failure_ && status_ != 128 + SIGTERM) {
            on_failure_(status_, fmt::format("rank {} ended with an error of its own", peer.rank));
          }
        }
        if (is_hub()) SendToAll(message);
        return;
      case Message::LEAVE:
        peer.left = true;
        return;
    }
  }

  // ---- Judging ----------------------------------------------------------------------------------

  void Judge(double now) {
    // If ending_at_ is set, a rank has already said why the run ends. mpirun then ends this process, or this process
    // ends itself after kLauncherS.
    if (ending_at_) {
      if (now - *ending_at_ > kLauncherS) std::_Exit(status_);
      return;
    }
    if (asked_at_) Conclude(now);
    if (leaving_) return;
    if (lost_) {
      // The deputy prints the verdict in place of the lost hub. This rank prints the verdict only if the deputy does
      // not.
      if (now - *lost_ > kLauncherS) Proclaim(lost_verdict_);
      return;
    }
    for (Peer& peer : peers_) {
      if (!peer.gone() && now - peer.heard > limits_.heartbeat_s) {
        Lost(peer, fmt::format("gives no sign of life for {:.0f} s: its process is stopped, or its "
                               "machine is gone",
                               now - peer.heard));
        return;
      }
    }
    if (!is_hub()) return;
    CompareChains();
    FindLate(now);
  }

  // Calls visit(rank, channel, state) for each channel of this rank and of the ranks that have not left or ended.
  template <typename Visit>
  void ForEachState(const Visit& visit) const {
    for (const Channel channel : kChannels) {
      const auto index = static_cast<size_t>(channel);
      visit(rank_, channel, recorder_.State(channel));
      for (const Peer& peer : peers_) {
        if (!peer.gone()) visit(peer.rank, channel, peer.states[index]);
      }
    }
  }

  void CompareChains() {
    ForEachState([&](int, Channel channel, const ChannelState& state) {
      if (state.mark == 0) return;
      constexpr size_t kKept = 64;
      auto& marks = marks_[static_cast<size_t>(channel)];
      const uint64_t chain = marks.try_emplace(state.mark, state.mark_chain).first->second;
      if (chain != state.mark_chain) {
        StartInvestigation(fmt::format("the ranks made different {} collectives before number {}",
                                       NameOf(channel), state.mark));
      }
      if (marks.size() > kKept) marks.erase(marks.begin());
    });
  }

  void FindLate(double now) {
    ForEachState([&](int rank, Channel channel, const ChannelState& state) {
      const auto [entry, is_new] =
          pending_.try_emplace({rank, channel}, Pending{.done = state.done, .since = now});
      Pending& pending = entry->second;
      if (state.done == state.enqueued || state.done != pending.done) {
        pending = {.done = state.done, .since = now};
      }
      if (now - pending.since > limits_.collective_s) {
        StartInvestigation(fmt::format("{} collective {} has not ended for {:.0f} s",
                                       NameOf(channel), state.done + 1, now - pending.since));
      }
    });
  }

  // On the hub: asks every rank for its record. If the records agree, `trouble` becomes the verdict.
  void StartInvestigation(const std::string& trouble) {
    if (!is_hub() || asked_at_ || ending_at_) return;
    trouble_ = trouble;
    asked_at_ = Now();
    SendToAll(New(Message::ASK));
  }

  void Conclude(double now) {
    std::vector<Flight> flights{OwnFlight()};
    bool all = true;
    for (const Peer& peer : peers_) {
      if (peer.flight) {
        flights.push_back(*peer.flight);
      } else if (!peer.gone()) {
        all = false;
      }
    }
    if (!all && now - *asked_at_ < kRecordsS) return;
    Proclaim(Disagreement(flights).value_or(trouble_));
  }

  // Returns enough of this rank's record to see where the rank is, and which collective first differed from the other
  // ranks'.
  Flight OwnFlight() {
    FreshenRecord();
    Flight flight = recorder_.Around(/*before=*/2 * FlightRecorder::kMarkEvery, /*after=*/64);
    flight.rank = rank_;
    return flight;
  }

  void Lost(Peer& peer, const std::string& how) {
    peer.ended = true;
    std::string verdict =
        fmt::format("rank {} {}; rank {} is {}", peer.rank, how, rank_, WhereIs(OwnFlight()));
    if (is_hub() || rank_ == deputy_) Proclaim(verdict);
    lost_ = Now();
    lost_verdict_ = std::move(verdict);
  }

  // Returns whether a rank has not sent what each rank sends twice a second.
  bool IsOneSilent() const {
    constexpr double kSilence = 3 * kBeatS;
    return std::ranges::any_of(peers_, [now = Now()](const Peer& peer) {
      return !peer.left && now - peer.heard > kSilence;
    });
  }

  [[noreturn]] void Proclaim(std::string verdict) {
    if (!run_dir_.empty()) verdict += fmt::format("; lockstep flight {} tells more", run_dir_);
    recorder_.SetVerdict(verdict);
    say_(verdict, IsOneSilent());
    Message message = New(Message::VERDICT);
    message.set_text(verdict);
    SendToAll(message);
    if (on_failure_) on_failure_(static_cast<int>(ExitStatus::kPeer), verdict);
    std::_Exit(static_cast<int>(ExitStatus::kPeer));
  }

  void SendToAll(const Message& message) {
    for (Peer& peer : peers_) {
      if (!peer.left) Send(peer.fd.get(), message);
    }
  }

  const int rank_;
  const int world_size_;
  const bool one_machine_;
  const int deputy_;  // the rank that prints the verdict if the hub is lost
  FlightRecorder& recorder_;
  const Watchdog::Say say_;
  const std::function<bool()> take_term_;

  std::atomic<bool> stopping_ = false;

  std::mutex poll_mutex_;  // guards the next five members
  std::condition_variable poll_changed_;
  Communicator* watched_ = nullptr;
  bool polling_ = false;
  int64_t polls_ = 0;
  int64_t poll_wanted_ = 0;

  Mailbox<std::string> note_;                // this rank's next note for the hub
  std::vector<Mailbox<std::string>> notes_;  // on the hub: the notes of the ranks, by rank

  std::mutex mutex_;  // guards the members below, except the threads
  WatchdogLimits limits_;
  std::string run_dir_;
  std::function<void(int status, const std::string& why)> on_failure_;
  bool leaving_ = false;
  std::vector<Peer> peers_;  // on the hub all other ranks; on other ranks only the hub
  FileDescriptor wake_;
  FileDescriptor signals_;

  double last_tick_ = 0;
  double next_beat_ = 0;
  bool late_ = false;
  std::optional<double> term_at_;    // when SIGTERM came
  std::optional<double> ending_at_;  // when some rank said that it ends
  int status_ = static_cast<int>(ExitStatus::kPeer);
  std::optional<double> lost_;  // when the hub was lost
  std::string lost_verdict_;

  // These four members are used only on the hub.
  std::map<std::pair<int, Channel>, Pending> pending_;
  std::array<std::map<uint64_t, uint64_t>, kChannels.size()> marks_;  // chains, by sequence number
  std::optional<double> asked_at_;
  std::string trouble_;

  std::thread thread_;
  std::thread poller_;
};

Watchdog::Watchdog(Communicator& host, int first_elsewhere, FlightRecorder& recorder, Say say,
                   std::function<bool()> take_term)
    : impl_(std::make_unique<Impl>(host, first_elsewhere, recorder, std::move(say),
                                   std::move(take_term))) {}

Watchdog::~Watchdog() = default;

void Watchdog::SetLimits(WatchdogLimits limits) { impl_->SetLimits(limits); }

void Watchdog::Watch(Communicator* communicator) { impl_->Watch(communicator); }

void Watchdog::SetRunFolder(const std::string& run_dir) { impl_->SetRunFolder(run_dir); }

void Watchdog::SetOnFailure(std::function<void(int status, const std::string& why)> tell) {
  impl_->SetOnFailure(std::move(tell));
}

void Watchdog::SetNote(std::string note) { impl_->SetNote(std::move(note)); }

std::map<int, std::string> Watchdog::TakeNotes() { return impl_->TakeNotes(); }

void Watchdog::Leave() { impl_->Tell(impl_->New(Message::LEAVE)); }

void Watchdog::EndAll(const Error& error) {
  Message farewell = impl_->New(Message::FAREWELL);
  farewell.set_status(static_cast<int>(error.status()));
  impl_->Tell(farewell);
  std::_Exit(static_cast<int>(error.status()));
}

void Watchdog::Investigate(const Error& error) {
  Message trouble = impl_->New(Message::TROUBLE);
  trouble.set_text(error.what());
  impl_->Tell(trouble);
  // During this sleep the hub's verdict ends this process, unless the hub has left or is lost.
  std::this_thread::sleep_for(std::chrono::duration<double>(kRecordsS + 2 * kLauncherS));
  impl_->Say(error.what());
  std::_Exit(static_cast<int>(error.status()));
}

}  // namespace lockstep
