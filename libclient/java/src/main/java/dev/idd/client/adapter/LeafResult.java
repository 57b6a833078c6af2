// SPDX-License-Identifier: Apache-2.0
package dev.idd.client.adapter;

import dev.idd.client.IdClientException;
import dev.idd.client.IdStatus;
import java.util.Objects;

/** The result of {@link LeafIdGen#get}, in the shape of Leaf's {@code Result}. Immutable. */
public final class LeafResult {
  /** Whether there is an id. */
  public enum Status {
    /** {@link LeafResult#getId()} is an id. */
    SUCCESS,
    /** {@link LeafResult#getId()} is a negative number. */
    EXCEPTION
  }

  /**
   * Makes a result of another class.
   *
   * @param <R> that class
   */
  @FunctionalInterface
  public interface Factory<R> {
    /**
     * Makes it.
     *
     * @param id see {@link LeafResult#getId()}
     * @param status SUCCESS or EXCEPTION
     * @return the result
     */
    R make(long id, String status);
  }

  private static final long FAILED = -1;
  private static final long NO_SUCH_KEY = -2;
  private static final long NO_IDS = -3;

  private final long id;
  private final Status status;
  private final IdClientException error;

  private LeafResult(long id, Status status, IdClientException error) {
    this.id = id;
    this.status = status;
    this.error = error;
  }

  static LeafResult success(long id) {
    return new LeafResult(id, Status.SUCCESS, null);
  }

  static LeafResult failure(IdClientException error) {
    long number =
        error.status() == IdStatus.NO_SUCH_TAG
            ? NO_SUCH_KEY
            : error.isRetryable() || error.status() == IdStatus.OUT_OF_IDS ? NO_IDS : FAILED;
    return new LeafResult(number, Status.EXCEPTION, Objects.requireNonNull(error));
  }

  /**
   * The id. With status EXCEPTION: -2 if there is no such tag, -3 if it has no ids at present, else
   * -1.
   *
   * @return an id or a negative number
   */
  public long getId() {
    return id;
  }

  /**
   * Whether there is an id.
   *
   * @return never null
   */
  public Status getStatus() {
    return status;
  }

  /**
   * The failure.
   *
   * @return null with status SUCCESS
   */
  public IdClientException getError() {
    return error;
  }

  /**
   * The same as a result of another class, Leaf's own say.
   *
   * @param <R> that class
   * @param factory makes it from the id and the name of the status
   * @return what the factory returns
   */
  public <R> R as(Factory<R> factory) {
    return factory.make(id, status.name());
  }

  @Override
  public String toString() {
    return "LeafResult[id=" + id + ", status=" + status + "]";
  }
}
