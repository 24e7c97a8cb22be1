#include "observe/sinks/background_sink.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <semaphore>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/files/file_descriptor.h"
#include "base/say.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPeriod{1};

// A lock-free queue of events: any thread puts events in, and one thread takes them out. The queue is a linked list
// whose first entry is the newest event.
class Inbox {
 public:
  Inbox() = default;
  ~Inbox() { TakeAll(); }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  void Put(TimedEvent event) {
    if (waiting_.fetch_add(1, std::memory_order_relaxed) >= kMostWaiting) {
      waiting_.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
    Entry* const entry = std::make_unique<Entry>().release();  // the list owns the entry
    entry->event = std::move(event);
    entry->before = newest_.load(std::memory_order_relaxed);
    while (!newest_.compare_exchange_weak(entry->before, entry, std::memory_order_release,
                                          std::memory_order_relaxed)) {
    }
  }

  // Returns all events, the oldest first.
  std::vector<TimedEvent> TakeAll() {
    std::vector<TimedEvent> events;
    std::unique_ptr<Entry> entry(newest_.exchange(nullptr, std::memory_order_acquire));
    while (entry) {
      events.push_back(std::move(entry->event));
      entry.reset(entry->before);
    }
    waiting_.fetch_sub(static_cast<int64_t>(events.size()), std::memory_order_relaxed);
    std::ranges::reverse(events);
    return events;
  }

 private:
  struct Entry {
    TimedEvent event;
    Entry* before = nullptr;
  };
  std::atomic<Entry*> newest_{nullptr};
  std::atomic<int64_t> waiting_{0};
};

// The loop of a sink's thread. The sink and the thread share ownership of the loop, so the loop may outlive the sink.
class Loop {
 public:
  explicit Loop(std::unique_ptr<EventWorker> worker)
      : worker_(std::move(worker)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Calls the worker until End() was called, and then destroys the worker. Destroying it may take as long as a call.
  void Run() {
    Clock::time_point next = Clock::now() + kPeriod;
    for (bool ends = false; !ends && !is_left_;) {
      const bool worker_is_asked = WaitUntil(next);
      if (worker_is_asked) {
        Guarded([this] { worker_->OnReadable(); });
        continue;
      }
      ends = ends_;
      const bool fails = fails_.exchange(false);
      Guarded([&] { worker_->Work(inbox_.TakeAll(), ends || fails); });
      if (fails) failure_is_seen_.release();
      next = Clock::now() + kPeriod;
    }
    worker_.reset();
    has_ended_.release();
  }

  void Put(TimedEvent event) { inbox_.Put(std::move(event)); }

  // Makes the thread call the worker at once, and waits until the call has returned.
  void Fail() {
    fails_ = true;
    Wake();
    // If the worker takes longer than kPatience, it may not finish its work, because the process is about to end.
    (void)failure_is_seen_.try_acquire_for(kPatience);
  }

  // Makes Run() return after one more call of the worker. Returns whether Run() has returned within `patience`; if not,
  // the worker is not called again.
  bool End(Clock::duration patience) {
    ends_ = true;
    Wake();
    is_left_ = !has_ended_.try_acquire_for(patience);
    return !is_left_;
  }

 private:
  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
  }

  // Waits until `time`, until Wake() is called, or until the worker's file is readable. Returns whether OnReadable()
  // must be called.
  bool WaitUntil(Clock::time_point time) {
    using std::chrono::ceil, std::chrono::milliseconds;
    const auto left = ceil<milliseconds>(time - Clock::now()).count();
    pollfd files[]{{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                   {.fd = worker_->Readable(), .events = POLLIN, .revents = 0}};
    if (left <= 0 || poll(files, 2, static_cast<int>(left)) <= 0) return false;
    if (files[0].revents == 0) return true;
    uint64_t times = 0;
    (void)!read(wake_.get(), &times, sizeof(times));
    return false;
  }

  template <typename Act>
  void Guarded(const Act& act) {
    try {
      act();
    } catch (const std::exception& error) {
      if (!std::exchange(warned_, true)) Warn(error.what());
    }
  }

  std::unique_ptr<EventWorker> worker_;
  Inbox inbox_;
  FileDescriptor wake_;  // an eventfd
  std::atomic<bool> ends_{false};
  std::atomic<bool> fails_{false};
  std::atomic<bool> is_left_{false};  // whether the sink has given up waiting
  std::binary_semaphore failure_is_seen_{0};
  std::binary_semaphore has_ended_{0};
  bool warned_ = false;
};

class BackgroundSink final : public EventSink {
 public:
  BackgroundSink(std::string name, std::unique_ptr<EventWorker> worker, Clock::duration patience)
      : name_(std::move(name)),
        patience_(patience),
        loop_(std::make_shared<Loop>(std::move(worker))) {
    // A new thread inherits the signal mask of the thread that starts it, so this thread blocks all signals while it
    // starts the new thread.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    thread_ = std::thread([loop = loop_] { loop->Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~BackgroundSink() override {
    if (loop_->End(patience_)) {
      thread_.join();
      return;
    }
    Warn(
        fmt::format("{}: still waits for a file system or a command, and the process ends without "
                    "it: what was not written yet is lost",
                    name_));
    thread_.detach();
  }
  BackgroundSink(const BackgroundSink&) = delete;
  BackgroundSink& operator=(const BackgroundSink&) = delete;

  void On(const RunEvent& event) override {
    loop_->Put({UnixSeconds(), event});
    if (std::holds_alternative<RunFailed>(event)) loop_->Fail();
  }

 private:
  std::string name_;
  Clock::duration patience_;
  std::shared_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<EventSink> NewBackgroundSink(std::string name, std::unique_ptr<EventWorker> worker,
                                             std::chrono::milliseconds patience) {
  return std::make_unique<BackgroundSink>(std::move(name), std::move(worker), patience);
}

}  // namespace lockstep
