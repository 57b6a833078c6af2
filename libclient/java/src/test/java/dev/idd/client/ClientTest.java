// SPDX-License-Identifier: Apache-2.0
package dev.idd.client;

import com.sun.management.ThreadMXBean;
import dev.idd.client.adapter.CosIdGenerator;
import dev.idd.client.adapter.LeafIdGen;
import dev.idd.client.adapter.LeafResult;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.ReadOnlyBufferException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.PrimitiveIterator;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

/**
 * The tests of the Java client. Starts an idd as {@link TestDaemon} does. Prints each case; the
 * exit status is 1 if one fails. Arguments: names of the cases to run, all if there are none.
 */
public final class ClientTest {
  private final TestDaemon daemon;

  private ClientTest(TestDaemon daemon) {
    this.daemon = daemon;
  }

  @FunctionalInterface
  private interface Body {
    void run() throws Exception;
  }

  private record Case(String name, Body body) {}

  /**
   * Runs the tests.
   *
   * @param arguments names of cases
   * @throws Exception if the daemon cannot be started
   */
  public static void main(String[] arguments) throws Exception {
    if (arguments.length == 1 && arguments[0].equals("--version-only")) {
      System.out.println(version());
      return;
    }
    List<String> wanted = List.of(arguments);
    int failed = 0;
    try (TestDaemon daemon = new TestDaemon()) {
      daemon.createTag("orders", "--step", "1000000");
      daemon.createTag("short", "--step", "10", "--max-id", "25");
      for (Case each : new ClientTest(daemon).cases()) {
        if (wanted.isEmpty() || wanted.contains(each.name())) {
          failed += passes(each) ? 0 : 1;
        }
      }
    }
    System.out.println(failed == 0 ? "all cases passed" : failed + " cases failed");
    System.exit(failed == 0 ? 0 : 1);
  }

  private static boolean passes(Case each) {
    long begin = System.nanoTime();
    String result = "ok    ";
    try {
      each.body().run();
    } catch (Exception | AssertionError error) {
      result = "FAILED";
      error.printStackTrace(System.out);
    }
    long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin);
    System.out.println(result + " " + each.name() + " (" + millis + " ms)");
    return result.equals("ok    ");
  }

  private List<Case> cases() {
    return List.of(
        new Case("IdsOfOneThreadRise", this::idsOfOneThreadRise),
        new Case("TagKeepsItsClientOpen", this::tagKeepsItsClientOpen),
        new Case("ClaimAllocatesNothing", this::claimAllocatesNothing),
        new Case("ArraysAreFilledWithinTheirBounds", this::arraysAreFilledWithinTheirBounds),
        new Case("LargeBatchesAreClaimed", this::largeBatchesAreClaimed),
        new Case("DirectBuffersAreFilled", this::directBuffersAreFilled),
        new Case("OtherBuffersAreRefused", this::otherBuffersAreRefused),
        new Case("RangesAreContiguous", this::rangesAreContiguous),
        new Case("BlocksNeverRepeatAnId", this::blocksNeverRepeatAnId),
        new Case("InfoShowsTheRing", this::infoShowsTheRing),
        new Case("ErrorsHaveStatusAndMessage", this::errorsHaveStatusAndMessage),
        new Case("WrongArgumentsAreInvalid", this::wrongArgumentsAreInvalid),
        new Case("BatchKeepsIdsOfItsFailure", this::batchKeepsIdsOfItsFailure),
        new Case("VersionsMatch", this::versionsMatch),
        new Case("OtherVersionIsRefused", this::otherVersionIsRefused),
        new Case("MissingLibraryIsReported", this::missingLibraryIsReported),
        new Case("LibraryPathIsUsed", this::libraryPathIsUsed),
        new Case("ExtractedLibrariesAreRemoved", this::extractedLibrariesAreRemoved),
        new Case("UseAfterCloseIsInvalid", this::useAfterCloseIsInvalid),
        new Case("HandlesOfOneTagCloseByThemselves", this::handlesOfOneTagCloseByThemselves),
        new Case("ClientClosesUnderClaims", this::clientClosesUnderClaims),
        new Case("TagClosesUnderClaims", this::tagClosesUnderClaims),
        new Case("ClosedClientsLeaveNoDescriptors", this::closedClientsLeaveNoDescriptors),
        new Case("UnreachableClientsAreClosed", this::unreachableClientsAreClosed),
        new Case("ThreadsComeAndGo", this::threadsComeAndGo),
        new Case("LeafShape", this::leafShape),
        new Case("CosIdShape", this::cosIdShape),
        new Case("KilledDaemonRepeatsNoId", this::killedDaemonRepeatsNoId),
        new Case("CloseWaitsForWaitingClaims", this::closeWaitsForWaitingClaims));
  }

  // Claims.

  private void idsOfOneThreadRise() {
    try (IdClient client = daemon.open();
        IdTag orders = client.tag("orders")) {
      long last = 0;
      for (int i = 0; i < 100_000; ++i) {
        long id = orders.claim();
        check(id > last, "an id is not above the one before");
        last = id;
      }
      // Far from the end of the segment, where a claim without a wait may find nothing.
      check(orders.claim(0) > last, "claim(0)");
      check(orders.claim(Duration.ofMillis(1)) > last, "claim(Duration)");
      check(orders.tryClaim() > last, "tryClaim");
    }
  }

  private void tagKeepsItsClientOpen() throws InterruptedException {
    IdTag orders = daemon.open().tag("orders");
    for (int i = 0; i < 20; ++i) {
      System.gc();
      Thread.sleep(5);
      check(orders.claim() > 0, "claim");
    }
  }

  private void claimAllocatesNothing() {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    long thread = Thread.currentThread().getId();
    try (IdClient client = daemon.open()) {
      IdTag orders = client.tag("orders");
      long[] batch = new long[64];
      long least = Long.MAX_VALUE;
      for (int round = 0; round < 5; ++round) {
        long before = threads.getThreadAllocatedBytes(thread);
        for (int i = 0; i < 20_000; ++i) {
          orders.claim();
          orders.tryClaim();
        }
        orders.claimMany(batch);
        least = Math.min(least, threads.getThreadAllocatedBytes(thread) - before);
      }
      check(least < 1024, "40,000 claims allocated " + least + " bytes");
    }
  }

  private void arraysAreFilledWithinTheirBounds() {
    try (IdClient client = daemon.open()) {
      IdTag orders = client.tag("orders");
      long[] ids = new long[100];
      equal(orders.claimMany(ids, 10, 80), 80);
      for (int i = 0; i < 100; ++i) {
        check((ids[i] != 0) == (i >= 10 && i < 90), "element " + i + " is " + ids[i]);
      }
      checkRising(ids, 10, 90);
      orders.claimMany(ids);
      checkRising(ids, 0, 100);
      equal(orders.claimMany(ids, 100, 0), 0);
      orders.claimMany(new long[0]);
      throwsError(IndexOutOfBoundsException.class, () -> orders.claimMany(ids, -1, 1));
      throwsError(IndexOutOfBoundsException.class, () -> orders.claimMany(ids, 99, 2));
      throwsError(IndexOutOfBoundsException.class, () -> orders.claimMany(ids, 1, -1));
      throwsError(
          IndexOutOfBoundsException.class, () -> orders.claimMany(ids, 1, Integer.MAX_VALUE));
    }
  }

  // More than a segment has, so that the library is called too.
  private void largeBatchesAreClaimed() {
    try (IdClient client = daemon.open()) {
      long[] ids = new long[2_500_000];
      client.tag("orders").claimMany(ids);
      checkRising(ids, 0, ids.length);
    }
  }

  private void directBuffersAreFilled() {
    try (IdClient client = daemon.open()) {
      IdTag orders = client.tag("orders");
      ByteBuffer buffer = ByteBuffer.allocateDirect(800).order(ByteOrder.nativeOrder());
      buffer.position(80).limit(720);
      equal(orders.claimMany(buffer), 80);
      equal(buffer.position(), 720);
      buffer.clear();
      long[] ids = new long[100];
      buffer.asLongBuffer().get(ids);
      checkRising(ids, 10, 90);
      equal(ids[9] + ids[90], 0);
      ByteBuffer part = buffer.slice(8, 16).order(ByteOrder.nativeOrder());
      equal(orders.claimMany(part), 2);
      check(buffer.getLong(8) > ids[89] && buffer.getLong(0) == 0, "a slice");
      equal(orders.claimMany(buffer.position(800)), 0);
    }
  }

  private void otherBuffersAreRefused() {
    try (IdClient client = daemon.open()) {
      IdTag orders = client.tag("orders");
      ByteOrder order = ByteOrder.nativeOrder();
      ByteBuffer direct = ByteBuffer.allocateDirect(64).order(order);
      refused(orders, ByteBuffer.allocate(64).order(order), "must be direct");
      refused(orders, ByteBuffer.allocateDirect(64), "nativeOrder");
      refused(orders, direct.duplicate().order(order).limit(63), "whole ids");
      refused(orders, direct.duplicate().order(order).position(4), "whole ids");
      refused(orders, direct.duplicate().order(order).position(4).limit(12), "multiple of 8");
      throwsError(
          ReadOnlyBufferException.class,
          () -> orders.claimMany(direct.asReadOnlyBuffer().order(order)));
      throwsError(NullPointerException.class, () -> orders.claimMany((ByteBuffer) null));
      throwsError(NullPointerException.class, () -> orders.claimMany((long[]) null));
      for (int i = 0; i < 64; ++i) {
        equal(direct.get(i), 0);
      }
    }
  }

  private static void refused(IdTag tag, ByteBuffer buffer, String message) {
    int position = buffer.position();
    Throwable error =
        throwsError(IllegalArgumentException.class, () -> tag.claimMany(buffer));
    check(error.getMessage().contains(message), error.getMessage());
    equal(buffer.position(), position);
  }

  private void rangesAreContiguous() {
    try (IdClient client = daemon.open()) {
      IdTag orders = client.tag("orders");
      IdRange range = orders.claimRange(50);
      check(range.count() >= 1 && range.count() <= 50, range.toString());
      long next = range.first();
      for (PrimitiveIterator.OfLong ids = range.iterator(); ids.hasNext(); ) {
        equal(ids.nextLong(), next++);
      }
      equal(next, range.first() + range.count());
      equal(range.stream().sum(), range.count() * (2 * range.first() + range.count() - 1) / 2);
      check(orders.claim() >= next, "the range's ids were claimed");
    }
  }

  private void blocksNeverRepeatAnId() throws Exception {
    try (IdClient client = daemon.open()) {
      IdTag blocks = client.tag("orders", 64);
      long[][] ids = inThreads(4, thread -> {
        long[] mine = new long[20_000];
        for (int i = 0; i < mine.length; ++i) {
          mine[i] = blocks.claim();
        }
        return mine;
      });
      for (long[] mine : ids) {
        checkRising(mine, 0, mine.length);
      }
      checkUnique(ids);
    }
  }

  private void infoShowsTheRing() {
    try (IdClient client = daemon.open()) {
      IdTag orders = client.tag("orders");
      orders.claim();
      IdTagInfo info = orders.info();
      equal(info.mode(), IdTagInfo.Mode.SEGMENT);
      equal(info.order(), IdTagInfo.Order.HOST);
      equal(info.state(), IdTagInfo.State.OK);
      check(info.step() > 0 && info.available() > 0, info.toString());
      check(info.coverMillis() >= IdTagInfo.UNKNOWN, info.toString());
    }
  }

  // Errors.

  private void errorsHaveStatusAndMessage() {
    try (IdClient client = daemon.open(Duration.ofMillis(200))) {
      IdClientException error = failsWith(IdStatus.NO_SUCH_TAG, () -> client.tag("absent"));
      check(error.getMessage().contains("absent"), error.getMessage());
      check(!error.isRetryable(), "NO_SUCH_TAG is retryable");
      failsWith(IdStatus.INVALID, () -> client.tag(""));
      failsWith(IdStatus.INVALID, () -> client.tag("a\0b"));
      failsWith(IdStatus.INVALID, () -> client.tag("orders", 65_537));
      failsWith(IdStatus.INVALID, () -> client.tag("orders", -1));
      IdClientException named = failsWith(IdStatus.NO_SUCH_TAG, () -> client.tag("ü\uD83D\uDE00"));
      check(named.getMessage().contains("ü\uD83D\uDE00"), named.getMessage());
    }
    IdClient.Options nowhere =
        IdClient.Options.builder().socketPath("/nonexistent/idd.sock").openOnce(true).build();
    IdClientException error = failsWith(IdStatus.UNAVAILABLE, () -> IdClient.open(nowhere));
    check(error.isRetryable() && error.getMessage().contains("/nonexistent"), error.getMessage());
  }

  private void wrongArgumentsAreInvalid() {
    IdClient.Options.Builder options = daemon.options();
    failsWith(IdStatus.INVALID, () -> options.timeout(Duration.ZERO));
    failsWith(IdStatus.INVALID, () -> options.timeout(Duration.ofMillis(-1)));
    failsWith(IdStatus.INVALID, () -> options.timeout(Duration.ofHours(2)));
    failsWith(IdStatus.INVALID, () -> options.timeout(Duration.ofSeconds(Long.MAX_VALUE)));
    failsWith(IdStatus.INVALID, () -> options.trustedUid(-1));
    IdClient.Options zero = daemon.options().socketPath("a\0b").build();
    failsWith(IdStatus.INVALID, () -> IdClient.open(zero));
    try (IdClient client = IdClient.open(daemon.options().trustedUid(0).build())) {
      IdTag orders = client.tag("orders");
      failsWith(IdStatus.INVALID, () -> orders.claim(-1));
      failsWith(IdStatus.INVALID, () -> orders.claim(3_600_001));
      failsWith(IdStatus.INVALID, () -> orders.claim(Duration.ofNanos(-1)));
      failsWith(IdStatus.INVALID, () -> orders.claimRange(0));
      failsWith(IdStatus.INVALID, () -> orders.claimRange(-1));
      throwsError(NullPointerException.class, () -> client.tag(null));
    }
  }

  private void batchKeepsIdsOfItsFailure() {
    try (IdClient client = daemon.open(Duration.ofMillis(500))) {
      IdTag tag = client.tag("short");
      long[] ids = new long[100];
      IdClientException error = failsWith(IdStatus.OUT_OF_IDS, () -> tag.claimMany(ids));
      check(error.claimed() > 0 && error.claimed() <= 25, "claimed " + error.claimed());
      checkRising(ids, 0, error.claimed());
      equal(ids[error.claimed()], 0);
      failsWith(IdStatus.OUT_OF_IDS, () -> tag.claimMany(ids, 0, 10));
      failsWith(IdStatus.OUT_OF_IDS, () -> tag.claimRange(10));
      failsWith(IdStatus.OUT_OF_IDS, tag::claim);
    }
  }

  // The libraries.

  private static String version() {
    try {
      return IdClient.version();
    } catch (IdClientException error) {
      return error.status() + " " + error.getMessage();
    }
  }

  private void versionsMatch() {
    equal(IdClient.version(), NativeLibrary.classesVersion());
  }

  private void otherVersionIsRefused() throws Exception {
    Path folder = Files.createTempDirectory("idclient-version-");
    Path file = folder.resolve("dev/idd/client/version.txt");
    Files.createDirectories(file.getParent());
    Files.writeString(file, "9.8.7\n");
    String output = runJava(folder + File.pathSeparator + classPath());
    remove(folder, file);
    check(output.startsWith("INCOMPATIBLE ") && output.contains("9.8.7"), output);
  }

  private void missingLibraryIsReported() throws Exception {
    String output = runJava(classPath(), "-D" + NativeLibrary.PATH_PROPERTY + "=/nonexistent");
    check(output.startsWith("SYSTEM ") && output.contains("/nonexistent"), output);
    // A folder without room for files. If it did not exist, the JVM would warn since version 21.
    output = runJava(classPath(), "-Djava.io.tmpdir=/proc");
    check(output.startsWith("SYSTEM ") && output.contains("-Djava.io.tmpdir"), output);
    output = runJava(classPath(), "-Dos.arch=vax");
    check(output.startsWith("SYSTEM ") && output.contains("linux-vax"), output);
  }

  private void libraryPathIsUsed() throws Exception {
    Path folder = Files.createTempDirectory("idclient-path-");
    Path[] files = {folder.resolve("libidclient.so.0"), folder.resolve("libidclient_jni.so")};
    for (Path file : files) {
      String resource = "/META-INF/native/linux-" + architecture() + "/" + file.getFileName();
      try (InputStream library = ClientTest.class.getResourceAsStream(resource)) {
        Files.copy(library, file);
      }
    }
    String output =
        runJava(
            classPath(),
            "-D" + NativeLibrary.PATH_PROPERTY + "=" + folder,
            "-Djava.io.tmpdir=/proc");
    for (Path file : files) {
      Files.delete(file);
    }
    Files.delete(folder);
    equal(output, IdClient.version());
  }

  private void extractedLibrariesAreRemoved() throws Exception {
    Path folder = Files.createTempDirectory("idclient-tmp-");
    String output = runJava(classPath(), "-Djava.io.tmpdir=" + folder);
    equal(output, IdClient.version());
    Files.delete(folder); // fails if it is not empty
  }

  private static String architecture() {
    String architecture = System.getProperty("os.arch");
    return architecture.equals("amd64") ? "x86_64" : architecture;
  }

  private static String classPath() {
    return System.getProperty("java.class.path");
  }

  /** What another JVM prints as the version. */
  private static String runJava(String classPath, String... options)
      throws IOException, InterruptedException {
    List<String> command = new ArrayList<>();
    command.add(ProcessHandle.current().info().command().orElseThrow());
    command.addAll(List.of(options));
    command.addAll(List.of("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classPath));
    command.addAll(List.of(ClientTest.class.getName(), "--version-only"));
    Process java = new ProcessBuilder(command).redirectErrorStream(true).start();
    try (InputStream output = java.getInputStream()) {
      String text = new String(output.readAllBytes(), StandardCharsets.UTF_8).strip();
      java.waitFor();
      return text;
    }
  }

  private static void remove(Path folder, Path file) throws IOException {
    for (Path path = file; !path.equals(folder); path = path.getParent()) {
      Files.delete(path);
    }
    Files.delete(folder);
  }

  // Closing.

  private void useAfterCloseIsInvalid() {
    IdClient client = daemon.open();
    IdTag closed = client.tag("orders");
    IdTag orders = client.tag("orders");
    closed.close();
    closed.close();
    checkClosed(closed);
    check(orders.claim() > 0, "the other handle");
    client.close();
    client.close();
    checkClosed(orders);
    failsWith(IdStatus.INVALID, () -> client.tag("orders"));
    orders.close();
    checkClosed(orders);
  }

  private static void checkClosed(IdTag tag) {
    ByteBuffer buffer = ByteBuffer.allocateDirect(64).order(ByteOrder.nativeOrder());
    List<Body> calls =
        List.of(
            tag::claim,
            tag::tryClaim,
            tag::info,
            () -> tag.claim(1),
            () -> tag.claim(Duration.ZERO),
            () -> tag.claimRange(1),
            () -> tag.claimMany(new long[2]),
            () -> tag.claimMany(new long[1000], 1, 999),
            () -> tag.claimMany(buffer));
    for (Body call : calls) {
      IdClientException error = failsWith(IdStatus.INVALID, call);
      check(error.getMessage().contains("closed"), error.getMessage());
    }
    equal(buffer.position(), 0);
  }

  private void handlesOfOneTagCloseByThemselves() {
    try (IdClient client = daemon.open()) {
      for (int i = 0; i < 1000; ++i) {
        IdTag first = client.tag("orders");
        IdTag second = client.tag("orders");
        first.close();
        check(second.claim() > 0, "the second handle");
        second.close();
      }
      check(client.tag("orders").claim() > 0, "a handle after all were closed");
    }
  }

  private void clientClosesUnderClaims() throws Exception {
    AtomicReference<IdTag> current = new AtomicReference<>();
    try (Claimers claimers = new Claimers(3, current)) {
      for (int i = 0; i < 1000; ++i) {
        IdClient client = daemon.open();
        current.set(client.tag("orders", i % 2 == 0 ? 0 : 8));
        claimers.awaitClaims(20);
        client.close();
        checkClosedBriefly(current.get());
      }
    }
  }

  private void tagClosesUnderClaims() throws Exception {
    AtomicReference<IdTag> current = new AtomicReference<>();
    try (IdClient client = daemon.open();
        Claimers claimers = new Claimers(3, current)) {
      for (int i = 0; i < 1000; ++i) {
        IdTag tag = client.tag("orders");
        current.set(tag);
        claimers.awaitClaims(20);
        tag.close();
        checkClosedBriefly(tag);
      }
    }
  }

  private static void checkClosedBriefly(IdTag tag) {
    failsWith(IdStatus.INVALID, tag::claim);
  }

  /** Threads that claim from the current tag, which others close. */
  private static final class Claimers implements AutoCloseable {
    private final AtomicBoolean ends = new AtomicBoolean();
    private final AtomicLong claims = new AtomicLong();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final List<Thread> threads = new ArrayList<>();

    Claimers(int count, AtomicReference<IdTag> current) {
      for (int i = 0; i < count; ++i) {
        Thread thread = new Thread(() -> claim(current));
        thread.start();
        threads.add(thread);
      }
    }

    void awaitClaims(int more) {
      long end = claims.get() + more;
      while (claims.get() < end && failure.get() == null) {
        Thread.yield();
      }
    }

    private void claim(AtomicReference<IdTag> current) {
      ByteBuffer buffer = ByteBuffer.allocateDirect(64).order(ByteOrder.nativeOrder());
      long[] batch = new long[8];
      try {
        for (int i = 0; !ends.get(); ++i) {
          IdTag tag = current.get();
          if (tag != null) {
            claimOnce(tag, i % 5, batch, buffer.clear().order(ByteOrder.nativeOrder()));
          }
        }
      } catch (Throwable error) {
        failure.set(error);
      }
    }

    private void claimOnce(IdTag tag, int way, long[] batch, ByteBuffer buffer) {
      try {
        switch (way) {
          case 0 -> tag.claimMany(batch);
          case 1 -> tag.claimMany(buffer);
          case 2 -> tag.claimRange(3);
          case 3 -> tag.info();
          default -> tag.claim();
        }
        claims.incrementAndGet();
      } catch (IdClientException error) {
        if (error.status() != IdStatus.INVALID) {
          throw error;
        }
        Thread.yield();
      }
    }

    @Override
    public void close() {
      ends.set(true);
      for (Thread thread : threads) {
        joinThread(thread);
      }
      check(failure.get() == null, "a claimer failed: " + failure.get());
    }
  }

  private void closedClientsLeaveNoDescriptors() throws IOException {
    openAndClose(20);
    long before = descriptors();
    long mappings = mappings();
    openAndClose(1000);
    check(descriptors() <= before + 2, before + " descriptors became " + descriptors());
    check(mappings() <= mappings + 20, mappings + " mappings became " + mappings());
  }

  private void openAndClose(int times) {
    for (int i = 0; i < times; ++i) {
      try (IdClient client = daemon.open()) {
        check(client.tag("orders").claim() > 0, "claim");
      }
    }
  }

  private void unreachableClientsAreClosed() throws Exception {
    openAndClose(20);
    long before = descriptors();
    for (int i = 0; i < 50; ++i) {
      check(daemon.open().tag("orders").claim() > 0, "claim");
    }
    for (int tries = 0; descriptors() > before + 2; ++tries) {
      check(tries < 200, before + " descriptors became " + descriptors());
      System.gc();
      Thread.sleep(20);
    }
  }

  private static long descriptors() throws IOException {
    try (var files = Files.list(Path.of("/proc/self/fd"))) {
      return files.count();
    }
  }

  private static long mappings() throws IOException {
    try (var lines = Files.lines(Path.of("/proc/self/maps"))) {
      return lines.filter(line -> line.contains("memfd")).count();
    }
  }

  // Threads.

  private void threadsComeAndGo() throws Exception {
    try (IdClient client = daemon.open()) {
      IdTag orders = client.tag("orders");
      List<long[]> all = new ArrayList<>();
      for (int round = 0; round < 100; ++round) {
        all.addAll(Arrays.asList(inThreads(4, thread -> new long[] {orders.claim()})));
      }
      checkUnique(all.toArray(new long[0][]));
    }
  }

  private void killedDaemonRepeatsNoId() throws Exception {
    daemon.createTag("killed", "--step", "5000");
    AtomicBoolean ends = new AtomicBoolean();
    Thread killer = new Thread(() -> killThreeTimes(ends));
    try (IdClient client = daemon.open(Duration.ofMillis(500))) {
      IdTag tag = client.tag("killed");
      killer.start();
      long[][] ids = inThreads(4, thread -> claimUntil(ends, tag));
      for (long[] mine : ids) {
        checkRising(mine, 0, mine.length);
      }
      checkUnique(ids);
      check(tag.claim() > 0, "a claim after the restarts");
    } finally {
      ends.set(true);
      killer.join();
    }
  }

  private void killThreeTimes(AtomicBoolean ends) {
    try {
      for (int i = 0; i < 3 && !ends.get(); ++i) {
        Thread.sleep(300);
        daemon.kill();
        Thread.sleep(200);
        daemon.start();
      }
      Thread.sleep(300);
    } catch (IOException | InterruptedException error) {
      throw new AssertionError("the daemon did not restart", error);
    } finally {
      ends.set(true);
    }
  }

  // One id and 16 ids in turn, with pauses, so that the other threads and the daemon can run too.
  private static long[] claimUntil(AtomicBoolean ends, IdTag tag) {
    long[] ids = new long[1 << 16];
    int count = 0;
    for (int turn = 0; !ends.get(); ++turn) {
      if (count + 17 > ids.length) {
        ids = Arrays.copyOf(ids, 2 * ids.length);
      }
      try {
        ids[count] = tag.claim();
        ++count;
        count += tag.claimMany(ids, count, 16);
      } catch (IdClientException error) {
        check(error.isRetryable(), error.toString());
      }
      if (turn % 8 == 0) {
        pause();
      }
    }
    return Arrays.copyOf(ids, count);
  }

  private static void pause() {
    try {
      Thread.sleep(1);
    } catch (InterruptedException error) {
      throw new AssertionError(error);
    }
  }

  private void closeWaitsForWaitingClaims() throws Exception {
    IdClient client = daemon.open(Duration.ofSeconds(2));
    IdTag orders = client.tag("orders");
    IdTag other = client.tag("orders");
    daemon.stop(); // closes the ring: claims wait
    AtomicReference<Throwable> seen = new AtomicReference<>();
    Thread waiting = new Thread(() -> {
      try {
        orders.claim();
      } catch (IdClientException error) {
        seen.set(error);
      }
    });
    waiting.start();
    Thread.sleep(500);
    long begin = System.nanoTime();
    other.close();
    orders.close(); // does not wait
    check(System.nanoTime() - begin < 5_000_000_000L, "a tag's close waited");
    client.close();
    waiting.join();
    check(
        seen.get() instanceof IdClientException error && error.isRetryable(),
        "the waiting claim ended with " + seen.get());
    daemon.start();
  }

  // Adapters.

  private void leafShape() {
    try (IdClient client = daemon.open(Duration.ofMillis(200))) {
      LeafIdGen ids = LeafIdGen.of(client);
      check(ids.init(), "init");
      LeafResult first = ids.get("orders");
      LeafResult second = ids.get("orders");
      equal(first.getStatus(), LeafResult.Status.SUCCESS);
      check(second.getId() > first.getId(), "the second id");
      LeafResult absent = ids.get("absent");
      equal(absent.getStatus(), LeafResult.Status.EXCEPTION);
      equal(absent.getId(), -2L);
      equal(absent.getError().status(), IdStatus.NO_SUCH_TAG);
      equal(absent.as((id, status) -> status + id), "EXCEPTION-2");
    }
  }

  private void cosIdShape() {
    try (IdClient client = daemon.open()) {
      CosIdGenerator ids = CosIdGenerator.of(client.tag("orders"));
      long first = ids.generate();
      check(Long.parseLong(ids.generateAsString()) > first, "generateAsString");
    }
  }

  // Helpers.

  @FunctionalInterface
  private interface Work {
    long[] run(int thread) throws Exception;
  }

  /** Runs the work in threads that begin together, and returns what each returns. */
  private static long[][] inThreads(int count, Work work) throws Exception {
    long[][] results = new long[count][];
    AtomicReference<Throwable> failure = new AtomicReference<>();
    CyclicBarrier start = new CyclicBarrier(count);
    Thread[] threads = new Thread[count];
    for (int i = 0; i < count; ++i) {
      int number = i;
      threads[i] = new Thread(() -> {
        try {
          start.await();
          results[number] = work.run(number);
        } catch (Throwable error) {
          failure.set(error);
        }
      });
      threads[i].start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    if (failure.get() != null) {
      throw new AssertionError("a thread failed", failure.get());
    }
    return results;
  }

  private static void joinThread(Thread thread) {
    try {
      thread.join();
    } catch (InterruptedException error) {
      throw new AssertionError(error);
    }
  }

  private static void checkUnique(long[][] ids) {
    long[] all = Arrays.stream(ids).flatMapToLong(Arrays::stream).sorted().toArray();
    check(all.length > 0, "there are no ids");
    for (int i = 1; i < all.length; ++i) {
      check(all[i] != all[i - 1], "id " + all[i] + " was claimed twice");
    }
  }

  private static void checkRising(long[] ids, int from, int to) {
    for (int i = from; i < to; ++i) {
      check(ids[i] > (i == from ? 0 : ids[i - 1]), "id " + ids[i] + " does not rise");
    }
  }

  private static IdClientException failsWith(IdStatus status, Body body) {
    IdClientException error = (IdClientException) throwsError(IdClientException.class, body);
    equal(error.status(), status);
    return error;
  }

  private static Throwable throwsError(Class<? extends Throwable> type, Body body) {
    try {
      body.run();
    } catch (Throwable error) {
      if (type.isInstance(error)) {
        return error;
      }
      throw new AssertionError("expected " + type.getSimpleName() + ", got " + error, error);
    }
    throw new AssertionError("expected " + type.getSimpleName() + ", got none");
  }

  private static void equal(Object actual, Object expected) {
    boolean isEqual =
        actual instanceof Number a && expected instanceof Number b
            ? a.longValue() == b.longValue()
            : actual.equals(expected);
    check(isEqual, "expected " + expected + ", got " + actual);
  }

  private static void check(boolean holds, String message) {
    if (!holds) {
      throw new AssertionError(message);
    }
  }
}
