// The format SYNTHETIC: random samples, for measurements of speed.
#include "data/dataset/synthetic.h"

#include "config/formats/format.h"

namespace lockstep {
namespace {

class SyntheticSamples : public Format {
 public:
  SampleKind kind(const config::Data& data) const override {
    switch (data.synthetic().kind()) {
      case config::Synthetic::PIXELS:
        return SampleKind::kPixels;
      case config::Synthetic::TOKENS:
        return SampleKind::kTokens;
      case config::Synthetic::TEXTS:
        return SampleKind::kTexts;
      default:
        return SampleKind::kNumbers;
    }
  }
  bool Has(config::Data::Task) const override { return true; }
  bool needs_files() const override { return false; }

  void Check(const FieldCheck& check) const override {
    const config::Data& data = check.config().data();
    if (data.train_size() + data.validation_size() > 0) {
      check.Fail(data.train_size() > 0 ? "data.train" : "data.validation",
                 "SYNTHETIC samples come from no file");
    }
    if (data.input_shape_size() == 0) check.Fail("data.input_shape", "SYNTHETIC samples need it");
    if (data.classes() == 0) check.Fail("data.classes", "SYNTHETIC samples need it");
    if (kind(data) == SampleKind::kPixels && data.input_shape_size() != 3) {
      check.Fail("data.input_shape", "PIXELS have three numbers: channels, height, width");
    }
  }

  std::shared_ptr<const Dataset> Open(const OpenRequest& request) const override {
    const config::Data& data = request.config.data();
    SampleSpec spec = request.expected;
    spec.shape.assign(data.input_shape().begin(), data.input_shape().end());
    return MakeSynthetic({.spec = spec, .samples = data.synthetic().samples()});
  }
};

}  // namespace

std::unique_ptr<const Format> NewSyntheticSamples() { return std::make_unique<SyntheticSamples>(); }

}  // namespace lockstep
