# The package for C++ programs: horner::horner with its headers, installed or as a part of another build.
#
#   cmake --install build/PRESET --prefix DIR     lib/libhorner.so.0.1  lib/libhorner_cuda.so  include/horner/  lib/cmake/horner/
#   find_package(horner CONFIG REQUIRED)          or FetchContent of this repository
#   target_link_libraries(app horner::horner)
#
# Tests call what no user should, so horner_library shows all of its symbols. The package's libraries are linked once more
# from the same objects, with the symbols of the public headers alone. `cmake --install` links them if need be.
set(HORNER_PUBLIC_HEADERS core/version.h core/check.h core/device.h ops/op.h mixers/mixer.h model/model.h
  tasks/task.h train/train.h train/own_data.h train/checkpoint.h engine/engine.h engine/load.h)
set(package "${PROJECT_BINARY_DIR}/package")
set(abi ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})  # below 1.0 a minor version may break programs

add_custom_command(OUTPUT "${package}/public.map" DEPFILE "${package}/headers.d" VERBATIM
  COMMAND ${CMAKE_COMMAND} "-DHEADERS=${HORNER_PUBLIC_HEADERS}" "-DSOURCE=${PROJECT_SOURCE_DIR}/src"
          "-DOUTPUT=${package}" -P "${PROJECT_SOURCE_DIR}/cmake/headers.cmake"
  DEPENDS "${PROJECT_SOURCE_DIR}/cmake/headers.cmake" "${PROJECT_SOURCE_DIR}/cmake/package.cmake"
  COMMENT "Headers of the package")
add_custom_target(horner_headers DEPENDS "${package}/public.map")
set(cuda_file "")
if(TARGET horner_cuda)
  set(cuda_file "$<TARGET_FILE:horner_cuda>")
endif()
add_custom_command(OUTPUT "${package}/horner.map" VERBATIM
  COMMAND ${CMAKE_COMMAND} "-DPUBLIC=${package}/public.map" "-DCUDA=${cuda_file}" "-DNM=${CMAKE_NM}"
          -DVERSION=${abi} "-DOUTPUT=${package}/horner.map" -P "${PROJECT_SOURCE_DIR}/cmake/exports.cmake"
  DEPENDS "${package}/public.map" ${cuda_file} "${PROJECT_SOURCE_DIR}/cmake/exports.cmake")
add_custom_target(horner_exports DEPENDS "${package}/horner.map")
add_dependencies(horner_exports horner_headers)

# add_packaged(name of): target `name` links the objects of the library `of` with the symbols of MAP alone.
function(add_packaged name of map)
  add_library(${name} SHARED $<TARGET_OBJECTS:${of}>)
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${package}" LINKER_LANGUAGE CXX
    LINK_DEPENDS "${map}" EXCLUDE_FROM_ALL ${HORNER_PROGRAMS})
  target_link_options(${name} PRIVATE "-Wl,--version-script=${map}" -Wl,--exclude-libs,ALL)
endfunction()
add_packaged(horner_package horner_library "${package}/horner.map")
add_library(horner::horner ALIAS horner_package)
add_dependencies(horner_package horner_exports)
set_target_properties(horner_package PROPERTIES OUTPUT_NAME horner EXPORT_NAME horner)
target_compile_features(horner_package PUBLIC cxx_std_20)
target_include_directories(horner_package INTERFACE
  "$<BUILD_INTERFACE:${package}/include>" $<INSTALL_INTERFACE:include>)
target_link_libraries(horner_package PUBLIC torch::cpu nlohmann_json::nlohmann_json
  PRIVATE ${archives} ${CMAKE_DL_LIBS} $<BUILD_INTERFACE:horner_flags>)
set(packaged horner_package)
if(TARGET horner_cuda)
  file(WRITE "${package}/cuda.map" "{\n  global: horner_*;\n  local: *;\n};\n")
  add_packaged(horner_cuda_package horner_cuda "${package}/cuda.map")
  set_target_properties(horner_cuda_package PROPERTIES OUTPUT_NAME horner_cuda)
  target_link_libraries(horner_cuda_package PRIVATE horner_package torch::cuda CUDA::cudart)
  target_link_options(horner_cuda_package PRIVATE -Wl,--no-as-needed -Wl,-z,defs)
  list(APPEND packaged horner_cuda_package)
endif()

if(SKBUILD)  # a wheel: Python opens the files by their names
  install(TARGETS ${packaged} LIBRARY DESTINATION horner/lib)
  return()
endif()
set_target_properties(horner_package PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${abi})
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(config "${CMAKE_INSTALL_LIBDIR}/cmake/horner")
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${PROJECT_BINARY_DIR}\"
  --target ${packaged} COMMAND_ERROR_IS_FATAL ANY)")
install(TARGETS horner_package EXPORT horner LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET horner_cuda)
  install(TARGETS horner_cuda_package LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY "${package}/include/horner" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT horner NAMESPACE horner:: FILE horner-targets.cmake DESTINATION ${config})
configure_file(cmake/horner-config.cmake.in "${package}/horner-config.cmake" @ONLY)
write_basic_package_version_file("${package}/horner-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${package}/horner-config.cmake" "${package}/horner-config-version.cmake" cmake/torch.cmake
  DESTINATION ${config})
