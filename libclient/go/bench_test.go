// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"
)

// The step is far above the ids of a benchmark, so that no refill is measured.
func benchmarkTag(b *testing.B, block int, create ...string) *Tag {
	d := newDaemon(b)
	d.idctl(append([]string{"tag", "create", "bench"}, create...)...)
	tag := d.tag(d.open(), "bench", block)
	if _, err := tag.Claim(context.Background()); err != nil {
		b.Fatal(err)
	}
	return tag
}

// sharedWord is a word in memory that processes may share, like a cursor.
func sharedWord(b *testing.B) *uint64 {
	memory, err := syscall.Mmap(-1, 0, pageBytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED|syscall.MAP_ANONYMOUS)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = syscall.Munmap(memory) })
	return (*uint64)(unsafe.Pointer(&memory[0]))
}

func claimN(b *testing.B, tag *Tag) {
	ctx := context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if _, err := tag.Claim(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAtomicAdd(b *testing.B) {
	word := sharedWord(b)
	for i := 0; i < b.N; i++ {
		atomic.AddUint64(word, 1)
	}
}

func BenchmarkClaim(b *testing.B) { claimN(b, benchmarkTag(b, 0, "--step", "500000000")) }

func BenchmarkClaimBlock256(b *testing.B) {
	claimN(b, benchmarkTag(b, 256, "--step", "500000000"))
}

func BenchmarkClaimSnowflake(b *testing.B) {
	claimN(b, benchmarkTag(b, 0, "--mode", "snowflake", "--unit", "10ms", "--layout", "38/4/21"))
}

func BenchmarkCryptoRand16(b *testing.B) {
	var uuid [16]byte
	for i := 0; i < b.N; i++ {
		if _, err := rand.Read(uuid[:]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAtomicAddParallel(b *testing.B) {
	word := sharedWord(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			atomic.AddUint64(word, 1)
		}
	})
}

func BenchmarkClaimParallel(b *testing.B) {
	tag := benchmarkTag(b, 0, "--step", "500000000")
	ctx := context.Background()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := tag.Claim(ctx); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
