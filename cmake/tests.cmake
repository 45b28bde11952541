# One test program from every *_test.cpp, one benchmark program from every *_bench.cpp, one fuzzer
# per *_fuzz.cpp, and their CTest entries. Entry NAME writes results/NAME.xml, which
# tools/test_summary.py counts.
#
#   label    what
#   cpu      suites named neither *Cuda*, *Slow* nor *RealModels*, in two shards
#   cuda     suites named *Cuda*; they skip themselves where no GPU is
#   slow     suites named *Slow*, and the fuzzers
#   python   pytest on python/tests, in two entries
#   browser  pytest on python/tests/browser: the pages in a headless Chromium
#   models   pytest on python/tests/models, which downloads models and runs suites named *RealModels*; only when asked for
enable_testing()
set(results "${PROJECT_BINARY_DIR}/results")
set(HORNER_PYTHON "python3" CACHE FILEPATH "Python that has torch and pytest, for the Python tests")
set(HORNER_FUZZ_SECONDS 60 CACHE STRING "how long the fuzzer of safetensors runs as a test")
set(HORNER_FUZZ_SECONDS_EACH 15 CACHE STRING "and each of the others")

find_package(GTest REQUIRED)
find_library(rapidcheck librapidcheck.a REQUIRED)
add_executable(horner_test ${tests})
# The archive's main() is taken only where no test file has one.
target_link_libraries(horner_test PRIVATE
  horner_library ${archives} GTest::gtest GTest::gtest_main ${rapidcheck})
add_dependencies(horner_test horner_http)  # a test opens it
# Optimising the tests would double the time they take to build; the work is in the library.
target_compile_options(horner_test PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O0>)
target_precompile_headers(horner_test PRIVATE <core/pch.h> <gtest/gtest.h>)

# Times within which an entry must end. A build with sanitizers is several times slower.
set(gtest_limit 900)
set(pytest_limit 2400)
if(HORNER_SANITIZE)
  set(gtest_limit 5400)
  set(pytest_limit 14400)
endif()

# add_gtest(name label filter environment...)
function(add_gtest name label filter)
  add_test(NAME ${name} COMMAND "${PROJECT_SOURCE_DIR}/tools/run_gtest"
    $<TARGET_FILE:horner_test> "${filter}" "${results}/${name}.xml"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${gtest_limit}
    ENVIRONMENT "UBSAN_OPTIONS=print_stacktrace=1;${ARGN}")
endfunction()
add_gtest(cpu_0 cpu "-*Cuda*.*:*Slow*.*:*RealModels*.*" GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=0 OMP_NUM_THREADS=1)
add_gtest(cpu_1 cpu "-*Cuda*.*:*Slow*.*:*RealModels*.*" GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=1 OMP_NUM_THREADS=1)
add_gtest(cuda cuda "*Cuda*.*-*Slow*.*")
add_gtest(slow slow "*Slow*.*")

# pytest's -k takes the same text as run_gtest; 5 is its status when no test has such a name.
function(add_pytest name)
  add_test(NAME ${name} COMMAND sh -c
    "\"$@\" -k \"$HORNER_TEST_FILTER\" || test $? = 5" pytest
    "${HORNER_PYTHON}" -m pytest -q --tb=short -p no:cacheprovider
    --junitxml "${results}/${name}.xml" ${ARGN})
endfunction()
# Two entries, since pytest uses one core.
set(second test_attacks.py test_docs.py)
list(TRANSFORM second PREPEND "${PROJECT_SOURCE_DIR}/python/tests/")
add_pytest(python_1 ${second})
list(TRANSFORM second PREPEND "--ignore=")
add_pytest(python_0 "${PROJECT_SOURCE_DIR}/python/tests" ${second}
  "--ignore=${PROJECT_SOURCE_DIR}/python/tests/browser"
  "--ignore=${PROJECT_SOURCE_DIR}/python/tests/models")
add_pytest(browser "${PROJECT_SOURCE_DIR}/python/tests/browser")
add_pytest(models "${PROJECT_SOURCE_DIR}/python/tests/models")
set(environment "HORNER_LIBRARY=${PROJECT_BINARY_DIR}" "PYTHONPATH=${PROJECT_SOURCE_DIR}/python"
  PYTHONDONTWRITEBYTECODE=1)
if(HORNER_SANITIZE)
  # Python is not instrumented: the sanitizers have to be loaded before it, its own leaks ignored.
  set(libraries asan ubsan stdc++)
  if(HORNER_ASAN_RUNTIME)
    set(libraries stdc++)
    set(preload "${HORNER_ASAN_RUNTIME}")
  endif()
  foreach(library IN LISTS libraries)
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=lib${library}.so
      OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND preload "${path}")
  endforeach()
  list(JOIN preload ":" preload)
  list(APPEND environment
    "LD_PRELOAD=${preload}" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1)
endif()
# COST: the longest start first.
set_tests_properties(python_0 python_1 PROPERTIES LABELS python TIMEOUT ${pytest_limit} COST 600 ENVIRONMENT "${environment}")
set_tests_properties(browser PROPERTIES LABELS browser TIMEOUT 600 ENVIRONMENT "${environment}")
set_tests_properties(models PROPERTIES LABELS models TIMEOUT 1800 ENVIRONMENT "${environment}")

# Debian has google-benchmark as a shared library only; it goes beside the program, which then runs
# on another machine too.
file(GLOB_RECURSE benches CONFIGURE_DEPENDS src/*_bench.cpp)
if(benches)
  find_package(benchmark REQUIRED)
  add_executable(horner_bench ${benches})
  target_link_libraries(horner_bench PRIVATE
    horner_library benchmark::benchmark benchmark::benchmark_main)
  target_precompile_headers(horner_bench REUSE_FROM horner_library)
  add_custom_command(TARGET horner_bench POST_BUILD COMMAND ${CMAKE_COMMAND} -E copy_if_different
    $<TARGET_FILE:benchmark::benchmark>
    "${PROJECT_BINARY_DIR}/$<TARGET_SONAME_FILE_NAME:benchmark::benchmark>")
endif()

# A fuzzer is its *_fuzz.cpp, fmt, and the torch-free sources that its line "// fuzz-sources: src/..."
# names, over several lines if they are many: clang compiles those as one file, once for all fuzzers
# that name the same ones.
file(GLOB_RECURSE fuzzers CONFIGURE_DEPENDS src/*_fuzz.cpp)
if(fuzzers)
  find_program(clangxx clang++)
  file(WRITE "${PROJECT_BINARY_DIR}/fuzz_probe.cpp"
    "extern \"C\" int LLVMFuzzerTestOneInput(const char*, decltype(sizeof 0)) { return 0; }\n")
  set(fuzz_flags -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
  execute_process(COMMAND "${clangxx}" ${fuzz_flags} fuzz_probe.cpp -o fuzz_probe
    WORKING_DIRECTORY "${PROJECT_BINARY_DIR}" RESULT_VARIABLE no_fuzzer OUTPUT_QUIET ERROR_QUIET)
  # fmt's headers are those of torch.
  list(APPEND fuzz_flags "-I${PROJECT_SOURCE_DIR}/src" -isystem "${HORNER_TORCH}/include")
endif()

# Compiles sources to one file, and appends its name to the list `objects`.
function(add_fuzz_object)
  string(MD5 hash "${ARGN}")
  set(object fuzz_${hash}.o)
  list(APPEND objects ${object})
  set(objects ${objects} PARENT_SCOPE)
  if(object IN_LIST fuzz_objects)
    return()
  endif()
  set(fuzz_objects ${fuzz_objects} ${object} PARENT_SCOPE)
  set(parts ${ARGN})
  list(TRANSFORM parts PREPEND "-include;${PROJECT_SOURCE_DIR}/")
  list(JOIN ARGN " " names)
  add_custom_command(OUTPUT ${object} DEPFILE ${object}.d VERBATIM
    COMMAND "${clangxx}" ${fuzz_flags} ${parts} -MD -MF ${object}.d -MT ${object}
            -x c++ -c /dev/null -o ${object}
    COMMENT "Building for fuzzers: ${names}")
endfunction()
foreach(source IN LISTS fuzzers)
  get_filename_component(name "${source}" NAME_WE)
  string(REGEX REPLACE "(.*)_fuzz$" "fuzz_\\1" name "${name}")
  if(no_fuzzer)
    add_test(NAME ${name} COMMAND sh -c "echo 'no clang with libFuzzer' && exit 77")
    # Not for a real fuzzer, which exits with 77 on a finding.
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  else()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    file(STRINGS "${source}" lines REGEX "^// fuzz-sources:")
    string(REGEX MATCHALL "src/[^ ;]+" parts "${lines}")
    set(objects "")
    add_fuzz_object(src/core/fmt.cpp)
    add_fuzz_object(${parts})
    add_custom_command(OUTPUT ${name} DEPFILE ${name}.d VERBATIM
      COMMAND "${clangxx}" ${fuzz_flags} -MD -MF ${name}.d -MT ${name}
              "${source}" ${objects} ${archives} -o ${name}
      DEPENDS "${source}" ${objects} COMMENT "Building fuzzer ${name}")
    add_custom_target(${name}_program ALL DEPENDS ${name})
    set(seconds ${HORNER_FUZZ_SECONDS_EACH})
    if(name STREQUAL "fuzz_safetensors")
      set(seconds ${HORNER_FUZZ_SECONDS})
    endif()
    add_test(NAME ${name} COMMAND ${PROJECT_BINARY_DIR}/${name} -max_total_time=${seconds}
      -artifact_prefix=${PROJECT_BINARY_DIR}/${name}_)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS slow TIMEOUT 300)
endforeach()
