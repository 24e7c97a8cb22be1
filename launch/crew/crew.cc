#include "launch/crew/crew.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "ckpt/checkpoint.h"
#include "launch/job/early_signals.h"

namespace lockstep {
namespace {

constexpr double kLookInterval_s = 0.2;
constexpr std::initializer_list<int> kStopSignals = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR2};

bool IsStop(ExitStatus status) {
  return status == ExitStatus::kStopped || status == ExitStatus::kInterrupted;
}

void Open(std::optional<SaidFile>& file, const std::string& path) {
  if (!path.empty()) file.emplace(path);
}

int DescriptorOf(const std::optional<SaidFile>& file) { return file ? file->descriptor() : -1; }

}  // namespace

void Crew::HoldSignals() { const TakenSignals held(kStopSignals); }

Crew::Crew(CrewOptions options)
    : options_(std::move(options)),
      before_(CrewFile::Read(options_.folder)),
      file_(options_.folder),
      taken_(kStopSignals) {}

Crew::~Crew() {
  if (running_.empty()) return;
  for (const int64_t number : running_) {
    members_[number].process.reset();  // kills the job
    End(members_[number], JobState::kStopped);
  }
  Write();
}

int64_t Crew::Add(CrewJob job) {
  Member& member = members_.emplace_back();
  member.record.name = job.name;
  member.job = std::move(job);
  changed_ = true;
  return std::ssize(members_) - 1;
}

bool Crew::IsBusy() const { return !running_.empty() || MayStart(); }

bool Crew::MayStart() const {
  return next_ < std::ssize(members_) && !stopped_ && !(options_.stops_at_failure && failed_);
}

std::vector<int64_t> Crew::Wait() {
  OnSignal(taken_.Wait(0));
  LookForStop();
  std::vector<int64_t> ended = StartSome();
  if (changed_) Write();
  if (ended.empty()) ended = TakeEnded();
  if (ended.empty() && !running_.empty()) {
    OnSignal(taken_.Wait(kLookInterval_s));
    ended = TakeEnded();
  }
  if (SecondsSinceBoot() > killed_at_s_) Kill();
  if (changed_) Write();
  AnswerStop();
  return ended;
}

// Starts jobs while places are free. Returns the numbers of the jobs that need no start because they are done, and of
// the jobs that could not be started.
std::vector<int64_t> Crew::StartSome() {
  std::vector<int64_t> ended;
  while (MayStart() && std::ssize(running_) < options_.places) {
    const int64_t number = next_++;
    Start(number);
    if (members_[number].record.state != JobState::kRunning) ended.push_back(number);
  }
  return ended;
}

void Crew::Start(int64_t number) {
  Member& member = members_[number];
  changed_ = true;
  if (member.job.is_done()) {
    const auto before = std::ranges::find(before_, member.job.name, &JobRecord::name);
    if (before != before_.end() && before->state == JobState::kDone) member.record = *before;
    member.record.state = JobState::kDone;
    return;
  }
  member.place = FreePlace();
  member.began_s = SecondsSinceBoot();
  try {
    Open(member.output, member.job.output);
    Open(member.said, member.job.said);
    member.process.emplace(member.job.command(member.place), ChildProcess::Group::kOwn,
                           DescriptorOf(member.output), MaskAtStart(), DescriptorOf(member.said));
  } catch (const Error& error) {
    member.record.status = error.status();
    member.record.line = error.what();
    End(member, JobState::kFailed);
    Fail(number);
    return;
  }
  member.record.state = JobState::kRunning;
  member.record.begin = UnixSeconds();
  running_.push_back(number);
}

int64_t Crew::FreePlace() const {
  int64_t place = 0;
  const auto is_taken = [&](int64_t number) { return members_[number].place == place; };
  while (std::ranges::any_of(running_, is_taken)) ++place;
  return place;
}

void Crew::OnSignal(int signal) {
  if (signal == 0 || signal == SIGCHLD) return;
  if (signal_ != 0) return Kill();
  signal_ = signal;
  stopped_ = signal == SIGINT ? ExitStatus::kInterrupted : ExitStatus::kStopped;
  killed_at_s_ = SecondsSinceBoot() + options_.patience_s;
  Ask();
}

void Crew::LookForStop() {
  struct stat status {};
  if (signal_ != 0 || lstat(StopPath(options_.folder).c_str(), &status) != 0) return;
  has_stop_ = true;
  OnSignal(SIGINT);
}

// Removes the file STOP when the jobs have ended, so that the same command can go on.
void Crew::AnswerStop() {
  if (!has_stop_ || !running_.empty()) return;
  unlink(StopPath(options_.folder).c_str());
  has_stop_ = false;
}

void Crew::Ask() {
  for (const int64_t number : running_) {
    Member& member = members_[number];
    if (!std::exchange(member.was_asked, true)) member.process->Send(SIGTERM);
  }
}

void Crew::Kill() {
  for (const int64_t number : running_) members_[number].process->Send(SIGKILL);
}

std::vector<int64_t> Crew::TakeEnded() {
  std::vector<int64_t> ended;
  for (const int64_t number : std::vector(running_)) {
    const std::optional<ChildProcess::End> end = members_[number].process->Poll();
    if (!end) continue;
    std::erase(running_, number);
    Settle(number, *end);
    ended.push_back(number);
  }
  return ended;
}

void Crew::Settle(int64_t number, const ChildProcess::End& end) {
  Member& member = members_[number];
  JobRecord& record = member.record;
  record.signal = end.signal;
  record.status = end.signal != 0 ? ExitStatus::kPeer : static_cast<ExitStatus>(end.code);
  if (record.status == ExitStatus::kDone) return End(member, JobState::kDone);
  if (IsStop(record.status)) {
    if (!stopped_) stopped_ = record.status;
    return End(member, JobState::kStopped);
  }
  if (end.signal != 0) {
    record.line = fmt::format("signal {} ended it", end.signal);
  } else if (member.said) {
    record.line = member.said->LastError();
  }
  if (record.line.empty()) record.line = fmt::format("it ended with status {}", end.code);
  const bool was_killed = end.signal != 0 && member.was_asked;
  End(member, was_killed ? JobState::kStopped : JobState::kFailed);
  if (!was_killed) Fail(number);
}

// Notes that a job has failed, and asks the other jobs to stop if `stops_at_failure` is set. Only the first failure
// counts. A failure after a stop does not count, because the stop may have caused the failure.
void Crew::Fail(int64_t number) {
  if (stopped_ || failed_) return;
  failed_ = number;
  if (options_.stops_at_failure) Ask();
}

void Crew::End(Member& member, JobState state) {
  member.record.state = state;
  member.record.end = UnixSeconds();
  member.record.seconds = SecondsSinceBoot() - member.began_s;
  member.process.reset();
  AddWarnings(member);
  member.output.reset();
  member.said.reset();
  changed_ = true;
}

void Crew::AddWarnings(Member& member) {
  if (!member.said) return;
  std::ranges::move(member.said->TakeWarnings(), std::back_inserter(warnings_));
}

std::vector<std::string> Crew::TakeWarnings() {
  for (const int64_t number : running_) AddWarnings(members_[number]);
  return std::exchange(warnings_, {});
}

void Crew::Write() {
  std::vector<JobRecord> records;
  for (const Member& member : members_) records.push_back(member.record);
  file_.Write(records);
  changed_ = false;
}

}  // namespace lockstep
