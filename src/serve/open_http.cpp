#include <dlfcn.h>

#include "core/check.h"
#include "core/device.h"
#include "core/range.h"
#include "serve/http.h"

namespace horner {

std::unique_ptr<HttpServer> open_http_server(Api& api, const HttpOptions& o) {
  check_range("port", o.port, 0, 65535);
  check_range("body", o.body, 1, 65536);
  check_range("connections", o.connections, 1, 65536);
  check_range("request_seconds", o.request_seconds, 1, 86400);
  check_range("write_seconds", o.write_seconds, 1, 86400);
  const std::string path = library_folder() + "/libhorner_http.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw RunError("serve needs cpp-httplib (Debian: libcpp-httplib0.11): {}", dlerror());
  const auto make = reinterpret_cast<MakeHttpServer*>(dlsym(library, "horner_make_http_server"));
  if (make == nullptr) throw RunError("{}: not the library of this program: {}", path, dlerror());
  return std::unique_ptr<HttpServer>(make(api, o));
}

}  // namespace horner
