#include "base/files/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/message_of.h"

namespace lockstep {
namespace {

constexpr WriteErrors kErrors{ExitStatus::kData, "make room"};

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(OutputFile, NamesWhatCannotBeWritten) {
  EXPECT_EQ(DataErrorOf([] { OutputFile("/nowhere/x", kErrors); }),
            "/nowhere/x: cannot be written: No such file or directory");
  OutputFile full("/dev/full", kErrors);
  EXPECT_EQ(DataErrorOf([&] { full.Write(Bytes("x"), 0); }),
            "/dev/full: cannot be written: No space left on device: make room");
  EXPECT_EQ(DataErrorOf([] { RenameFile("/nowhere/x", "/nowhere/y", kErrors); }),
            "/nowhere/y: cannot be written: No such file or directory");
  EXPECT_EQ(DataErrorOf([] { SyncFolder("/nowhere", kErrors); }),
            "/nowhere: cannot be written: No such file or directory");
  EXPECT_EQ(MessageOf(ExitStatus::kCheckpoint,
                      [] { OutputFile("/nowhere/x", {ExitStatus::kCheckpoint, ""}); }),
            "/nowhere/x: cannot be written: No such file or directory");
}

}  // namespace
}  // namespace lockstep
