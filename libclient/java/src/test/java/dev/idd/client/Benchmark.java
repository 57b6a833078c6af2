// SPDX-License-Identifier: Apache-2.0
package dev.idd.client;

import java.util.Arrays;
import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;

/**
 * Prints what a claim costs in one thread, in nanoseconds, beside its baselines. The measurements
 * take turns; each figure is the median of all rounds. Starts an idd as {@link TestDaemon} does.
 */
public final class Benchmark {
  private static final int ROUNDS = 11;
  private static final int BATCH = 64;
  private static final long ROUND_NANOS = 60_000_000;

  private static long sink;

  private Benchmark() {}

  /** One measured operation. The loop performs it; an operation gets {@code ids} ids. */
  private record Case(String name, int ids, Loop loop, double[] nanos) {
    Case(String name, int ids, Loop loop) {
      this(name, ids, loop, new double[ROUNDS]);
    }

    double median() {
      double[] sorted = nanos.clone();
      Arrays.sort(sorted);
      return sorted[ROUNDS / 2];
    }
  }

  @FunctionalInterface
  private interface Loop {
    long run(int count);
  }

  /**
   * Runs the benchmark.
   *
   * @param arguments none
   * @throws Exception if the daemon cannot be started
   */
  public static void main(String[] arguments) throws Exception {
    try (TestDaemon daemon = new TestDaemon()) {
      daemon.createTag("bench", "--step", "50000000");
      daemon.createTag("lanes", "--step", "50000000", "--order", "cpu");
      try (IdClient client = daemon.open()) {
        run(client);
      }
    }
  }

  // Each loop is code of its own, so that the compiler inlines what it calls.
  private static void run(IdClient client) {
    IdTag tag = client.tag("bench");
    IdTag lanes = client.tag("lanes");
    IdTag blocks = client.tag("bench", 4096);
    AtomicLong counter = new AtomicLong();
    long[] batch = new long[BATCH];
    Case empty = new Case("empty JNI call", 1, count -> {
      long sum = 0;
      for (int i = 0; i < count; ++i) {
        sum += NativeCalls.nothing(i);
      }
      return sum;
    });
    Case claim = new Case("claim", 1, count -> {
      long sum = 0;
      for (int i = 0; i < count; ++i) {
        sum += tag.claim();
      }
      return sum;
    });
    Case claimLane = new Case("claim, order cpu", 1, count -> {
      long sum = 0;
      for (int i = 0; i < count; ++i) {
        sum += lanes.claim();
      }
      return sum;
    });
    Case claimBlock = new Case("claim, block size 4096", 1, count -> {
      long sum = 0;
      for (int i = 0; i < count; ++i) {
        sum += blocks.claim();
      }
      return sum;
    });
    Case atomic = new Case("AtomicLong.incrementAndGet", 1, count -> {
      long sum = 0;
      for (int i = 0; i < count; ++i) {
        sum += counter.incrementAndGet();
      }
      return sum;
    });
    Case many = new Case("claimMany of 64, per id", BATCH, count -> {
      long sum = 0;
      for (int i = 0; i < count; ++i) {
        tag.claimMany(batch);
        sum += batch[0];
      }
      return sum;
    });
    Case uuid = new Case("UUID.randomUUID", 1, count -> {
      long sum = 0;
      for (int i = 0; i < count; ++i) {
        sum += UUID.randomUUID().getMostSignificantBits();
      }
      return sum;
    });
    measure(empty, claim, claimLane, claimBlock, atomic, many, uuid);
    print("claim / empty JNI call", claim.median() / empty.median());
    print("claimMany per id / AtomicLong", many.median() / atomic.median());
    print("UUID.randomUUID / claim", uuid.median() / claim.median());
  }

  private static void measure(Case... cases) {
    int[] counts = new int[cases.length];
    for (int i = 0; i < cases.length; ++i) {
      counts[i] = warmUp(cases[i].loop());
    }
    for (int round = 0; round < ROUNDS; ++round) {
      for (int i = 0; i < cases.length; ++i) {
        Case each = cases[i];
        int count = counts[i];
        long nanos = nanosOf(() -> each.loop().run(count));
        each.nanos()[round] = (double) nanos / count / each.ids();
      }
    }
    System.out.printf("medians of %d interleaved rounds, ns%n", ROUNDS);
    for (Case each : cases) {
      print(each.name(), each.median());
    }
  }

  /** How many operations take about ROUND_NANOS, once the loop is compiled. */
  private static int warmUp(Loop loop) {
    int count = 1000;
    for (int i = 0; i < 30; ++i) {
      int now = count;
      nanosOf(() -> loop.run(now));
      count = Math.min(count * 2, 100_000);
    }
    int last = count;
    long nanos = nanosOf(() -> loop.run(last));
    return (int) Math.max(1000, ROUND_NANOS * count / nanos);
  }

  private static long nanosOf(LongSupplier work) {
    long begin = System.nanoTime();
    sink += work.getAsLong();
    return Math.max(1, System.nanoTime() - begin);
  }

  private static void print(String name, double value) {
    System.out.printf(Locale.ROOT, "%-32s %10.2f%n", name, value);
  }
}
