// The format NPY: arrays that NumPy saved.
#include "data/arrays/npy.h"

#include "config/formats/format.h"

namespace lockstep {
namespace {

class Npy : public Format {
 public:
  SampleKind kind(const config::Data& data) const override {
    switch (data.npy().kind()) {
      case config::Npy::PIXELS:
        return SampleKind::kPixels;
      case config::Npy::TEXTS:
        return SampleKind::kTexts;
      default:
        return SampleKind::kNumbers;
    }
  }
  bool Has(config::Data::Task) const override { return true; }
  std::optional<FilePair> pair(const config::Data&) const override {
    return FilePair{"inputs", "targets"};
  }

  std::shared_ptr<const Dataset> Open(const OpenRequest& request) const override {
    return MapNpy({.inputs = request.files[0],
                   .targets = TargetsFile(request),
                   .task = request.expected.task,
                   .classes = request.expected.classes,
                   .dtype = request.expected.dtype});
  }
};

}  // namespace

std::unique_ptr<const Format> NewNpy() { return std::make_unique<Npy>(); }

}  // namespace lockstep
