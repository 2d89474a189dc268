// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/inventory"
)

// schema is the version of the files.
const schema = 2

// A disk keeps a state in two files, because its parts end at different times. The
// policy and what claims hold outlast the boot: kubelet prepares a claim once. That
// file is synced, and written when one of them changes. The pods that are in lanes
// are those of one boot. Their file changes with each pod, is in /run and is not
// synced: a kill of this process does not take it, and a crash of the machine takes the
// pods as well. Its name has the boot, so that nobody reads what a crash has left of it
// where /run is on a disk.
//
// That a kill comes between the two is no matter: a pod may be in its lane while
// its claim is being prepared or given back, in either order.
type disk struct {
	lasting, boot kept
}

// newDisk is the disk of a boot; path is that of what outlasts it, runDir has the rest.
func newDisk(path, runDir, boot string) *disk {
	return &disk{
		lasting: kept{path: path, sync: true},
		boot:    kept{path: filepath.Join(runDir, podsFile(boot))},
	}
}

func podsFile(boot string) string { return "pods." + boot + ".json" }

// A kept is one file.
type kept struct {
	path string
	sync bool
	// text is what the file has: nobody waits for what it says already.
	text []byte
}

// lastingJSON is the file of what outlasts the boot.
type lastingJSON struct {
	Schema int `json:"schema"`
	// Policy and Generation of the LanePolicy that Spec comes from.
	Policy     string                    `json:"policy,omitempty"`
	Generation int64                     `json:"generation,omitempty"`
	Spec       *v1alpha1.LanePolicySpec  `json:"spec,omitempty"`
	Holds      map[string]inventory.Hold `json:"holds,omitempty"`
}

// podsJSON is the file of the pods that are in lanes.
type podsJSON struct {
	Schema      int                        `json:"schema"`
	Attachments map[string]json.RawMessage `json:"attachments"`
}

// load reads the files; there are none on a node that had no lanes yet. After a
// reboot the pods are not where they were: kubelet makes their sandboxes anew, and
// the file of the earlier boot is removed.
func (d *disk) load() (*state, error) {
	var lasting lastingJSON
	if err := d.lasting.read(&lasting, &lasting.Schema); err != nil {
		return nil, fmt.Errorf("%w: remove it, and the policy is applied as if it were new; pods that hold claims "+
			"have to be started again", err)
	}
	s := (&state{Policy: lasting.Policy, Generation: lasting.Generation, Spec: lasting.Spec,
		Holds: lasting.Holds}).clone()
	var pods podsJSON
	err := d.boot.read(&pods, &pods.Schema)
	for _, text := range pods.Attachments {
		var a *Attachment
		if err = errors.Join(err, json.Unmarshal(text, &a)); err == nil && a != nil {
			s.put(*a)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: remove it, and pods that are in lanes now are found by their resources", err)
	}
	return s, d.tidy()
}

// read decodes the file into v, whose version is then at version.
func (k *kept) read(v any, version *int) error {
	b, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", k.path, err)
	}
	if *version != schema {
		return fmt.Errorf("%s: version %d, this niclane-agent knows %d", k.path, *version, schema)
	}
	k.text = b
	return nil
}

// tidy removes the pods' files of other boots.
func (d *disk) tidy() error {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(d.boot.path), podsFile("*")))
	for _, f := range files {
		if f != d.boot.path {
			err = errors.Join(err, os.Remove(f))
		}
	}
	return err
}

// encode gives the bytes of both files.
func (s *state) encode() (lasting, pods []byte, err error) {
	if lasting, err = json.Marshal(lastingJSON{schema, s.Policy, s.Generation, s.Spec, s.Holds}); err != nil {
		return nil, nil, err
	}
	size := 64
	for _, a := range s.Attachments {
		size += len(a.text) + 1
	}
	pods = fmt.Appendf(make([]byte, 0, size), `{"schema":%d,"attachments":{`, schema)
	for i, a := range s.Attachments {
		text := a.text
		if text == nil {
			if text, err = member(a.key, a.Attachment); err != nil {
				return nil, nil, err
			}
		}
		if i > 0 {
			pods = append(pods, ',')
		}
		pods = append(pods, text...)
	}
	return lasting, append(pods, '}', '}'), nil
}

// save writes a state. A kill leaves of each file the old one or the new one.
func (d *disk) save(s *state) error { return d.begin(s).end(true) }

// saving is a state that is being written beside the one that it is to replace.
type saving struct {
	files []*written // in the order in which they are put into place
	done  chan error
}

// written is a file that is to become of.
type written struct {
	of   *kept
	text []byte
	name string // of the file beside it, "" if there is none
}

// begin writes the state beside what it is to replace, while the caller does
// something else. end has to be called, before the next begin.
func (d *disk) begin(s *state) *saving {
	w := &saving{done: make(chan error, 1)}
	go func() {
		lasting, pods, err := s.encode()
		if err == nil {
			err = errors.Join(w.write(&d.lasting, lasting), w.write(&d.boot, pods))
		}
		w.done <- err
	}()
	return w
}

func (w *saving) write(of *kept, text []byte) error {
	if bytes.Equal(of.text, text) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(of.path), ".state-")
	if err != nil {
		return err
	}
	w.files = append(w.files, &written{of, text, f.Name()})
	if _, err = f.Write(text); err == nil && of.sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// end waits, and puts what was written into its place; or if it is not to be kept,
// takes it away.
func (w *saving) end(keep bool) error {
	err := <-w.done
	for _, f := range w.files {
		if keep && err == nil {
			if err = os.Rename(f.name, f.of.path); err == nil {
				f.of.text = f.text
				continue
			}
		}
		err = errors.Join(err, os.Remove(f.name))
	}
	return err
}
