#include "lab/theory/theory.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "core/check.h"
#include "core/device.h"
#include "core/options.h"
#include "lab/theory/limit.h"
#include "lab/theory/parts.h"

namespace horner::theory {
namespace {

void check_lengths(const char* name, const std::vector<int64_t>& lengths) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    HORNER_CHECK(
        lengths[i] >= 2 && lengths[i] <= 1 << 20,
        "{} must be 2 .. 1048576, got {}",
        name,
        lengths[i]
    );
    HORNER_CHECK(
        i == 0 || lengths[i] > lengths[i - 1],
        "{} must increase, got {} after {}",
        name,
        lengths[i],
        lengths[i - 1]
    );
  }
}

void check(const Options& o) {
  HORNER_CHECK(o.seed >= 0, "seed must be at least 0, got {}", o.seed);
  HORNER_CHECK(o.d >= 1 && o.d <= 32, "d must be 1 .. 32, got {}", o.d);
  HORNER_CHECK(!o.lengths.empty(), "lengths must name at least one prompt length");
  check_lengths("lengths", o.lengths);
  check_lengths("training", o.training);
  HORNER_CHECK(
      o.repeats >= 16 && o.repeats <= 1000000, "repeats must be 16 .. 1000000, got {}", o.repeats
  );
  HORNER_CHECK(o.queries >= 1 && o.queries <= 1024, "queries must be 1 .. 1024, got {}", o.queries);
  HORNER_CHECK(o.training.size() <= 64, "training must name at most 64 prompt lengths");
  HORNER_CHECK(o.runs >= 2 && o.runs <= 256, "runs must be 2 .. 256, got {}", o.runs);
  HORNER_CHECK(
      o.horizon > 0 && o.horizon <= 1000, "horizon must be above 0, at most 1000, got {}", o.horizon
  );
}

// Pieces of work run in parallel, so torch's operations use one thread each.
struct SerialTorch {
  const int threads = at::get_num_threads();
  SerialTorch() { at::set_num_threads(1); }
  ~SerialTorch() { at::set_num_threads(threads); }
};

std::string bound(double x) {
  return std::isinf(x) ? (x > 0 ? "inf" : "-inf") : fmt::format("{:.4g}", x);
}

}  // namespace

at::Tensor Lab::normals(Use use, size_t number, int64_t first, at::IntArrayRef shape) const {
  int64_t n = 1;
  for (const int64_t size : shape.slice(1)) n *= size;
  return theory::normals(uint64_t(options.seed), stream(use, number), first, shape[0], n)
      .reshape(shape)
      .to(device);
}

void Lab::each(int64_t n, const std::function<void(int64_t)>& body) const {
  std::atomic<int64_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (int64_t i = next++; i < n; i = next++) body(i);
    } catch (...) {
      next = n;
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> workers;
  for (int64_t i = 1; i < std::min<int64_t>(threads, n); ++i) workers.emplace_back(work);
  work();
  for (std::thread& thread : workers) thread.join();
  if (failure) std::rethrow_exception(failure);
}

void Lab::in_pieces(
    int64_t R, int64_t Q, int64_t L, const std::function<void(int64_t, int64_t)>& body
) const {
  const int64_t room = (device.is_cuda() ? 1 << 26 : 1 << 17) / (Q * L);
  const int64_t piece = std::clamp<int64_t>(room, 1, (R + 15) / 16);
  each((R + piece - 1) / piece, [&](int64_t i) {
    body(i * piece, std::min(piece, R - i * piece));
  });
}

void Lab::claim(
    const std::string& part,
    const std::string& statement,
    Interval measured,
    double least,
    double most
) const {
  report.claims.push_back({part, statement, measured, least, most});
}

std::string Claim::verdict() const {
  if (measured.low >= least && measured.high <= most) return "holds";
  return measured.high < least || measured.low > most ? "does not hold" : "not shown";
}

std::string Claim::sentence() const {
  const std::string number =
      measured.low == measured.high
          ? fmt::format("{:.3g}", measured.value)
          : fmt::format("{:.4g} [{:.4g}, {:.4g}]", measured.value, measured.low, measured.high);
  const std::string band = std::isinf(most)    ? "above " + bound(least)
                           : std::isinf(least) ? "below " + bound(most)
                           : least == 0        ? "at most " + bound(most)
                                               : "in " + bound(least) + " .. " + bound(most);
  return fmt::format("{}: {}, {} (expected {})", verdict(), statement, number, band);
}

size_t Report::refuted() const {
  return size_t(std::count_if(claims.begin(), claims.end(), [](const Claim& claim) {
    return claim.verdict() == "does not hold";
  }));
}

size_t Report::broken() const {
  return size_t(std::count_if(claims.begin(), claims.end(), [](const Claim& claim) {
    return claim.part != "dynamics" && claim.verdict() == "does not hold";
  }));
}

const Curve& Report::curve(std::string_view part, std::string_view name, std::string_view quantity)
    const {
  for (const Curve& c : curves) {
    if (c.part == part && c.name == name && c.quantity == quantity) return c;
  }
  throw RunError("no curve {}, {}, {}", part, name, quantity);
}

Json Report::json() const {
  Json all_claims = Json::array(), all_curves = Json::array(), paths = Json::array();
  const auto finite = [](double x) { return std::isfinite(x) ? Json(x) : Json(); };
  for (const Claim& c : claims) {
    all_claims.push_back(
        {{"part", c.part},
         {"statement", c.statement},
         {"verdict", c.verdict()},
         {"measured", c.measured.json()},
         {"least", finite(c.least)},
         {"most", finite(c.most)}}
    );
  }
  for (const Curve& c : curves) all_curves.push_back(c.json());
  for (const Trajectory& t : trajectories) {
    paths.push_back(
        {{"covariance", t.covariance},
         {"L", t.L == 0 ? Json() : Json(t.L)},
         {"time", t.time},
         {"risk", t.risk},
         {"deviation", t.deviation}}
    );
  }
  return {
      {"device", device},
      {"options", to_json(options)},
      {"seconds", seconds},
      {"claims", all_claims},
      {"curves", all_curves},
      {"trajectories", paths}};
}

Report study(const Options& options, const Tell& tell) {
  check(options);
  const auto start = std::chrono::steady_clock::now();
  const at::Device device = find_device(options.device);
  Report report;
  report.options = options;
  report.device = describe_device(device);
  size_t done = 0;
  const size_t total = 3 + 3 * options.lengths.size() + 2 * options.training.size();
  const SerialTorch serial;
  const Lab lab{
      options,
      device,
      report,
      device.is_cuda() ? 1 : serial.threads,
      [&](const std::string& part, const std::string& what) { tell(done++, total, part, what); }};
  identities(lab);
  concentration(lab);
  random_query(lab);
  regression(lab);
  if (!options.training.empty()) dynamics(lab);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace horner::theory
