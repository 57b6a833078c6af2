// SPDX-License-Identifier: Apache-2.0

import dev.idd.client.IdClient;
import dev.idd.client.IdClientException;
import dev.idd.client.IdRange;
import dev.idd.client.IdStatus;
import dev.idd.client.IdTag;
import dev.idd.client.IdTagInfo;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;

/** The driver of tests/clients/README.md over the Java client. */
public final class Driver {
  /** A tag, and how another process opens it. */
  private record Handle(IdTag tag, String command) {}

  private final Map<String, Handle> handles = new HashMap<>();
  private String openCommand;
  private IdClient client;

  private Driver() {}

  /**
   * Obeys the commands of standard input.
   *
   * @param arguments none
   * @throws IOException if standard input fails
   */
  public static void main(String[] arguments) throws IOException {
    new Driver().run();
  }

  private void run() throws IOException {
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      output.print(answer(line) + "\n");
      output.flush();
    }
    close();
  }

  private String answer(String line) {
    try {
      String results = obey(line, line.split(" "));
      return results.isEmpty() ? "ok" : "ok " + results;
    } catch (IdClientException error) {
      return "error " + error.status() + " " + error.getMessage().replaceAll("[\r\n]+", " ");
    } catch (ArrayIndexOutOfBoundsException | NumberFormatException error) {
      return "error INVALID not a command: " + line;
    } catch (IOException | InterruptedException error) {
      return "error SYSTEM " + error;
    }
  }

  private String obey(String line, String[] words) throws IOException, InterruptedException {
    return switch (words[0]) {
      case "open" -> open(line, words[1], Long.parseLong(words[2]));
      case "tag" -> openTag(line, words);
      case "claim" -> claim(tag(words[1]), words);
      case "many" -> many(tag(words[1]), Integer.parseInt(words[2]));
      case "range" -> range(tag(words[1]), Integer.parseInt(words[2]));
      case "info" -> info(tag(words[1]));
      case "loop" -> loop(
          tag(words[1]), Integer.parseInt(words[2]), Integer.parseInt(words[3]), Path.of(words[4]));
      case "fork" -> fork(handle(words[1]), Integer.parseInt(words[2]));
      case "close" -> words.length > 1 ? closeTag(words[words.length - 1]) : close();
      case "version" -> IdClient.version();
      default -> throw invalid("not a command: " + line);
    };
  }

  private String open(String line, String socket, long timeoutMillis) {
    IdClient opened =
        IdClient.open(
            IdClient.Options.builder()
                .socketPath(socket)
                .timeout(Duration.ofMillis(timeoutMillis))
                .build());
    close();
    client = opened;
    openCommand = line;
    return "";
  }

  private String openTag(String line, String[] words) {
    if (client == null) {
      throw invalid("there is no client");
    }
    IdTag tag =
        words.length > 3 ? client.tag(words[2], Integer.parseInt(words[3])) : client.tag(words[2]);
    handles.put(words[1], new Handle(tag, line));
    return "";
  }

  // Handles stay after their close, so that the library answers for a closed one.
  private Handle handle(String name) {
    Handle handle = handles.get(name);
    if (handle == null) {
      throw invalid("there is no handle " + name);
    }
    return handle;
  }

  private IdTag tag(String name) {
    return handle(name).tag();
  }

  private static String claim(IdTag tag, String[] words) {
    return Long.toString(
        words.length > 2 ? tag.claim(Long.parseLong(words[2])) : tag.claim());
  }

  private static String many(IdTag tag, int count) {
    long[] ids = new long[Math.max(count, 0)];
    tag.claimMany(ids);
    return join(ids);
  }

  private static String range(IdTag tag, int count) {
    IdRange range = tag.claimRange(count);
    return range.first() + " " + range.count();
  }

  private static String info(IdTag tag) {
    IdTagInfo info = tag.info();
    return String.join(
            " ", info.mode().toString(), info.order().toString(), info.state().toString())
        .toLowerCase(Locale.ROOT)
        .concat(" " + info.step() + " " + info.available());
  }

  private static String loop(IdTag tag, int count, int threadCount, Path file)
      throws IOException, InterruptedException {
    long[][] ids = new long[threadCount][count];
    Thread[] threads = new Thread[threadCount];
    AtomicReference<IdClientException> failure = new AtomicReference<>();
    for (int i = 0; i < threadCount; ++i) {
      long[] mine = ids[i];
      threads[i] = new Thread(() -> claimAll(tag, mine, failure));
      threads[i].start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    if (failure.get() != null) {
      throw failure.get();
    }
    try (BufferedWriter writer = Files.newBufferedWriter(file)) {
      for (int i = 0; i < threadCount; ++i) {
        for (long id : ids[i]) {
          writer.write(i + " " + id + "\n");
        }
      }
    }
    return "";
  }

  private static void claimAll(
      IdTag tag, long[] ids, AtomicReference<IdClientException> failure) {
    for (int i = 0; i < ids.length; ) {
      try {
        ids[i] = tag.claim();
        ++i;
      } catch (IdClientException error) {
        if (!error.isRetryable()) {
          failure.set(error);
          return;
        }
      }
    }
  }

  // A JVM cannot fork; another one of this program is the child.
  private String fork(Handle handle, int count) throws IOException, InterruptedException {
    Process child =
        new ProcessBuilder(
                ProcessHandle.current().info().command().orElse("java"),
                "-cp",
                System.getProperty("java.class.path"),
                Driver.class.getName())
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    String[] words = handle.command().split(" ");
    String commands = openCommand + "\n" + handle.command() + "\nmany " + words[1] + " " + count;
    child.getOutputStream().write((commands + "\n").getBytes(StandardCharsets.UTF_8));
    child.getOutputStream().close();
    long[] ids = new long[count];
    for (int i = 0; i < count; ++i) {
      ids[i] = handle.tag().claim();
    }
    String theirs = lastAnswer(child);
    return join(ids) + theirs.substring(2);
  }

  private static String lastAnswer(Process child) throws IOException, InterruptedException {
    String last = "";
    try (BufferedReader answers = child.inputReader(StandardCharsets.UTF_8)) {
      for (String line = answers.readLine(); line != null; line = answers.readLine()) {
        last = line;
      }
    }
    int status = child.waitFor();
    if (status != 0 || !last.startsWith("ok")) {
      throw new IOException("the other process ended with status " + status + ": " + last);
    }
    return last;
  }

  private String closeTag(String name) {
    tag(name).close();
    return "";
  }

  private String close() {
    if (client != null) {
      client.close();
    }
    client = null;
    return "";
  }

  private static String join(long[] ids) {
    return Arrays.stream(ids).mapToObj(Long::toString).collect(Collectors.joining(" "));
  }

  private static IdClientException invalid(String message) {
    return new IdClientException(IdStatus.INVALID, message);
  }
}
