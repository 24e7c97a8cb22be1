#include "observe/sinks/metrics_server.h"

#include <utility>

namespace lockstep {

MetricsServer::MetricsServer(const std::string& address, int port)
    : server_({.address = address,
               .port = port,
               .port_name = "observe.prometheus_port",
               .address_name = "observe.prometheus_address",
               .remark = " (the run goes on, and tries again each second)"},
              [this](const HttpRequest& request) { return ReplyTo(request); }) {}

void MetricsServer::SetPage(std::string page) {
  const std::lock_guard lock(mutex_);
  page_ = std::move(page);
}

HttpReply MetricsServer::ReplyTo(const HttpRequest& request) {
  if (request.path != "/metrics") return {.status = 404, .body = "see /metrics\n"};
  const std::lock_guard lock(mutex_);
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = page_};
}

}  // namespace lockstep
