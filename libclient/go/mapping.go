// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	fGetSeals = 1034 // F_LINUX_SPECIFIC_BASE + 10
	sealExec  = 0x20 // a system-wide policy may add it

	tableSeals   = 0x17 // SHRINK|GROW|FUTURE_WRITE|SEAL
	cursorsSeals = 0x07 // SHRINK|GROW|SEAL
)

// mapping is the memory of one ring: the table, and the first page of the cursors. The lanes of a
// ring of order cpu are not mapped, because this client does not use them.
//
// A goroutine may be stopped between any two steps of a claim, so the memory of a ring that is over
// is first blanked: the addresses stay mapped, with zeros, which refuse every claim. The finalizer
// gives the addresses back. It runs when no goroutine can reach the mapping; code that reads or
// writes the memory keeps the mapping reachable with runtime.KeepAlive until after the last access.
type mapping struct {
	table   *table
	cursors *cursors
	isBlank uint32
}

// mapRing checks the two memfds of a ring of `tag` as shm-abi.md demands, and maps them. The
// descriptors remain the caller's.
func mapRing(tableFd, cursorsFd int, tag string) (*mapping, error) {
	if err := checkSeals(tableFd, tableSeals, "table"); err != nil {
		return nil, err
	}
	if err := checkSeals(cursorsFd, cursorsSeals, "cursors"); err != nil {
		return nil, err
	}
	// The seals come first: a file that cannot shrink keeps the size that is read now.
	if err := checkSize(tableFd, tableBytes, "table"); err != nil {
		return nil, err
	}
	m := &mapping{}
	address, err := mapShared(tableFd, tableBytes, syscall.PROT_READ)
	if err != nil {
		return nil, err
	}
	m.table = (*table)(address)
	runtime.SetFinalizer(m, (*mapping).unmap)
	err = m.mapCursors(cursorsFd, tag)
	runtime.KeepAlive(m)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *mapping) mapCursors(fd int, tag string) error {
	if err := checkHeader(&m.table.header, tag); err != nil {
		return err
	}
	if err := checkSize(fd, int64(m.table.header.cursorsBytes), "cursors"); err != nil {
		return err
	}
	address, err := mapShared(fd, pageBytes, syscall.PROT_READ|syscall.PROT_WRITE)
	if err != nil {
		return err
	}
	m.cursors = (*cursors)(address)
	return nil
}

// blank replaces the memory by zeros and so lets go of the memfds. Claims that are under way are
// refused.
func (m *mapping) blank() {
	if !atomic.CompareAndSwapUint32(&m.isBlank, 0, 1) {
		return
	}
	const flags = syscall.MAP_PRIVATE | syscall.MAP_ANONYMOUS | syscall.MAP_FIXED
	// The table comes first: without it, no add to the cursors yields an id. If a call fails, the
	// memory stays as it is until it is unmapped.
	_, _, errno := syscall.Syscall6(syscall.SYS_MMAP, uintptr(unsafe.Pointer(m.table)), tableBytes,
		syscall.PROT_READ, flags, ^uintptr(0), 0)
	if errno == 0 {
		syscall.Syscall6(syscall.SYS_MMAP, uintptr(unsafe.Pointer(m.cursors)), pageBytes,
			syscall.PROT_READ|syscall.PROT_WRITE, flags, ^uintptr(0), 0)
	}
	runtime.KeepAlive(m)
}

func (m *mapping) unmap() {
	if m.table != nil {
		syscall.Syscall(syscall.SYS_MUNMAP, uintptr(unsafe.Pointer(m.table)), tableBytes, 0)
	}
	if m.cursors != nil {
		syscall.Syscall(syscall.SYS_MUNMAP, uintptr(unsafe.Pointer(m.cursors)), pageBytes, 0)
	}
}

func mapShared(fd int, bytes uintptr, protection uintptr) (unsafe.Pointer, error) {
	address, _, errno := syscall.Syscall6(syscall.SYS_MMAP, 0, bytes, protection,
		syscall.MAP_SHARED, uintptr(fd), 0)
	if errno != 0 {
		return nil, newError(StatusSystem, "mmap: "+errno.Error())
	}
	// The memory is not Go's, so the collector does not move or free it.
	return *(*unsafe.Pointer)(unsafe.Pointer(&address)), nil
}

func checkSeals(fd int, wanted uintptr, what string) error {
	seals, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), fGetSeals, 0)
	if errno != 0 {
		return newError(StatusIncompatible, "the "+what+" that idd passed cannot be sealed: "+
			errno.Error())
	}
	if seals&^sealExec != wanted {
		return newError(StatusIncompatible, fmt.Sprintf("the %s that idd passed has seals %#x, not %#x",
			what, seals, wanted))
	}
	return nil
}

func checkSize(fd int, wanted int64, what string) error {
	var info syscall.Stat_t
	if err := syscall.Fstat(fd, &info); err != nil {
		return newError(StatusSystem, "fstat: "+err.Error())
	}
	if info.Size != wanted {
		return newError(StatusIncompatible, fmt.Sprintf("the %s that idd passed has %d bytes, not %d",
			what, info.Size, wanted))
	}
	return nil
}

// checkHeader refuses a table that this client does not understand, or of another tag.
func checkHeader(h *tableHeader, tag string) error {
	version := atomic.LoadUint32(&h.abiVersion) // V2, pairs with V1
	incompatible := func(message string) error {
		return newError(StatusIncompatible, "the table that idd passed "+message)
	}
	switch {
	case h.magic != tableMagic:
		return incompatible("has a wrong magic number")
	case version == 0:
		return incompatible("is not complete")
	case version>>16 != abiMajor:
		return newError(StatusIncompatible, versionMessage(version))
	case !hasGeometry(h):
		return incompatible("has another geometry")
	case !hasTag(h, tag):
		return incompatible("is that of another tag")
	case h.order != orderHost && h.order != orderCPU:
		return incompatible(fmt.Sprintf("has order %d, which this client does not know", h.order))
	case h.mode != modeSegment && h.mode != modeSnowflake:
		return incompatible(fmt.Sprintf("has mode %d, which this client does not know", h.mode))
	case h.mode == modeSnowflake && (h.order != orderHost || h.unitMs == 0 ||
		h.clock != clockClaimer && h.clock != clockDaemon):
		return incompatible("has a wrong clock or order for its mode")
	}
	return nil
}

func hasGeometry(h *tableHeader) bool {
	lanes := h.laneCount
	wantedCursors := uint32(pageBytes)
	if h.order == orderCPU {
		if lanes < 1 || lanes > maxLanes {
			return false
		}
		wantedCursors = (pageBytes + lanes*blockBytes + pageBytes - 1) / pageBytes * pageBytes
	} else if lanes != 1 {
		return false
	}
	return h.tableBytes == tableBytes && h.cursorsBytes == wantedCursors &&
		h.slotCount == slotCount && h.slotsOffset == slotsOffset && h.slotStride == blockBytes &&
		h.cursorStride == blockBytes && h.laneStride == blockBytes
}

func hasTag(h *tableHeader, tag string) bool {
	if h.tagBytes != uint32(len(tag)) || len(tag) > maxTagBytes {
		return false
	}
	for i, b := range h.tag {
		if i < len(tag) && b != tag[i] || i >= len(tag) && b != 0 {
			return false
		}
	}
	return true
}
