#include "trainer/run/data_wait.h"

#include <algorithm>
#include <utility>

namespace lockstep {

void DataWait::Leave(Input& input) {
  before_s_ += input.feed.waited_s();
  loader_before_ = loader_before_ + input.loader.times();
}

void DataWait::CountFromHere(Input& input) {
  before_s_ = -input.feed.waited_s();
  loader_before_ = LoaderTimes{} - input.loader.times();
  reads_before_ = train_.times();
  told_s_ = 0;
}

double DataWait::TakeShare(Input& input, double seconds) {
  const double now_s = Seconds(input);
  return std::clamp((now_s - std::exchange(told_s_, now_s)) / seconds, 0.0, 1.0);
}

SampleShares DataWait::Shares(Input& input) const {
  const LoaderTimes loader = loader_before_ + input.loader.times();
  const ReadTimes reads = train_.times() - reads_before_;
  const double waited_s = Seconds(input);
  SampleShares shares;
  if (waited_s > 0 && input.feed.queued() > 0) {
    shares.copying = std::clamp(1 - loader.waiting / waited_s, 0.0, 1.0);
  }
  if (loader.reading <= 0) return shares;
  // If a data set does not report its reading times, the time that loader threads spent in reads without computing
  // counts as reading.
  const bool says = reads.files + reads.decoding > 0;
  const double reading_s = says ? reads.files : loader.reading - loader.computing;
  shares.reading = std::clamp(reading_s / loader.reading, 0.0, 1.0) * (1 - shares.copying);
  return shares;
}

}  // namespace lockstep
