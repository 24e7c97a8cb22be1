// A user-defined data set: points in the plane, read from text files that have one line "x y class" for each point.
#pragma once

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/main.h"

class Points : public lockstep::Dataset {
 public:
  explicit Points(const lockstep::DatasetSource& source) {
    const auto scale = static_cast<float>(source.options.Integer("scale", 1));
    spec_ = {.shape = {2}, .classes = 2, .task = source.expected.task};
    for (const std::string& path : source.files) {
      std::ifstream file(path);
      Point point{};
      while (file >> point.x >> point.y >> point.label) {
        points_.push_back({point.x * scale, point.y * scale, point.label});
      }
      if (!file.eof()) {
        throw lockstep::DataError("{}: line {} is no point: write \"x y class\"", path,
                                  points_.size() + 1);
      }
    }
  }

  int64_t size() const override { return static_cast<int64_t>(points_.size()); }
  const lockstep::SampleSpec& spec() const override { return spec_; }

  // Several threads may call Read() at the same time.
  void Read(int64_t index, int64_t /*epoch*/, std::byte* input, std::byte* target) const override {
    const Point& point = points_[index];
    const auto* coordinates = reinterpret_cast<const std::byte*>(&point.x);
    std::copy_n(coordinates, 2 * sizeof(float), input);
    const auto* label = reinterpret_cast<const std::byte*>(&point.label);
    std::copy_n(label, sizeof(int64_t), target);
  }

 private:
  struct Point {
    float x, y;
    int64_t label;
  };

  lockstep::SampleSpec spec_;
  std::vector<Point> points_;
};
