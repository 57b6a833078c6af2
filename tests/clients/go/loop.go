// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"idd.invalid/idclient"
)

// loop claims one by one in several goroutines and writes the ids to a file.
func loop(t *openTag, words []string) error {
	count, err := strconv.ParseUint(words[0], 10, 32)
	if err != nil {
		return errUsage
	}
	threads, err := strconv.ParseUint(words[1], 10, 10)
	if err != nil {
		return errUsage
	}
	ids := make([][]uint64, threads)
	errs := make([]error, threads)
	var group sync.WaitGroup
	for i := range ids {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			ids[i] = make([]uint64, 0, count)
			for uint64(len(ids[i])) < count && errs[i] == nil {
				var id uint64
				if id, errs[i] = claimAgain(t); errs[i] == nil {
					ids[i] = append(ids[i], id)
				}
			}
		}(i)
	}
	group.Wait()
	if err := write(words[2], ids); err != nil {
		return err
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func write(path string, ids [][]uint64) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	for i, some := range ids {
		for _, id := range some {
			fmt.Fprintln(out, i, id)
		}
	}
	if err := out.Flush(); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// childArgument makes the driver the child of another one: it claims and prints the ids.
const childArgument = "--child" // SOCKET TIMEOUT_MS NAME COUNT

// fork starts another process of the driver, because a Go program cannot fork.
func (d *driver) fork(t *openTag, word string) (string, error) {
	count, err := strconv.ParseUint(word, 10, 24)
	if err != nil {
		return "", errUsage
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	child := exec.Command(self, childArgument, d.socket, d.timeoutMs, t.name, word)
	child.Stderr = os.Stderr
	var printed strings.Builder
	child.Stdout = &printed
	if err := child.Start(); err != nil {
		return "", err
	}
	ids := make([]uint64, count)
	for i := range ids {
		if ids[i], err = claimAgain(t); err != nil {
			break
		}
	}
	if waitErr := child.Wait(); err == nil && waitErr != nil {
		err = &idclient.Error{Status: idclient.StatusSystem,
			Message: "the child: " + waitErr.Error() + " " + strings.TrimSpace(printed.String())}
	}
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(joined(ids) + " " + strings.TrimSpace(printed.String())), nil
}

func (d *driver) runChild(words []string) {
	fail := func(err error) {
		fmt.Println(err)
		os.Exit(1)
	}
	count, err := strconv.ParseUint(words[3], 10, 24)
	if err != nil {
		fail(err)
	}
	if err := d.open(words[0], words[1]); err != nil {
		fail(err)
	}
	defer d.close()
	if err := d.openTag("t", words[2:3]); err != nil {
		fail(err)
	}
	ids := make([]uint64, count)
	for i := range ids {
		if ids[i], err = claimAgain(d.tags["t"]); err != nil {
			fail(err)
		}
	}
	fmt.Println(joined(ids))
}
