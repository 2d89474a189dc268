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

	"github.com/niclane/niclane/internal/atomicfile"
	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// schema is the version of the files.
const schema = 2

// A disk keeps a state in two files, because its parts live for different times. The first
// has the policy and the holds, which outlast the boot: kubelet prepares a claim once. It is
// synced, and written when one of them changes. The second has the pods in lanes, which
// belong to one boot. It changes with each pod, is in /run and is not synced: it survives a
// kill of this process, and a crash of the machine ends the pods too. Its name contains the
// boot ID, so that after a crash no file of an earlier boot is read, even if /run is on a
// disk.
//
// A kill between the two writes does no harm: a pod may be in its lane while its claim is
// being prepared or released, in either order.
type disk struct {
	lasting, boot stateFile
}

// newDisk returns the disk of a boot: path is the first file, runDir the directory of the
// second.
func newDisk(path, runDir, boot string) *disk {
	return &disk{
		lasting: stateFile{path: path},
		boot:    stateFile{path: filepath.Join(runDir, podsFile(boot))},
	}
}

func podsFile(boot string) string { return "pods." + boot + ".json" }

// A stateFile is one of the two files.
type stateFile struct {
	path string
	// text is the file's present content; the same content is not written again.
	text []byte
}

// lastingJSON is the format of the file that outlasts the boot.
type lastingJSON struct {
	Schema int `json:"schema"`
	// Policy and Generation identify the LanePolicy that Spec comes from.
	Policy     string                    `json:"policy,omitempty"`
	Generation int64                     `json:"generation,omitempty"`
	Spec       *v1alpha1.LanePolicySpec  `json:"spec,omitempty"`
	Holds      map[string]inventory.Hold `json:"holds,omitempty"`
}

// podsJSON is the format of the file of pods in lanes.
type podsJSON struct {
	Schema      int                    `json:"schema"`
	Attachments map[string]*Attachment `json:"attachments"`
}

// load reads the files. A node that had no lanes yet has none. It removes the pods' file of
// an earlier boot: kubelet creates the sandboxes again after a reboot.
func (d *disk) load() (*state, error) {
	var lasting lastingJSON
	if err := d.lasting.read(&lasting, &lasting.Schema); err != nil {
		return nil, fmt.Errorf("%w: remove this file, and niclane-agent applies the policy as if it were new; "+
			"restart pods that hold claims", err)
	}
	s := (&state{Policy: lasting.Policy, Generation: lasting.Generation, Spec: lasting.Spec,
		Holds: lasting.Holds}).clone()
	var pods podsJSON
	if err := d.boot.read(&pods, &pods.Schema); err != nil {
		return nil, fmt.Errorf("%w: remove this file, and niclane-agent finds the pods in lanes by their resources", err)
	}
	for _, a := range pods.Attachments {
		if a != nil {
			s.put(*a)
		}
	}
	return s, d.tidy()
}

// read decodes the file into v, and checks the version, which v has at version.
func (k *stateFile) read(v any, version *int) error {
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

// save writes those files whose content has changed.
func (d *disk) save(s *state) error {
	pods := podsJSON{schema, make(map[string]*Attachment, len(s.Attachments))}
	for _, a := range s.Attachments {
		pods.Attachments[a.key()] = a
	}
	return errors.Join(
		d.lasting.write(lastingJSON{schema, s.Policy, s.Generation, s.Spec, s.Holds}), d.boot.write(pods))
}

// write writes v to the file, unless the file has it already.
func (k *stateFile) write(v any) error {
	text, err := json.Marshal(v)
	if err != nil || bytes.Equal(k.text, text) {
		return err
	}
	if err := atomicfile.Write(k.path, text, 0o600); err != nil {
		return err
	}
	k.text = text
	return nil
}
