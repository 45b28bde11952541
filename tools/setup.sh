# Set-up for ./horner and ./test, which source this file and give $root: Debian packages, Python
# packages, configure, build. Every step is skipped when it is done already.
# shellcheck shell=bash disable=SC2154

cuda=${CUDA_HOME:-/usr/local/cuda}
if [[ -n ${HORNER_PRESET:-} ]]; then preset=$HORNER_PRESET
elif type -P nvcc > /dev/null || [[ -x $cuda/bin/nvcc ]]; then preset=cuda
else preset=cpu; fi
build=$root/build/$preset
logs=$root/build/log
venv=$root/.venv
[[ -z ${HORNER_TORCH:-} ]] || venv=$root/build/venv  # for the tests alone; torch comes from elsewhere
steps=4

die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# Sets $torch, the package folder to build against, from a package folder, a site-packages or a venv.
find_torch() {
  local base=${HORNER_TORCH:-$venv} dir
  [[ $base == /* ]] || base=$PWD/$base
  torch=
  for dir in "$base" "$base/torch" "$base"/lib/python3*/site-packages/torch; do
    if [[ -f $dir/lib/libtorch_cpu.so ]]; then torch=$dir; return; fi
  done
  [[ -z ${HORNER_TORCH:-} ]] || die "HORNER_TORCH=$HORNER_TORCH holds no torch"
}

# The program was built against this torch, and no source is newer.
up_to_date() {
  local stamp=$build/built.stamp with
  find_torch
  [[ -n $torch && -x $build/horner && -f $stamp ]] && IFS= read -r with < "$stamp" &&
    [[ $with == "$torch" ]] &&
    [[ -z $(cd "$root" && find src cmake CMakeLists.txt CMakePresets.json tools/setup.sh \
      tools/packages.txt tools/requirements.txt -newer "$stamp" -print -quit) ]]
}

# Copies standard input to file LOG; shows TEXT with the seconds and the newest line on a terminal,
# and every half minute elsewhere.
show() {
  local log=$1 text=$2 line last='' begin=$SECONDS beat=$SECONDS status width=80
  [[ ! -t 2 ]] || width=$(tput cols 2> /dev/null || echo 80)
  while :; do
    status=0
    IFS= read -r -t 1 line || status=$?
    if ((status == 0)); then printf '%s\n' "$line" 2> /dev/null; last=${line//[$'\r\t\e']/ }
    else printf '%s' "$line" 2> /dev/null; fi  # what came of an unfinished line
    ((status == 0 || status > 128)) || break  # above 128: nothing came for a second
    line="$text  $((SECONDS - begin)) s  $last"
    if [[ -t 2 ]]; then printf '\r\e[K%s' "${line:0:width-1}" >&2
    elif ((SECONDS - beat >= 30)); then beat=$SECONDS; printf '%s\n' "$line" >&2; fi
  done > "$log"
}

# What went wrong, in words, from the log of a failed command.
cause() {
  local log=$1 free
  says() { grep -qsE "$1" "$log"; }
  free=$(df --output=avail -k "$root" | tail -n 1)
  if says 'No space left on device|Errno 28|Disk quota exceeded' || ((free < 1024)); then
    echo "no disk space left for $root"
  elif says 'NewConnectionError|Temporary failure (in name )?resol|Could not resolve|Connection refused|ConnectTimeout|Network is unreachable|Connection timed out'; then
    echo "no network"
  elif says 'Permission denied|Read-only file system|are you root'; then echo "no permission to write"
  elif says 'CMAKE_CXX_COMPILER|No CMAKE_CUDA_COMPILER|compiler identification is unknown'; then
    echo "no working compiler"
  elif says 'No matching distribution found for torch'; then
    echo "torch has no wheel for $(python3 --version 2>&1)"
  elif says 'ensurepip is not available'; then echo "python3 has no venv module"
  elif says 'Killed signal|fatal error: Killed'; then echo "not enough memory"
  else grep -m 1 -E '(^|: )(fatal )?([Ee]rror|ERROR): |^CMake Error' "$log" || tail -n 1 "$log"; fi 2> /dev/null
}

# step NUMBER NAME TEXT COMMAND...: runs COMMAND; its output goes to build/log/NAME.log.
step() {
  local log=$logs/$2.log text="[$1/$steps] $3" begin=$SECONDS
  shift 3
  [[ -t 2 ]] || printf '%s\n' "$text" >&2
  if "$@" 2>&1 < /dev/null | show "$log" "$text"; then
    if [[ -t 2 ]]; then printf '\r\e[K%s  %d s\n' "$text" $((SECONDS - begin)) >&2
    else printf '%s  done in %d s\n' "$text" $((SECONDS - begin)) >&2; fi
  else
    [[ ! -t 2 ]] || printf '\r\e[K' >&2
    die "$text failed: $(cause "$log"); see $log"
  fi
}

# Prints those of the listed Debian packages that are not installed.
missing_packages() {
  local wanted
  mapfile -t wanted < <(sed '/^#/d' "$@" | sort)
  comm -23 <(printf '%s\n' "${wanted[@]}") <(dpkg-query -W \
    -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2> /dev/null | sed -n 's/ installed$//p' | sort -u)
}

apt() { "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@"; }
install_packages() { apt update && apt install -y --no-install-recommends "$@"; }

# set_up_packages LIST...
set_up_packages() {
  local missing
  sudo=()
  type -P dpkg-query > /dev/null || return 0  # another system: configure names what is missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  if ((EUID)); then
    sudo=(sudo -n)
    "${sudo[@]}" true 2> /dev/null || die "run first: sudo apt-get install ${missing[*]}"
  fi
  step 1 packages "Debian packages: ${missing[*]}" install_packages "${missing[@]}"
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check install --no-deps "$@"; }
imports_torch() { "$venv/bin/python" -c 'import torch'; }

# The lines of requirements.txt that the CUDA toolkit does not fulfil already.
torch_requirements() {
  local line name
  while IFS= read -r line; do
    name=${line//-/_}
    [[ $line == \#* || -d $cuda/dist-info/${name/==/-}.dist-info ]] || printf '%s\n' "$line"
  done < "$root/tools/requirements.txt"
}

install_torch() {
  local wanted
  mapfile -t wanted < <(torch_requirements)
  python3 -m venv --clear "$venv" && pip "${wanted[@]}" &&
    # The toolkit may be out of the loader's sight: then its libraries are fetched after all.
    { imports_torch || { pip -r "$root/tools/requirements.txt" && imports_torch; }; }
}

# A venv for the tests beside a torch that is there already.
borrow_torch() {
  local python=${torch%/lib/python3*}/bin/python3
  [[ -x $python ]] || python=python3
  "$python" -m venv --clear "$venv" &&
    echo "${torch%/torch}" > "$(echo "$venv"/lib/python3*/site-packages)/horner.pth" && imports_torch
}

# set_up_python TESTS: the stamps are written last, so that a half-finished venv is made anew.
set_up_python() {
  local hash text="torch 2.11.0 into .venv" install=install_torch
  find_torch
  if [[ -n ${HORNER_TORCH:-} ]]; then
    (($1)) || return 0
    text="Python for the tests beside $torch" install=borrow_torch
  fi
  hash="$(sha256sum < "$root/tools/requirements.txt") ${HORNER_TORCH:-}"
  if [[ ! -x $venv/bin/python || $(cat "$venv/torch.stamp" 2> /dev/null) != "$hash" ]]; then
    step 2 torch "$text" "$install"
    echo "$hash" > "$venv/torch.stamp"
  fi
  find_torch
  (($1)) || return 0
  hash=$(sha256sum < "$root/tools/requirements-test.txt")
  if [[ $(cat "$venv/test.stamp" 2> /dev/null) != "$hash" ]]; then
    step 2 python "Python packages for the tests" pip -r "$root/tools/requirements-test.txt"
    echo "$hash" > "$venv/test.stamp"
  fi
}

configure() {
  cd "$root" && cmake --fresh --preset "$preset" -DHORNER_TORCH="$torch" -DHORNER_PYTHON="$venv/bin/python"
}

# Compiling against torch takes up to 1.5 GB per file, and ninja counts cores only.
job_count() {
  local cores memory
  cores=$(nproc) memory=$(awk '/MemAvailable/ { print int($2 / 2e6) }' /proc/meminfo)
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}

# set_up TARGET TESTS: everything up to a built TARGET; TESTS is 1 where the tests are to run.
set_up() {
  local target=$1 tests=$2 lists=("$root/tools/packages.txt") settings
  trap 'printf "\n%s: interrupted; the next start goes on from here\n" "${0##*/}" >&2; exit 130' INT
  mkdir -p "$logs" "$build" 2> /dev/null || die "cannot write to $root/build"
  exec 9> "$root/build/lock" || die "cannot write to $root/build"
  flock -n 9 || { echo "waiting for another set-up of this folder" >&2; flock 9; }
  ((!tests)) || lists+=("$root/tools/packages-test.txt")
  PATH=$PATH:$cuda/bin

  set_up_packages "${lists[@]}"
  set_up_python "$tests"
  settings="$root $torch $venv $(type -P g++ clang++ nvcc || true)"
  if [[ $(cat "$build/configured.stamp" 2> /dev/null) != "$settings" ]]; then
    step 3 configure "configure the $preset build" configure
    echo "$settings" > "$build/configured.stamp"
  fi
  echo "$torch" > "$build/begun.stamp"  # older than any change that the build may miss
  step 4 build "build $target ($preset)" cmake --build "$build" --target "$target" --parallel "$(job_count)"
  mv "$build/begun.stamp" "$build/built.stamp"
  exec 9>&-
  trap - INT
}
