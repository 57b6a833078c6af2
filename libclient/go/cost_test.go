// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"context"
	"crypto/rand"
	"os"
	"sort"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// TestClaimCostRatio prints what a claim costs beside a bare atomic add and beside the 16 random
// bytes of a UUID: medians of rounds that take turns, so that other load on the host falls on all
// alike. It runs if $IDD_TEST_COST is set, because it needs a quiet machine.
func TestClaimCostRatio(t *testing.T) {
	if os.Getenv("IDD_TEST_COST") == "" {
		t.Skip("IDD_TEST_COST is not set")
	}
	d := newDaemon(t)
	d.idctl("tag", "create", "cost", "--step", "500000000")
	tag := d.tag(d.open(), "cost", 0)
	ctx := context.Background()
	if _, err := tag.Claim(ctx); err != nil {
		t.Fatal(err)
	}
	memory, err := syscall.Mmap(-1, 0, pageBytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED|syscall.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(memory) }()
	word := (*uint64)(unsafe.Pointer(&memory[0]))
	var uuid [16]byte
	var costs [3][]float64
	const rounds, count = 61, 200_000
	for i := 0; i < rounds; i++ {
		costs[0] = append(costs[0], perCall(count, func(n int) {
			for ; n > 0; n-- {
				atomic.AddUint64(word, 1)
			}
		}))
		costs[1] = append(costs[1], perCall(count, func(n int) {
			for ; n > 0; n-- {
				if _, err := tag.Claim(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}))
		costs[2] = append(costs[2], perCall(count/100, func(n int) {
			for ; n > 0; n-- {
				_, _ = rand.Read(uuid[:])
			}
		}))
	}
	add, claim, random := median(costs[0]), median(costs[1]), median(costs[2])
	t.Logf("atomic add %.2f ns, claim %.2f ns (%.2f times), crypto/rand 16 bytes %.0f ns (%.0f times)",
		add, claim, claim/add, random, random/add)
}

func perCall(count int, run func(n int)) float64 {
	start := time.Now()
	run(count)
	return float64(time.Since(start).Nanoseconds()) / float64(count)
}

func median(values []float64) float64 {
	sort.Float64s(values)
	return values[len(values)/2]
}
