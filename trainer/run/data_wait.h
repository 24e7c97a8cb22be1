// DataWait: measures how long training waited for samples, and how much of this time went to reading and copying. If a
// run replaces its Input object by another one, DataWait adds up the waiting times of all Input objects of the run.
#pragma once

#include "data/dataset/dataset.h"
#include "data/feed/loader.h"
#include "trainer/run/input.h"

namespace lockstep {

// The fractions of the waiting time that went to reading the samples' bytes and to copying samples to the device. The
// rest of the waiting time went to computing in loader threads, such as decoding and augmentation.
struct SampleShares {
  double reading = 0;
  double copying = 0;
};

class DataWait {
 public:
  // Keeps a reference to `train`, the data set from which the run's Input objects read.
  explicit DataWait(const Dataset& train) : train_(train) {}

  // Adds the waiting time of `input` to the sums. Call it before the run replaces `input` by another one.
  void Leave(Input& input);

  // Resets the measured times to zero.
  void CountFromHere(Input& input);

  // Returns how many seconds training has waited so far. `input` is the run's current Input, as in the functions below.
  double Seconds(Input& input) const { return before_s_ + input.feed.waited_s(); }

  // Returns how many seconds training on a GPU has waited up to the moment when it had got the first `batches` batches
  // of `input` (DeviceFeed::queued()).
  double Seconds(Input& input, int64_t batches) const {
    return before_s_ + input.feed.waited_s(batches);
  }

  // Returns the fraction of the last `seconds` seconds in which training waited for samples. Only waiting since the
  // previous call of TakeShare() counts.
  double TakeShare(Input& input, double seconds);

  // Makes the next TakeShare() ignore all waiting before this call of Forget().
  void Forget(Input& input) { told_s_ = Seconds(input); }

  // Returns which fractions of the waiting went to reading and to copying.
  SampleShares Shares(Input& input) const;

 private:
  const Dataset& train_;
  double before_s_ = 0;        // seconds of waiting for replaced inputs
  LoaderTimes loader_before_;  // the sum of the loader times of replaced inputs
  ReadTimes reads_before_;     // the data set's times() when counting began
  double told_s_ = 0;          // the seconds of waiting that TakeShare() must not count again
};

}  // namespace lockstep
