#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh OUT_DIR LIBRARY_DIR INCLUDE_DIR...: makes OUT_DIR/idclient-VERSION.jar with the classes,
# libidclient of LIBRARY_DIR and the JNI library, OUT_DIR/idclient-VERSION.pom for Maven, which is
# also in the jar, and OUT_DIR/test-classes with the tests, the benchmark and the example. Prints
# nothing on success.
#
# OUT_DIR must be empty, absent, or the output of an earlier run. INCLUDE_DIR... are those of
# libclient and shm. Environment: CXX, CXXFLAGS, JAVA_HOME; IDCLIENT_VERSION is the jar's version,
# that of the headers if unset.
set -euo pipefail

if (($# < 3)); then
  echo "usage: build.sh OUT_DIR LIBRARY_DIR INCLUDE_DIR..." >&2
  exit 2
fi
out=$1 library_dir=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd -P)

# The home of the JDK that `javac` leads to.
java_home() {
  local javac
  if [[ -n ${JAVA_HOME-} ]]; then
    echo "$JAVA_HOME"
  elif javac=$(command -v javac); then
    dirname "$(dirname "$(readlink -f "$javac")")"
  else
    echo "build.sh: there is no javac; install a JDK of version 17 or later" >&2
    return 1
  fi
}

# header_version INCLUDE_DIR...: the version of the first idclient.h.
header_version() {
  local directory header part text='' number
  for directory; do
    header=$directory/idclient/idclient.h
    [[ -f $header ]] || continue
    for part in MAJOR MINOR PATCH; do
      number=$(sed -n "s/^#define IDCLIENT_VERSION_$part \([0-9]*\)$/\1/p" "$header")
      text+=${text:+.}$number
    done
    echo "$text"
    return
  done
  echo "build.sh: no INCLUDE_DIR has idclient/idclient.h" >&2
  return 1
}

# The group's domain ends in .invalid, as the path of the Go module does: README.md of both says why.
write_pom() {
  cat <<POM
<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0"
         xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
         xsi:schemaLocation="http://maven.apache.org/POM/4.0.0 http://maven.apache.org/xsd/maven-4.0.0.xsd">
  <modelVersion>4.0.0</modelVersion>
  <groupId>invalid.idd</groupId>
  <artifactId>idclient</artifactId>
  <version>$1</version>
  <name>idclient</name>
  <description>Cluster-unique 64-bit ids from the host's idd</description>
  <licenses>
    <license>
      <name>Apache-2.0</name>
      <url>https://www.apache.org/licenses/LICENSE-2.0.txt</url>
    </license>
  </licenses>
</project>
POM
}

# compile CLASSES_DIR SOURCE_DIR [OPTION...]
compile() {
  local classes=$1 sources=$2 files
  shift 2
  mkdir -p "$classes"
  mapfile -d '' files < <(find "$sources" -name '*.java' -print0 | sort -z)
  "$jdk/bin/javac" --release 17 -encoding UTF-8 -Xlint:all ${WERROR:+-Werror} "$@" -d "$classes" \
    "${files[@]}"
}

jdk=$(java_home)
version=$(header_version "$@")
jar_version=${IDCLIENT_VERSION:-$version}
includes=()
for directory in "$@" "$jdk/include" "$jdk/include/linux"; do includes+=(-I "$directory"); done
read -ra flags <<<"${CXXFLAGS-}"

rm -rf "$out/classes" "$out/test-classes" "$out/META-INF"
rm -f "$out"/idclient-*.{jar,pom}
native=$out/META-INF/native/linux-$(uname -m)
mkdir -p "$native"

cp -L "$library_dir/libidclient.so.0" "$native/libidclient.so.0"
# nodelete: a thread keeps the address of the last lane sequence that it ran, and the kernel reads
# it even after a dlclose().
"${CXX:-c++}" -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra ${WERROR:+-Werror} \
  "${flags[@]}" "${includes[@]}" -o "$native/libidclient_jni.so" \
  "$here/src/main/native/idclient_jni.cc" "$native/libidclient.so.0" \
  -static-libstdc++ -static-libgcc -Wl,-rpath,"\$ORIGIN" -Wl,-soname,libidclient_jni.so \
  -Wl,--version-script="$here/src/main/native/idclient_jni.map" \
  -Wl,--no-undefined -Wl,-z,relro,-z,now -Wl,-z,nodelete

compile "$out/classes" "$here/src/main/java"
echo "$version" >"$out/classes/dev/idd/client/version.txt"
write_pom "$jar_version" >"$out/idclient-$jar_version.pom"
mkdir -p "$out/META-INF/maven/invalid.idd/idclient"
cp "$out/idclient-$jar_version.pom" "$out/META-INF/maven/invalid.idd/idclient/pom.xml"
printf '%s\n' 'Automatic-Module-Name: dev.idd.client' "Implementation-Version: $jar_version" \
  'Implementation-Title: idclient' >"$out/manifest.txt"
"$jdk/bin/jar" --create --file "$out/idclient-$jar_version.jar" --manifest "$out/manifest.txt" \
  -C "$out/classes" . -C "$out" META-INF
rm "$out/manifest.txt"

compile "$out/test-classes" "$here/src/example/java" -cp "$out/classes"
compile "$out/test-classes" "$here/src/test/java" -cp "$out/classes"
