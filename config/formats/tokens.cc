// The format TOKENS: text as token ids.
#include "data/tokens/tokens.h"

#include "config/formats/format.h"

namespace lockstep {
namespace {

constexpr int64_t kGpt2Vocabulary = 50257;

class Tokens : public Format {
 public:
  SampleKind kind(const config::Data&) const override { return SampleKind::kTokens; }

  std::shared_ptr<const Dataset> Open(const OpenRequest& request) const override {
    const int64_t classes = request.expected.classes;
    return MapTokens({.files = request.files,
                      .length = request.config.data().tokens().length(),
                      .classes = classes > 0 ? classes : kGpt2Vocabulary});
  }
};

}  // namespace

std::unique_ptr<const Format> NewTokens() { return std::make_unique<Tokens>(); }

}  // namespace lockstep
