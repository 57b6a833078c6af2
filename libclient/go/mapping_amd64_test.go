// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"runtime"
	"syscall"
	"testing"
	"unsafe"
)

const (
	sysMemfdCreate = 319
	fAddSeals      = 1033
)

// sealedFile returns a memfd with the content and the seals.
func sealedFile(t *testing.T, content []byte, seals uintptr) int {
	t.Helper()
	name := []byte("idd-test\x00")
	fd, _, errno := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&name[0])), 3, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { syscall.Close(int(fd)) })
	if _, err := syscall.Write(int(fd), content); err != nil {
		t.Fatal(err)
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, fAddSeals, seals); errno != 0 {
		t.Fatal(errno)
	}
	return int(fd)
}

func tableContent(h *tableHeader) []byte {
	content := make([]byte, tableBytes)
	copy(content, (*[256]byte)(unsafe.Pointer(h))[:])
	return content
}

func TestMapRingChecksSealsAndSizes(t *testing.T) {
	page := make([]byte, pageBytes)
	good := tableContent(goodHeader())
	for _, c := range []struct {
		name                     string
		table, cursors           []byte
		tableSeals, cursorsSeals uintptr
		isGood                   bool
	}{
		{"good", good, page, 0x17, 0x07, true},
		{"table that can be written", good, page, 0x07, 0x07, false},
		{"table that can be cut", good, page, 0x15, 0x07, false},
		{"cursors that can be cut", good, page, 0x17, 0x05, false},
		{"cursors that cannot be written", good, page, 0x17, 0x17, false},
		{"short table", good[:2048], page, 0x17, 0x07, false},
		{"long table", append(good[:4096:4096], page...), page, 0x17, 0x07, false},
		{"short cursors", good, page[:2048], 0x17, 0x07, false},
		{"empty cursors", good, nil, 0x17, 0x07, false},
		{"garbage", page, page, 0x17, 0x07, false},
	} {
		m, err := mapRing(sealedFile(t, c.table, c.tableSeals), sealedFile(t, c.cursors, c.cursorsSeals),
			"orders")
		if c.isGood != (err == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.isGood && statusOf(err) != StatusIncompatible {
			t.Errorf("%s: %v", c.name, err)
		}
		runtime.KeepAlive(m)
	}
}

func TestABlankedRingRefusesClaims(t *testing.T) {
	m, err := mapRing(sealedFile(t, tableContent(goodHeader()), 0x17),
		sealedFile(t, make([]byte, pageBytes), 0x07), "orders")
	if err != nil {
		t.Fatal(err)
	}
	point := &claimPoint{cursor: &m.cursors.slots[1], slot: &m.table.slots[1], segment: 1, memory: m}
	m.blank()
	m.blank()
	m.cursors.slots[1].next = 5
	if ids, _ := point.accept(5, 1); ids.Count != 0 || m.table.header.magic != 0 {
		t.Fatalf("accepted %v", ids)
	}
	runtime.KeepAlive(m)
}
