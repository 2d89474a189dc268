// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// damagedSuffix is the end of the file name of a damaged journal after its readable lines were
// undone.
const damagedSuffix = ".damaged"

// allMade returns the events of a journal whose progress cannot be read completely. Every step
// counts as made, except those whose undo was recorded.
func allMade(events []event, steps int) []event {
	var out []event
	for i := range steps {
		out = append(out, event{verb: stepBegun, step: i})
	}
	if steps > 0 {
		out = append(out, event{verb: stepDone, step: steps - 1})
	}
	return append(out, slices.DeleteFunc(events,
		func(e event) bool { return e.verb == stepBegun || e.verb == stepDone })...)
}

// Damage describes the parts of the journal that cannot be read, "" if there are none. If there
// are some, every readable step counts as made, and a rollback restores its object.
func (j *Journal) Damage() string { return j.damage }

// Kept returns the path to which Remove renames a file with unreadable lines. It returns "" if
// the file has none.
func (j *Journal) Kept() string {
	if j.lost == 0 {
		return ""
	}
	return j.Path() + damagedSuffix
}

// Salvage returns the readable parts of journals of this boot that List cannot read: the objects
// in complete lines. Damage describes the other parts. Remove renames such a file instead of
// removing it. A journal of another version is an error, and so is one that does not show its
// network namespace.
func (s *Store) Salvage() ([]*Journal, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	var out []*Journal
	var errs []error
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, suffix) || s.gone(name) {
			continue
		}
		if _, err := s.load(name); err == nil {
			continue
		}
		j, err := s.salvage(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("journal %s: %w; undo by hand what it names, and remove it", s.path(name),
				err))
			continue
		}
		out = append(out, j)
	}
	return out, errors.Join(errs...)
}

func (s *Store) salvage(name string) (*Journal, error) {
	b, err := s.read(name)
	if err != nil {
		return nil, err
	}
	j := &Journal{store: s, name: name, size: int64(lastLine(b))}
	j.torn = j.size != int64(len(b))
	lines := strings.SplitAfter(string(b[:j.size]), "\n")

	if f := strings.Fields(lines[0]); len(f) > 1 && f[0] == magic && f[1] != strconv.Itoa(Version) {
		_, _, err := decodeFirst(lines[0])
		return nil, err
	}
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "{") })
	if at < 0 || json.Unmarshal([]byte(lines[at]), &j.head) != nil {
		if j.head, err = s.guess(name, string(b)); err != nil {
			return nil, err
		}
	}
	if j.head.Plan == nil {
		j.head.Plan = &plan.Plan{}
	}
	if body := lines[1:]; len(body) > 0 && !strings.HasPrefix(body[0], recordLine) &&
		!strings.HasPrefix(body[0], stepLine) {
		lines = body // without the first line, which is the damaged head
	}
	events, lost := j.salvageLines(lines[1:])
	j.events = allMade(events, len(j.head.Plan.Steps))
	for _, o := range j.Records() {
		if dev := device.DeviceOf(o.Object()); dev != "" && !slices.Contains(j.head.Devices, dev) {
			j.head.Devices = append(j.head.Devices, dev)
		}
	}
	j.damage = "the SHA-256 of the head does not match"
	if j.lost = lost; lost > 0 {
		j.damage = fmt.Sprintf("%d of its lines cannot be read, and the changes on them are not undone", lost)
	}
	return j, nil
}

// guess finds the path of the lanes file in a head that is no valid JSON. A path is right if the
// journal's file name was made from it.
func (s *Store) guess(name, text string) (h Head, err error) {
	find := func(key, value string) string {
		if m := regexp.MustCompile(`"` + key + `":(` + value + `)[,}]`).FindStringSubmatch(text); m != nil {
			return m[1]
		}
		return ""
	}
	h.Host = s.here
	if json.Unmarshal([]byte(find("config", `"(?:[^"\\]|\\.)*"`)), &h.Config) != nil || s.name(h.Config) != name {
		return h, errors.New("its head is damaged, and does not show that it belongs to this network namespace")
	}
	return h, nil
}

// salvageLines adds the readable records and steps to j, and returns the readable events. lost is
// the number of unreadable lines. Events of steps are left out, because the steps' numbers are no
// longer known.
func (j *Journal) salvageLines(lines []string) (events []event, lost int) {
	for _, l := range lines {
		l = strings.TrimSuffix(l, "\n")
		if l == "" || strings.HasPrefix(l, "{") {
			continue
		}
		if e, err := decodeEvent(l, math.MaxInt); err == nil {
			if e.verb == restoreNext || e.verb == restoreDone {
				events = append(events, e)
			}
			continue
		}
		one := Head{Plan: &plan.Plan{}}
		if one.readLines(l) != nil || one.check() != nil {
			lost++
			continue
		}
		j.head.Before, j.head.Plan.Steps = append(j.head.Before, one.Before...),
			append(j.head.Plan.Steps, one.Plan.Steps...)
	}
	return events, lost
}

// Tidy removes files that record nothing: leftovers of a killed write, empty files, journals
// whose objects are all restored, damaged journals of earlier boots, and replaced journals to
// which no journal can revert. If all steps of a journal were undone, but a kill prevented the
// revert, Tidy reverts it. The caller must hold the writers' lock. Tidy returns notes for the
// user.
func (s *Store) Tidy() (notes []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		journal, damaged := strings.CutSuffix(name, damagedSuffix)
		idle := strings.HasSuffix(name, suffix+temporarySuffix) || damaged && strings.HasSuffix(journal, suffix) &&
			s.gone(journal)
		if strings.HasSuffix(name, suffix) && !s.gone(name) {
			info, err := e.Info()
			if idle = err == nil && info.Mode().IsRegular() && info.Size() == 0; idle {
				notes = append(notes, fmt.Sprintf("journal %s was empty, and is removed: if something was applied "+
					"with it, that is not undone", s.path(name)))
			}
			if j, err := s.load(name); err == nil {
				if idle = len(j.Records()) == 0; j.AllUndone() && !idle {
					if err := j.Revert(); err != nil {
						return notes, err
					}
				}
			}
		}
		if current, ok := strings.CutSuffix(name, replacedSuffix); ok && strings.HasSuffix(current, suffix) {
			j, err := s.load(current)
			idle = s.gone(current) || errors.Is(err, fs.ErrNotExist) || err == nil && !s.keptHead(current, &j.head)
		}
		if !idle {
			continue
		}
		if err := ignoreAbsent(unix.Unlinkat(s.fd, name, 0)); err != nil {
			return notes, fmt.Errorf("state directory: remove %s: %w", s.path(name), err)
		}
	}
	return notes, nil
}
