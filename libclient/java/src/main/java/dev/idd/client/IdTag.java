// SPDX-License-Identifier: Apache-2.0
package dev.idd.client;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.ReadOnlyBufferException;
import java.time.Duration;
import java.util.Objects;

/**
 * One tag, whose ids never repeat in the cluster. Ids are 1 to 2^63 - 1.
 *
 * <p>On one host ids rise: if one claim returned before another began, its ids are smaller. With a
 * block size they rise within a thread only, and with order cpu in a CPU's lane only.
 *
 * <p>Thread safety: all methods, also during and after a close. A claim that finds ids allocates
 * nothing, takes no lock and makes no system call. Thread interrupts do not end a waiting claim.
 *
 * <p>Failures are an {@link IdClientException}: INVALID, UNAVAILABLE, NO_SUCH_TAG, DENIED, TIMEOUT,
 * OUT_OF_IDS, INCOMPATIBLE or SYSTEM.
 */
public final class IdTag implements AutoCloseable {
  /** What {@link #tryClaim()} returns when there is no id. */
  public static final long NONE = -1;

  @SuppressWarnings("unused")
  private final IdClient client; // reachable as long as this is: it owns the handle
  private final long handle;
  private final String name;
  private volatile boolean isClosed;

  IdTag(IdClient client, long handle, String name) {
    this.client = client;
    this.handle = handle;
    this.name = name;
  }

  /**
   * The tag's name.
   *
   * @return as it was opened
   */
  public String name() {
    return name;
  }

  /**
   * Claims one id. Never blocks while the ring has ids; otherwise waits for at most the client's
   * timeout.
   *
   * @return the id
   * @throws IdClientException see the class
   */
  public long claim() {
    long id = isClosed ? NativeCalls.CLOSED : NativeCalls.claim(handle);
    Reference.reachabilityFence(this);
    if (id >= 0) {
      return id;
    }
    throw NativeCalls.failure(id, 0);
  }

  /**
   * The same with a longest wait of its own.
   *
   * @param timeout 0 to 1 hour, rounded up to milliseconds; zero: see {@link #tryClaim()}
   * @return the id
   * @throws IdClientException see the class
   */
  public long claim(Duration timeout) {
    return claim(IdClient.millis(timeout));
  }

  /**
   * The same with a longest wait of its own.
   *
   * @param timeoutMillis 0 to 3,600,000 milliseconds; zero: see {@link #tryClaim()}
   * @return the id
   * @throws IdClientException see the class
   */
  public long claim(long timeoutMillis) {
    long id = claimOrStatus(timeoutMillis);
    if (id >= 0) {
      return id;
    }
    throw NativeCalls.failure(id, 0);
  }

  /**
   * Claims one id that this process can have without the daemon. If there is none, lets the daemon
   * know that ids are wanted, so that a later call succeeds.
   *
   * <p>Gets nothing of a tag without a ring (mode ticket, access socket), and nothing after a
   * restart of the daemon that closed the ring: only a claim that may wait, for 1 ms say, attaches
   * again.
   *
   * @return the id, or {@link #NONE}
   * @throws IdClientException for failures other than TIMEOUT
   */
  public long tryClaim() {
    long id = claimOrStatus(0);
    if (id >= 0) {
      return id;
    }
    if (id == -(IdStatus.TIMEOUT.ordinal() + 1)) {
      return NONE;
    }
    throw NativeCalls.failure(id, 0);
  }

  /**
   * Fills the array with rising ids, under one deadline.
   *
   * @param ids not necessarily contiguous
   * @throws IdClientException see the class; the first {@link IdClientException#claimed()} elements
   *     are claimed ids all the same
   */
  public void claimMany(long[] ids) {
    long result = claimInto(ids, 0, ids.length);
    if ((int) result < ids.length) {
      throw NativeCalls.failure(-(result >>> 32), (int) result);
    }
  }

  /**
   * Claims rising ids into a part of an array, under one deadline.
   *
   * @param ids to write to, not necessarily contiguous ids
   * @param offset of the first element to write
   * @param length how many ids to claim
   * @return how many ids were claimed. Fewer than {@code length} means that the claim failed after
   *     this many ids; the next claim reports why if the cause remains.
   * @throws IndexOutOfBoundsException if the array has no such part
   * @throws IdClientException if no id was claimed; see the class
   */
  public int claimMany(long[] ids, int offset, int length) {
    Objects.checkFromIndexSize(offset, length, ids.length);
    return claimedOf(claimInto(ids, offset, length));
  }

  /**
   * Fills the rest of a direct buffer, from its position to its limit, with rising ids of 8 bytes
   * each, and moves the position after them.
   *
   * @param ids a writable direct buffer of native byte order, whose position is a multiple of 8
   *     bytes in memory, with room for whole ids only
   * @return how many ids were claimed, as in {@link #claimMany(long[], int, int)}
   * @throws ReadOnlyBufferException if it is read-only
   * @throws IllegalArgumentException if it is another buffer than described
   * @throws IdClientException if no id was claimed; see the class
   */
  public int claimMany(ByteBuffer ids) {
    check(ids);
    int count = ids.remaining() / Long.BYTES;
    long result =
        isClosed
            ? -NativeCalls.CLOSED << 32
            : NativeCalls.claimBuffer(handle, ids, ids.position(), count);
    Reference.reachabilityFence(this);
    int claimed = claimedOf(result);
    ids.position(ids.position() + claimed * Long.BYTES);
    return claimed;
  }

  /**
   * Claims contiguous ids.
   *
   * @param count how many at most, 1 or more
   * @return the largest run up to {@code count} that one segment has left; at least one id
   * @throws IdClientException see the class
   */
  public IdRange claimRange(int count) {
    if (count <= 0) {
      throw new IdClientException(IdStatus.INVALID, "a range must have 1 id or more, got " + count);
    }
    long[] claimed = new long[1];
    long first =
        isClosed ? NativeCalls.CLOSED : NativeCalls.claimRange(handle, count, claimed);
    Reference.reachabilityFence(this);
    if (first < 0) {
      throw NativeCalls.failure(first, 0);
    }
    return new IdRange(first, (int) claimed[0]);
  }

  /**
   * What this process can see of the tag, read from the ring: no request, no wait.
   *
   * @return a snapshot
   * @throws IdClientException INVALID if the tag is closed
   */
  public IdTagInfo info() {
    long[] fields = new long[6];
    long result = isClosed ? NativeCalls.CLOSED : NativeCalls.info(handle, fields);
    Reference.reachabilityFence(this);
    if (result != 0) {
      throw NativeCalls.failure(result, 0);
    }
    return IdTagInfo.of(fields);
  }

  /**
   * Closes this handle. The ring is unmapped when the last handle of the tag is closed and no claim
   * uses it. Does not wait; closing again has no effect.
   */
  @Override
  public void close() {
    synchronized (this) {
      if (isClosed) {
        return;
      }
      isClosed = true;
    }
    NativeCalls.closeTag(handle);
    Reference.reachabilityFence(this);
  }

  @Override
  public String toString() {
    return "IdTag[" + name + "]";
  }

  private long claimOrStatus(long timeoutMillis) {
    if (timeoutMillis < 0 || timeoutMillis > IdClient.MAX_TIMEOUT_MILLIS) {
      throw new IdClientException(
          IdStatus.INVALID, "a timeout must be 0 to 3600000 ms, got " + timeoutMillis);
    }
    long id = isClosed ? NativeCalls.CLOSED : NativeCalls.claimTimeout(handle, timeoutMillis);
    Reference.reachabilityFence(this);
    return id;
  }

  // Precondition: the bounds were checked.
  private long claimInto(long[] ids, int offset, int length) {
    long result =
        isClosed
            ? -NativeCalls.CLOSED << 32
            : NativeCalls.claimMany(handle, ids, offset, length);
    Reference.reachabilityFence(this);
    return result;
  }

  private static int claimedOf(long result) {
    int claimed = (int) result;
    if (claimed == 0 && result != 0) {
      throw NativeCalls.failure(-(result >>> 32), 0);
    }
    return claimed;
  }

  private static void check(ByteBuffer ids) {
    if (ids.isReadOnly()) {
      throw new ReadOnlyBufferException();
    }
    String wrong =
        !ids.isDirect()
            ? "must be direct"
            : ids.order() != ByteOrder.nativeOrder()
                ? "must have ByteOrder.nativeOrder()"
                : ids.remaining() % Long.BYTES != 0
                    ? "must have room for whole ids of 8 bytes, got " + ids.remaining() + " bytes"
                    : ids.alignmentOffset(ids.position(), Long.BYTES) != 0
                        ? "must begin at a multiple of 8 bytes in memory"
                        : null;
    if (wrong != null) {
      throw new IllegalArgumentException("the buffer of claimMany " + wrong);
    }
  }
}
