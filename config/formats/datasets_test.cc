#include "config/formats/datasets.h"

#include "base/testing/message_of.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// A data set that stores its source in a member, as a user's data set may.
class Blank : public Dataset {
 public:
  explicit Blank(DatasetSource source) : source_(std::move(source)) {
    spec_.classes = source_.options.Integer("classes", 3);
    spec_.dtype = source_.expected.dtype;
    spec_.shape.assign(source_.options.Integer("dimensions", 3), 4);
  }
  int64_t size() const override { return 1; }
  const SampleSpec& spec() const override { return spec_; }
  void Read(int64_t, int64_t, std::byte*, std::byte*) const override {}

 private:
  DatasetSource source_;
  SampleSpec spec_;
};

std::shared_ptr<const Dataset> Open(const std::string& name, const std::string& option = "",
                                    const std::string& value = "", int64_t classes = 0) {
  Datasets datasets;
  datasets.Add<Blank>("blank");
  datasets.Add("none", [](const DatasetSource&) { return nullptr; });
  config::Own config;
  config.set_name(name);
  config.set_kind(config::Own::PIXELS);
  if (!option.empty()) (*config.mutable_option())[option] = value;
  SampleSpec expected;
  expected.dtype = at::kByte;
  expected.classes = classes;
  return datasets.Open(config, {}, expected, /*labels_optional=*/false);
}

TEST(Datasets, OpensWithOptions) {
  EXPECT_EQ(Open("blank", "classes", "5")->spec().classes, 5);
  EXPECT_EQ(Open("blank", "classes", "5", 5)->spec().classes, 5);
}

TEST(Datasets, RefusesWhatItsConfigDoesNotFit) {
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [] { Open("blanc"); }),
              HasSubstr("no data set \"blanc\"; did you mean \"blank\"?"));
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [] { Open("blank", "clases", "5"); }),
              HasSubstr("has no option \"clases\"; did you mean \"classes\"?"));
}

TEST(Datasets, RefusesWhatIsNoneOrOfOtherSamples) {
  EXPECT_THAT(DataErrorOf([] { Open("none"); }), HasSubstr("its factory returned no data set"));
  EXPECT_THAT(DataErrorOf([] { Open("blank", "", "", 10); }),
              HasSubstr("has 3 classes where 10 are expected"));
  EXPECT_THAT(DataErrorOf([] { Open("blank", "dimensions", "0"); }),
              HasSubstr("samples of 0 dimensions: images have channels, height and width"));
}

}  // namespace
}  // namespace lockstep
