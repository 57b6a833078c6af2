# SPDX-License-Identifier: Apache-2.0
# The clients that are not built by CMake: each has a script or a tool of its language.
set(out ${CMAKE_CURRENT_BINARY_DIR})

# idd_build_client(NAME OUTPUT file SOURCES folder... COMMAND command... [THEN command...]): builds
# when a source or the library has changed.
function(idd_build_client name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT" "SOURCES;COMMAND;THEN")
  set(sources)
  foreach(folder IN LISTS arg_SOURCES)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${folder}/*)
    list(APPEND sources ${found})
  endforeach()
  set(then)
  if(arg_THEN)
    set(then COMMAND ${arg_THEN})
  endif()
  add_custom_command(OUTPUT ${arg_OUTPUT} VERBATIM
    COMMAND ${arg_COMMAND}
    ${then}
    COMMAND ${CMAKE_COMMAND} -E touch ${arg_OUTPUT}
    DEPENDS ${sources} idclient COMMENT "Building the ${name} client")
  add_custom_target(idd_client_${name} ALL DEPENDS ${arg_OUTPUT})
endfunction()

# idd_add_example(LANGUAGE package): the first example of its README.md, and that of the project's.
function(idd_add_example language package)
  add_test(NAME clients/${language}_example
    COMMAND Python3::Interpreter ${here}/readme_examples.py ${programs} ${language} ${package})
  set_tests_properties(clients/${language}_example PROPERTIES LABELS clients TIMEOUT 600)
endfunction()

# --- C++, whose claims are inlined: other compilers, with and without optimisation at link time
set(warnings_as_errors)
if(IDD_WARNINGS_AS_ERRORS)
  set(warnings_as_errors -Werror)
endif()
set(inlined --case threads --case blocks --case forks --case tags_of_order_cpu --case kills)
function(idd_add_variant name)
  set(driver ${out}/driver_${name})
  add_custom_command(OUTPUT ${driver} VERBATIM
    COMMAND ${ARGN} -std=c++20 -O2 -Wall -Wextra ${warnings_as_errors} -I${clients}/include -I${PROJECT_SOURCE_DIR}/shm/include
      ${here}/cpp/driver.cc -o ${driver} -L${library} -Wl,-rpath,${library} -lidclient -pthread
    DEPENDS ${here}/cpp/driver.cc idclient COMMENT "Building the C++ driver: ${name}")
  add_custom_target(idd_client_${name} ALL DEPENDS ${driver})
  add_test(NAME clients/cpp_${name}
    COMMAND Python3::Interpreter ${here}/conformance.py ${programs} ${inlined} -- ${driver})
  set_tests_properties(clients/cpp_${name} PROPERTIES LABELS clients TIMEOUT 900)
endfunction()
idd_add_variant(lto ${CMAKE_CXX_COMPILER} -flto=auto)
find_program(IDD_CLANG clang++)
find_program(IDD_LLD ld.lld)
if(IDD_CLANG)
  idd_add_variant(clang ${IDD_CLANG})
  if(IDD_LLD)
    idd_add_variant(clang_lto ${IDD_CLANG} -flto -fuse-ld=lld)
  endif()
endif()

# --- C++ on AArch64: the library and the driver in one program, under an emulator, beside the real
# daemon of this machine
find_program(IDD_AARCH64_CXX aarch64-linux-gnu-g++)
find_program(IDD_QEMU_AARCH64 qemu-aarch64)
if(IDD_AARCH64_CXX AND IDD_QEMU_AARCH64)
  file(GLOB sources CONFIGURE_DEPENDS ${clients}/src/*.cc ${PROJECT_SOURCE_DIR}/shm/src/*.cc)
  add_custom_command(OUTPUT ${out}/driver_arm64 VERBATIM
    COMMAND ${IDD_AARCH64_CXX} -std=c++20 -O1 -static -w -DIDD_VERSION="${PROJECT_VERSION}"
      -I${clients}/include -I${clients}/src -I${PROJECT_SOURCE_DIR}/shm/include
      ${sources} ${here}/cpp/driver.cc -o ${out}/driver_arm64
    DEPENDS ${sources} ${here}/cpp/driver.cc idclient COMMENT "Building the C++ driver: arm64")
  add_custom_target(idd_client_arm64 ALL DEPENDS ${out}/driver_arm64)
  idd_add_client(cpp_arm64 ${IDD_QEMU_AARCH64} ${out}/driver_arm64)
else()
  message(STATUS "No g++ for AArch64 with qemu: the client is not tested there")
endif()

# --- Python, as Debian has it
find_program(IDD_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
execute_process(COMMAND ${IDD_PYTHON} -c "import setuptools, sysconfig, wheel; print(sysconfig.get_path('include'))"
  OUTPUT_VARIABLE python_include OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(IDD_PYTHON AND EXISTS "${python_include}/Python.h")
  idd_build_client(python OUTPUT ${out}/python/built SOURCES ${clients}/python COMMAND
    ${clients}/python/build.sh ${out}/python ${library} ${clients}/include)
  set(python ${CMAKE_COMMAND} -E env PYTHONPATH=${out}/python/site PYTHONDONTWRITEBYTECODE=1 ${IDD_PYTHON})
  idd_add_client(python ${python} ${here}/python/driver.py)
  idd_add_example(python ${out}/python/site)
  idd_add_client_test(python_tests ${python} ${clients}/python/tests/test_client.py)
else()
  message(STATUS "No python3-dev, python3-setuptools and python3-wheel: the Python client is not tested")
endif()

# --- Java
find_program(IDD_JAVAC javac)
find_program(IDD_JAVA java)
if(IDD_JAVAC AND IDD_JAVA)
  set(jar ${out}/java/idclient-${PROJECT_VERSION}.jar)
  idd_build_client(java OUTPUT ${out}/java/built SOURCES ${clients}/java ${here}/java COMMAND
    ${clients}/java/build.sh ${out}/java ${library} ${includes}
    THEN ${IDD_JAVAC} -cp ${jar} -d ${out}/java/driver ${here}/java/Driver.java)
  set(java ${IDD_JAVA} -Xshare:auto -XX:+UseSerialGC)
  idd_add_client(java ${java} -cp ${jar}:${out}/java/driver Driver)
  idd_add_example(java ${jar})
  idd_add_client_test(java_tests ${java} -cp ${jar}:${out}/java/test-classes dev.idd.client.ClientTest)
else()
  message(STATUS "No JDK: the Java client is not tested")
endif()

# --- Go
find_program(IDD_GO go)
if(IDD_GO)
  set(go ${CMAKE_COMMAND} -E env GOPROXY=off GOFLAGS=-mod=mod GOCACHE=${out}/go/cache ${IDD_GO})
  idd_build_client(go OUTPUT ${out}/go/driver SOURCES ${clients}/go ${here}/go COMMAND
    ${CMAKE_COMMAND} -E chdir ${here}/go ${go} build -o ${out}/go/driver .
    THEN ${CMAKE_COMMAND} -E chdir ${clients}/go ${go} test -c -o ${out}/go/tests .)
  idd_add_client(go ${out}/go/driver)
  idd_add_example(go ${IDD_GO})
  idd_add_client_test(go_tests ${out}/go/tests -test.timeout 600s)
  idd_add_client_test(go_vet ${CMAKE_COMMAND} -E chdir ${clients}/go ${go} vet .)
else()
  message(STATUS "No Go: the Go client is not tested")
endif()

# --- programs that insert rows; each is skipped without its tools
add_test(NAME clients/examples COMMAND ${clients}/examples/run.sh $<TARGET_FILE:idd> $<TARGET_FILE:idctl>
  ${library} ${clients}/include:${PROJECT_SOURCE_DIR}/shm/include ${out}/python/site
  ${out}/java/idclient-${PROJECT_VERSION}.jar)
set_tests_properties(clients/examples PROPERTIES LABELS clients TIMEOUT 600 COST 500 SKIP_RETURN_CODE 77)

# --- Node.js
find_program(IDD_NODE node)
find_path(IDD_NODE_HEADERS node_api.h PATHS /usr/include/node /usr/include/nodejs/src)
if(IDD_NODE AND IDD_NODE_HEADERS)
  idd_build_client(node OUTPUT ${out}/node/built SOURCES ${clients}/node COMMAND
    ${clients}/node/build.sh ${out}/node ${library} ${includes})
  set(node ${CMAKE_COMMAND} -E env IDCLIENT_NODE_ADDON=${out}/node/idclient.node ${IDD_NODE})
  idd_add_client(node ${node} ${here}/node/driver.js)
  idd_add_example(node ${out}/node/idclient.node)
  file(GLOB node_tests CONFIGURE_DEPENDS ${clients}/node/test/*.test.js)
  idd_add_client_test(node_tests ${node} --test ${node_tests})
else()
  message(STATUS "No Node.js with headers: the Node client is not tested")
endif()
