#include "observe/sinks/exporter.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/files/file_descriptor.h"
#include "base/http/testing/http_client.h"
#include "base/testing/message_of.h"
#include "base/testing/test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

std::string StepLine(int rank, int step) {
  return "lockstep_step{rank=\"" + std::to_string(rank) + "\"} " + std::to_string(step) + "\n";
}

// A port on which a socket listens, so that no other socket can listen on this port.
class TakenPort {
 public:
  TakenPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(socket_.get(), 1), 0);
    socklen_t bytes = sizeof(address);
    getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
    port_ = ntohs(address.sin_port);
  }
  int port() const { return port_; }

 private:
  FileDescriptor socket_;
  int port_ = 0;
};

// Reads all datagrams that wait in the owner's socket.
void ReceiveAll(Exporter& owner) {
  pollfd file{.fd = owner.socket(), .events = POLLIN, .revents = 0};
  while (poll(&file, 1, 0) > 0) owner.Receive();
}

class ExporterTest : public testing::Test {
 protected:
  Exporter::Options OptionsOf(int rank) const {
    return {.address = "127.0.0.1", .port = 0, .file = file_, .run_dir = folder_, .rank = rank};
  }

  std::string folder_ = NewFolder();
  std::string file_ = folder_ + "/run.prom";
};

TEST_F(ExporterTest, OneShowsTheFiguresOfAll) {
  Exporter first(OptionsOf(0)), second(OptionsOf(1));
  first.Show(StepLine(0, 5));
  second.Show(StepLine(1, 6));
  EXPECT_GE(first.socket(), 0);
  EXPECT_EQ(second.socket(), -1);
  ReceiveAll(first);
  first.Show(StepLine(0, 7));
  EXPECT_THAT(ReadFile(file_), HasSubstr(StepLine(0, 7) + StepLine(1, 6)));
}

TEST_F(ExporterTest, AnotherTakesThePlaceOfOneThatEnds) {
  Exporter second(OptionsOf(1));
  {
    Exporter first(OptionsOf(0));
    first.Show(StepLine(0, 5));
    second.Show(StepLine(1, 5));
    ASSERT_TRUE(fs::exists(file_));
  }
  EXPECT_FALSE(fs::exists(file_));
  second.Show(StepLine(1, 6));
  EXPECT_GE(second.socket(), 0);
  EXPECT_THAT(ReadFile(file_), HasSubstr(StepLine(1, 6)));
  EXPECT_THAT(ReadFile(file_), Not(HasSubstr(StepLine(0, 5))));
}

TEST_F(ExporterTest, AnotherServesWhenTheOwnerIsKilled) {
  Exporter::Options options = OptionsOf(0);
  // The port is free again after this statement, because the TakenPort is destroyed.
  options.port = TakenPort().port();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    try {
      Exporter owner(options);
      owner.Show(StepLine(0, 5));
      (void)!write(ready[1], "r", 1);
      pause();
    } catch (...) {  // the test sees the end of the pipe
    }
    _exit(1);
  }
  close(ready[1]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THAT(HttpAnswer(options.port, "/metrics"), HasSubstr(StepLine(0, 5)));
  options.rank = 1;
  Exporter other(options);
  other.Show(StepLine(1, 5));
  EXPECT_EQ(other.socket(), -1);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  other.Show(StepLine(1, 6));
  const std::string answer = HttpAnswer(options.port, "/metrics");
  EXPECT_THAT(answer, testing::StartsWith("HTTP/1."));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr(StepLine(1, 6)));
  EXPECT_THAT(answer, Not(HasSubstr(StepLine(0, 5))));
}

TEST_F(ExporterTest, RunsOfTwoFoldersAreStrangers) {
  const std::string other = NewFolder();
  Exporter first(OptionsOf(0));
  Exporter stranger(
      {.address = "", .port = 0, .file = other + "/run.prom", .run_dir = other, .rank = 1});
  first.Show(StepLine(0, 5));
  stranger.Show(StepLine(1, 5));
  EXPECT_GE(stranger.socket(), 0);
  EXPECT_THAT(ReadFile(file_), Not(HasSubstr("rank=\"1\"")));
}

TEST_F(ExporterTest, AFileThatCannotBeWrittenIsNamedAndTriedAgain) {
  fs::create_directory(file_);
  Exporter exporter(OptionsOf(0));
  EXPECT_THAT(MessageOf(ExitStatus::kCheckpoint, [&] { exporter.Show(StepLine(0, 5)); }),
              HasSubstr("observe.prometheus_file: " + file_));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  fs::remove(file_);
  exporter.Show(StepLine(0, 6));
  EXPECT_THAT(ReadFile(file_), HasSubstr(StepLine(0, 6)));
}

TEST_F(ExporterTest, FollowsNoLink) {
  const std::string target = NewFolder() + "/target";
  WriteFile(target, "another's");
  fs::create_symlink(target, file_ + ".tmp." + std::to_string(getpid()));
  fs::create_symlink(target, file_);
  Exporter exporter(OptionsOf(0));
  exporter.Show(StepLine(0, 5));
  EXPECT_EQ(ReadFile(target), "another's");
  EXPECT_FALSE(fs::is_symlink(file_));
  EXPECT_THAT(ReadFile(file_), HasSubstr(StepLine(0, 5)));
}

TEST_F(ExporterTest, NamesThePortThatIsTaken) {
  std::optional<TakenPort> taken;
  taken.emplace();
  Exporter::Options options = OptionsOf(0);
  options.port = taken->port();
  Exporter exporter(options);
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { exporter.Show(StepLine(0, 5)); }),
              testing::AllOf(HasSubstr("127.0.0.1:" + std::to_string(options.port)),
                             HasSubstr("Address already in use")));
  taken.reset();
  exporter.Show(StepLine(0, 6));
}

TEST_F(ExporterTest, NamesAnAddressThatIsNotThisMachines) {
  Exporter::Options options = OptionsOf(0);
  options.port = 9400;
  options.address = "192.0.2.1";  // a documentation address (RFC 5737), which no machine has
  Exporter exporter(options);
  EXPECT_THAT(MessageOf(ExitStatus::kUsage, [&] { exporter.Show(StepLine(0, 5)); }),
              HasSubstr("set observe.prometheus_address to an address of this machine"));
}

}  // namespace
}  // namespace lockstep
