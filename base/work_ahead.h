// WorkAhead: makes the values of keys in threads before they are asked for.
//
// Promise: the value of each key is made once. Nobody waits for a value while no thread works on it: if a value that no
// thread has begun is asked for, the caller makes it.
//
// what can fail -> what the caller sees -> the test that shows it (base/work_ahead_test.cc)
//   making a value throws -> Take() throws the exception, each time -> WorkAhead.ThrowsWhatMakingThrows
//   a thread cannot be started -> Take() makes what no thread has made -> nothing: threads are hard to run out of
//   the object is destroyed while threads work -> they end their present values, and begin no others
//     -> WorkAhead.WaitsAtItsEndForWhatIsBegun
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace lockstep {

class WorkAhead {
 public:
  using Make = std::function<std::string(const std::string& key)>;

  // `make` is called in up to `threads` threads at once, and in those that call Take().
  WorkAhead(int threads, Make make);
  ~WorkAhead();
  WorkAhead(const WorkAhead&) = delete;
  WorkAhead& operator=(const WorkAhead&) = delete;

  // Lets a thread make the value of the key, unless it is known or has been begun.
  void Begin(const std::string& key);

  // Returns the value of the key.
  std::string Take(const std::string& key);

 private:
  struct Value {
    bool is_begun = false;
    std::promise<std::string> promise;
    std::shared_future<std::string> future{promise.get_future()};
  };

  void Work();
  void Fill(const std::string& key, Value& value) const;

  const int threads_most_;
  const Make make_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  bool ends_ = false;
  int idle_ = 0;
  std::unordered_map<std::string, Value> values_;  // references to values stay valid
  std::deque<std::string> queue_;                  // keys that may have been begun by now
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
