// SPDX-License-Identifier: Apache-2.0
package dev.idd.client;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;

/**
 * A connection to the idd of this host.
 *
 * <pre>{@code
 * try (IdClient client = IdClient.open()) {
 *   IdTag orders = client.tag("orders");
 *   long id = orders.claim();
 * }
 * }</pre>
 *
 * <p>A claim takes ids from a ring in shared memory, without a system call. Only when the ring has
 * no ids left does it ask the daemon, and waits for at most the client's timeout. After a restart
 * of the daemon the client connects again by itself.
 *
 * <p>A program needs one client for its lifetime. A client that is not closed is closed some time
 * after it and all its tags have become unreachable.
 *
 * <p>Thread safety: all methods of this package may be called from any thread at any time, also
 * during and after a close. A call on what is closed fails as {@link IdStatus#INVALID}.
 */
public final class IdClient implements AutoCloseable {
  private static final Cleaner CLEANER = Cleaner.create();

  // Of the native struct, which is freed when this object and its tags are unreachable.
  private final long handle;

  private IdClient(long handle) {
    this.handle = handle;
  }

  /**
   * Connects to the daemon of {@code $IDD_SOCKET}, else {@code /run/idd/idd.sock}. Waits up to 500
   * ms for a daemon that is not there yet.
   *
   * @return a client to be closed
   * @throws IdClientException UNAVAILABLE, DENIED, INCOMPATIBLE or SYSTEM
   */
  public static IdClient open() {
    return open(Options.builder().build());
  }

  /**
   * The same with options.
   *
   * @param options where to connect, and how long to wait
   * @return a client to be closed
   * @throws IdClientException also INVALID for a wrong option
   */
  public static IdClient open(Options options) {
    NativeLibrary.load();
    long handle =
        NativeCalls.open(
            options.socketPath == null ? null : bytes("socketPath", options.socketPath),
            options.timeoutMillis,
            options.trustedUid,
            options.opensOnce);
    if (handle <= 0) {
      throw NativeCalls.failure(handle, 0);
    }
    IdClient client = new IdClient(handle);
    CLEANER.register(client, () -> NativeCalls.free(handle));
    return client;
  }

  /**
   * Opens a tag. Opening it again is cheap. Waits up to the client's timeout for a daemon that is
   * not there.
   *
   * @param name 1 to 128 bytes of printable UTF-8
   * @return a new handle, which lives until it or the client is closed
   * @throws IdClientException INVALID, UNAVAILABLE, NO_SUCH_TAG, DENIED, TIMEOUT, INCOMPATIBLE or
   *     SYSTEM
   */
  public IdTag tag(String name) {
    return tag(name, 0);
  }

  /**
   * The same with a block size: each thread claims that many ids at once and hands them out by
   * itself. Ids then rise within a thread only, and each thread that ends loses at most one block.
   *
   * @param name 1 to 128 bytes of printable UTF-8
   * @param blockSize at most 65,536; 0 or 1: no blocks
   * @return a new handle, which lives until it or the client is closed
   * @throws IdClientException as above
   */
  public IdTag tag(String name, int blockSize) {
    if (blockSize < 0) {
      throw new IdClientException(
          IdStatus.INVALID, "the block size must be 0 to 65536, got " + blockSize);
    }
    long tag = NativeCalls.openTag(handle, bytes("the tag's name", name), blockSize);
    Reference.reachabilityFence(this);
    if (tag <= 0) {
      throw NativeCalls.failure(tag, 0);
    }
    return new IdTag(this, tag, name);
  }

  /**
   * Closes the client and all its tags. Calls that begin later fail as INVALID. Waits for the calls
   * that are running; each of them ends at its own deadline. Unclaimed ids stay in the ring.
   * Closing again has no effect.
   */
  @Override
  public void close() {
    NativeCalls.close(handle);
    Reference.reachabilityFence(this);
  }

  /**
   * The version of the native library, which is also that of these classes.
   *
   * @return MAJOR.MINOR.PATCH
   * @throws IdClientException SYSTEM or INCOMPATIBLE if the library cannot be used
   */
  public static String version() {
    NativeLibrary.load();
    return NativeLibrary.text(NativeCalls.version());
  }

  private static byte[] bytes(String what, String text) {
    if (text.indexOf('\0') >= 0) {
      throw new IdClientException(IdStatus.INVALID, what + " must have no zero character");
    }
    if (!StandardCharsets.UTF_8.newEncoder().canEncode(text)) {
      throw new IdClientException(IdStatus.INVALID, what + " is not valid Unicode");
    }
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** Where and how to connect. Immutable. */
  public static final class Options {
    private final String socketPath;
    private final long timeoutMillis;
    private final long trustedUid;
    private final boolean opensOnce;

    private Options(Builder builder) {
      socketPath = builder.socketPath;
      timeoutMillis = builder.timeoutMillis;
      trustedUid = builder.trustedUid;
      opensOnce = builder.opensOnce;
    }

    /**
     * Begins with the defaults.
     *
     * @return a new builder
     */
    public static Builder builder() {
      return new Builder();
    }

    /** Collects options. Not thread-safe. */
    public static final class Builder {
      private String socketPath;
      private long timeoutMillis;
      private long trustedUid = -1;
      private boolean opensOnce;

      private Builder() {}

      /**
       * The daemon's socket. The default is {@code $IDD_SOCKET}, else {@code /run/idd/idd.sock}.
       *
       * @param path of a Unix socket
       * @return this builder
       */
      public Builder socketPath(String path) {
        socketPath = Objects.requireNonNull(path, "path");
        return this;
      }

      /**
       * The same.
       *
       * @param path of a Unix socket
       * @return this builder
       */
      public Builder socketPath(Path path) {
        return socketPath(path.toString());
      }

      /**
       * The longest wait of a claim on a dry ring, of open and of tag. The default is 500 ms.
       *
       * @param timeout 1 ms to 1 hour; rounded up to milliseconds
       * @return this builder
       * @throws IdClientException INVALID for another duration
       */
      public Builder timeout(Duration timeout) {
        long millis = millis(timeout);
        if (millis == 0) {
          throw new IdClientException(
              IdStatus.INVALID, "the client's timeout must be 1 ms to 1 hour, got " + timeout);
        }
        timeoutMillis = millis;
        return this;
      }

      /**
       * A user whose daemon is trusted, like that of root, the caller and the user idd.
       *
       * @param uid 0 to 2^32 - 2
       * @return this builder
       * @throws IdClientException INVALID for another number
       */
      public Builder trustedUid(long uid) {
        if (uid < 0 || uid >= 0xFFFF_FFFFL) {
          throw new IdClientException(
              IdStatus.INVALID, "trustedUid must be 0 to 4294967294, got " + uid);
        }
        trustedUid = uid;
        return this;
      }

      /**
       * Whether open and tag try once, without a wait for the daemon. The default is false.
       *
       * @param once true: no wait
       * @return this builder
       */
      public Builder openOnce(boolean once) {
        opensOnce = once;
        return this;
      }

      /**
       * The options.
       *
       * @return an immutable copy
       */
      public Options build() {
        return new Options(this);
      }
    }
  }

  /** The longest wait that the C library takes. */
  static final long MAX_TIMEOUT_MILLIS = 3_600_000;

  /** Rounded up, so that only a zero duration means no wait. */
  static long millis(Duration timeout) {
    if (timeout.isNegative() || timeout.compareTo(Duration.ofMillis(MAX_TIMEOUT_MILLIS)) > 0) {
      throw new IdClientException(
          IdStatus.INVALID, "a timeout must be 0 ms to 1 hour, got " + timeout);
    }
    return timeout.plusNanos(999_999).toMillis();
  }
}
