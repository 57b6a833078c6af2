// SPDX-License-Identifier: Apache-2.0

package idclient

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemon is a real idd with a store and a state directory of its own, for one test.
type daemon struct {
	t       testing.TB
	folder  string
	socket  string
	process *exec.Cmd
}

// newDaemon starts a daemon, or skips the test if $IDD_TEST_IDD or $IDD_TEST_IDCTL is not set.
func newDaemon(t testing.TB) *daemon {
	t.Helper()
	if os.Getenv("IDD_TEST_IDD") == "" || os.Getenv("IDD_TEST_IDCTL") == "" {
		t.Skip("IDD_TEST_IDD and IDD_TEST_IDCTL do not name the binaries")
	}
	folder, err := os.MkdirTemp("", "idd-go-") // t.TempDir() can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, folder: folder, socket: filepath.Join(folder, "idd.sock")}
	t.Cleanup(func() {
		d.stop(syscall.SIGTERM)
		os.RemoveAll(folder)
	})
	d.start()
	return d
}

func (d *daemon) start() {
	d.launch()
	deadline := time.Now().Add(20 * time.Second)
	for {
		if err := d.try("status"); err == nil {
			return
		} else if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(d.folder, "log"))
			d.t.Fatalf("idd did not start: %v\n%s", err, log)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// launch starts the daemon and does not wait until it is ready.
func (d *daemon) launch() {
	log, err := os.OpenFile(filepath.Join(d.folder, "log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err) // launch runs in goroutines of tests
	}
	defer log.Close()
	d.process = exec.Command(os.Getenv("IDD_TEST_IDD"),
		"--database", "sqlite:"+filepath.Join(d.folder, "idd.db"),
		"--socket", d.socket, "--state-dir", filepath.Join(d.folder, "state"),
		"--config", filepath.Join(d.folder, "idd.toml"))
	d.process.Stdout, d.process.Stderr = log, log
	_ = os.WriteFile(filepath.Join(d.folder, "idd.toml"), nil, 0o600)
	if err := d.process.Start(); err != nil {
		panic(err)
	}
}

func (d *daemon) stop(signal syscall.Signal) {
	if d.process == nil {
		return
	}
	_ = d.process.Process.Signal(signal)
	_ = d.process.Wait()
	d.process = nil
}

func (d *daemon) restart(signal syscall.Signal) {
	d.stop(signal)
	d.start()
}

func (d *daemon) try(arguments ...string) error {
	arguments = append([]string{"--socket", d.socket}, arguments...)
	out, err := exec.Command(os.Getenv("IDD_TEST_IDCTL"), arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("idctl %s: %w: %s", strings.Join(arguments, " "), err, out)
	}
	return nil
}

func (d *daemon) idctl(arguments ...string) {
	d.t.Helper()
	if err := d.try(arguments...); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) open(options ...Option) *Client {
	d.t.Helper()
	options = append([]Option{WithSocket(d.socket), WithTimeout(5 * time.Second)}, options...)
	client, err := Open(options...)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(client.Close)
	return client
}

func (d *daemon) tag(client *Client, name string, block int) *Tag {
	d.t.Helper()
	tag, err := client.TagWithBlock(name, block)
	if err != nil {
		d.t.Fatal(err)
	}
	return tag
}
