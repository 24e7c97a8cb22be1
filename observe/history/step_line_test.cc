#include "observe/history/step_line.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

double NumberOf(const Json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_number() ? found->get<double>() : std::nan("");
}

void ExpectSame(double a, double b, const std::string& line) {
  EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << a << " " << b << " in " << line;
}

// Expects that ReadStepLine() reads the same numbers from `text` as nlohmann's parser.
void ExpectAsJson(const std::string& text) {
  const std::optional<LoggedStep> step = ReadStepLine(text);
  ASSERT_TRUE(step) << text;
  const Json line = Json::parse(text);
  EXPECT_EQ(step->step, line.at("step").get<int64_t>()) << text;
  EXPECT_EQ(step->epoch, line.value("epoch", int64_t{0})) << text;
  ExpectSame(step->time, NumberOf(line, "time"), text);
  ExpectSame(step->loss, NumberOf(line, "loss"), text);
  ExpectSame(step->lr, NumberOf(line, "lr"), text);
  ExpectSame(step->samples_per_s, NumberOf(line, "samples_per_s"), text);
  ExpectSame(step->data_wait, NumberOf(line, "data_wait"), text);
  ExpectSame(step->left_s, NumberOf(line, "left_s"), text);
  ExpectSame(step->grad_norm, NumberOf(line, "grad_norm"), text);
}

TEST(StepLine, ReadsTheNumbersThatAJsonParserReads) {
  ExpectAsJson(R"({"event":"step","step":1})");
  ExpectAsJson(R"({"event":"step","time":1764140000.123,"step":12,"epoch":3,"loss":null,"lr":-0.0,)"
               R"("samples_per_s":1e5,"data_wait":1.5E-07,"loader_threads":2,"grad_norm":1e-310,)"
               R"("left_s":0,"loss_scale":65536.0,"skipped_steps":1})");
  ExpectAsJson(R"({"event":"step","step":3,"step":4,"loss":1,"loss":2})");
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    // The values are random doubles, in the shortest form that nlohmann writes.
    Json line{{"event", "step"},
              {"time", 1.7e9 + 0.001 * static_cast<double>(random() % 1'000'000)},
              {"step", random() >> 1}};
    for (const char* name : {"loss", "lr", "samples_per_s", "data_wait", "grad_norm", "left_s"}) {
      const uint64_t bits = random();
      double value = 0;
      std::memcpy(&value, &bits, sizeof(value));
      line[name] = value;
    }
    ExpectAsJson(line.dump());
  }
}

TEST(StepLine, LeavesOtherLinesToAJsonParser) {
  for (const char* end : {"",
                          "}",
                          R"("step":1)",
                          R"("step":1},)",
                          R"("step":1} )",
                          R"("step":1,})",
                          R"("step":1.0})",
                          R"("step":-1})",
                          R"("step":01})",
                          R"("step":99999999999999999999})",
                          R"("step":"1"})",
                          R"("loss":1})",
                          R"("step":1,"loss":nan})",
                          R"("step":1,"loss":inf})",
                          R"("step":1,"loss":-inf})",
                          R"("step":1,"loss":01})",
                          R"("step":1,"loss":1.})",
                          R"("step":1,"loss":1.e5})",
                          R"("step":1,"loss":.5})",
                          R"("step":1,"loss":+1})",
                          R"("step":1,"loss":1e999})",
                          R"("step":1,"loss":0x10})",
                          R"("step":1,"loss":1e})",
                          R"("step":1,"loss":-})",
                          R"("step":1,"loss":})",
                          R"("step":1,"loss":true})",
                          R"("step":1,"loss":[1]})",
                          R"("step":1, "loss":1})",
                          R"("step":1,"l\u006fss":1})",
                          R"("step":1,"loss)",
                          "\"step\":1,\"l\xc3\xb6ss\":1}",
                          R"("step":1,"epoch":1.5})"}) {
    EXPECT_FALSE(ReadStepLine(fmt::format("{}{}", kStepBegins, end))) << end;
  }
  EXPECT_FALSE(ReadStepLine(R"({"event":"eval","step":1})"));
  EXPECT_FALSE(ReadStepLine(""));
}

}  // namespace
}  // namespace lockstep
