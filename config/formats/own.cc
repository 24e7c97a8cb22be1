// The format OWN: a data set that the program itself defines (config/formats/datasets.h).
#include "config/formats/format.h"

namespace lockstep {
namespace {

class Own : public Format {
 public:
  SampleKind kind(const config::Data& data) const override {
    switch (data.own().kind()) {
      case config::Own::PIXELS:
        return SampleKind::kPixels;
      case config::Own::TOKENS:
        return SampleKind::kTokens;
      case config::Own::TEXTS:
        return SampleKind::kTexts;
      default:
        return SampleKind::kNumbers;
    }
  }
  bool Has(config::Data::Task) const override { return true; }
  bool needs_files() const override { return false; }
  // Returns no reason, because the data set itself checks its files.
  std::string WhyNot(const std::string&, mode_t) const override { return ""; }

  void Check(const FieldCheck& check) const override {
    if (check.config().data().own().name().empty()) {
      check.Fail("data.own.name", "name the data set");
    }
  }

  std::shared_ptr<const Dataset> Open(const OpenRequest& request) const override {
    return request.datasets.Open(request.config.data().own(), request.files, request.expected,
                                 request.label_optional);
  }
};

}  // namespace

std::unique_ptr<const Format> NewOwn() { return std::make_unique<Own>(); }

}  // namespace lockstep
