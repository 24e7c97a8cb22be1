// The format CIFAR10: the binary version of CIFAR-10.
#include "data/arrays/cifar10.h"

#include "config/formats/format.h"

namespace lockstep {
namespace {

class Cifar10 : public Format {
 public:
  SampleKind kind(const config::Data&) const override { return SampleKind::kPixels; }

  void Check(const FieldCheck& check) const override {
    const int64_t classes = check.config().data().classes();
    if (classes != 0 && classes != 10) check.Fail("data.classes", "CIFAR10 has ten classes");
  }

  std::shared_ptr<const Dataset> Open(const OpenRequest& request) const override {
    return ReadCifar10({.files = request.files});
  }
};

}  // namespace

std::unique_ptr<const Format> NewCifar10() { return std::make_unique<Cifar10>(); }

}  // namespace lockstep
