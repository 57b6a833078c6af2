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

# --- Python, as Debian has it
find_program(IDD_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
execute_process(COMMAND ${IDD_PYTHON} -c "import setuptools, sysconfig, wheel; print(sysconfig.get_path('include'))"
  OUTPUT_VARIABLE python_include OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(IDD_PYTHON AND EXISTS "${python_include}/Python.h")
  idd_build_client(python OUTPUT ${out}/python/built SOURCES ${clients}/python COMMAND
    ${clients}/python/build.sh ${out}/python ${library} ${clients}/include)
  set(python ${CMAKE_COMMAND} -E env PYTHONPATH=${out}/python/site PYTHONDONTWRITEBYTECODE=1 ${IDD_PYTHON})
  idd_add_client(python ${python} ${here}/python/driver.py)
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
  idd_add_client_test(go_tests ${out}/go/tests -test.timeout 600s)
  idd_add_client_test(go_vet ${CMAKE_COMMAND} -E chdir ${clients}/go ${go} vet .)
else()
  message(STATUS "No Go: the Go client is not tested")
endif()

# --- Node.js
find_program(IDD_NODE node)
find_path(IDD_NODE_HEADERS node_api.h PATHS /usr/include/node /usr/include/nodejs/src)
if(IDD_NODE AND IDD_NODE_HEADERS)
  idd_build_client(node OUTPUT ${out}/node/built SOURCES ${clients}/node COMMAND
    ${clients}/node/build.sh ${out}/node ${library} ${includes})
  set(node ${CMAKE_COMMAND} -E env IDCLIENT_NODE_ADDON=${out}/node/idclient.node ${IDD_NODE})
  idd_add_client(node ${node} ${here}/node/driver.js)
  file(GLOB node_tests CONFIGURE_DEPENDS ${clients}/node/test/*.test.js)
  idd_add_client_test(node_tests ${node} --test ${node_tests})
else()
  message(STATUS "No Node.js with headers: the Node client is not tested")
endif()
