// SPDX-License-Identifier: Apache-2.0
package dev.idd.client;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * An idd on an embedded SQLite file in a temporary folder. The programs are those of the
 * environment variables IDD_TEST_IDD and IDD_TEST_IDCTL. It ends with this JVM, unless that
 * crashes.
 */
final class TestDaemon implements AutoCloseable {
  private final Path folder;
  private Process process;

  TestDaemon() throws IOException, InterruptedException {
    folder = Files.createTempDirectory("idd-java-");
    Runtime.getRuntime().addShutdownHook(new Thread(this::killQuietly));
    start();
  }

  String socket() {
    return folder.resolve("idd.sock").toString();
  }

  IdClient open() {
    return open(Duration.ofSeconds(20));
  }

  IdClient open(Duration timeout) {
    return IdClient.open(options().timeout(timeout).build());
  }

  IdClient.Options.Builder options() {
    return IdClient.Options.builder().socketPath(socket());
  }

  /** Waits until the daemon answers. */
  void start() throws IOException, InterruptedException {
    ProcessBuilder builder =
        new ProcessBuilder(
            program("IDD_TEST_IDD"),
            "--database",
            "sqlite:" + folder.resolve("idd.db"),
            "--socket",
            socket(),
            "--state-dir",
            folder.resolve("state").toString());
    Files.createDirectories(folder.resolve("state"));
    File log = folder.resolve("log").toFile();
    builder.redirectErrorStream(true);
    builder.redirectOutput(ProcessBuilder.Redirect.appendTo(log));
    process = builder.start();
    for (int tries = 0; tries < 200; ++tries) {
      if (run(false, "status") == 0) {
        return;
      }
      if (!process.isAlive()) {
        break;
      }
      Thread.sleep(50);
    }
    throw new IOException("idd does not answer:\n" + Files.readString(log.toPath()));
  }

  void createTag(String tag, String... options) throws IOException, InterruptedException {
    List<String> arguments = new ArrayList<>(List.of("tag", "create", tag));
    arguments.addAll(List.of(options));
    if (run(true, arguments.toArray(new String[0])) != 0) {
      throw new IOException("idctl tag create " + tag + " failed");
    }
  }

  /** Runs idctl and returns its exit status. */
  int run(boolean shows, String... arguments) throws IOException, InterruptedException {
    List<String> command =
        new ArrayList<>(List.of(program("IDD_TEST_IDCTL"), "--socket", socket()));
    command.addAll(List.of(arguments));
    Process idctl = new ProcessBuilder(command).redirectErrorStream(true).start();
    byte[] output;
    try (InputStream stream = idctl.getInputStream()) {
      output = stream.readAllBytes();
    }
    int status = idctl.waitFor();
    if (status != 0 && shows) {
      System.err.write(output, 0, output.length);
    }
    return status;
  }

  /** Ends it by SIGKILL: clients go on. */
  void kill() throws InterruptedException {
    process.destroyForcibly().waitFor();
  }

  /** Ends it by SIGTERM: it closes its rings. */
  void stop() throws InterruptedException {
    process.destroy();
    if (!process.waitFor(20, TimeUnit.SECONDS)) {
      kill();
    }
  }

  @Override
  public void close() throws IOException {
    process.destroy(); // not stop(): -Xlint warns of a close() that can be interrupted
    process.onExit().join();
    try (Stream<Path> files = Files.walk(folder)) {
      for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
        Files.deleteIfExists(file);
      }
    }
  }

  private void killQuietly() {
    if (process != null) {
      process.destroyForcibly();
    }
  }

  private static String program(String variable) throws IOException {
    String path = System.getenv(variable);
    if (path == null) {
      throw new IOException("set " + variable + " to the path of the program");
    }
    return path;
  }
}
