// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lab/emucard"
)

// The lab's own directories. The lab removes them when they are empty.
const (
	runDir    = "/run/niclane"
	recordDir = "/run/niclane/lab"
	netnsDir  = "/run/netns"
)

// A record lists the objects that a lab may have made. It is written before the first object is
// made.
type record struct {
	Config Config `json:"config"`
	// Ready is true if everything has been made.
	Ready bool `json:"ready"`
	// MadeNetnsDir is true if the lab made /run/netns.
	MadeNetnsDir bool  `json:"madeNetnsDir"`
	Cgroup       group `json:"cgroup"`
}

func recordPath(name string) string { return filepath.Join(recordDir, name+".json") }

// free returns an error if another program has made an object with a name that the lab needs: Down
// would remove it. If the lab has a record already, free returns nil, and create returns the error.
func (r record) free() error {
	if _, err := os.Stat(recordPath(r.Config.Name)); err == nil {
		return nil
	}
	paths := []string{emucard.Dir(r.Config.MAC(SUT))}
	for _, host := range append(HostNames(), Switch) {
		paths = append(paths, netnsPath(r.Config.Netns(host)))
	}
	if r.Cgroup.Dir != "" {
		paths = append(paths, r.Cgroup.Dir)
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("lab %s: %s: %w, and no lab has recorded it: remove it, or choose another name",
				r.Config.Name, path, cmp.Or(err, fs.ErrExist))
		}
	}
	return nil
}

// create writes the record of a new lab. If a lab with that name has a record, it returns an error.
func (r record) create() error {
	tmp, err := r.place()
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	// If the name exists, link(2) fails, whereas rename would replace the file. So if two labs of one
	// name start at the same time, only one gets the name.
	err = os.Link(tmp, recordPath(r.Config.Name))
	if errors.Is(err, fs.ErrExist) {
		have, readErr := readRecord(r.Config.Name)
		switch {
		case readErr != nil:
			return fmt.Errorf("lab %s is up already (%s: %w)", r.Config.Name, recordPath(r.Config.Name), readErr)
		case !have.Ready:
			return fmt.Errorf("lab %s: a start was cut short or is under way: %w: take it down first", r.Config.Name,
				unix.EEXIST)
		}
		return fmt.Errorf("lab %s is up already: %w: take it down first", r.Config.Name, unix.EEXIST)
	}
	return err
}

// place writes r to a new file in the directory of records. A lab that ends removes this directory
// if it is empty; place then makes it again.
func (r record) place() (string, error) {
	for try := 1; ; try++ {
		if err := os.MkdirAll(recordDir, 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		tmp, err := r.write()
		if errors.Is(err, fs.ErrNotExist) && try < 10 {
			continue
		}
		return tmp, err
	}
}

// replace writes the record again, for a lab that has one.
func (r record) replace() error {
	tmp, err := r.write()
	if err != nil {
		return err
	}
	return os.Rename(tmp, recordPath(r.Config.Name))
}

func (r record) write() (string, error) {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(recordDir, "."+r.Config.Name+"-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(append(b, '\n'))
	return f.Name(), errors.Join(err, f.Close())
}

func readRecord(name string) (record, error) {
	var r record
	b, err := os.ReadFile(recordPath(name))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(b, &r)
}

// remove removes the record, and its directories if they are empty then.
func (r record) remove() error {
	leftover, _ := filepath.Glob(filepath.Join(recordDir, "."+r.Config.Name+"-*"))
	for _, path := range append(leftover, recordPath(r.Config.Name)) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	dirs := []string{recordDir, runDir}
	if r.MadeNetnsDir {
		dirs = append(dirs, netnsDir)
	}
	for _, dir := range dirs {
		// rmdir(2) removes only empty directories.
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) &&
			!errors.Is(err, unix.EBUSY) {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
	}
	return nil
}

// Names returns the names of all labs that have a record, sorted. These are labs that are up, and
// labs whose Up or Down was interrupted.
func Names() ([]string, error) {
	entries, err := os.ReadDir(recordDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}
