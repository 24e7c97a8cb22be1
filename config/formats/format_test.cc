#include <gtest/gtest.h>

#include "config/formats/formats.h"

namespace lockstep {
namespace {

TEST(Format, EachThatAConfigCanNameIsRegistered) {
  const auto& values = *config::Data::Format_descriptor();
  for (int i = 0; i < values.value_count(); ++i) {
    config::Data data;
    data.set_format(static_cast<config::Data::Format>(values.value(i)->number()));
    EXPECT_NO_THROW(FormatOf(data)) << values.value(i)->name();
  }
}

}  // namespace
}  // namespace lockstep
