// SPDX-License-Identifier: Apache-2.0
/** Ids in the shapes of interfaces of other id generators, without a dependency on them. */
package dev.idd.client.adapter;
