// SPDX-License-Identifier: Apache-2.0
package dev.idd.client;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;

/**
 * Loads the native libraries and checks that they belong to these classes.
 *
 * <p>The jar has both libraries for each architecture. They are copied to a private directory,
 * which is removed as soon as they are loaded: the process keeps them mapped.
 */
final class NativeLibrary {
  /** The directory to load from instead of the jar. */
  static final String PATH_PROPERTY = "dev.idd.client.library.path";

  private static final String JNI_LIBRARY = "libidclient_jni.so";
  private static final List<String> LIBRARIES = List.of("libidclient.so.0", JNI_LIBRARY);

  private static boolean isLoaded;
  private static volatile boolean isChecked;

  private NativeLibrary() {}

  /**
   * Loads the libraries unless an earlier call has.
   *
   * @throws IdClientException SYSTEM if they cannot be loaded; INCOMPATIBLE for another version
   */
  static void load() {
    if (!isChecked) {
      loadOnce();
    }
  }

  /** Text of the C library, which is UTF-8. */
  static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /** The version of these classes, which the build script writes into the jar. */
  static String classesVersion() {
    try (InputStream resource = NativeLibrary.class.getResourceAsStream("version.txt")) {
      if (resource == null) {
        throw failure("dev/idd/client/version.txt is not in the jar; build it with build.sh", null);
      }
      return text(resource.readAllBytes()).strip();
    } catch (IOException error) {
      throw failure("cannot read dev/idd/client/version.txt: " + error, error);
    }
  }

  private static synchronized void loadOnce() {
    if (!isLoaded) {
      String directory = System.getProperty(PATH_PROPERTY);
      if (directory != null && !directory.isEmpty()) {
        loadFrom(Path.of(directory).toAbsolutePath(), "correct -D" + PATH_PROPERTY);
      } else {
        extractAndLoad();
      }
      isLoaded = true;
    }
    check("libidclient.so.0", text(NativeCalls.version()));
    check(JNI_LIBRARY, text(NativeCalls.jniVersion()));
    isChecked = true;
  }

  private static void check(String library, String version) {
    String classes = classesVersion();
    if (!classes.equals(version)) {
      throw new IdClientException(
          IdStatus.INCOMPATIBLE,
          library + " has version " + version + ", the Java classes have version " + classes
              + "; use those of one release, and look for another " + library + " on -D"
              + PATH_PROPERTY + " and in LD_LIBRARY_PATH");
    }
  }

  private static void extractAndLoad() {
    String folder = "/META-INF/native/" + platform() + "/";
    Path directory = null;
    try {
      directory =
          Files.createTempDirectory(
              "idclient-",
              PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
      for (String library : LIBRARIES) {
        extract(folder + library, directory.resolve(library));
      }
      loadFrom(
          directory,
          "if the directory does not allow execution, choose another with -Djava.io.tmpdir, or"
              + " install the libraries and set -D" + PATH_PROPERTY);
    } catch (IOException error) {
      throw failure(
          "cannot copy the native libraries to " + System.getProperty("java.io.tmpdir") + ": "
              + error + "; choose another directory with -Djava.io.tmpdir",
          error);
    } finally {
      remove(directory);
    }
  }

  private static void extract(String resource, Path file) throws IOException {
    try (InputStream library = NativeLibrary.class.getResourceAsStream(resource)) {
      if (library == null) {
        throw failure(
            "the jar has no " + resource + "; add it, or set -D" + PATH_PROPERTY
                + " to a directory with " + String.join(" and ", LIBRARIES),
            null);
      }
      Files.copy(library, file);
    }
  }

  private static void loadFrom(Path directory, String remedy) {
    Path library = directory.resolve(JNI_LIBRARY);
    try {
      System.load(library.toString());
    } catch (UnsatisfiedLinkError error) {
      throw failure("cannot load " + library + ": " + error.getMessage() + "; " + remedy, error);
    }
  }

  private static void remove(Path directory) {
    if (directory == null) {
      return;
    }
    try {
      for (String library : LIBRARIES) {
        Files.deleteIfExists(directory.resolve(library));
      }
      Files.deleteIfExists(directory);
    } catch (IOException error) {
      // The libraries work all the same, and what is left is in the directory for temporary files.
      return;
    }
  }

  private static String platform() {
    String system = System.getProperty("os.name");
    String architecture = System.getProperty("os.arch");
    if (!"Linux".equals(system)) {
      throw failure("idd runs on Linux only, not on " + system, null);
    }
    return "linux-" + ("amd64".equals(architecture) ? "x86_64" : architecture);
  }

  private static IdClientException failure(String message, Throwable cause) {
    return new IdClientException(IdStatus.SYSTEM, message, 0, cause);
  }
}
