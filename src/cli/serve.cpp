// horner serve MODEL: OpenAI's API around a model, and a page to talk to it.
#include <cstdlib>
#include <thread>

#include "cli/command.h"
#include "cli/flags.h"
#include "core/interrupt.h"
#include "core/range.h"
#include "report/progress.h"
#include "serve/http.h"

namespace horner {
namespace {

struct ServeSettings {
  std::string model;
  HttpOptions http;
  ServeOptions model_options;
  int64_t drain_seconds = 30;

  template <class Visitor>
  void visit(Visitor&& visit) {
    http.visit(visit);
    model_options.visit(visit);
    visit(
        "drain_seconds", drain_seconds, "after SIGTERM: time for the texts that are being written"
    );
  }
};

void say(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

int run(ServeSettings s) {
  if (const char* key = std::getenv("HORNER_API_KEY"); key && s.http.api_key.empty())
    s.http.api_key = key;
  check_range("drain_seconds", s.drain_seconds, 0, 86400);
  check(s.model_options);
  const CatchInterrupt catch_interrupt;
  ServeMetrics metrics;
  Api api(metrics);
  std::unique_ptr<ServedModel> model;
  const auto server = open_http_server(api, s.http);  // answers 503 until the model is read
  if (!server->loopback() && s.http.api_key.empty())
    say("warning: everybody who reaches this address can use the model; --api_key demands a key");
  model = serve_model(s.model, s.model_options, metrics);
  api.ready(*model);
  const bool v6 = s.http.host.find(':') != s.http.host.npos;
  say(fmt::format(
      "{} ({}) listens on http://{}:{}",
      model->name,
      model->computed_by,
      v6 ? "[" + s.http.host + "]" : s.http.host,
      server->port()
  ));
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  say("no new requests; waiting for the texts that are being written");
  server->stop_listening();
  if (model->worker) model->worker->drain(std::chrono::seconds(s.drain_seconds));
  return 0;
}

}  // namespace

std::function<int()> declare_serve(CLI::App& app) {
  const auto s = std::make_shared<ServeSettings>();
  app.add_option("model", s->model, "run folder, model folder, GGUF file or name of `horner get`")
      ->required();
  add_flags(app, *s);
  return [s] { return run(*s); };
}

}  // namespace horner
