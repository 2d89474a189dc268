// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/privatedir"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// DefaultDir is the default directory of journals.
const DefaultDir = "/var/lib/niclane"

const suffix = ".journal"

// A Store is a directory of journals, used from one host (boot and network namespace).
type Store struct {
	dir  string
	fd   int // descriptor of dir; files are opened relative to it
	here Host
	// memory has the journals that were read: it is own, or the Memory given to Use.
	memory *Memory
	own    Memory
}

// Open opens the directory dir. It creates it (mode 0700) if it does not exist. It returns an
// error if dir is a symbolic link, belongs to another user, or if others can enter it.
func Open(dir string, here Host) (*Store, error) {
	if err := privatedir.Make(dir); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return OpenExisting(dir, here)
}

// OpenExisting is like Open, but creates nothing. The error fs.ErrNotExist means that nothing was
// ever applied.
func OpenExisting(dir string, here Host) (*Store, error) {
	fd, err := privatedir.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	s := &Store{dir: dir, fd: fd, here: here}
	s.memory = &s.own
	return s, nil
}

// Close closes the directory. Journals of s cannot be used after that.
func (s *Store) Close() error {
	for name := range s.own.files {
		s.own.drop(name)
	}
	return unix.Close(s.fd)
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// name returns the file name of the journal for a lanes file, in the namespace and boot of s. It
// is readable, unique, and has no path separator.
func (s *Store) name(config string) string {
	base := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.TrimSuffix(filepath.Base(config), filepath.Ext(config)))
	if len(base) > 64 {
		base = base[:64]
	}
	netns := s.here.NetnsCookie
	if netns == 0 {
		netns = s.here.NetnsInode
	}
	sum := sha256.Sum256([]byte(config + "\x00" + strconv.FormatUint(netns, 10)))
	return base + "-" + hex.EncodeToString(sum[:8]) + "." + bootName(s.here) + suffix
}

// bootName returns the boot ID, a UUID, without hyphens: a part of file names.
func bootName(h Host) string { return strings.ReplaceAll(h.BootID, "-", "") }

// ofConfig returns the part of a file name that is the same in every boot.
func ofConfig(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}

// gone reports whether a file name belongs to an earlier boot. Then nothing that the file
// describes exists any more.
func (s *Store) gone(name string) bool {
	_, boot, ok := strings.Cut(strings.TrimSuffix(name, suffix), ".")
	return ok && boot != bootName(s.here)
}

// List returns the journals of every boot and namespace, by file name. If it cannot read a
// journal of this boot, it returns an error that names it, and also all others. It skips
// unreadable journals of earlier boots: a crash may have cut them short.
func (s *Store) List() ([]*Journal, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	s.memory.forget(entries)
	var out []*Journal
	var errs []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		j, err := s.load(e.Name())
		if err != nil {
			if !s.gone(e.Name()) && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		out = append(out, j)
	}
	return out, errors.Join(errs...)
}

// Here returns the journals of this boot and network namespace.
func (s *Store) Here() ([]*Journal, error) {
	all, err := s.List()
	return slices.DeleteFunc(all, func(j *Journal) bool { return !j.head.SameNetns(s.here) }), err
}

// Owned returns the objects that niclane owns on any of the devices, in this boot and network
// namespace, in the order of the first write.
func (s *Store) Owned(devices []string) (plan.Owned, error) {
	var o plan.Owned
	here, err := s.Here()
	if err != nil {
		return o, err
	}
	for _, j := range here {
		if !overlap(j.head.Devices, devices) {
			continue
		}
		o = j.AppendOwned(o)
	}
	return o, nil
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(x string) bool { return slices.Contains(b, x) })
}

// Conflict returns an error if another lanes file owns one of the devices, in this boot and
// network namespace. It compares the devices' names at the time of that apply, and the identities
// in links.
func (s *Store) Conflict(config string, devices []string, links []device.Link) error {
	here, err := s.Here()
	if err != nil {
		return err
	}
	for _, j := range here {
		if j.head.Config == config {
			continue
		}
		for _, was := range j.head.Ground.Links {
			for _, l := range links {
				if l.Name != was.Name && l.Same(was) && len(j.Records()) > 0 {
					return fmt.Errorf("%s: this is the device that %s was applied to as %s; one file describes a "+
						"device: roll that one back first",
						l.Name, j.head.Config, was.Name)
				}
			}
		}
		for _, d := range devices {
			if slices.Contains(j.head.Devices, d) && len(j.Records()) > 0 {
				return fmt.Errorf("%s: %s was applied from %s, not from %s; one file describes a device: roll that "+
					"one back first, or join the two",
					d, j.describe(), j.head.Config, config)
			}
		}
	}
	return nil
}

func (j *Journal) describe() string { return strings.Join(j.head.Devices, ", ") }

// links returns the identities of the devices that have this name in the head.
func (h *Head) links(name string) []device.Link {
	return slices.DeleteFunc(slices.Clone(h.Ground.Links), func(l device.Link) bool { return l.Name != name })
}

// Begin writes the journal for h, before h.Plan is applied. If there is a journal of the same
// lanes file, Begin extends it: its records become h.Before, without those that the plan forgets,
// and Generation increases. A journal of an earlier boot is removed, because nothing that it
// describes exists any more.
func (s *Store) Begin(h Head) (*Journal, error) {
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := s.Conflict(h.Config, h.Plan.Devices, h.Plan.Ground.Links); err != nil {
		return nil, err
	}
	h.Host, h.Before, h.Generation = s.here, nil, 1
	h.Devices, h.Ground = slices.Clone(h.Plan.Devices), h.Plan.Ground
	name := s.name(h.Config)
	switch old, err := s.load(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case old.head.SameNetns(s.here):
		h.extend(old)
	}
	j, err := s.write(name, h)
	if err == nil {
		s.replaced(name)
	}
	return j, err
}

// replaced removes the lanes file's journals of earlier boots. It ignores errors: such a file
// does no harm.
func (s *Store) replaced(by string) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if n := e.Name(); strings.HasSuffix(n, suffix) && ofConfig(n) == ofConfig(by) && s.gone(n) {
			_ = unix.Unlinkat(s.fd, n, 0)
		}
	}
}

// extend makes h the generation after old.
func (h *Head) extend(old *Journal) {
	forget := make(map[string]bool, len(h.Plan.Forget))
	for _, key := range h.Plan.Forget {
		forget[key] = true
	}
	records := old.Records()
	h.Before = make([]Record, 0, len(records))
	for _, r := range records {
		if !forget[r.Key()] {
			h.Before = append(h.Before, r)
		}
	}
	if len(h.Before) == 0 {
		return
	}
	h.Generation = old.head.Generation + 1
	for _, d := range old.head.Devices {
		if slices.Contains(h.Plan.Gone, d) {
			continue
		}
		if len(h.links(d)) == 0 { // a plan that was made from a journal has no links
			h.Ground.Links = append(slices.Clip(h.Ground.Links), old.head.links(d)...)
		}
		if !slices.Contains(h.Devices, d) {
			h.Devices = append(h.Devices, d)
		}
	}
	groups := maps.Clone(old.head.Ground.Groups)
	if groups == nil {
		groups = h.Ground.Groups
	}
	maps.Copy(groups, h.Ground.Groups)
	h.Ground.Groups = groups
	slices.Sort(h.Devices)
	h.Devices = slices.Compact(h.Devices)
}
