// SPDX-License-Identifier: Apache-2.0

// Package idclient claims cluster-unique 64-bit ids from idd, the id daemon of this host, at the
// price of one atomic add.
//
// A claim takes an id from a ring in memory that the daemon shares with all programs of the host,
// without a system call. Only if the ring is dry (has no ids left) does the claim ask the daemon
// over its Unix socket and wait. If the daemon is killed or restarted, the ring goes on serving,
// and the client connects and attaches again by itself. A daemon that is stopped closes its rings: then
// claims wait for the next daemon, until their deadline.
//
// Ids of one tag never repeat and, on one host, rise: if one claim returned before another began,
// its id is smaller. Two kinds of tags promise less: those of order cpu, which an operator chooses,
// and those that Client.TagWithBlock opens.
//
// The package is written in Go alone, from docs/shm-abi.md and docs/socket-protocol.md. It runs on
// Linux.
package idclient
