# The pinned torch wheel as imported targets: torch::cpu, and torch::cuda where its CUDA half is wanted.
# find_package(Torch) is not used: it enables CUDA by itself and rewrites flags and architectures.
#
# The installed package uses this file too. Which torch: HORNER_TORCH; else the one that find_package(Torch) has found; else
# the one that the package was built with; else that of Python.
set(HORNER_TORCH "" CACHE PATH "folder of the torch package; empty: asked of Python")
if(NOT HORNER_TORCH AND TORCH_INSTALL_PREFIX)
  set(HORNER_TORCH "${TORCH_INSTALL_PREFIX}")
elseif(NOT HORNER_TORCH AND EXISTS "${HORNER_BUILT_WITH}/lib/libtorch_cpu.so")
  set(HORNER_TORCH "${HORNER_BUILT_WITH}")
elseif(NOT HORNER_TORCH)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -c
            "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT found)
    message(FATAL_ERROR "torch is not installed for ${Python3_EXECUTABLE}: run ./horner, or set HORNER_TORCH")
  endif()
  set(HORNER_TORCH "${found}" CACHE PATH "" FORCE)
endif()

set(header "${HORNER_TORCH}/include/torch/headeronly/version.h")
set(found_version "none")
if(EXISTS "${header}")
  file(READ "${header}" header)
  string(REGEX REPLACE ".*define TORCH_VERSION[^\"]*\"([^\"]+)\".*" "\\1" found_version "${header}")
endif()
if(NOT found_version MATCHES "^2\\.11\\.")
  message(FATAL_ERROR "Horner is built for torch 2.11, but the version in ${HORNER_TORCH} is: "
    "${found_version}. Install it with: pip install torch==2.11.0")
endif()
if(TARGET torch::cpu)
  return()
endif()

function(import_torch name library)
  add_library(torch::${name} SHARED IMPORTED GLOBAL)
  set_target_properties(torch::${name} PROPERTIES
    IMPORTED_LOCATION "${HORNER_TORCH}/lib/lib${library}.so")
  target_include_directories(torch::${name} SYSTEM INTERFACE
    "${HORNER_TORCH}/include" "${HORNER_TORCH}/include/torch/csrc/api/include")
  # torch's own dependencies are found at run time by its own run path.
  target_link_options(torch::${name} INTERFACE -Wl,--allow-shlib-undefined)
endfunction()

import_torch(c10 c10)
import_torch(cpu torch_cpu)
target_link_libraries(torch::cpu INTERFACE torch::c10)
if(HORNER_CUDA)
  import_torch(c10_cuda c10_cuda)
  import_torch(cuda torch_cuda)
  target_link_libraries(torch::cuda INTERFACE torch::cpu torch::c10_cuda)
endif()
