// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A record has the values before the settings, in the order of the changes. Its file has one line
// of JSON for each, written before the change. It needs no fsync: only a crash of the kernel loses
// lines, and that also resets the settings.
type record struct {
	file  *os.File // nil: only in memory
	items []item
}

// openRecord opens the record at path, which is created if it does not exist. The process that has
// it open is the only one.
func openRecord(path string) (*record, error) {
	if path == "" {
		return &record{}, nil
	}
	return lockRecord(path, os.O_CREATE)
}

// openExisting opens a record that a process has left; nil: there is none.
func openExisting(path string) (*record, error) {
	r, err := lockRecord(path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return r, err
}

func lockRecord(path string, flags int) (*record, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	r := &record{file: f}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w: another process tunes this host", path, err), f.Close())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the process was killed while it wrote this line, before the change
		}
		var i item
		if err := json.Unmarshal(line, &i); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
		}
		r.items = append(r.items, i)
	}
	return r, nil
}

// push adds a setting with its value before the change.
func (r *record) push(i item) error {
	r.items = append(r.items, i)
	if r.file == nil {
		return nil
	}
	b, err := json.Marshal(i)
	if err != nil {
		return err
	}
	_, err = r.file.Write(append(b, '\n'))
	return err
}

// undo restores all values, the last change first. What it cannot restore stays in the record.
func (r *record) undo(h *host) error {
	var errs []error
	var left []item
	var reset []string
	for _, i := range slices.Backward(r.items) {
		if err := h.restore(i); err != nil {
			errs, left = append(errs, err), append(left, i)
		}
		if i.resets() {
			reset = append(reset, i.device())
		}
	}
	h.awaitCarrier(reset)
	r.items = nil
	if r.file != nil {
		errs = append(errs, r.file.Truncate(0))
	}
	slices.Reverse(left)
	for _, i := range left {
		errs = append(errs, r.push(i))
	}
	return errors.Join(errs...)
}

// restore gives a setting the value of i. A device that has gone has taken its settings with it.
func (h *host) restore(i item) error {
	now, err := h.read(i)
	if errors.Is(err, errLacks) && i.device() != "" {
		if _, err := os.Stat(h.path("/sys/class/net/" + i.device())); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err != nil || i.same(now) {
		return err
	}
	return h.write(now, i)
}

// close removes the record's file if all is restored.
func (r *record) close() error {
	if r.file == nil {
		return nil
	}
	var err error
	if len(r.items) == 0 {
		err = os.Remove(r.file.Name())
	}
	return errors.Join(err, r.file.Close())
}
