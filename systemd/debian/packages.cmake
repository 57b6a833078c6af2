# SPDX-License-Identifier: Apache-2.0
# Debian packages by CPack: idd, libidclient0, libidclient-dev and their debug symbols. The top
# level includes this file after everything that installs. scripts/package runs it; the install
# components are the packages.
set(IDD_PACKAGE_REVISION 1 CACHE STRING "Debian revision; a rebuild of the same version increments it")
# A publisher of the packages gives an address and a page that exist; the project has neither.
set(IDD_PACKAGE_MAINTAINER "the authors of idd" CACHE STRING "Maintainer of the packages: NAME <ADDRESS>")
set(IDD_PACKAGE_HOMEPAGE "" CACHE STRING "Home page of the project, if there is one")
set(IDD_PACKAGE_VERSION ${PROJECT_VERSION}-${IDD_PACKAGE_REVISION})
string(TIMESTAMP IDD_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH, if set

set(debian ${PROJECT_SOURCE_DIR}/systemd/debian)
set(made ${CMAKE_BINARY_DIR}/debian)
set(IDD_PACKAGES idd libidclient0 libidclient-dev)

# These files are for packages only: `cmake --install` without a component omits them.
function(idd_install_compressed source folder name package)
  add_custom_command(OUTPUT ${made}/${folder}/${name}.gz
    COMMAND ${CMAKE_COMMAND} -E make_directory ${made}/${folder}
    COMMAND ${CMAKE_COMMAND} -E copy ${source} ${made}/${folder}/${name}
    COMMAND gzip -9nf ${made}/${folder}/${name}
    DEPENDS ${source} VERBATIM)
  add_custom_target(${package}-${name} ALL DEPENDS ${made}/${folder}/${name}.gz)
  install(FILES ${made}/${folder}/${name}.gz DESTINATION share/doc/${package}
    COMPONENT ${package} EXCLUDE_FROM_ALL)
endfunction()

# The format of a changelog needs the brackets.
set(IDD_PACKAGE_CHANGER ${IDD_PACKAGE_MAINTAINER})
if(NOT IDD_PACKAGE_CHANGER MATCHES ">$")
  string(APPEND IDD_PACKAGE_CHANGER " <>")
endif()
configure_file(${debian}/changelog.in ${made}/changelog @ONLY)
foreach(package IN LISTS IDD_PACKAGES)
  install(FILES ${debian}/copyright DESTINATION share/doc/${package} COMPONENT ${package} EXCLUDE_FROM_ALL)
  idd_install_compressed(${made}/changelog ${package} changelog.Debian ${package})
  idd_install_compressed(${PROJECT_SOURCE_DIR}/CHANGELOG.md ${package} changelog ${package})
  if(EXISTS ${debian}/${package}.lintian-overrides)
    install(FILES ${debian}/${package}.lintian-overrides DESTINATION share/lintian/overrides RENAME ${package}
      COMPONENT ${package} EXCLUDE_FROM_ALL)
  endif()
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/daemon/idd.toml DESTINATION /etc/idd COMPONENT idd EXCLUDE_FROM_ALL)

# dpkg expects fixed names for control files, so each package has its own folder for them.
foreach(file IN ITEMS preinst postinst prerm postrm conffiles)
  if(EXISTS ${debian}/idd.${file})
    configure_file(${debian}/idd.${file} ${made}/idd/${file} COPYONLY)
    list(APPEND idd_control ${made}/idd/${file})
  endif()
endforeach()
configure_file(${debian}/libidclient0.triggers ${made}/libidclient0/triggers COPYONLY)
configure_file(${debian}/libidclient0.symbols ${made}/libidclient0/symbols @ONLY)

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL ${IDD_PACKAGES})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_NAME idd)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_CONTACT ${IDD_PACKAGE_MAINTAINER})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_SOURCE_DIR}/build/packages)
# Use DESTDIR, so that /etc stays /etc.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
# CPack would strip before the debug symbols are extracted; the extraction strips as well.
set(CPACK_STRIP_FILES OFF)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${IDD_PACKAGE_REVISION})
set(CPACK_DEBIAN_PACKAGE_SOURCE idd)
if(IDD_PACKAGE_HOMEPAGE)
  set(CPACK_DEBIAN_PACKAGE_HOMEPAGE ${IDD_PACKAGE_HOMEPAGE})
endif()
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
# idctl uses the library of the same build. The dependency on that library's package is written out below.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})

set(CPACK_DEBIAN_IDD_PACKAGE_NAME idd)
set(CPACK_DEBIAN_IDD_PACKAGE_SECTION database)
set(CPACK_DEBIAN_IDD_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_IDD_DEBUGINFO_PACKAGE ON)
set(CPACK_DEBIAN_IDD_PACKAGE_CONTROL_EXTRA ${idd_control})
# idctl needs the library of its own build. The maintainer scripts need the other two.
string(CONCAT CPACK_DEBIAN_IDD_PACKAGE_DEPENDS
  "libidclient0 (= ${IDD_PACKAGE_VERSION}), "
  "systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles")
set(CPACK_DEBIAN_IDD_PACKAGE_SUGGESTS "mariadb-server | default-mysql-server, bash-completion | zsh | fish")
set(CPACK_COMPONENT_IDD_DESCRIPTION
"idd leases segments of ids from a database, SQLite on one host, MySQL or
MariaDB for many, and publishes them in shared memory. Programs linked
with libidclient claim ids there at the price of one atomic add.
.
This package contains the daemon, its systemd units, and idctl, which
inspects and administers it.")

set(CPACK_DEBIAN_LIBIDCLIENT0_PACKAGE_NAME libidclient0)
set(CPACK_DEBIAN_LIBIDCLIENT0_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBIDCLIENT0_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBIDCLIENT0_DEBUGINFO_PACKAGE ON)
# Not Recommends: apt would install the daemon into every image of a program that claims from the
# host's daemon.
set(CPACK_DEBIAN_LIBIDCLIENT0_PACKAGE_SUGGESTS idd)
set(CPACK_DEBIAN_LIBIDCLIENT0_PACKAGE_CONTROL_EXTRA
  ${made}/libidclient0/triggers ${made}/libidclient0/symbols)
set(CPACK_COMPONENT_LIBIDCLIENT0_DESCRIPTION
"Programs claim ids from idd with this library. A claim takes an id from
memory that idd shares with every process of the host, without a system
call. It asks the daemon only if that memory has no ids left.")

set(CPACK_DEBIAN_LIBIDCLIENT-DEV_PACKAGE_NAME libidclient-dev)
set(CPACK_DEBIAN_LIBIDCLIENT-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBIDCLIENT-DEV_PACKAGE_DEPENDS "libidclient0 (= ${IDD_PACKAGE_VERSION})")
set(CPACK_COMPONENT_LIBIDCLIENT-DEV_DESCRIPTION
"This package contains the development files of libidclient: the C header
idclient.h, the C++20 header idclient.hpp, the pkg-config file, the CMake
package and the manual page libidclient(3).")

include(CPack)
