#include "observe/sinks/metrics_server.h"

#include <civetweb.h>

#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"

namespace lockstep {

class MetricsServer::Civetweb {
 public:
  Civetweb(const std::string& address, int port) {
    mg_init_library(MG_FEATURES_DEFAULT);
    const std::string where = fmt::format("{}:{}", address, port);
    const char* options[] = {"listening_ports",    where.c_str(), "num_threads", "2",
                             "request_timeout_ms", "5000",        nullptr};
    mg_callbacks callbacks{};
    callbacks.log_message = [](const mg_connection* connection, const char* message) {
      auto* self = static_cast<Civetweb*>(mg_get_user_data(mg_get_context(connection)));
      // What the threads of connections complain about is their clients' affair.
      if (std::this_thread::get_id() == self->owner_) self->complaint_ = message;
      return 1;
    };
    context_ = mg_start(&callbacks, this, options);
    if (context_ == nullptr) {
      mg_exit_library();
      throw UsageError(
          "{}: Prometheus is not answered: {}; the run goes on, and takes the port when it is "
          "free: "
          "end what has it, or set observe.prometheus_port to another",
          where, complaint_.empty() ? "the port cannot be opened" : complaint_);
    }
    mg_set_request_handler(context_, "/metrics$", Answer, this);
  }

  ~Civetweb() {
    mg_stop(context_);
    mg_exit_library();
  }
  Civetweb(const Civetweb&) = delete;
  Civetweb& operator=(const Civetweb&) = delete;

  void SetPage(std::string page) {
    const std::lock_guard lock(mutex_);
    page_ = std::move(page);
  }

 private:
  static int Answer(mg_connection* connection, void* self) {
    const std::string page = static_cast<Civetweb*>(self)->Page();
    mg_send_http_ok(connection, "text/plain; version=0.0.4; charset=utf-8",
                    static_cast<long long>(page.size()));
    mg_write(connection, page.data(), page.size());
    return 200;
  }

  std::string Page() {
    const std::lock_guard lock(mutex_);
    return page_;
  }

  mg_context* context_ = nullptr;
  std::thread::id owner_ = std::this_thread::get_id();
  std::string complaint_;  // why there is no context
  std::mutex mutex_;
  std::string page_;
};

MetricsServer::MetricsServer(const std::string& address, int port)
    : civetweb_(std::make_unique<Civetweb>(address, port)) {}

MetricsServer::~MetricsServer() = default;

void MetricsServer::SetPage(std::string page) { civetweb_->SetPage(std::move(page)); }

}  // namespace lockstep
