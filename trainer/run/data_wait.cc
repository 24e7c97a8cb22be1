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

std::string DataWait::Limit(const Input& input) const {
  return LimitOf(loader_before_ + input.loader.times(), train_.times() - reads_before_);
}

}  // namespace lockstep
