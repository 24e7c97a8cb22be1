#include "observe/page/page_sink.h"

#include <utility>
#include <vector>

#include "base/say.h"
#include "observe/page/page_server.h"
#include "observe/sinks/background_sink.h"

namespace lockstep {
namespace {

class PageWorker final : public EventWorker {
 public:
  PageWorker(std::string run_dir, HttpServer::Options options)
      : run_dir_(std::move(run_dir)), options_(std::move(options)) {}

  void Work(const std::vector<TimedEvent>& /*events*/, bool /*ends*/) override {
    if (server_) return;
    const auto make_data = [run_dir = run_dir_] {
      return std::make_unique<PageData>(std::vector<std::string>{run_dir}, /*live=*/true);
    };
    server_ = std::make_unique<PageServer>(options_, make_data);
    Announce("the page of this run: " + server_->url());
  }

 private:
  std::string run_dir_;
  HttpServer::Options options_;
  std::unique_ptr<PageServer> server_;
};

}  // namespace

std::unique_ptr<EventSink> NewPageSink(std::string run_dir, std::string address, int port) {
  HttpServer::Options options{
      .address = std::move(address),
      .port = port,
      .port_name = "observe.page_port",
      .address_name = "observe.page_address",
      .remark = " (the run goes on, and tries again each second)",
  };
  return NewBackgroundSink("observe.page_port",
                           std::make_unique<PageWorker>(std::move(run_dir), std::move(options)));
}

}  // namespace lockstep
