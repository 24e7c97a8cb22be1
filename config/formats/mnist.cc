// The format MNIST: the idx files of MNIST.
#include "data/arrays/mnist.h"

#include "config/formats/format.h"

namespace lockstep {
namespace {

class Mnist : public Format {
 public:
  SampleKind kind(const config::Data&) const override { return SampleKind::kPixels; }
  std::optional<FilePair> pair(const config::Data&) const override {
    return FilePair{"images", "labels"};
  }

  std::shared_ptr<const Dataset> Open(const OpenRequest& request) const override {
    return ReadMnist({.images = request.files[0],
                      .labels = TargetsFile(request),
                      .classes = request.expected.classes});
  }
};

}  // namespace

std::unique_ptr<const Format> NewMnist() { return std::make_unique<Mnist>(); }

}  // namespace lockstep
