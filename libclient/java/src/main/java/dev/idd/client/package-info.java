// SPDX-License-Identifier: Apache-2.0
/** Cluster-unique ids from the idd of this host. Start at {@link dev.idd.client.IdClient}. */
package dev.idd.client;
