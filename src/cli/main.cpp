// horner: reads the command line, runs one command, and turns any error into one line and an exit code.
#include <fcntl.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "cli/command.h"
#include "cli/examples.h"
#include "cli/help.h"
#include "core/build.h"
#include "core/check.h"
#include "core/device.h"
#include "core/mapped_files.h"
#include "core/nearest.h"
#include "core/parent.h"
#include "core/version.h"

namespace horner {
namespace {

// The command that the words name, as deep as they go: bench, bench train.
const CLI::App* command_of(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* found = &app;
  for (const std::string& word : words) {
    const auto known =
        found->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == word; });
    if (known.empty()) break;
    found = known[0];
  }
  return found;
}

// "horner bench train"
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : full_name(*app.get_parent()) + " " + app.get_name();
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    for (const std::string& name : option->get_snames()) known.push_back("-" + name);
  }
  return known;
}

// --speed-lengths is --speed_lengths, --dry_run is --dry-run: settings are spelt as in files, flags as in a shell.
std::string spelt(const std::string& word, const std::vector<std::string>& known) {
  const size_t end = std::min(word.find('='), word.size());
  const auto plain = [](std::string name) {
    std::replace(name.begin() + 1, name.end(), '_', '-');
    return name;
  };
  if (end < 3 || !word.starts_with("--")) return word;
  const std::string name = word.substr(0, end);
  if (std::find(known.begin(), known.end(), name) != known.end()) return word;
  for (const std::string& flag : known) {
    if (plain(flag) == plain(name)) return flag + word.substr(end);
  }
  return word;
}

// "--steps" of --schedule.steps: a setting without the group that it belongs to.
std::vector<std::string> in_a_group(
    const std::string& flag, const std::vector<std::string>& known
) {
  std::vector<std::string> found;
  for (const std::string& name : known) {
    if (flag.size() > 2 && name.ends_with("." + flag.substr(2))) found.push_back("'" + name + "'");
  }
  return found;
}

// What CLI11 says of a name it does not know, with the nearest one that it does.
std::string unknown_argument(const CLI::App& app, const std::string& given) {
  if (!given.starts_with("-")) {
    if (app.get_parent() != nullptr) return fmt::format("takes no argument '{}'", given);
    std::vector<std::string> known;
    for (const Command& command : commands()) known.emplace_back(command.name);
    return unknown("command", given, known);
  }
  const std::vector<std::string> known = flags_of(app);
  const std::string name = given.substr(0, given.find('='));
  if (const auto inside = in_a_group(name, known); !inside.empty())
    return fmt::format("unknown flag '{}'; did you mean {}?", name, fmt::join(inside, " or "));
  return unknown("flag", name, known);
}

// One line; a name or value of the user in it may be very long.
int report_error(const std::string& who, std::string message, int code) {
  constexpr size_t kMost = 2000;
  message.resize(std::min(message.size(), message.find('\n')));
  if (message.size() > kMost)
    message = message.substr(0, kMost - 500) + " .. " + message.substr(message.size() - 500);
  const std::string line = fmt::format("{}: {}\n", who, message);
  std::fwrite(line.data(), 1, line.size(), stderr);  // a full stderr is no further error
  return code;
}

constexpr const char* kBug = "this is a mistake in the program; please report it: ";

// What an exception that is not ours says, and the exit code. Its text is for programmers, so it never stands alone.
std::pair<std::string, int> foreign_error() {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    return {error.what_without_backtrace(), 5};
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    const bool memory = what.find("DefaultCPUAllocator") != what.npos;
    return {
        memory ? "out of memory: " + what.substr(what.find("you tried")) : what, memory ? 5 : 1};
  } catch (const std::bad_alloc&) {
    return {"out of memory", 5};
  } catch (const std::length_error& error) {
    return {fmt::format("out of memory: a size is too large ({})", error.what()), 5};
  } catch (const std::system_error& error) {  // of a stream or a thread
    return {error.what(), 1};
  } catch (const std::exception& error) {
    return {std::string(kBug) + error.what(), 1};
  } catch (...) {
    return {std::string(kBug) + "an unknown exception", 1};
  }
}

// For exceptions that no catch can reach, in destructors and threads of libraries.
[[noreturn]] void end_by_line() {
  const auto [text, code] =
      std::current_exception() ? foreign_error() : std::pair{std::string(kBug), 1};
  ::_exit(report_error("horner", text, code));
}

// Descriptors 0 to 2 are open, so that no data file gets one of these numbers. A reader that went away and a file that reached
// its limit (ulimit -f) are errors of a write: no signal ends the run without a line. A parent may have set SIGCHLD to be
// ignored: then the kernel throws away how our children ended.
void secure_streams() {
  for (int stream = 0; stream < 3; ++stream) {
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // gets the lowest free number
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);
  say_bus_errors();
}

// A result that did not reach its reader is an error, said in a line unless the reader left on purpose.
int flush_results(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  if (errno == EPIPE) return code == 0 ? 1 : code;
  report_error("horner", fmt::format("stdout: cannot be written: {}", std::strerror(errno)), 1);
  return code == 0 ? 1 : code;
}

int run_program(int argc, char** argv) {
  CLI::App app(
      "Softmax attention and everything that approximates it, as one recurrence.", "horner"
  );
  app.set_version_flag("--version", fmt::format("horner {}", version()));
  app.allow_extras();
  app.footer(
      "Start with `horner demo`, `horner compare`, `horner explain gla` or `horner list`. "
      "`horner COMMAND --help` ends with examples."
  );
  app.require_subcommand(0, 1);  // a second one is an argument of the first
  std::vector<std::pair<CLI::App*, std::function<int()>>> actions;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.about);
    sub->allow_extras();
    sub->footer(examples_footer(command.name));
    actions.emplace_back(sub, command.declare(*sub));
  }
  std::vector<std::string> words(argv + 1, argv + argc);
  const CLI::App* chosen = command_of(app, words);
  const std::string who = full_name(*chosen);
  try {
    for (std::string& word : words) word = spelt(word, flags_of(*chosen));
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    app.parse(std::move(words));
    const auto extras = app.remaining(true);
    if (!extras.empty()) throw UsageError("{}", unknown_argument(*chosen, extras.front()));
    for (const auto& [sub, action] : actions) {
      if (sub->parsed()) return action();
    }
    fmt::print("{}", fitted_help(app.help(), terminal_width(STDOUT_FILENO)));
    return 0;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", fitted_help(app.help(), terminal_width(STDOUT_FILENO)));
    return 0;
  } catch (const CLI::Success& success) {  // --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return report_error(who, error.what(), 2);
  } catch (const Error& error) {
    return report_error(who, error.what(), error.exit_code);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::broken_pipe) return 1;  // the reader left on purpose
    if (std::ferror(stdout) != 0) {  // said here; flush_results would say it again
      __fpurge(stdout);
      std::clearerr(stdout);
    }
    return report_error(who, error.what(), 1);
  } catch (...) {
    const auto [text, code] = foreign_error();
    return report_error(who, text, code);
  }
}

}  // namespace
}  // namespace horner

int main(int argc, char** argv) {
  if (std::strcmp(horner::kProgramHeaders, horner::library_headers()) != 0) {
    std::fputs(
        "horner: the program and its library are of different builds; let the build end, then "
        "start again\n",
        stderr
    );
    return 1;
  }
  horner::die_with_parent();
  horner::secure_streams();
  std::set_terminate(horner::end_by_line);
  horner::leave_out_amx();
  // Keep freed pages: returning them to the OS and faulting them in again costs 10 % of a step.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that is allowed
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  horner::command_line() = {argv + 1, argv + argc};
  horner::open_cuda();
  return horner::flush_results(horner::run_program(argc, argv));
}
