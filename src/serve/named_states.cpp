#include "serve/named_states.h"

#include <ATen/Functions.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "io/safetensors.h"
#include "serve/api_error.h"

namespace horner {
namespace {

constexpr const char* kEnding = ".safetensors";

int64_t seconds_now() {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

bool good_name(const std::string& name) {
  const char* letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= 100 && name[0] != '.' &&
         name.find_first_not_of(letters) == name.npos;
}

// Of a state's tensors by their names, and of the number of tokens that they have read.
std::string checksum(const Runner::Tensors& tensors, const std::string& read) {
  std::string hashes = read;
  for (const auto& [name, tensor] :
       std::map<std::string, at::Tensor>(tensors.begin(), tensors.end())) {
    const at::Tensor x = tensor.to(at::kCPU).contiguous();
    hashes += name + xxh128({static_cast<const char*>(x.const_data_ptr()), x.nbytes()});
  }
  return xxh128(hashes);
}

int64_t number_in(const std::string& text, const std::string& path) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw DataError("{}: '{}' is no number", path, text);
  return number;
}

// NAME.safetensors.PID.tmp (core/file.h) whose process is gone. This process has written none yet: its own number is that of
// an older process, as in a container that was started again.
bool is_left_over(const std::filesystem::path& file) {
  const std::filesystem::path named = file.stem(), state = named.stem();
  if (file.extension() != ".tmp" || state.extension() != kEnding || !good_name(state.stem()))
    return false;
  const std::string digits = named.extension().string().substr(1);
  pid_t writer = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), writer);
  if (error != std::errc() || end != digits.data() + digits.size() || writer <= 0) return false;
  return writer == ::getpid() || (::kill(writer, 0) != 0 && errno == ESRCH);
}

}  // namespace

void NamedStates::check_name(const std::string& name) {
  if (!good_name(name))
    throw ApiError(
        400,
        "invalid_name",
        "a state's name has 1 to 100 letters, digits, '.', '_' or '-', and does not begin with '.'"
    );
}

NamedStates::NamedStates(Runner& runner, std::string folder, std::string print, int64_t most)
    : runner_(runner), folder_(std::move(folder)), fingerprint_(std::move(print)), most_(most) {
  if (folder_.empty()) return;
  make_folder(folder_);
  lock_.emplace(folder_);
  std::vector<std::filesystem::path> left_over;
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    const std::string name = file.path().stem();
    if (file.path().extension() == kEnding && good_name(name)) read(name, file.path());
    if (is_left_over(file.path())) left_over.push_back(file.path());
  }
  std::error_code ignored;  // a file that cannot be deleted harms nobody
  for (const auto& file : left_over) std::filesystem::remove(file, ignored);
  measure();
}

std::string NamedStates::path_of(const std::string& name) const {
  return folder_ + "/" + name + kEnding;
}

const NamedState& NamedStates::at(const std::string& name) const {
  const auto found = states_.find(name);
  if (found != states_.end()) return found->second;
  if (!folder_.empty() && good_name(name) && std::filesystem::exists(path_of(name)))
    throw ApiError(404, "state_not_found", "state '{}' is not of this model", name);
  throw ApiError(404, "state_not_found", "there is no state '{}'", name);
}

void NamedStates::save(const std::string& name, NamedState state) {
  check_name(name);
  if (!states_.contains(name) && size() >= most_)
    throw ApiError(
        429, "too_many_states", "there are {} states already; delete one of them", most_
    );
  state.created = seconds_now();
  if (!folder_.empty()) {
    const std::string path = path_of(name);
    if (!states_.contains(name) && std::filesystem::exists(path))
      throw ApiError(409, "name_taken", "{}: is not of this model; take another name", path);
    write(state, path);
    state.on_disk = true;
  }
  states_[name] = std::move(state);
  measure();
}

void NamedStates::measure() {
  std::vector<const StreamState*> held;
  int64_t tokens = 0;
  for (const auto& [name, s] : states_) {
    if (s.state) held.push_back(s.state.get());
    tokens += int64_t(s.tokens.size() * sizeof(int32_t));
  }
  bytes_ = tokens + runner_.held_bytes(held);
}

void NamedStates::fork(const std::string& from, const std::string& to) {
  const NamedState& old = at(from);
  NamedState copy;
  copy.tokens = old.tokens;
  copy.read = old.read;
  if (old.state) copy.state = runner_.fork(*old.state);
  save(to, std::move(copy));
}

void NamedStates::roll_back(const std::string& name, int64_t tokens, PrefixCache& cache) {
  const NamedState& old = at(name);
  if (tokens < 0 || tokens > int64_t(old.tokens.size()))
    throw ApiError(
        400,
        "invalid_value",
        "state '{}' has {} tokens; it cannot go back to {}",
        name,
        old.tokens.size(),
        tokens
    );
  NamedState back;
  back.tokens.assign(old.tokens.begin(), old.tokens.begin() + tokens);
  PrefixCache::Found found = cache.find(back.tokens, tokens);
  if (old.read <= tokens && found.tokens < old.read && old.state) {
    back.read = old.read;
    back.state = runner_.fork(*old.state);
  } else {
    back.read = found.tokens;
    back.state = std::move(found.state);
  }
  save(name, std::move(back));
}

void NamedStates::remove(const std::string& name) {
  at(name);
  std::error_code error;
  if (!folder_.empty()) std::filesystem::remove(path_of(name), error);
  if (error) throw RunError("{}: cannot be deleted: {}", path_of(name), error.message());
  states_.erase(name);
  measure();
}

void NamedStates::write(const NamedState& s, const std::string& path) const {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  if (s.state) tensors = runner_.tensors(*s.state);
  tensors.emplace_back("tokens", at::tensor(at::ArrayRef<int32_t>(s.tokens), at::kInt));
  const std::string read = std::to_string(s.read), sum = checksum(tensors, read);
  write_safetensors(
      path,
      tensors,
      {{"model", fingerprint_},
       {"read", read},
       {"created", std::to_string(s.created)},
       {"xxh128", sum}}
  );
}

// A file that is not ours, or of another model, stays where it is and is not listed.
void NamedStates::read(const std::string& name, const std::string& path) {
  const Safetensors file = Safetensors::open(path);
  const auto& about = file.metadata();
  if (!about.contains("model") || about.at("model") != fingerprint_) return;
  const auto said = [&](const char* key) { return about.contains(key) ? about.at(key) : ""; };
  Runner::Tensors tensors;
  for (const std::string& part : file.names()) tensors.emplace_back(part, file.get(part));
  if (about.contains("xxh128") && said("xxh128") != checksum(tensors, said("read")))
    throw DataError("{}: is damaged: its checksum is not the one in it; delete the file", path);
  NamedState s;
  const at::Tensor tokens = file.get("tokens");
  s.read = number_in(said("read"), path);
  s.created = number_in(said("created"), path);
  s.on_disk = true;
  if (tokens.scalar_type() != at::kInt || s.read < 0 || s.read > tokens.numel())
    throw DataError("{}: has {} tokens and read {} of them", path, tokens.numel(), s.read);
  s.tokens.assign(tokens.data_ptr<int32_t>(), tokens.data_ptr<int32_t>() + tokens.numel());
  std::erase_if(tensors, [](const auto& part) { return part.first == "tokens"; });
  if (s.read > 0) s.state = runner_.restore(tensors);
  states_[name] = std::move(s);
}

std::string NamedStates::file_of(const std::string& name) const {
  if (at(name).on_disk) return read_file(path_of(name));
  std::string path = std::filesystem::temp_directory_path() / "horner-state-XXXXXX";
  const int fd = ::mkstemp(path.data());
  if (fd < 0) throw RunError("{}: cannot be made", path);
  ::close(fd);
  write(at(name), path);
  std::string bytes = read_file(path);
  std::filesystem::remove(path);
  return bytes;
}

Json NamedStates::describe(const std::string& name) const {
  const NamedState& s = at(name);
  return {
      {"name", name},
      {"tokens", s.tokens.size()},
      {"bytes", s.state ? runner_.bytes(*s.state) : 0},
      {"created", s.created},
      {"on_disk", s.on_disk}};
}

Json NamedStates::list() const {
  Json all = Json::array();
  for (const auto& [name, state] : states_) all.push_back(describe(name));
  return all;
}

}  // namespace horner
