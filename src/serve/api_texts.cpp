// Texts and states: what needs the worker.
#include "serve/api.h"
#include "serve/text_answer.h"

namespace horner {
namespace {

constexpr size_t kMostEvents = 4096;  // that wait for a slow client, of each request
constexpr auto kLook = std::chrono::milliseconds(50);  // how often the client is looked for

// One request on its way through the worker. When it goes, the worker stops its texts.
class Reading {
 public:
  Reading(const ServedModel& model, TextRequest request)
      : request_(std::move(request)),
        answer(model, request_),
        channel_(std::make_shared<TextChannel>(kMostEvents)) {
    model.worker->submit(request_.tasks(channel_));
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading() { channel_->leave(); }

  const TextRequest& request() const { return request_; }

  // The next events, at least one. ApiError if the client has left.
  std::vector<TextEvent> next(const std::function<bool()>& alive) {
    while (true) {
      std::vector<TextEvent> events = channel_->take(kLook);
      // Also while events come: the client of a text that is not streamed is written to at its end only.
      if (const auto now = std::chrono::steady_clock::now(); now - looked_ >= kLook) {
        looked_ = now;
        if (!alive()) throw ApiError(499, "client_left", "the client has left");
      }
      if (!events.empty()) return events;
      if (channel_->left())
        throw ApiError(503, "too_slow", "the client reads more slowly than the text is written");
    }
  }
  // What a client of a stream is sent for an event. ApiError if the text failed.
  std::vector<std::string> add(TextEvent event) {
    if (!event.error.empty()) throw ApiError(event.status, "failed", "{}", event.error);
    return answer.add(std::move(event));
  }

 private:
  TextRequest request_;

 public:
  TextAnswer answer;

 private:
  std::shared_ptr<TextChannel> channel_;
  std::chrono::steady_clock::time_point looked_;  // for the client
};

std::string event_line(const std::string& json) { return "data: " + json + "\n\n"; }

// Events that came while the last ones were written go out together.
void write_stream(
    Reading& reading,
    std::vector<TextEvent> events,
    const std::function<bool()>& alive,
    const ApiReply::Write& write
) {
  std::string lines;
  try {
    while (true) {
      for (TextEvent& event : events) {
        for (const std::string& chunk : reading.add(std::move(event))) lines += event_line(chunk);
      }
      if (reading.answer.done()) break;
      if (!lines.empty() && !write(lines)) return;
      lines.clear();
      events = reading.next(alive);
    }
    if (reading.request().include_usage) lines += event_line(to_line(reading.answer.usage_chunk()));
  } catch (const ApiError& error) {
    lines += event_line(to_line(error.json()));
  }
  write(lines + "data: [DONE]\n\n");
}

}  // namespace

ApiReply Api::texts(const ApiRequest& request, bool chat) {
  ServedModel& m = model();
  TextRequest wanted;
  read_body(request, [&](const Json& body) { wanted = read_text_request(m, body, chat); });
  const auto reading = std::make_shared<Reading>(m, std::move(wanted));
  std::vector<TextEvent> events = reading->next(request.alive);
  ApiReply reply;
  if (reading->request().stream && events[0].error.empty()) {  // a mistake has a status of its own
    reply.type = "text/event-stream";
    reply.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
    const auto shared = std::make_shared<std::vector<TextEvent>>(std::move(events));
    reply.stream = [reading, shared, alive = request.alive](const ApiReply::Write& write) {
      write_stream(*reading, std::move(*shared), alive, write);
    };
    return reply;
  }
  while (true) {
    for (TextEvent& event : events) reading->add(std::move(event));
    if (reading->answer.done()) break;
    events = reading->next(request.alive);
  }
  reply.body = to_line(reading->answer.whole());
  return reply;
}

//   GET /states                                    the list
//   POST /states {name, prompt | messages}         reads a text and keeps its state
//   GET /states/NAME     DELETE /states/NAME       POST /states/NAME/fork {name}
//   POST /states/NAME/roll_back {tokens}           GET /states/NAME/export
ApiReply Api::states(const ApiRequest& request) {
  ServedModel& m = model();
  if (!m.worker) throw ApiError(400, "unsupported", "{} is an encoder: it has no states", m.name);
  const std::string rest = request.path.size() > 8 ? request.path.substr(8) : "";
  const std::string name = rest.substr(0, rest.find('/'));
  const std::string verb = rest.size() > name.size() ? rest.substr(name.size() + 1) : "";
  const std::string& method = request.method;
  ApiReply reply;
  Json json;
  const auto call = [&](const std::function<void(NamedStates&, PrefixCache&)>& work) {
    m.worker->call(work);
  };
  if (name.empty() && verb.empty() && method == "GET") {
    call([&](NamedStates& states, PrefixCache&) { json = {{"states", states.list()}}; });
  } else if (name.empty() && verb.empty() && method == "POST") {
    json = save_state(request);
  } else if (verb.empty() && method == "GET") {
    call([&](NamedStates& states, PrefixCache&) { json = states.describe(name); });
  } else if (verb.empty() && method == "DELETE") {
    call([&](NamedStates& states, PrefixCache&) { states.remove(name); });
    json = {{"name", name}, {"deleted", true}};
  } else if (verb == "fork" && method == "POST") {
    const std::string to = RequestFields(body_of(request)).text("name").value_or("");
    NamedStates::check_name(to);
    call([&](NamedStates& states, PrefixCache&) {
      states.fork(name, to);
      json = states.describe(to);
    });
  } else if (verb == "roll_back" && method == "POST") {
    const auto tokens = RequestFields(body_of(request)).integer("tokens", 0, INT32_MAX);
    if (!tokens) throw ApiError(400, "invalid_value", "tokens is missing");
    call([&](NamedStates& states, PrefixCache& cache) {
      states.roll_back(name, *tokens, cache);
      json = states.describe(name);
    });
  } else if (verb == "export" && method == "GET") {
    call([&](NamedStates& states, PrefixCache&) { reply.body = states.file_of(name); });
    reply.type = "application/octet-stream";
    reply.headers = {
        {"Content-Disposition", fmt::format("attachment; filename=\"{}.safetensors\"", name)}};
    return reply;
  } else {
    throw ApiError(404, "not_found", "there is no {} {}", method, request.path);
  }
  reply.body = to_line(json);
  return reply;
}

Json Api::save_state(const ApiRequest& request) {
  ServedModel& m = model();
  TextRequest asked;
  read_body(request, [&](const Json& body) {
    Json wanted = body;
    wanted["save_state"] = RequestFields(body).text("name").value_or("");
    NamedStates::check_name(wanted["save_state"]);
    wanted["stream"] = false;
    if (RequestFields(body).find("messages")) {
      wanted["prompt"] = chat_prompt(m, body, {}, nullptr);
      wanted.erase("messages");
    }
    wanted["max_tokens"] = 0;
    wanted.erase("name");
    asked = read_text_request(m, wanted, false);
  });
  const std::string name = asked.save_as;
  Reading reading(m, std::move(asked));
  while (!reading.answer.done()) {
    for (TextEvent& event : reading.next(request.alive)) reading.add(std::move(event));
  }
  Json json;
  m.worker->call([&](NamedStates& states, PrefixCache&) { json = states.describe(name); });
  return json;
}

}  // namespace horner
