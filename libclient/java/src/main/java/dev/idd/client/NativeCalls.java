// SPDX-License-Identifier: Apache-2.0
package dev.idd.client;

/**
 * The native methods, in {@code idclient_jni.cc}.
 *
 * <p>They check neither handles nor bounds; {@link IdClient} and {@link IdTag} do. Ids and handles
 * are positive. A failure is the negative number of its status; {@link #failure} makes the
 * exception. The caller of a method with a handle keeps the owner of the handle reachable during
 * the call.
 */
final class NativeCalls {
  /** The client or tag is closed. */
  static final long CLOSED = -100;

  /** There was no memory for the call. */
  static final long NO_MEMORY = -101;

  private NativeCalls() {}

  /** The version of libidclient. */
  static native byte[] version();

  /** The version of the headers that the JNI library was compiled with. */
  static native byte[] jniVersion();

  /** The message of the calling thread's last failed call. */
  static native byte[] lastError();

  static native long open(byte[] socketPath, long timeoutMillis, long trustedUid, boolean once);

  /** Returns after the calls that use the client have ended. */
  static native void close(long client);

  /** Also frees the handles of the client and its tags. */
  static native void free(long client);

  static native long openTag(long client, byte[] name, int blockSize);

  static native void closeTag(long tag);

  static native long claim(long tag);

  static native long claimTimeout(long tag, long timeoutMillis);

  /** Returns how many were claimed, and in the upper half the status if that is not all. */
  static native long claimMany(long tag, long[] ids, int offset, int count);

  /** The same. */
  static native long claimBuffer(long tag, Object buffer, int offsetBytes, int count);

  static native long claimRange(long tag, int count, long[] claimed);

  static native long info(long tag, long[] fields);

  /** For the benchmark. */
  static native long nothing(long value);

  /** The exception for a result below 1 of a call that this thread has just made. */
  static IdClientException failure(long result, int claimed) {
    if (result == CLOSED) {
      return new IdClientException(
          IdStatus.INVALID, "the client or the tag is closed", claimed, null);
    }
    if (result == NO_MEMORY) {
      return new IdClientException(
          IdStatus.SYSTEM, "there is no native memory for the call", claimed, null);
    }
    return new IdClientException(
        IdStatus.of(-result), NativeLibrary.text(lastError()), claimed, null);
  }
}
